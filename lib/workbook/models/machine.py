"""What this machine brings along for running a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from workbook.environment import gpu_names
from workbook.models.processor import has_bf16_instructions
from workbook.models.trtexec import Trtexec, find_trtexec

LIBRARIES = ("onnxruntime", "openvino", "torch")


@dataclass(frozen=True)
class Machine:
    """What `choose_variants` asks about.

    Attributes:
        server: the kind of server that variants would be served by: `embedded`, `container`, or `remote`.
        gpus: names of the NVIDIA GPUs.
        trtexec: where engines can be built.
        libraries: version of each Python library that imports here.
        bf16_instructions: whether the processor multiplies bf16.
    """

    server: str = "embedded"
    gpus: tuple[str, ...] = ()
    trtexec: Trtexec | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    bf16_instructions: bool = False


def describe_machine(server: str = "embedded") -> Machine:
    """Look at this machine; nothing is imported, started or built.

    Args:
        server: the kind of server that will be used, as `Server.kind` names it.

    Raises:
        SetupError: there is a trtexec on PATH that does not run.
    """
    return Machine(
        server=server,
        gpus=tuple(name.split(",")[0] for name in gpu_names()),
        trtexec=find_trtexec(),
        libraries={name: found for name in LIBRARIES if (found := _version(name))},
        bf16_instructions=has_bf16_instructions(),
    )


def _version(library: str) -> str | None:
    try:
        return version(library) if find_spec(library) else None
    except PackageNotFoundError:
        return None
