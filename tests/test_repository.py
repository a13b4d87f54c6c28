import os
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from workbook.errors import ModelError, SettingError
from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec, null_spec
from workbook.serving.model_config import read_config_pbtxt, to_config_pbtxt
from workbook.serving.model_spec import (
    Accelerator,
    DynamicBatching,
    EnsembleStep,
    InstanceSpec,
    ModelSpec,
    Optimization,
    QueuePolicy,
    TensorSpec,
)
from workbook.serving.repository import assemble_repository, committed_repository

IMAGE = TensorSpec("IMAGE", "FP16", (3, 256, 448))
MASK = TensorSpec("MASK", "FP32", (-1, -1))
EVERYTHING = ModelSpec(
    name="segment-2.engine",
    backend="tensorrt",
    inputs=(IMAGE, TensorSpec("TEXT", "STRING", (1,))),
    outputs=(MASK,),
    max_batch_size=8,
    instances=(InstanceSpec(2, "gpu", (0, 1)), InstanceSpec(1, "cpu")),
    dynamic_batching=DynamicBatching(
        max_queue_delay_microseconds=1500,
        preferred_batch_sizes=(4, 8),
        preserve_ordering=True,
        queue_policy=QueuePolicy(64, 250_000, "DELAY", allow_timeout_override=True),
    ),
    parameters={"FORCE_CPU_ONLY_INPUT_TENSORS": "no", "a": 'quoted "text"'},
    optimization=Optimization(
        cuda_graphs=True,
        eager_batching=True,
        input_pinned_memory=False,
        output_pinned_memory=True,
        gpu_accelerators=(Accelerator("tensorrt", {"precision_mode": "FP16"}),),
        cpu_accelerators=(Accelerator("openvino"),),
    ),
)
ENSEMBLE = ModelSpec(
    name="pipeline",
    inputs=(IMAGE,),
    outputs=(MASK,),
    steps=(
        EnsembleStep("first", {"x": "IMAGE"}, {"y": "features"}),
        EnsembleStep("second", {"x": "features"}, {"y": "MASK"}),
    ),
)
SPECS = [
    EVERYTHING,
    ENSEMBLE,
    null_spec(),
    e5_onnx_spec(backend="container"),
    e5_onnx_spec(EncoderOptions(768), backend="embedded"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_round_trip(spec: ModelSpec) -> None:
    assert read_config_pbtxt(to_config_pbtxt(spec)) == spec


def test_text_means_to_triton_what_the_spec_says() -> None:
    message = text_format.Parse(to_config_pbtxt(EVERYTHING), model_config_pb2.ModelConfig())
    assert message.input[0].data_type == model_config_pb2.TYPE_FP16
    assert list(message.input[0].dims) == [3, 256, 448]
    assert message.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert message.dynamic_batching.default_queue_policy.max_queue_size == 64
    assert message.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value == "no"
    assert message.optimization.input_pinned_memory.enable is False
    ensemble = text_format.Parse(to_config_pbtxt(ENSEMBLE), model_config_pb2.ModelConfig())
    assert ensemble.platform == "ensemble"
    assert ensemble.ensemble_scheduling.step[1].input_map["x"] == "features"


def test_empty_dynamic_batching_is_still_switched_on() -> None:
    on = text_format.Parse(to_config_pbtxt(null_spec()), model_config_pb2.ModelConfig())
    off = text_format.Parse(
        to_config_pbtxt(replace(null_spec(), dynamic_batching=None)), model_config_pb2.ModelConfig()
    )
    assert on.HasField("dynamic_batching")
    assert not off.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("file", "spec"),
    [
        ("e5_onnx/config.pbtxt", e5_onnx_spec(backend="container")),
        ("e5_onnx/configs/embedded.pbtxt", e5_onnx_spec(backend="embedded")),
        ("null/config.pbtxt", null_spec()),
    ],
)
def test_committed_configuration_is_the_generated_one(file: str, spec: ModelSpec) -> None:
    assert (committed_repository() / file).read_text() == to_config_pbtxt(spec)


def test_e5_settings_reach_the_configuration() -> None:
    options = EncoderOptions(
        768,
        threads=3,
        instances=2,
        dynamic_batching=DynamicBatching(max_queue_delay_microseconds=700),
        max_batch_size=16,
        max_tokens=128,
        vocabulary_size=1000,
    )
    spec = e5_onnx_spec(options, backend="embedded")
    message = text_format.Parse(to_config_pbtxt(spec), model_config_pb2.ModelConfig())
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    assert parameters == {
        "intra_op_thread_count": "3",
        "inter_op_thread_count": "1",
        "max_tokens": "128",
        "vocabulary_size": "1000",
    }
    assert (message.backend, message.max_batch_size, message.instance_group[0].count) == ("python", 16, 2)
    assert message.dynamic_batching.max_queue_delay_microseconds == 700
    assert [list(output.dims) for output in message.output] == [[-1, 768], [768], [768]]


def test_only_the_embedded_server_batches_different_lengths() -> None:
    assert all(tensor.ragged for tensor in e5_onnx_spec(backend="embedded").inputs)
    assert not any(tensor.ragged for tensor in e5_onnx_spec(backend="container").inputs)
    assert not any(
        tensor.ragged for tensor in e5_onnx_spec(EncoderOptions(dynamic_batching=None), backend="embedded").inputs
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorSpec("x", "FLOAT", (1,)), "dtype is 'FLOAT'; give one of BOOL"),
        (lambda: TensorSpec("x", "FP32", (0, 2)), r"dims are \[0, 2\].* -1 where it varies"),
        (lambda: TensorSpec("x", "FP32", ()), "at least one size"),
        (lambda: InstanceSpec(0), "count is 0; give 1 or more"),
        (lambda: InstanceSpec(1, "tpu"), "kind is 'tpu'"),
        (lambda: InstanceSpec(1, "cpu", (0,)), "gpus is"),
        (lambda: DynamicBatching(max_queue_delay_microseconds=-1), "max_queue_delay_microseconds is -1"),
        (lambda: QueuePolicy(max_queue_size=-2), "max_queue_size is -2"),
        (lambda: replace(null_spec(), name="../up"), "name is '../up'"),
        (lambda: replace(null_spec(), max_batch_size=-1), "max_batch_size is -1"),
        (lambda: replace(null_spec(), outputs=()), "outputs are empty"),
        (lambda: replace(null_spec(), inputs=(IMAGE, IMAGE)), "more than once"),
        (lambda: replace(null_spec(), backend=""), "there are no steps; give exactly one of the three"),
        (lambda: replace(null_spec(), parameters={"threads": 2}), "give text"),
        (
            lambda: e5_onnx_spec(
                EncoderOptions(dynamic_batching=DynamicBatching(preferred_batch_sizes=(64,))), backend="container"
            ),
            r"\[64\] are outside 1..32",
        ),
        (
            lambda: e5_onnx_spec(EncoderOptions(max_batch_size=0), backend="embedded"),
            "dynamic batching with max_batch_size 0",
        ),
        (lambda: EncoderOptions(threads=-1), "threads is -1; give 0 or more"),
        (lambda: e5_onnx_spec(backend="cloud"), "backend is 'cloud'"),  # type: ignore[arg-type]
        (lambda: replace(ENSEMBLE, backend="python"), "set them on its members"),
        (lambda: replace(ENSEMBLE, steps=ENSEMBLE.steps[1:]), r"no step makes \['features'\]"),
        (lambda: replace(ENSEMBLE, steps=ENSEMBLE.steps[:1]), r"outputs \['MASK'\]"),
    ],
)
def test_bad_values_are_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SettingError, match=message):
        make()


