"""What one arm of the comparison does, field by field, so that two arms can differ in exactly one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from workbook.errors import SettingError

Side = Literal["batch", "online"]
ServedEngine = Literal["torch", "onnxruntime", "openvino"]
Clock = Literal["launched", "in memory"]
Cut = Literal["file", "length", "tokens"]
Way = Literal["in-process", "grpc", "shared memory"]

HIDDEN, CLS, SENTENCE = "last_hidden_state", "cls_embedding", "sentence_embedding"
ENGINE_NAMES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@dataclass(frozen=True)
class Protocol:
    """One arm. Making one touches nothing.

    Attributes:
        side: `batch`, a loop in this process, or `online`, requests to Triton.
        engine: what computes.
        clock: where a batch job's clock stops: `launched`, when the forward pass returns to Python (on a GPU its work
            is only queued by then), or `in memory`, when the embeddings are in this process's memory. A request
            always ends in memory.
        precision: `fp32`, or `bf16` for PyTorch's autocast.
        pooling: `cls`, the first token and no prefix, or `mean`, the masked mean with L2 norm over the prefixed text.
        pad_to: length every row gets, tokens; 0: the longest row of its batch.
        cut: how rows are cut into batches: in `file` order, sorted by `length`, or sorted and cut by `tokens`.
        outputs: what a request asks for; of a batch job the one it makes.
        as_list: whether a batch job turns embeddings into Python lists, as the article does.
        way: how tokens reach the model and embeddings come back.
        in_flight: requests kept in flight.
        streams: copies of the model that compute side by side, each with its share of the threads.
        single_rows: a request carries one row, and the server puts them together.
    """

    side: Side
    engine: ServedEngine
    clock: Clock = "in memory"
    precision: Literal["fp32", "bf16"] = "fp32"
    pooling: Literal["cls", "mean"] = "mean"
    pad_to: int = 0
    cut: Cut = "file"
    outputs: tuple[str, ...] = (SENTENCE,)
    as_list: bool = False
    way: Way = "grpc"
    in_flight: int = 1
    streams: int = 1
    single_rows: bool = False

    def __post_init__(self) -> None:
        """Refuse what no arm can be, naming the value and the bound."""
        choices = {"side": Side, "engine": ServedEngine, "clock": Clock, "cut": Cut, "way": Way}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise SettingError(f"{name} is {getattr(self, name)!r}: it must be one of {', '.join(get_args(kind))}.")
        for name, least in {"pad_to": 0, "in_flight": 1, "streams": 1}.items():
            if getattr(self, name) < least:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least {least}.")
        if (self.way == "in-process") != (self.side == "batch"):
            raise SettingError(
                f"way is {self.way!r} on side {self.side!r}: a batch job is in-process, a request is not."
            )
        if self.side == "batch" and (self.in_flight > 1 or self.single_rows):
            raise SettingError("a batch job has no requests in flight: set streams to compute side by side.")

    @property
    def key(self) -> str:
        """Name of its records file: letters, digits and dashes, different for every protocol."""
        parts = [
            self.side,
            self.engine,
            self.precision,
            self.pooling,
            self.cut,
            f"pad{self.pad_to}" if self.pad_to else "longest",
        ]
        if self.side == "batch":
            parts += [self.clock.replace(" ", "-"), "list" if self.as_list else "array"]
        else:
            parts += ["+".join(name.split("_")[0] for name in self.outputs).replace("+", "-and-")]
            parts += [self.way.replace(" ", "-"), f"{self.in_flight}-in-flight", "rows" * self.single_rows]
        parts += [f"{self.streams}-streams"]
        return "-".join(part for part in parts if part)

    @property
    def label(self) -> str:
        """The arm in a few words."""
        if self.side == "batch":
            words = [f"{ENGINE_NAMES[self.engine]} batch"]
        else:
            words = [f"Triton with {ENGINE_NAMES[self.engine]}"]
            words += ["single rows"] * self.single_rows
            words += [f"{self.in_flight} in flight"] * (self.in_flight > 1)
            words += [self.way] * (self.way != "grpc")
        words += [{"file": "", "length": "sorted", "tokens": "cut by tokens"}[self.cut]]
        words += [f"{self.streams} streams"] * (self.streams > 1)
        return ", ".join(word for word in words if word)

    def as_json(self) -> dict[str, Any]:
        """Its fields as JSON values."""
        return {**asdict(self), "outputs": list(self.outputs)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Protocol:
        """The protocol that `as_json` wrote."""
        return cls(**{**fields, "outputs": tuple(fields["outputs"])})
