import json
from pathlib import Path

import pytest

from workbook.errors import SettingError
from workbook.serving.arrangements import (
    HandleOptions,
    arrange,
    arrangement_names,
    committed_specs,
    entry_model,
    member_models,
    source_model,
)
from workbook.serving.gpu_arrangements import committed_gpu_spec
from workbook.serving.model_config import read_config_pbtxt, to_config_pbtxt
from workbook.serving.model_spec import TensorSpec
from workbook.serving.pipelines import Pipeline, Stage, passage_pipeline, relay_pipeline, road_pipeline
from workbook.serving.repository import assemble_repository, committed_repository


@pytest.mark.parametrize("spec", [*committed_specs(), committed_gpu_spec()], ids=lambda spec: spec.name)
def test_committed_configuration_is_the_generated_one(spec) -> None:  # type: ignore[no-untyped-def]
    assert (committed_repository() / spec.name / "config.pbtxt").read_text() == to_config_pbtxt(spec)
    assert (committed_repository() / spec.name / "1" / "model.py").is_file()


@pytest.fixture
def pipelines(tmp_path: Path) -> list[Pipeline]:
    weights = tmp_path / "model.onnx"
    weights.write_bytes(b"onnx")
    return [relay_pipeline(), road_pipeline(weights), passage_pipeline(weights, 384)]


def test_every_arrangement_is_complete_and_can_be_written(pipelines: list[Pipeline], tmp_path: Path) -> None:
    for pipeline in pipelines:
        made = arrange(pipeline, instances=3)
        specs = {spec.name: spec for spec, _ in made}
        for name in arrangement_names(3):
            assert {entry_model(pipeline, name), *member_models(pipeline, name)} <= set(specs)
            entry = specs[entry_model(pipeline, name)]
            assert tuple(tensor.name for tensor in entry.inputs) == pipeline.inputs
            assert tuple(tensor.name for tensor in entry.outputs) == pipeline.outputs
        folder = assemble_repository(tmp_path / pipeline.name, made, "embedded")
        for spec in specs.values():
            assert read_config_pbtxt((folder / spec.name / "config.pbtxt").read_text()) == spec
            code = {file.name for file in (folder / spec.name / "1").iterdir()}
            assert spec.steps or "calls" in spec.parameters or {"model.py", "stages.py", "handles"} <= code


def test_only_networks_carry_weights(pipelines: list[Pipeline]) -> None:
    with_weights = {spec.name for spec, files in arrange(pipelines[1]) if "segmentation.onnx" in files}
    assert with_weights == {
        "copies_road_monolith", "copies_road_monolith_x2", "copies_road_segment", "copies_road_segment_handle",
    }  # fmt: skip


def test_handles_stand_for_the_big_tensors_only(pipelines: list[Pipeline]) -> None:
    specs = {spec.name: spec for spec, _ in arrange(pipelines[2], handle_options=HandleOptions(3, 4096, 50))}
    pool = specs["copies_passage_pool_handle"]
    assert [(tensor.name, tensor.dtype) for tensor in pool.inputs] == [
        ("hidden_handle", "UINT8"), ("attention_mask", "INT64"),
    ]  # fmt: skip
    assert [tensor.name for tensor in pool.outputs] == ["pooled"]
    encode = specs["copies_passage_encode_handle"].parameters
    assert (encode["handles_out"], encode["handles_in"], encode["handle_slots"]) == ("hidden", "", "3")
    assert (encode["handle_slot_bytes"], encode["handle_ttl_ms"]) == ("4096", "50")


def test_bls_calls_the_ensembles_own_members_and_only_async_batches() -> None:
    specs = {spec.name: spec for spec, _ in arrange(relay_pipeline(), batching_delay_us=100)}
    calls = json.loads(specs["copies_relay_bls"].parameters["calls"])
    assert calls[1] == ["copies_relay_shift", ["payload"], ["shifted"]]
    assert [step.model for step in specs["copies_relay_ensemble"].steps] == [call[0] for call in calls]
    assert specs["copies_relay_bls"].dynamic_batching is None
    batching = specs["copies_relay_bls_async"].dynamic_batching
    assert batching is not None
    assert batching.max_queue_delay_microseconds == 100


def test_some_arrangements_alone() -> None:
    names = {spec.name for spec, _ in arrange(relay_pipeline(), only=["handle"])}
    assert names == {f"copies_relay_{part}" for part in ("handle", "make_handle", "shift_handle", "total_handle")}


def test_the_source_gives_any_number_of_values() -> None:
    spec, files = source_model()
    assert (spec.name, spec.outputs[0].dims, spec.parameters["stages"]) == ("copies_source", (-1,), "serve")
    assert files["model.py"].is_file()


def test_what_does_not_connect_is_refused() -> None:
    with pytest.raises(SettingError, match="names the tensor 'y'"):
        Pipeline("p", (Stage("s", ("x",), ("y",)),), (TensorSpec("x", "FP32", (1,)),), ())
    with pytest.raises(SettingError, match=r"HandleOptions\.slots is 0"):
        HandleOptions(slots=0)