def test_unreadable_text_is_refused() -> None:
    with pytest.raises(SettingError, match=r"no config\.pbtxt that Triton can read: 1:1"):
        read_config_pbtxt("nonsense: 3")


def test_nothing_is_dropped_silently() -> None:
    text = to_config_pbtxt(null_spec()) + "response_cache { enable: true }\n"
    with pytest.raises(SettingError, match="does not express: response_cache"):
        read_config_pbtxt(text)


def test_assembled_repository_holds_config_code_and_linked_weights(tmp_path: Path) -> None:
    weights = tmp_path / "built" / "model.onnx"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    spec = e5_onnx_spec(EncoderOptions(threads=2), backend="embedded")
    repository = assemble_repository(
        tmp_path / "served", [(spec, {"model.onnx": weights}), (null_spec(), {})], "embedded"
    )
    version = repository / "e5_onnx" / "1"
    assert read_config_pbtxt((repository / "e5_onnx" / "config.pbtxt").read_text()) == spec
    assert (version / "model.py").read_text() == (committed_repository() / "e5_onnx/1/model.py").read_text()
    assert (version / "model.onnx").stat().st_ino == weights.stat().st_ino
    assert not any(path.is_symlink() for path in repository.rglob("*"))
    assert (repository / "null" / "1" / "model.py").is_file()


def test_container_repository_has_no_python_code(tmp_path: Path) -> None:
    weights = tmp_path / "model.onnx"
    weights.write_bytes(b"weights")
    repository = assemble_repository(
        tmp_path / "served", [(e5_onnx_spec(backend="container"), {"model.onnx": weights})], "container"
    )
    assert sorted(path.name for path in (repository / "e5_onnx" / "1").iterdir()) == ["model.onnx"]


def test_weights_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    weights = tmp_path / "model.onnx"
    weights.write_bytes(b"weights")
    repository = assemble_repository(
        tmp_path / "served", [(e5_onnx_spec(backend="embedded"), {"model.onnx": weights})], "embedded"
    )
    assert (repository / "e5_onnx/1/model.onnx").read_bytes() == b"weights"


def test_assembling_again_replaces_a_model_whole(tmp_path: Path) -> None:
    assemble_repository(tmp_path, [(null_spec(), {})], "embedded")
    (tmp_path / "null" / "1" / "stale.bin").write_bytes(b"old")
    assemble_repository(tmp_path, [(null_spec(8), {})], "embedded")
    assert not (tmp_path / "null" / "1" / "stale.bin").exists()
    assert read_config_pbtxt((tmp_path / "null" / "config.pbtxt").read_text()) == null_spec(8)


def test_missing_weights_say_what_to_run(tmp_path: Path) -> None:
    spec = e5_onnx_spec(backend="embedded")
    for files in ({}, {"model.onnx": tmp_path / "absent.onnx"}):
        with pytest.raises(ModelError, match="run notebook 01_export_models"):
            assemble_repository(tmp_path / "served", [(spec, files)], "embedded")
    assert not (tmp_path / "served").exists()


def test_python_model_without_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Python model without code"):
        assemble_repository(tmp_path, [(replace(null_spec(), name="unwritten"), {})], "embedded")
