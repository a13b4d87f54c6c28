"""The pins of the two installation paths agree, and importing the package costs next to nothing."""

import re
import subprocess
import sys
from importlib.metadata import requires

import yaml
from packaging.requirements import Requirement

from workbook.artifacts import PROJECT_DIR


def declared_pins(extra: str, python: str) -> dict[str, str]:
    """Name and specifier of every requirement of the package that holds for this Python and extra."""
    requirements = [Requirement(line) for line in requires("workbook") or []]
    here = {"python_version": python, "extra": extra}
    chosen = [r for r in requirements if not r.marker or r.marker.evaluate(here)]
    return {r.name.lower(): str(r.specifier) for r in chosen}


def conda_pins() -> dict[str, str]:
    environment = yaml.safe_load((PROJECT_DIR / "environment.yml").read_text())
    lines = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    requirements = [Requirement(line) for line in lines if not line.startswith("-")]
    return {r.name.lower(): str(r.specifier) for r in requirements}


def test_conda_and_pip_install_the_same_versions() -> None:
    assert conda_pins() == declared_pins(extra="gpu", python="3.12")


def test_every_direct_dependency_is_pinned_exactly() -> None:
    for python in ("3.10", "3.11", "3.12", "3.13"):
        for name, specifier in declared_pins(extra="test", python=python).items():
            assert re.fullmatch(r"==[\w.]+", specifier), f"{name} {specifier} on Python {python}"


def test_import_is_quick_and_loads_no_heavy_library() -> None:
    program = (
        "import sys, pkgutil, importlib, workbook\n"
        "for m in pkgutil.walk_packages(workbook.__path__, 'workbook.'):\n"
        "    if not m.name.endswith('__main__'): importlib.import_module(m.name)\n"
        "heavy = {'torch', 'transformers', 'onnx', 'onnxruntime', 'plotly', 'datasets', 'papermill'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
