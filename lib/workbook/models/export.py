"""Encoders as ONNX files, written once and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.artifacts import build_once, file_sha256
from workbook.errors import ModelError
from workbook.models.e5 import Encoder, mean_pool
from workbook.models.quiet import quiet_libraries

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

OPSET = 18  # what torch writes without a conversion; older runtimes read it too, and none was faster on opset 20
RECIPE = 2  # raise it when the exported graph changes for a reason that no other part of the key shows
INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("last_hidden_state", "cls_embedding", "sentence_embedding")
MODEL_FILE = "model.onnx"
MANIFEST_FILE = "export.json"
# A protobuf holds less than 2 GiB; above this the weights go into a file beside the graph. The margin is for the graph.
EXTERNAL_DATA_FROM_BYTES = 1_900_000_000


@dataclass(frozen=True)
class ExportedModel:
    """An ONNX file and what it was made from.

    Attributes:
        path: the `model.onnx`.
        sha256: of the model file; of both files' digests where the weights lie in a second one.
        hidden_size: width of the outputs.
        layers: encoder layers in it.
        max_length: most tokens a row may have.
        source: the model setting it came from.
        bytes: size of all its files together.
    """

    path: Path
    sha256: str
    hidden_size: int
    layers: int
    max_length: int
    source: str
    bytes: int

    def describe(self) -> pd.DataFrame:
        """What was exported, one row a property: `property`, `value`."""
        import pandas as pd

        properties = {
            "file": self.path.name,
            "size, MB": f"{self.bytes / 1e6:,.1f}",
            "SHA-256": self.sha256[:16],
            "inputs": ", ".join(INPUTS),
            "outputs": ", ".join(OUTPUTS),
        }
        return pd.DataFrame(list(properties.items()), columns=["property", "value"])

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the model: they must lie in one folder under these names, copied or hard linked."""
        return _model_files(self.path.parent)


def export_onnx(encoder: Encoder) -> ExportedModel:
    """Export to ONNX with free batch and sequence, once; later calls return what is there.

    Inputs `input_ids` and `attention_mask`, int64 `batch sequence`. Outputs, float32: `last_hidden_state`
    `batch sequence hidden`; `cls_embedding` `batch hidden`, the first token's hidden state as it is;
    `sentence_embedding` `batch hidden`, the masked mean with L2 norm.

    Raises:
        ModelError: the exporter failed, or the kept file has lost its size.
    """
    import onnxscript
    import torch
    import transformers

    external = _weight_bytes(encoder.module) >= EXTERNAL_DATA_FROM_BYTES
    key = {
        "fingerprint": encoder.fingerprint,
        "layers": encoder.layers,
        "opset": OPSET,
        "outputs": OUTPUTS,
        "external_data": external,
        "recipe": RECIPE,
        "torch": torch.__version__,
        "onnxscript": onnxscript.__version__,
        "transformers": transformers.__version__,
    }
    folder = build_once("onnx", key, lambda unfinished: _write(encoder, unfinished, external))
    return _read_manifest(encoder, folder)


def _read_manifest(encoder: Encoder, folder: Path) -> ExportedModel:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
    except (OSError, ValueError):
        raise ModelError(f"{folder} has lost its {MANIFEST_FILE}: delete the folder, run again") from None
    size = sum(path.stat().st_size for path in _model_files(folder))
    if size != manifest["bytes"]:
        raise ModelError(
            f"{folder} holds {size} bytes of model, {manifest['bytes']} were written: delete it, run again"
        )
    return ExportedModel(
        path=folder / MODEL_FILE,
        sha256=manifest["sha256"],
        hidden_size=encoder.hidden_size,
        layers=encoder.layers,
        max_length=encoder.max_length,
        source=encoder.source,
        bytes=size,
    )


def _model_files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob(f"{MODEL_FILE}*")))


def _write(encoder: Encoder, folder: Path, external: bool) -> None:
    """Export into an empty folder and note digest and size beside the file."""
    import torch

    # Unequal sizes of 2 and more: the exporter takes 0 and 1 for constants, and equal sizes for the same dimension.
    ids, mask = torch.ones((2, 7), dtype=torch.int64), torch.ones((2, 7), dtype=torch.int64)
    mask[1, 4:] = 0
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with quiet_libraries():
            program: Any = torch.onnx.export(
                with_pooling(encoder.module),
                (ids, mask),
                input_names=INPUTS,
                output_names=OUTPUTS,
                dynamic_shapes=(axes, axes),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            _strip_traces(program)
            program.save(folder / MODEL_FILE, external_data=external)
    except Exception as error:  # the exporter's errors have many types and one meaning
        raise ModelError(f"cannot export {encoder.source} to ONNX: {type(error).__name__}: {error}") from error
    files = _model_files(folder)
    manifest = {"sha256": _sha256(files), "bytes": sum(path.stat().st_size for path in files)}
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest) + "\n")


def _strip_traces(program: Any) -> None:
    """Drop the stack traces on every node: they hold paths of this machine, and the file's digest would follow them."""
    graph = program.model.graph
    for node in graph.all_nodes():
        for part in (node, *node.outputs):
            part.metadata_props.clear()
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()


def _sha256(files: Sequence[Path]) -> str:
    """Digest of the one file, or of the files' digests in order where there are several."""
    digests = [file_sha256(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def with_pooling(module: nn.Module) -> nn.Module:
    """The encoder with the three outputs of the exported graph."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = module

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return hidden, hidden[:, 0], mean_pool(hidden, attention_mask)

    return Pooled().eval()


def _weight_bytes(module: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in module.parameters())
