"""Is this file the engine that was built? What was noted when it was, held against what lies there now.

Only TensorRT can read an engine, and only on the GPU that it was built for; but what is not the file that trtexec wrote
and measured need not be given to it.
"""

from __future__ import annotations

from pathlib import Path

from workbook.artifacts import file_sha256
from workbook.errors import ModelError

PLAN_MAGIC = b"ftrt"
"""First bytes of a serialised TensorRT engine; torch_tensorrt tells engines from other data by them too."""


def check_engine(plan: Path, sha256: str, size_bytes: int) -> None:
    """Do nothing where the file is the engine that was built.

    Args:
        plan: the engine.
        sha256: noted when it was built, in hex.
        size_bytes: noted when it was built.

    Raises:
        ModelError: it is missing or another; the message says in what it differs, and what to delete.
    """
    if not plan.is_file():
        problem = "is not there"
    elif (found := plan.stat().st_size) != size_bytes:
        problem = f"has {found:,} bytes, and {size_bytes:,} were built"
    elif file_sha256(plan) != sha256:
        problem = "has the size that was built and another content"
    else:
        return
    raise ModelError(
        f"the engine {plan} {problem}{_kind(plan)}. TensorRT would refuse it: delete the folder {plan.parent} and run "
        "notebook 02_build_engines again, which builds it anew."
    )


def _kind(plan: Path) -> str:
    """What a file's first bytes say of it."""
    if not plan.is_file():
        return ""
    with plan.open("rb") as file:
        return "" if file.read(len(PLAN_MAGIC)) == PLAN_MAGIC else "; it does not begin as an engine does"
