"""The pins of the two installation paths agree, and importing the package costs next to nothing."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

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


def third_party_imports() -> set[str]:
    """Top-level modules that the package imports anywhere, from outside the standard library and itself."""
    trees = [ast.parse(path.read_text()) for path in (PROJECT_DIR / "lib" / "workbook").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.split(".")[0] for name in plain | parts} - set(sys.stdlib_module_names) - {"workbook"}


def test_what_is_imported_is_declared() -> None:
    modules = third_party_imports() - {"triton_python_backend_utils", "c_python_backend_utils"}  # inside Triton only
    modules -= {"_typeshed"}  # inside a type checker only
    distributions = packages_distributions()
    declared = set(declared_pins(extra="gpu", python="3.12")) | {"sentence-transformers"}  # the peer, of the tests' set
    declared = {name.replace("_", "-") for name in declared}
    missing = {
        module
        for module in modules - {"tensorrt"}
        if not declared & {name.lower().replace("_", "-") for name in distributions.get(module, [module])}
    }
    assert "torch" in modules
    assert missing == set()


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
