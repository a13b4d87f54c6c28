"""What an arm ran under: two arms may be compared only where nothing differs but what was declared to differ."""

from __future__ import annotations

from dataclasses import dataclass

from workbook.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """All that decides how much work an arm does and where it does it.

    Attributes:
        model: fingerprint of the weights, the same for the same model in any format.
        rows: rows that went through the arm, once each.
        real_tokens: tokens of those rows, truncation included.
        padded_tokens: tokens computed, padding included.
        batch_size: rows a request or a batch.
        padding: how rows are padded: "longest", "512", ...
        precision: of the weights and activations: "fp32", ...
        engine: what computes: "onnxruntime", "torch", ...
        outputs: what comes back: "sentence_embedding", "last_hidden_state", ...
        transport: how rows reach the model: "grpc", "http", "in-process".
        concurrency: requests or batches in flight.
        threads: a forward pass computes with.
        scope: what the clock covers, in words: "text to NumPy array in the client".
        serving: who drives the model: "triton", "loop".
    """

    model: str
    rows: int
    real_tokens: int
    padded_tokens: int
    batch_size: int
    padding: str
    precision: str
    engine: str
    outputs: str
    transport: str
    concurrency: int
    threads: int
    scope: str
    serving: str

    def __post_init__(self) -> None:
        """Refuse an amount of work that cannot be."""
        for name in ("rows", "batch_size", "concurrency", "threads"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        if not 0 < self.real_tokens <= self.padded_tokens:
            raise SettingError(
                f"{self.real_tokens} real tokens in {self.padded_tokens} padded ones cannot be: "
                "padding only adds tokens. Count both over the same rows."
            )


@dataclass(frozen=True)
class Arm:
    """One arm of a comparison.

    Attributes:
        name: as the reader sees it.
        rows_per_s: throughput of each run, in order of time.
        conditions: what it ran under.
    """

    name: str
    rows_per_s: tuple[float, ...]
    conditions: Conditions
