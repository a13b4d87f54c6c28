"""The benchmark script for a GPU machine, without one: it ends by itself and keeps what it has."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busy_machine import in_one_of
from workbook.artifacts import PROJECT_DIR
from workbook.errors import ModelError


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_gpu", PROJECT_DIR / "tests" / "gpu" / "benchmark_gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "what_is_there", lambda _: {"gpus": []})
    monkeypatch.setattr(module, "describe_environment", dict)
    monkeypatch.setattr(sys, "argv", ["benchmark_gpu.py", str(tmp_path), "--seconds", "600"])
    return module


def steps_of(tmp_path: Path) -> dict[str, Any]:
    return dict(json.loads((tmp_path / "gpu.json").read_text())["steps"])


def test_a_step_that_takes_too_long_is_ended_and_what_it_found_is_kept(script: Any, tmp_path: Path, monkeypatch):
    def slow(found: dict[str, Any]) -> None:
        found["rows"] = [{"variant": "onnx_fp32"}]
        time.sleep(600)

    monkeypatch.setattr(script, "_steps", lambda *_: {"slow": slow, "next": slow})
    monkeypatch.setattr(sys, "argv", ["benchmark_gpu.py", str(tmp_path), "--seconds", "1"])

    def run_out_of_time(_: int) -> None:  # on a machine that stops for a second the first step is not begun either
        began_s = time.monotonic()
        assert script.main() == 0
        assert time.monotonic() - began_s < 60
        assert steps_of(tmp_path) == {
            "slow": {"ended": "stopped: the time was up", "rows": [{"variant": "onnx_fp32"}]},
            "next": {"ended": "not begun: the time was up"},
        }

    in_one_of(run_out_of_time)


def test_a_step_that_fails_says_why_and_the_next_one_runs(script: Any, tmp_path: Path, monkeypatch):
    def fail(found: dict[str, Any]) -> None:
        raise ModelError("trtexec built no engine")

    monkeypatch.setattr(script, "_steps", lambda *_: {"bad": fail, "good": lambda found: found.update(rows=[1])})
    assert script.main() == 0
    assert steps_of(tmp_path)["bad"]["ended"] == "failed: ModelError: trtexec built no engine"
    assert steps_of(tmp_path)["good"] == {"ended": "done", "rows": [1]}


def test_a_machine_that_can_do_nothing_is_told_what_it_needs(script: Any, monkeypatch, capsys):
    monkeypatch.setattr(script, "_steps", lambda *_: {})
    assert script.main() == 1
    assert "no NVIDIA GPU that nvidia-smi shows" in capsys.readouterr().err
