"""An fp32 ONNX graph rewritten to compute in 16 bits, with fp32 islands where 16 bits lose too much.

Softmax, layer normalisation and pooling sum many terms: they stay in fp32, the rest becomes 16 bits. No node mixes
types, so TensorRT 11, which takes types as they are, can build the result.

onnxruntime's own converter is not used: it has no bf16, rounds to 16 bits between the nodes of an island (cosine 0.9995
where this one reaches 0.999999), and leaves nodes out of order, which `onnx.checker` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from workbook.errors import ModelError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

ISLAND_OPERATORS = frozenset({"Softmax", "LayerNormalization"})
SOURCES = frozenset({"Constant", "ConstantOfShape"})  # they make fp32 values; whoever wants 16 bits casts them
LARGEST = {10: 65504.0, 16: 2.0**127 * (2 - 2.0**-7)}
"""Largest finite number of FLOAT16 and BFLOAT16, by their `onnx.TensorProto` number."""
HIDDEN_OUTPUT = "last_hidden_state"


def to_half(model: ModelProto, elem_type: int) -> ModelProto:
    """The model with weights and compute in fp16 or bf16; inputs and outputs keep their names and types.

    Args:
        model: fp32, every tensor with a type (the exporter writes them), without control flow.
        elem_type: `onnx.TensorProto.FLOAT16` or `BFLOAT16`.

    Returns:
        A new model, nodes in topological order, its types checked by `onnx.checker`.

    Raises:
        ModelError: a tensor has no type, or the graph has control flow.
    """
    import onnx

    converted = onnx.ModelProto()
    converted.CopyFrom(model)
    _refuse_unknown(converted.graph)
    _Rewriter(converted.graph, elem_type).rewrite()
    return converted


class _Rewriter:
    """One pass over the nodes in order, which knows of each float tensor in which type it is there."""

    def __init__(self, graph: GraphProto, elem_type: int) -> None:
        from onnx import TensorProto

        self.graph, self.half, self.full = graph, elem_type, TensorProto.FLOAT
        typed = [*graph.input, *graph.output, *graph.value_info]
        self.types: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in typed}
        self.weights = {weight.name: weight for weight in graph.initializer}
        self.types.update({name: weight.data_type for name, weight in self.weights.items()})
        self.same: dict[str, str] = {}  # a tensor -> the same in the other type
        self.islands = _islands(graph)
        self.nodes: list[NodeProto] = []

    def rewrite(self) -> None:
        for node in list(self.graph.node):
            self._add(node)
        used = {name for node in self.nodes for name in node.input} | {value.name for value in self.graph.output}
        weights = [weight for name, weight in self.weights.items() if name in used]
        for field, items in (("node", self.nodes), ("initializer", weights)):
            del getattr(self.graph, field)[:]
            getattr(self.graph, field).extend(items)
        del self.graph.value_info[:]  # they told the old types; readers infer the new ones

    def _add(self, node: NodeProto) -> None:
        island = node.name in self.islands
        wanted, other = (self.full, self.half) if island else (self.half, self.full)
        for place, name in enumerate(node.input):
            if self.types.get(name) == other:
                node.input[place] = self._as(name, wanted)
        self.nodes.append(node)
        if not island:
            self._make_half(node)

    def _make_half(self, node: NodeProto) -> None:
        """A node outside the islands writes 16 bits; a graph output gets a cast behind it that restores fp32."""
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == self.full:
                attribute.i = self.half
        outputs = {value.name for value in self.graph.output}
        for place, name in enumerate(node.output):
            if self.types.get(name) != self.full:
                continue
            if name in outputs:
                node.output[place] = f"{name}_half"
                self.types[node.output[place]] = self.half
                self._cast(node.output[place], name, self.full)
                self.same[name] = node.output[place]
            else:
                self.types[name] = self.half

    def _as(self, name: str, elem_type: int) -> str:
        """Name of the tensor in the wanted type; it is cast once, a weight when the model is written."""
        if name not in self.same:
            twin = f"{name}_{'fp32' if elem_type == self.full else 'half'}"
            if name in self.weights:
                self.weights[twin] = _narrow(self.weights[name], twin, elem_type)
            else:
                self._cast(name, twin, elem_type)
            self.same[name], self.types[twin] = twin, elem_type
        return self.same[name]

    def _cast(self, source: str, target: str, elem_type: int) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node("Cast", [source], [target], name=f"cast_{target}", to=elem_type))
        self.same[source] = target


def _narrow(weight: TensorProto, name: str, elem_type: int) -> TensorProto:
    """The weight in 16 bits; what is beyond the type's range becomes its largest number, not infinity."""
    from onnx import helper, numpy_helper

    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    largest = LARGEST[elem_type]
    values = np.clip(numpy_helper.to_array(weight), -largest, largest).astype(dtype)
    return numpy_helper.from_array(values, name)


def _islands(graph: GraphProto) -> set[str]:
    """Names of the nodes that stay in fp32: islands by their operator, and all that stands behind the hidden state."""
    return {
        node.name
        for node, before_pooling in _in_order(graph)
        if not before_pooling or node.op_type in ISLAND_OPERATORS | SOURCES
    }


def _in_order(graph: GraphProto) -> Iterator[tuple[NodeProto, bool]]:
    """Nodes from the last to the first, each with whether the hidden state depends on it."""
    needed = {HIDDEN_OUTPUT}
    for node in reversed(graph.node):
        leads_there = not needed.isdisjoint(node.output)
        if leads_there:
            needed.update(node.input)
        yield node, leads_there


def _refuse_unknown(graph: GraphProto) -> None:
    typed = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
    for node in graph.node:
        untyped: list[Any] = [name for name in node.output if name and name not in typed]
        if untyped or not node.name:
            raise ModelError(f"node {node.name!r} ({node.op_type}) has no name or no type for {untyped}: export again")
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise ModelError(f"node {node.name!r} ({node.op_type}) holds a graph of its own, which is not converted")
