"""What making a variant cost, and what is said of those that were not made."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from workbook.artifacts import BUILT_FILE, build_once, build_seconds
from workbook.models.engines import Engine, EngineBuild
from workbook.models.variant_costs import cost_table, engine_table, trtexec_lines, variants_table
from workbook.models.variants import VariantModel, find_variant


@pytest.fixture(autouse=True)
def own_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path))


def model(name: str, path: Path, size: int, engine: Engine | None = None) -> VariantModel:
    return VariantModel(find_variant(name), path, "sha", size, 8, 512, engine)


def test_a_build_notes_its_time_once():
    began_s = time.perf_counter()
    folder = build_once("x", {"a": 1}, lambda unfinished: (unfinished / "model.onnx").write_bytes(b"x"))
    seconds = build_seconds(folder)
    assert seconds is not None
    assert 0 < seconds < time.perf_counter() - began_s
    assert build_seconds(folder / "model.onnx") == seconds
    (folder / BUILT_FILE).unlink()
    assert build_seconds(folder) is None


def test_costs_stand_beside_those_of_fp32(tmp_path: Path):
    (tmp_path / BUILT_FILE).write_text('{"build_s": 3.5}')
    table = cost_table([model("onnx_fp32", tmp_path / "model.onnx", 400), model("onnx_fp16", Path("/no/m"), 200)])
    assert list(table["times_fp32_onnx"]) == [1.0, 0.5]
    assert table["build_s"][0] == 3.5
    assert math.isnan(table["build_s"][1])
    assert math.isnan(cost_table([model("onnx_fp16", Path("/no/m"), 200)])["times_fp32_onnx"][0])


def test_what_does_not_run_says_why():
    table = variants_table([find_variant("onnx_fp32")], [(find_variant("tensorrt_best"), "needs a GPU")])
    assert list(table["runs_here"]) == [True, False]
    assert list(table["note"]) == ["", "needs a GPU"]


def test_engines_show_tensorrts_own_figures(tmp_path: Path):
    plan = tmp_path / "model.plan"
    plan.write_bytes(b"x")
    build = EngineBuild(61.5, 100, 8.0, 7.9, 8.4, 126.0, (), (10, 5, 0))
    engines = [model("onnx_fp32", plan, 1), model("tensorrt_bf16", plan, 1, Engine(plan, "sha", build, "RTX", plan))]
    row = engine_table(engines).iloc[0]
    assert (row["variant"], row["tensorrt"], row["gpu_latency_median_ms"]) == ("tensorrt_bf16", "10.5.0", 7.9)
    assert engine_table(engines[:1]).empty


def test_commands_of_both_generations():
    lines = trtexec_lines().set_index(["precision", "generation"])["command"]
    assert lines["bf16", "TensorRT 10"].endswith("--bf16 --useCudaGraph")
    assert "--onnx=model-bf16.onnx" in lines["bf16", "TensorRT 11"]
    assert "--bf16" not in lines["bf16", "TensorRT 11"]
    assert ("best", "TensorRT 11") not in lines.index
    assert "--optShapes=input_ids:32x128,attention_mask:32x128" in lines["fp32", "TensorRT 10"]
