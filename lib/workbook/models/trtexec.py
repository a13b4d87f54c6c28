"""trtexec: where it is on this machine, and the command line it wants from us."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbook.errors import SettingError, SetupError
from workbook.models.engine_log import dotted, parse_version

IMAGES = {
    "nvcr.io/nvidia/tensorrt:24.10-py3": (10, 5, 0),
    "nvcr.io/nvidia/tritonserver:24.10-py3": (10, 5, 0),
}
"""Containers that hold trtexec, first choice first, with their TensorRT: that of the Triton release we serve with."""
PRECISION_FLAGS = {"fp32": (), "fp16": ("--fp16",), "bf16": ("--bf16",), "best": ("--best",)}
INPUTS = ("input_ids", "attention_mask")
# The images keep trtexec in different folders, not all of them on PATH.
_IN_CONTAINER = 'PATH="$PATH:/usr/src/tensorrt/bin:/opt/tensorrt/bin:/workspace/tensorrt/bin" exec trtexec "$@"'


@dataclass(frozen=True)
class EngineShapes:
    """Shapes of an engine's one optimisation profile, each `(batch, sequence)`; kernels are chosen for `opt`.

    Raises:
        SettingError: a size is below 1, or min <= opt <= max does not hold in both.
    """

    min: tuple[int, int] = (1, 1)
    opt: tuple[int, int] = (32, 128)
    max: tuple[int, int] = (32, 512)

    def __post_init__(self) -> None:
        for axis, sizes in zip(("batch", "sequence"), zip(self.min, self.opt, self.max, strict=True), strict=True):
            if not 1 <= sizes[0] <= sizes[1] <= sizes[2]:
                raise SettingError(f"engine shapes: {axis} min/opt/max are {sizes}; give 1 <= min <= opt <= max")


@dataclass(frozen=True)
class Trtexec:
    """A trtexec that can be run.

    Attributes:
        program: its path, or the image that holds it.
        version: of its TensorRT: major, minor, patch.
        in_container: whether `program` is an image.
    """

    program: str
    version: tuple[int, int, int]
    in_container: bool = False

    @property
    def generation(self) -> int:
        """10 (precision by flag; older ones too) or 11 (precision by the ONNX file)."""
        return 11 if self.version[0] >= 11 else 10

    def wrap(self, command: Sequence[str], folders: Sequence[Path], name: str = "") -> list[str]:
        """The command as this machine runs it; a container gets the folders under the same paths.

        Args:
            command: from `trtexec_command`; its first word is replaced.
            folders: all that it reads and writes.
            name: of the container.

        Raises:
            SetupError: a folder's name cannot be given to Docker.
        """
        if not self.in_container:
            return [self.program, *command[1:]]
        return [
            *("docker", "run", "--rm", "--init", f"--name={name or new_container_name()}", "--gpus=all"),
            f"--user={os.getuid()}:{os.getgid()}",
            *(_mount(folder) for folder in dict.fromkeys(folders)),
            *("--entrypoint=sh", self.program, "-c", _IN_CONTAINER, "trtexec", *command[1:]),
        ]


def trtexec_command(
    onnx: Path,
    plan: Path,
    shapes: EngineShapes,
    precision: str,
    generation: int,
    timing_cache: Path | None = None,
    *,
    cuda_graph: bool = True,
    tf32: bool = True,
    verbose: bool = True,
) -> list[str]:
    """The command that builds an engine and measures it at its largest shape.

    Args:
        onnx: the model; for generation 11 already in the wanted precision.
        plan: where the engine goes.
        shapes: of the optimisation profile; `shapes.max` is measured.
        precision: fp32, fp16, bf16 or best (what is fastest of fp32, fp16, bf16 and int8; generation 10 only).
        generation: 10 or 11, see `Trtexec.generation`.
        timing_cache: kernel times kept between builds.
        cuda_graph: measure with the execution captured as one CUDA graph.
        tf32: let fp32 matrix products round their inputs to 10 bits of mantissa, as TensorRT does by default.
        verbose: print every step; the progress display reads it.

    Raises:
        SettingError: no such precision or generation, or a precision that this generation cannot build.
    """
    if generation not in (10, 11):
        raise SettingError(f"trtexec generation is {generation}; it must be 10 or 11")
    if precision not in PRECISION_FLAGS:
        raise SettingError(f"engine precision is {precision!r}; it must be one of {', '.join(PRECISION_FLAGS)}")
    if generation == 11 and precision == "best":
        raise SettingError('TensorRT 11 has no precision "best": the ONNX file sets it. Give fp32, fp16 or bf16.')
    return [
        "trtexec",
        f"--onnx={onnx}",
        f"--saveEngine={plan}",
        *(f"--{bound}Shapes={_spec(getattr(shapes, bound))}" for bound in ("min", "opt", "max")),
        f"--shapes={_spec(shapes.max)}",
        *(PRECISION_FLAGS[precision] if generation == 10 else ()),
        *([] if tf32 else ["--noTF32"]),
        *(["--useCudaGraph"] if cuda_graph else []),
        *([f"--timingCacheFile={timing_cache}"] if timing_cache else []),
        *(["--verbose"] if verbose else []),
    ]


def find_trtexec() -> Trtexec | None:
    """The trtexec on PATH, else a pinned image that Docker has on this machine; None where there is neither.

    Raises:
        SetupError: there is a trtexec on PATH that does not run.
    """
    program = shutil.which("trtexec")
    if program:
        return Trtexec(program, _version_of(program))
    for image, version in IMAGES.items():
        if shutil.which("docker") and _succeeds("docker", "image", "inspect", image):
            return Trtexec(image, version, in_container=True)
    return None


def how_to_get_trtexec() -> str:
    """What a reader can do who has none."""
    image, version = next(iter(IMAGES.items()))
    return f"trtexec of TensorRT {dotted(version)} (docker pull {image}, or put trtexec on PATH)"


def new_container_name() -> str:
    """A name that no other container has."""
    return f"workbook-trtexec-{uuid.uuid4().hex[:12]}"


def _version_of(program: str) -> tuple[int, int, int]:
    """From the banner of `--help`; `--version` prints it too, but fails for want of a model."""
    try:
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{program} does not run ({error}): mend it or take it off PATH") from error
    if "TensorRT.trtexec" not in shown.stdout + shown.stderr:
        last = (shown.stderr.strip() or shown.stdout.strip() or f"exit code {shown.returncode}").splitlines()[-1]
        raise SetupError(f"{program} --help prints no TensorRT version ({last}): mend it or take it off PATH")
    return parse_version(shown.stdout + shown.stderr)


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _spec(shape: tuple[int, int]) -> str:
    return ",".join(f"{name}:{shape[0]}x{shape[1]}" for name in INPUTS)


def _mount(folder: Path) -> str:
    if "," in str(folder) or '"' in str(folder):
        raise SetupError(f"Docker cannot mount {folder}: its name holds a comma or a quote; move the folder")
    return f"--mount=type=bind,source={folder},target={folder}"
