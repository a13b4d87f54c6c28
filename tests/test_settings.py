from pathlib import Path

import nbformat
import pytest
from papermill.inspection import inspect_notebook

from workbook.artifacts import PROJECT_DIR
from workbook.errors import SettingError
from workbook.settings import PARAMETERS_DIR, Settings, parameter_names, read_parameter_file, read_settings

NOTEBOOKS = sorted((PROJECT_DIR / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rows", 0, "between 1 and"),
        ("rows", "many", "must be a whole number"),
        ("rows", True, "must be a whole number"),
        ("rows", 2.5, "must be a whole number"),
        ("window_s", float("nan"), "between 0.05 and 600"),
        ("repeats", 3, "must be even"),
        ("concurrency", [], "is empty"),
        ("concurrency", [0], "between 1 and 1,024"),
        ("concurrency", ["1"], "list of whole numbers"),
        ("device", "tpu", "one of auto, cpu, cuda"),
        ("layers", 0, "between 1 and"),
        ("shape_rounds", 3, "between 1 and 2"),
        ("regime_rounds", 0, "between 2 and"),
        ("search_b_batches", [0, 0], "each number once"),
        ("article_precision", "fp16", "one of auto, bf16, fp32"),
    ],
)
def test_a_bad_value_is_refused_with_its_bound(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        Settings.from_parameters({name: value})
    assert name in str(caught.value)


def test_settings_come_from_a_notebooks_variables() -> None:
    settings = read_settings({"rows": 7, "concurrency": [1, 2], "plot_width": 900})
    assert (settings.rows, settings.concurrency, settings.model) == (7, (1, 2), "bundled")


def test_an_injected_name_nobody_knows_fails_and_names_the_nearest() -> None:
    with pytest.raises(SettingError, match="Did you mean rows"):
        read_settings({"In": ["", "rows = 5", "# Parameters\nrowz = 7\n"]})


def test_settings_survive_the_way_through_a_parameter_file() -> None:
    settings = Settings(concurrency=(1, 2, 3), layers=2)
    assert Settings.from_parameters(settings.as_parameters()) == settings


@pytest.mark.parametrize("path", sorted(PARAMETERS_DIR.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_parameter_file_gives_settings(path: Path) -> None:
    Settings.from_parameters(read_parameter_file(path))


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "rows: [1\n", "rows_: 3\n"], ids=["no mapping", "no yaml", "unknown name"]
)
def test_a_bad_parameter_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(SettingError):
        read_parameter_file(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebooks_own_defaults_are_those_of_the_cpu_profile(path: Path) -> None:
    """Opened in JupyterLab, a notebook measures what `make run` measures."""
    shown = inspect_notebook(str(path))
    assert shown, "the notebook has no parameters cell"
    namespace: dict[str, object] = {}
    cell = next(c for c in nbformat.read(path, 4).cells if "parameters" in c.metadata.get("tags", []))
    exec(cell.source, namespace)
    expected = Settings.from_parameters(read_parameter_file(PARAMETERS_DIR / "cpu.yaml")).as_parameters()
    assert set(shown) <= set(parameter_names())
    assert {name: namespace[name] for name in shown} == {name: expected[name] for name in shown}
