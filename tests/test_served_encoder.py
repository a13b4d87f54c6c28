"""The Python model that serves every embedded variant, without a server around it."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from workbook.models.export import OUTPUTS
from workbook.models.variants import VARIANTS
from workbook.serving.repository import committed_repository


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module model.py; the utilities that only Triton has are an empty module."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.ModuleType("triton_python_backend_utils"))
    spec = importlib.util.spec_from_file_location("served_encoder", committed_repository() / "e5_onnx/1/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def initialize(module: Any, folder: Path, engine: str) -> None:
    (folder / "1").mkdir(exist_ok=True)
    parameters = {"engine": engine, "max_tokens": "512", "intra_op_thread_count": "1", "inter_op_thread_count": "1"}
    config = {
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
        "output": [{"name": name} for name in OUTPUTS],
    }
    arguments = {"model_config": json.dumps(config), "model_repository": str(folder), "model_version": "1"}
    module.TritonPythonModel().initialize(arguments)


def test_it_knows_every_embedded_engine_and_its_file(served: Any) -> None:
    files = {variant.embedded_engine: variant.file for variant in VARIANTS if variant.embedded_engine}
    assert files == served._FILES
    assert set(served._OPENERS) == set(files)
    assert served._ALL_OUTPUTS == OUTPUTS


def test_an_engine_it_does_not_know_is_refused(served: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="engine is 'tensorrt': this model runs onnxruntime, openvino, torch"):
        initialize(served, tmp_path, "tensorrt")


def test_weights_that_are_not_there_say_what_to_run(served: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.pt2 is not there.*run notebook 01"):
        initialize(served, tmp_path, "torch")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "torch"])
def test_a_library_that_is_missing_is_named(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / served._FILES[engine]).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, engine, None)  # importing it fails
    with pytest.raises(RuntimeError, match=f"the library {engine} does not import here .*: run make setup"):
        initialize(served, tmp_path, engine)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_malformed_file_says_what_to_delete(served: Any, tmp_path: Path, engine: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeError, match=rf"{engine} cannot load model\.onnx \(8 bytes\).*run notebook 02"):
        initialize(served, tmp_path, engine)
