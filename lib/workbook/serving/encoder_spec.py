"""The e5 encoder as Triton has to know it, and the null model that takes the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving.model_spec import Backend, DynamicBatching, InstanceSpec, ModelSpec, TensorSpec, check_backend
from workbook.serving.repository import committed_repository

BUNDLED_HIDDEN_SIZE = 384
"""Of multilingual-e5-small, the bundled model: what the committed configurations are written for."""


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is served, whatever computes it.

    Attributes:
        hidden_size: width of the encoder.
        threads: that compute, for each instance; 0 leaves the library's default. A GPU has none.
        instances: copies that run at the same time.
        dynamic_batching: None: every request runs alone.
        max_batch_size: most rows in one execution; of an engine, at most the largest it was built for.
        max_tokens: longest row, checked before it runs (embedded).
        vocabulary_size: token ids from this on are refused before they run (embedded); None leaves it to the library,
            which refuses them too, with a less plain message.

    Raises:
        SettingError: a value is out of bounds.
    """

    hidden_size: int = BUNDLED_HIDDEN_SIZE
    threads: int = 0
    instances: int = 1
    dynamic_batching: DynamicBatching | None = DynamicBatching()  # noqa: RUF009 - frozen
    max_batch_size: int = 32
    max_tokens: int = 512
    vocabulary_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("hidden_size", 1), ("threads", 0), ("max_tokens", 1), ("vocabulary_size", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingError(f"{name} is {value}; give {least} or more.")


def e5_onnx_spec(options: EncoderOptions = EncoderOptions(), *, backend: Backend) -> ModelSpec:
    """The e5 encoder as an ONNX model.

    Inputs `input_ids`, `attention_mask`, INT64 `batch sequence`; outputs, FP32: `last_hidden_state` `batch sequence
    hidden`, `cls_embedding` and `sentence_embedding` `batch hidden`. Only what a request asks for is computed and sent.

    The two servers differ in one point beside the backend: the embedded one batches requests of different lengths
    (its model pads them), the container's onnxruntime backend only requests of equal length.

    Args:
        options: how it is served.
        backend: `container` (Triton's onnxruntime backend) or `embedded` (onnxruntime inside the Python backend).

    Raises:
        SettingError: no such backend.
    """
    check_backend(backend)
    embedded = backend == "embedded"
    # the names of onnxruntime's Triton backend; our Python model reads the same
    parameters = {"intra_op_thread_count": str(options.threads), "inter_op_thread_count": "1"}
    if embedded:
        parameters["max_tokens"] = str(options.max_tokens)
        if options.vocabulary_size is not None:
            parameters["vocabulary_size"] = str(options.vocabulary_size)
    return ModelSpec(
        name="e5_onnx",
        backend="python" if embedded else "onnxruntime",
        max_batch_size=options.max_batch_size,
        inputs=_e5_inputs(ragged=embedded and options.dynamic_batching is not None and options.max_batch_size > 0),
        outputs=(
            TensorSpec("last_hidden_state", "FP32", (-1, options.hidden_size)),
            TensorSpec("cls_embedding", "FP32", (options.hidden_size,)),
            TensorSpec("sentence_embedding", "FP32", (options.hidden_size,)),
        ),
        instances=(InstanceSpec(options.instances, "cpu" if embedded else "auto"),),
        dynamic_batching=options.dynamic_batching,
        parameters=parameters,
    )


def encoder_code(backend: Backend) -> dict[str, Path]:
    """What Python serves an encoder with, as files of the version's folder: one model for every embedded engine."""
    return {"model.py": committed_repository() / "e5_onnx/1/model.py"} if backend == "embedded" else {}


def null_spec(hidden_size: int = BUNDLED_HIDDEN_SIZE, *, instances: int = 1) -> ModelSpec:
    """A model that takes e5's inputs and answers at once with a constant embedding: what is left is client and server.

    It is a Python model in both servers, and takes any number of waiting requests in one execution.
    """
    return ModelSpec(
        name="null",
        backend="python",
        max_batch_size=4096,
        inputs=_e5_inputs(ragged=True),
        outputs=(TensorSpec("sentence_embedding", "FP32", (hidden_size,)),),
        instances=(InstanceSpec(instances, "cpu"),),
        dynamic_batching=DynamicBatching(),
    )


def _e5_inputs(*, ragged: bool) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "INT64", (-1,), ragged) for name in ("input_ids", "attention_mask"))
