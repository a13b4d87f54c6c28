"""TensorRT engines, built with trtexec once for each ONNX file, precision, TensorRT version and GPU."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from workbook.artifacts import artifacts_dir, build_once, file_sha256, key_digest
from workbook.errors import ModelError
from workbook.models.engine_log import (
    KERNEL_TIMED,
    STAGES,
    EngineBuild,
    dotted,
    error_lines,
    parse_trtexec_log,
    parse_version,
)
from workbook.models.engine_process import run_logged
from workbook.models.engine_record import check_engine
from workbook.models.export import ExportedModel
from workbook.models.precision import check_onnx
from workbook.models.trtexec import EngineShapes, Trtexec, find_trtexec, new_container_name, trtexec_command

__all__ = [
    "Engine",
    "EngineBuild",
    "EngineShapes",
    "Trtexec",
    "build_engine",
    "find_trtexec",
    "parse_trtexec_log",
    "parse_version",
    "trtexec_command",
]

KIND = "engine"
PLAN_FILE = "model.plan"
LOG_FILE = "trtexec.log"
BUILD_FILE = "build.json"
SHA256 = "plan_sha256"
# What an engine is tied to; the rest of its key says what it is of.
TIES = ("tensorrt", "gpu")


@dataclass(frozen=True)
class Engine:
    """A built engine.

    Attributes:
        path: the `model.plan`.
        sha256: of the file, as it was built.
        build: figures of its build.
        gpu: name of the GPU it was built on, the only kind it runs on.
        log_file: all that trtexec printed.
    """

    path: Path
    sha256: str
    build: EngineBuild
    gpu: str
    log_file: Path = field(repr=False)


def build_engine(
    exported: ExportedModel,
    precision: str,
    trtexec: Trtexec,
    gpu: str,
    *,
    shapes: EngineShapes | None = None,
    tf32: bool = True,
    notify: Callable[[str], None] = print,
) -> Engine:
    """Build an engine, or return the one that was built by this TensorRT for this GPU.

    Args:
        exported: the ONNX file; for TensorRT 11 already in the wanted precision.
        precision: fp32, fp16, bf16 or best.
        trtexec: from `find_trtexec`.
        gpu: name of the GPU, see `workbook.environment.gpu_names`.
        shapes: of the optimisation profile; by default 1x1 to 32x512, tuned for 32x128.
        tf32: whether fp32 matrix products may use TF32.
        notify: gets one sentence where a kept engine cannot be used, and each stage of a build.

    Raises:
        ModelError: the ONNX file is malformed (said before anything starts), trtexec failed (with its error lines), or
            the engine kept is no longer the file that was built.
        SettingError: the precision cannot be built by this TensorRT.
        SetupError: trtexec cannot be started.
    """
    shapes = shapes or EngineShapes()
    # refuses a precision that this TensorRT lacks before anything else happens
    trtexec_command(exported.path, Path(PLAN_FILE), shapes, precision, trtexec.generation)
    key: dict[str, Any] = {
        "onnx": exported.sha256,
        "shapes": {bound: list(sizes) for bound, sizes in asdict(shapes).items()},
        "precision": precision,
        "tf32": tf32,
        "tensorrt": dotted(trtexec.version),
        "gpu": gpu,
    }
    if not (artifacts_dir() / KIND / key_digest(key)).is_dir():
        check_onnx(exported.path)
        _say_what_differs(key, notify)
    folder = build_once(
        KIND, key, lambda unfinished: _build(exported, precision, trtexec, gpu, shapes, tf32, unfinished, notify)
    )
    return _read_engine(folder, gpu)


def _read_engine(folder: Path, gpu: str) -> Engine:
    """A finished engine, once its file is known to be the one that was built."""
    build = json.loads((folder / BUILD_FILE).read_text())
    sha256 = build.pop(SHA256)
    for name in ("warnings", "tensorrt_version"):
        build[name] = tuple(build[name])
    check_engine(folder / PLAN_FILE, sha256, build["engine_bytes"])
    return Engine(folder / PLAN_FILE, sha256, EngineBuild(**build), gpu, folder / LOG_FILE)


def _build(
    exported: ExportedModel,
    precision: str,
    trtexec: Trtexec,
    gpu: str,
    shapes: EngineShapes,
    tf32: bool,
    folder: Path,
    notify: Callable[[str], None],
) -> None:
    """Run trtexec into an empty folder and note its figures there."""
    cache = folder.parent / f"timing-{dotted(trtexec.version)}-{_slug(gpu)}.cache"
    plan, container = folder / PLAN_FILE, new_container_name()
    command = trtexec_command(exported.path, plan, shapes, precision, trtexec.generation, cache, tf32=tf32)
    notify(f"TensorRT {dotted(trtexec.version)} builds a {precision} engine on {gpu}; this takes minutes.")
    log_file = folder / LOG_FILE
    code, text = run_logged(
        trtexec.wrap(command, (exported.path.parent, folder.parent), container),
        log_file,
        _Progress(notify),
        after_kill=("docker", "rm", "--force", container) if trtexec.in_container else (),
    )
    if code != 0 or not plan.is_file():
        kept = folder.parent / f"failed-{precision}.log"
        shutil.copyfile(log_file, kept)
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ModelError(
            f"trtexec built no {precision} engine of {exported.path} ({end}):\n{error_lines(text)}\n"
            f"The whole log: {kept}"
        )
    build = replace(parse_trtexec_log(text), engine_bytes=plan.stat().st_size)
    if build.tensorrt_version != trtexec.version:
        raise ModelError(
            f"{trtexec.program} should be TensorRT {dotted(trtexec.version)} and is {dotted(build.tensorrt_version)}: "
            "an engine loads only in the version that built it. Pull the pinned image again."
        )
    (folder / BUILD_FILE).write_text(json.dumps({**asdict(build), SHA256: file_sha256(plan)}) + "\n")


class _Progress:
    """Tells each stage of a build once, and how many kernels have been timed every so often."""

    def __init__(self, notify: Callable[[str], None], every: int = 1000) -> None:
        self._notify, self._every = notify, every
        self._told: set[str] = set()
        self._kernels = 0

    def __call__(self, line: str) -> None:
        for words, stage in STAGES:
            if words in line and stage not in self._told:
                self._told.add(stage)
                self._notify(f"  {stage} ...")
        if KERNEL_TIMED in line:
            self._kernels += 1
            if self._kernels % self._every == 0:
                self._notify(f"  {self._kernels} kernel choices timed ...")


def _say_what_differs(key: dict[str, Any], notify: Callable[[str], None]) -> None:
    """One sentence for each kept engine of the same model that is tied to another TensorRT or GPU."""
    for path in sorted((artifacts_dir() / KIND).glob("*/key.json")):
        kept = json.loads(path.read_text())
        if all(kept.get(name) == value for name, value in key.items() if name not in TIES):
            notify(
                f"The {key['precision']} engine of TensorRT {kept['tensorrt']} on {kept['gpu']} loads nowhere else; "
                f"this is TensorRT {key['tensorrt']} on {key['gpu']}, so it is built again."
            )


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()
