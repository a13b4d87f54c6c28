"""What README and CONTRIBUTING tell a reader to type, open and look up exists."""

import re
import shlex
import subprocess

import pytest

from workbook.artifacts import PROJECT_DIR
from workbook.runner import RunRequest, gather_parameters
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
    made_later = {"runs/", "artifacts/"}
    for name in re.findall(r"^(\w[\w/]*/) ", tree[1], re.M):
        assert name in made_later or (PROJECT_DIR / name).is_dir(), name


def test_help_lists_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=PROJECT_DIR, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "run", "test", "lab", "clean"):
        assert f"make {target}" in shown
