"""What Triton is told of each variant, for both servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbook.artifacts import file_sha256
from workbook.errors import ModelError, ServerError, SettingError
from workbook.models.engines import Engine, EngineBuild
from workbook.models.variants import VARIANTS, VariantModel, find_variant
from workbook.runs import Run
from workbook.serving.encoder_spec import EncoderOptions
from workbook.serving.model_config import to_config_pbtxt
from workbook.serving.model_spec import DynamicBatching
from workbook.serving.repository import committed_repository
from workbook.serving.variant_server import batching_of, check_files, explain_load_failure, start_variant_server
from workbook.serving.variant_spec import served_name, variant_files, variant_spec
from workbook.settings import Settings

BOTH = [
    (variant, backend)
    for variant in VARIANTS
    for backend, able in (("container", variant.container_backend), ("embedded", variant.embedded_engine))
    if able
]


@pytest.mark.parametrize(("variant", "backend"), BOTH, ids=lambda value: getattr(value, "name", value))
def test_the_committed_configuration_is_the_generated_one(variant, backend):
    file = "config.pbtxt" if backend == "container" else "configs/embedded.pbtxt"
    text = (committed_repository() / served_name(variant) / file).read_text()
    assert text == to_config_pbtxt(variant_spec(variant, backend=backend))


def test_every_variant_has_a_committed_folder_and_no_other_is_there():
    committed = {path.name for path in committed_repository().glob("e5_*_*") if path.is_dir()}
    assert committed == {served_name(variant) for variant in VARIANTS}


def test_how_the_servers_are_told_what_computes():
    torch, openvino, engine = (find_variant(name) for name in ("torch_bf16", "openvino_fp32", "tensorrt_bf16"))
    embedded = variant_spec(openvino, EncoderOptions(threads=3), backend="embedded")
    assert (embedded.backend, embedded.parameters["engine"]) == ("python", "openvino")
    assert embedded.parameters["intra_op_thread_count"] == "3"
    container = variant_spec(openvino, EncoderOptions(threads=3), backend="container")
    assert (container.backend, container.parameters) == ("openvino", {"INFERENCE_NUM_THREADS": "3"})
    assert container.default_model_filename == "model.onnx"
    assert variant_spec(engine, backend="container").backend == "tensorrt"
    assert variant_spec(torch, backend="embedded").parameters["engine"] == "torch"


@pytest.mark.parametrize(
    ("name", "backend", "other"), [("torch_fp32", "container", "embedded"), ("tensorrt_fp32", "embedded", "container")]
)
def test_a_server_that_cannot_run_it_is_refused(name: str, backend, other: str):
    with pytest.raises(SettingError, match=f'{name} cannot run in the {backend} server: set server = "{other}"'):
        variant_spec(find_variant(name), backend=backend)


def test_weights_come_with_code_only_where_python_serves_them(tmp_path: Path):
    weights, external = tmp_path / "model.onnx", tmp_path / "model.onnx.data"
    for path in (weights, external):
        path.write_bytes(b"x")
    model = VariantModel(find_variant("onnx_fp32"), weights, "sha", 2, 384, 512)
    assert set(variant_files(model, "container")) == {"model.onnx", "model.onnx.data"}
    assert set(variant_files(model, "embedded")) == {"model.onnx", "model.onnx.data", "model.py"}


def test_batching_comes_from_the_settings():
    assert batching_of(Settings(dynamic_batching=False)) is None
    settings = Settings(preferred_batch_sizes=(8,), queue_delay_microseconds=500)
    assert batching_of(settings) == DynamicBatching(500, (8,))


def test_a_malformed_engine_is_named_with_the_fix(tmp_path: Path):
    """The text is Triton's own for a plan file of another TensorRT."""
    build = EngineBuild(1.0, 1, 1.0, 1.0, 1.0, 1.0, (), (10, 5, 0))
    engine = Engine(tmp_path / "model.plan", "sha", build, "GPU", tmp_path / "log")
    model = VariantModel(find_variant("tensorrt_bf16"), engine.path, "sha", 1, 384, 512, engine)
    other = VariantModel(find_variant("onnx_fp32"), tmp_path / "other" / "model.onnx", "sha", 1, 384, 512)
    log = (
        "E1130 10:00:00 1 model_lifecycle.cc:642] failed to load 'e5_tensorrt_bf16' version 1: Internal: unable to "
        "load plan file to auto complete config: /models/e5_tensorrt_bf16/1/model.plan"
    )
    said = str(explain_load_failure(ServerError("Triton ended while it started.", log), [model, other]))
    assert f"tensorrt_bf16: delete the folder {tmp_path} and run notebook 02_build_engines again" in said
    assert "loads only in the TensorRT and on the GPU that built it" in said
    assert "onnx_fp32" not in said


def test_a_failure_of_a_port_is_no_failure_of_the_file():
    error = ServerError("port 8000 is taken", "e5_onnx_fp32 was loaded")
    model = VariantModel(find_variant("onnx_fp32"), Path("x/model.onnx"), "sha", 1, 384, 512)
    assert explain_load_failure(error, [model]) is error


def built(folder: Path, content: bytes) -> VariantModel:
    """An engine as it was built; the size and digest that were noted then are those of `content`."""
    plan = folder / "model.plan"
    plan.write_bytes(content)
    build = EngineBuild(1.0, len(content), 1.0, 1.0, 1.0, 1.0, (), (10, 5, 0))
    engine = Engine(plan, file_sha256(plan), build, "GPU", folder / "log")
    return VariantModel(find_variant("tensorrt_bf16"), plan, engine.sha256, len(content), 384, 512, engine)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (None, "is not there"),
        (b"", "has 0 bytes, and 12 were built; it does not begin as an engine does"),
        (b"ftrt cut", "has 8 bytes, and 12 were built. TensorRT would refuse it"),
        (b"an HTML page", "has the size that was built and another content; it does not begin as an engine does"),
        (b"ftrt damaged", "has the size that was built and another content. TensorRT"),
    ],
)
def test_an_engine_that_is_not_what_was_built_is_refused_before_a_server_starts(tmp_path: Path, now, said: str):
    model = built(tmp_path, b"ftrt as made")
    check_files([model])
    if now is None:
        model.path.unlink()
    else:
        model.path.write_bytes(now)
    with pytest.raises(ModelError) as caught:
        start_variant_server(None, [model], Settings(server="embedded"), Run(tmp_path, "04"))  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert f"delete the folder {tmp_path} and run notebook 02_build_engines again" in str(caught.value)


def test_a_file_that_is_missing_is_named_before_a_server_starts(tmp_path: Path):
    model = VariantModel(find_variant("onnx_fp32"), tmp_path / "model.onnx", "sha", 1, 384, 512)
    with pytest.raises(ModelError, match=r"onnx_fp32: there is no file .*model\.onnx\. Delete its folder and run"):
        check_files([model])
