"""What Triton has to know of a variant: one model a variant, for the embedded server and for the container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbook.errors import SettingError
from workbook.models.variants import Variant, VariantModel
from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec, encoder_code
from workbook.serving.model_spec import Backend, ModelSpec


def served_name(variant: Variant) -> str:
    """Name of the variant's model in a repository."""
    return f"e5_{variant.name}"


def variant_spec(
    variant: Variant,
    options: EncoderOptions = EncoderOptions(),  # noqa: B008 - frozen
    *,
    backend: Backend,
) -> ModelSpec:
    """The variant as a model with e5's inputs and outputs, see `e5_onnx_spec`.

    Args:
        variant: which.
        options: how it is served.
        backend: `container` (Triton's own backend of the library) or `embedded` (the library in the Python backend).

    Raises:
        SettingError: this server cannot run the variant.
    """
    engine = variant.embedded_engine if backend == "embedded" else variant.container_backend
    if engine is None:
        other = "container" if backend == "embedded" else "embedded"
        raise SettingError(f'{variant.name} cannot run in the {backend} server: set server = "{other}".')
    spec = replace(e5_onnx_spec(options, backend=backend), name=served_name(variant))
    if backend == "embedded":
        return replace(spec, parameters={**spec.parameters, "engine": engine})
    return replace(
        spec,
        backend=engine,
        parameters=_container_parameters(engine, options.threads, spec.parameters),
        default_model_filename=variant.file if engine == "openvino" else "",  # it would look for its own format
    )


def variant_files(model: VariantModel, backend: Backend) -> dict[str, Path]:
    """Files of the variant's version folder: the weights and, where Python serves it, the code."""
    return {**model.files, **encoder_code(backend)}


def _container_parameters(engine: str, threads: int, onnxruntime: Mapping[str, str]) -> dict[str, str]:
    if engine == "onnxruntime":
        return dict(onnxruntime)
    return {"INFERENCE_NUM_THREADS": str(threads)} if engine == "openvino" and threads else {}
