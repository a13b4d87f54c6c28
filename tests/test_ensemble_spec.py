from collections.abc import Callable
from dataclasses import replace

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from workbook.errors import SettingError
from workbook.serving.ensemble_spec import (
    EnsembleVariant,
    ensemble_spec,
    hop_bytes,
    member_a_spec,
    member_b_spec,
    null_ensemble_spec,
    null_member_spec,
    pin_apart,
)
from workbook.serving.model_config import read_config_pbtxt, to_config_pbtxt
from workbook.serving.model_spec import ModelSpec
from workbook.serving.repository import committed_repository

REPORTED = EnsembleVariant()
AS_REPORTED = {
    "sfpn16": """
        name: "sfpn16" platform: "pytorch_libtorch" default_model_filename: "model.pt" max_batch_size: 32
        input { name: "INPUT__0" data_type: TYPE_FP16 dims: [3, 256, 448] }
        output { name: "OUTPUT__0" data_type: TYPE_FP16 dims: [2, 256, 448] }
        dynamic_batching { max_queue_delay_microseconds: 150000 }
        instance_group [ { count: 2 } ]""",
    "pypost16": """
        name: "pypost16" backend: "python" max_batch_size: 0
        input { name: "INPUT" data_type: TYPE_FP16 dims: [-1, 256, 448] }
        output { name: "OUTPUT" data_type: TYPE_STRING dims: [1] }
        instance_group [ { count: 1 kind: KIND_CPU } ]""",
    "sfpn16_pypost16": """
        name: "sfpn16_pypost16" platform: "ensemble" max_batch_size: 0
        input { name: "INPUT" data_type: TYPE_FP16 dims: [3, 256, 448] }
        output { name: "OUTPUT" data_type: TYPE_STRING dims: [1] }
        ensemble_scheduling {
          step { model_name: "sfpn16" model_version: -1
                 input_map { key: "INPUT__0" value: "INPUT" } output_map { key: "OUTPUT__0" value: "raw_mask" } }
          step { model_name: "pypost16" model_version: -1
                 input_map { key: "INPUT" value: "raw_mask" } output_map { key: "OUTPUT" value: "OUTPUT" } }
        }""",
}


@pytest.mark.parametrize(
    ("file", "spec"),
    [
        ("sfpn16/config.pbtxt", member_a_spec(REPORTED, "container")),
        ("sfpn16/configs/embedded.pbtxt", member_a_spec(REPORTED, "embedded")),
        ("pypost16/config.pbtxt", member_b_spec(REPORTED)),
        ("sfpn16_pypost16/config.pbtxt", ensemble_spec(REPORTED)),
        ("null_member/config.pbtxt", null_member_spec()),
    ],
)
def test_committed_configuration_is_the_generated_one(file: str, spec: ModelSpec) -> None:
    assert (committed_repository() / file).read_text() == to_config_pbtxt(spec)


@pytest.mark.parametrize("model", AS_REPORTED)
def test_the_containers_configuration_means_what_the_issue_says(model: str) -> None:
    reported = text_format.Parse(AS_REPORTED[model], model_config_pb2.ModelConfig())
    text = (committed_repository() / model / "config.pbtxt").read_text()
    assert text_format.Parse(text, model_config_pb2.ModelConfig()) == reported


VARIANTS = [
    replace(REPORTED, a_max_batch=4, a_delay_us=0, a_instances=1, a_threads=2),
    replace(REPORTED, b_operation="identity", hop="mask"),
    replace(REPORTED, b_max_batch=8, b_delay_us=2000, b_instances=3, max_queue_size=64),
    replace(REPORTED, pinned_memory=True, b_stall_us=3460),
    pin_apart(REPORTED, (0, 1, 2)),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_survives_the_way_through_config_pbtxt(variant: EnsembleVariant) -> None:
    specs = [member_a_spec(variant, "embedded"), member_b_spec(variant), ensemble_spec(variant), null_ensemble_spec()]
    for spec in [*specs, member_a_spec(variant, "container")]:
        assert read_config_pbtxt(to_config_pbtxt(spec)) == spec


def test_a_mask_is_a_quarter_of_the_logits() -> None:
    mask = replace(REPORTED, hop="mask")
    assert (hop_bytes(REPORTED), hop_bytes(mask)) == (458_752, 114_688)
    assert member_a_spec(mask, "embedded").outputs[0].dtype == member_b_spec(mask).inputs[0].dtype == "UINT8"


def test_an_identity_gives_back_what_it_takes() -> None:
    spec = member_b_spec(replace(REPORTED, b_operation="identity"))
    assert (spec.inputs[0].dtype, spec.inputs[0].dims) == (spec.outputs[0].dtype, spec.outputs[0].dims)


def test_queue_limits_and_processors_reach_the_configuration() -> None:
    variant = pin_apart(replace(REPORTED, max_queue_size=64, b_max_batch=4), (0, 1, 2))
    a, b = member_a_spec(variant, "embedded"), member_b_spec(variant)
    assert (a.parameters["processors"], b.parameters["processors"]) == ("0,1", "2")
    for spec in (a, b):
        assert spec.dynamic_batching is not None
        assert spec.dynamic_batching.queue_policy is not None
        assert spec.dynamic_batching.queue_policy.max_queue_size == 64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EnsembleVariant(a_max_batch=0), "a_max_batch is 0; give 1 or more"),
        (lambda: EnsembleVariant(b_delay_us=5), "b_delay_us is 5 with b_max_batch 0"),
        (lambda: EnsembleVariant(hop="jpeg"), "hop is 'jpeg'; give logits or mask"),
        (lambda: EnsembleVariant(b_operation="none"), "b_operation is 'none'"),
        (lambda: EnsembleVariant(a_processors=(-1,)), "count from 0"),
        (lambda: pin_apart(REPORTED, (0,)), "at least 2 are needed"),
        (lambda: member_a_spec(REPORTED, "cloud"), "backend is 'cloud'"),  # type: ignore[arg-type]
    ],
)
def test_bad_variants_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()
