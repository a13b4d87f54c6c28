"""What Triton has to know of a variant: one model a variant, for the embedded server and for the container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbook.errors import SettingError
from workbook.models.variants import Variant, VariantModel
from workbook.serving.repository import (
    BUNDLED_HIDDEN_SIZE,
    Backend,
    DynamicBatching,
    ModelSpec,
    committed_repository,
    e5_onnx_spec,
)

_PYTHON_CODE = "e5_onnx/1/model.py"
"""One Python model runs every embedded engine; its configuration says which."""


def served_name(variant: Variant) -> str:
    """Name of the variant's model in a repository."""
    return f"e5_{variant.name}"


def variant_spec(
    variant: Variant,
    hidden_size: int = BUNDLED_HIDDEN_SIZE,
    *,
    backend: Backend,
    threads: int = 0,
    instances: int = 1,
    dynamic_batching: DynamicBatching | None = DynamicBatching(),  # noqa: B008 - frozen
    max_batch_size: int = 32,
    max_tokens: int = 512,
    vocabulary_size: int | None = None,
) -> ModelSpec:
    """The variant as a model with e5's inputs and outputs, see `e5_onnx_spec`.

    Args:
        variant: which.
        hidden_size: width of the encoder.
        backend: `container` (Triton's own backend of the library) or `embedded` (the library in the Python backend).
        threads: the library computes with, for each instance; 0 leaves the library's default. A GPU has none.
        instances: copies that run at the same time.
        dynamic_batching: None: every request runs alone.
        max_batch_size: most rows in one execution; of an engine, at most the largest it was built for.
        max_tokens: longest row, checked before it runs (embedded).
        vocabulary_size: token ids from this on are refused before they run (embedded).

    Raises:
        SettingError: a value is out of bounds, or this server cannot run the variant.
    """
    engine = variant.embedded_engine if backend == "embedded" else variant.container_backend
    if engine is None:
        other = "container" if backend == "embedded" else "embedded"
        raise SettingError(f'{variant.name} cannot run in the {backend} server: set server = "{other}".')
    spec = e5_onnx_spec(
        hidden_size,
        backend=backend,
        threads=threads,
        instances=instances,
        dynamic_batching=dynamic_batching,
        max_batch_size=max_batch_size,
        max_tokens=max_tokens,
        vocabulary_size=vocabulary_size,
    )
    if backend == "embedded":
        return replace(spec, name=served_name(variant), parameters={**spec.parameters, "engine": engine})
    return replace(
        spec,
        name=served_name(variant),
        backend=engine,
        parameters=_container_parameters(engine, threads, spec.parameters),
        default_model_filename=variant.file if engine == "openvino" else "",  # it would look for its own format
    )


def variant_files(model: VariantModel, backend: Backend) -> dict[str, Path]:
    """Files of the variant's version folder: the weights and, where Python serves it, the code."""
    code = {"model.py": committed_repository() / _PYTHON_CODE} if backend == "embedded" else {}
    return {**model.files, **code}


def _container_parameters(engine: str, threads: int, onnxruntime: Mapping[str, str]) -> dict[str, str]:
    if engine == "onnxruntime":
        return dict(onnxruntime)
    return {"INFERENCE_NUM_THREADS": str(threads)} if engine == "openvino" and threads else {}
