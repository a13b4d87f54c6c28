"""What README and CONTRIBUTING tell a reader to type, open and look up exists."""

import re
import shlex
import subprocess

import pytest

from workbook.artifacts import PROJECT_DIR
from workbook.run_request import RunRequest, gather_parameters
from workbook.settings import PARAMETERS_DIR, Settings

PAGES = {name: (PROJECT_DIR / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "data/README.md")}
README = PAGES["README.md"]
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.S)
    for line in block.splitlines()
]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGES[page]):
        if not link.startswith("http"):
            assert ((PROJECT_DIR / page).parent / link).exists(), link


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make")])
def test_make_commands_are_known_and_their_parameters_are_accepted(command: str) -> None:
    words = shlex.split(command)[1:]
    dry = subprocess.run(["make", "--dry-run", *words], cwd=PROJECT_DIR, capture_output=True, text=True, check=True)
    assert dry.stdout
    given = dict(word.split("=", 1) for word in words if "=" in word)
    overrides = tuple(shlex.split(given.get("SET", "")))
    parameters = gather_parameters(given.get("PROFILE", "cpu"), RunRequest(overrides=overrides))
    Settings.from_parameters(parameters)


def test_papermill_command_names_files_that_exist() -> None:
    (command,) = [c for c in COMMANDS if c.startswith("papermill")]
    _, notebook, _, flag, parameters = shlex.split(command)
    assert (PROJECT_DIR / notebook).is_file() and flag == "-f" and (PROJECT_DIR / parameters).is_file()


def test_reading_order_lists_every_notebook_in_order() -> None:
    there = [path.name for path in sorted((PROJECT_DIR / "notebooks").glob("*.ipynb"))]
    assert re.findall(r"\(notebooks/(\w+\.ipynb)\) \|", README) == there


def test_every_profile_is_named() -> None:
    for path in PARAMETERS_DIR.glob("*.yaml"):
        assert f"`{path.stem}`" in README


def test_the_annotated_tree_names_what_is_there() -> None:
    tree = re.search(r"## Where things are\n\n```\n(.*?)```", README, re.S)
    assert tree
    above: list[str] = []
    named = set()
    for indent, name in re.findall(r"^( *)(\w[\w/]*/) ", tree[1], re.M):
        above[len(indent) // 2 :] = [name]
        named.add("".join(above))
    missing = {path for path in named if not (PROJECT_DIR / path).is_dir()} - {"runs/", "artifacts/"}
    assert not missing
    for parent in ("lib/workbook/", "lib/workbook/measuring/"):
        there = {f"{parent}{path.parent.name}/" for path in (PROJECT_DIR / parent).glob("*/__init__.py")}
        assert there <= named, there - named


@pytest.mark.parametrize("page", PAGES)
def test_files_named_in_the_text_exist(page: str) -> None:
    """A path in backticks is from the project's folder, from the package, or from the tests."""
    bases = [PROJECT_DIR, PROJECT_DIR / "lib" / "workbook", PROJECT_DIR / "lib" / "workbook" / "measuring"]
    for path in re.findall(r"`((?:[a-z_]\w*/)+\w+\.(?:py|yaml|ipynb))`", PAGES[page]):
        assert any((base / path).is_file() for base in bases), path


def test_names_that_the_recipes_use_are_there() -> None:
    recipes = PAGES["CONTRIBUTING.md"]
    for name, file in {
        "VARIANTS": "lib/workbook/models/variants.py",
        "REQUEST_COLUMNS": "lib/workbook/measuring/records.py",
        "new_figure": "lib/workbook/display/drawing.py",
        "COLOURS": "lib/workbook/display/theme.py",
        "build_once": "lib/workbook/artifacts.py",
        "FIGURES": "tests/test_plots.py",
        "RESULT_FIELDS": "tests/test_notebooks.py",
        "ON_CPU": "tests/test_variants.py",
    }.items():
        assert name in recipes and re.search(rf"^(def )?{name}\b", (PROJECT_DIR / file).read_text(), re.M), name


def test_errors_of_the_troubleshooting_table_are_ours() -> None:
    """What a reader looks up there is said somewhere in the code, word for word."""
    code = "\n".join(path.read_text() for path in [*PROJECT_DIR.glob("lib/**/*.py"), PROJECT_DIR / "Makefile"])
    table = README[README.index("| what you see |") :]
    seen = re.findall(r"^\| `([^`]+)`", table, re.M)
    assert len(seen) > 10
    spoken = re.sub(r"\{[^{}]*\}|\$\(\w+\)", "", re.sub(r'"\s*\n\s*f?"', "", code))
    for message in seen:
        words = message.removeprefix("set-up: ").replace("3.x", "").split("...")
        for part in (re.sub(r"^\w+Error:", "", word).strip(" =") for word in words):
            bare = re.sub(r"\d+|ROWS|'text'", "", part).strip(" '")
            assert bare in spoken, part


def test_help_lists_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=PROJECT_DIR, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "run", "test", "lab", "compare", "clean"):
        assert f"make {target}" in shown
