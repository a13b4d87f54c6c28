"""A request that cannot be carried out is refused before its first notebook."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_encoder import save_tiny
from workbook.errors import ModelError, ServerError, SettingError, SetupError, WorkbookError
from workbook.preflight import check_run, shown_parameters
from workbook.run_request import NOTEBOOKS_DIR, absolute_paths
from workbook.settings import Settings

SOUND = Settings(corpus="mine.csv", rows=1)
SERVING = [NOTEBOOKS_DIR / "03_serve_with_triton.ipynb"]


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.csv").write_text("text\nhello\n")
    monkeypatch.chdir(tmp_path)


def test_a_sound_request_passes() -> None:
    check_run(SOUND, SERVING)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"model": "bert"}, SettingError, "names no source"),
        ({"model": "path:nowhere"}, ModelError, "there is no folder"),
        ({"model": "path:~nobody-here/x"}, ModelError, "cannot be looked up"),
        ({"variants": ("onnx_fp32", "onnx_fp23")}, SettingError, "Did you mean onnx_fp32"),
        ({"variants": ("auto", "onnx_fp32")}, SettingError, "auto.* beside names"),
        ({"layers": 13}, SettingError, r"layers=13 is outside 1\.\.12"),
        ({"server": "remote:localhost"}, SettingError, "remote:HOST:GRPC_PORT"),
        ({"server": "remote:[::1]:8001"}, SettingError, "remote:HOST:GRPC_PORT"),
        ({"server": "remote:127.0.0.1:9"}, ServerError, "No ready Triton server answers"),
        ({"server": f"remote:{'x' * 70}.de:9"}, ServerError, "No ready Triton server answers"),
        ({"perf_analyzer": "/no/such/program"}, SettingError, "which is no program"),
        ({"segmentation": "foo"}, SettingError, "segmentation is 'foo': give trained"),
        ({"segmentation": "checkpoint:/no/such"}, ModelError, "no such file"),
        ({"segmentation": "path:/no/such"}, ModelError, "no such folder"),
        ({"ensemble_causes": ("foo",)}, SettingError, "ensemble_causes holds 'foo'"),
        ({"replay": "/no/such"}, SettingError, "there is no run '/no/such'"),
        ({"replay": "~nobody-here/x"}, SettingError, "there is no run"),
        ({"corpus": "absent.csv"}, WorkbookError, "is not there"),
        ({"rows": 2}, WorkbookError, "Set rows to 1 or less"),
    ],
)
def test_what_cannot_be_there_is_refused(wrong: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_run(replace(SOUND, **wrong), SERVING)  # type: ignore[arg-type]


def test_docker_is_asked_for_only_where_a_notebook_starts_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    container = replace(SOUND, server="container")
    check_run(container, [NOTEBOOKS_DIR / "01_export_models.ipynb"])
    with pytest.raises(SetupError, match="no docker command"):
        check_run(container, SERVING)


def test_a_model_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    check_run(replace(SOUND, model=f"path:{folder}", layers=2), [])
    with pytest.raises(SettingError, match=r"outside 1\.\.2"):
        check_run(replace(SOUND, model=f"path:{folder}", layers=3), [])
    config = json.loads((folder / "config.json").read_text())
    for changed in ({"model_type": "gpt2"}, {"is_decoder": True}, {"model_type": None}):
        (folder / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises(ModelError, match="is no text encoder"):
            check_run(replace(SOUND, model=f"path:{folder}"), [])
    for text in ("{", "[]"):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json"):
            check_run(replace(SOUND, model=f"path:{folder}"), [])


def test_paths_are_made_absolute_from_where_the_command_runs(tmp_path: Path) -> None:
    given = {"corpus": "mine.csv", "model": "path:my model", "perf_analyzer": "bin/pa", "rows": 3}
    wanted = {
        "corpus": f"{tmp_path}/mine.csv",
        "model": f"path:{tmp_path}/my model",
        "perf_analyzer": f"{tmp_path}/bin/pa",
    }
    assert absolute_paths(given) == {**wanted, "rows": 3}
    kept = {"corpus": "sample", "model": "hub:a/b", "perf_analyzer": "none"}
    assert absolute_paths(kept) == kept
    assert absolute_paths({"corpus": "~nobody-here/a\0b.csv", "model": 5})["model"] == 5


def test_a_notebook_shows_its_parameters() -> None:
    assert {"model", "server", "concurrency"} <= shown_parameters(SERVING[0])
    assert "server" not in shown_parameters(NOTEBOOKS_DIR / "01_export_models.ipynb")
