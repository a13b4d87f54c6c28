"""Every way to run the one encoder: which library, which precision, what it needs, how it is made and served."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import requires
from pathlib import Path

from workbook.errors import SettingError, SetupError
from workbook.models.engines import PLAN_FILE, Engine
from workbook.models.export import MODEL_FILE
from workbook.models.machine import Machine
from workbook.models.precision import convert_fp16, quantise_int8
from workbook.models.torch_program import PROGRAM_FILE
from workbook.models.trtexec import how_to_get_trtexec
from workbook.models.variant_making import Ingredients, Make, from_onnx, from_tensorrt, from_torch

__all__ = [
    "VARIANTS",
    "Ingredients",
    "Variant",
    "VariantModel",
    "choose_variants",
    "find_variant",
    "how_to_get",
    "make_variant",
]

PLATFORMS = {"onnxruntime": "onnxruntime_onnx", "tensorrt": "tensorrt_plan"}
"""Triton's older name of a backend with its file format, as the article's config.pbtxt has it; the others have none."""


@dataclass(frozen=True)
class VariantModel:
    """A variant that has been made.

    Attributes:
        variant: which.
        path: the file to serve; weights too large for it lie beside it.
        sha256: of the file, or as the export gives it.
        bytes: size of all its files.
        hidden_size: width of the outputs.
        max_length: most tokens a row may have.
        engine: figures of the build, for TensorRT.
    """

    variant: Variant
    path: Path
    sha256: str
    bytes: int
    hidden_size: int
    max_length: int
    engine: Engine | None = None

    @property
    def files(self) -> dict[str, Path]:
        """Name in the version's folder of a model repository -> where it lies now."""
        return {path.name: path for path in sorted(self.path.parent.glob(f"{self.path.name}*"))}


@dataclass(frozen=True)
class Variant:
    """One way to run the encoder.

    Attributes:
        name: as parameters and tables call it: engine and precision.
        engine: library that computes: onnxruntime, openvino, torch, tensorrt.
        precision: fp32, fp16, bf16, int8, best.
        file: name of the served file.
        make: brings that file into being from the ingredients.
        container_backend: Triton's backend in the container; None: the container cannot serve it.
        embedded_engine: what our Python backend runs it with; None: the embedded server cannot serve it.
        min_cosine: least cosine to fp32 that a row may have for the variant to count as the same model.
    """

    name: str
    engine: str
    precision: str
    file: str
    make: Make = field(repr=False)
    container_backend: str | None
    embedded_engine: str | None
    min_cosine: float

    @property
    def container_platform(self) -> str:
        """Triton's `platform` for the container; empty where `backend` alone says it."""
        return PLATFORMS.get(self.container_backend or "", "")

    @property
    def in_process(self) -> bool:
        """Whether `open_variant` can run it in this process; an engine is run by Triton only."""
        return self.engine != "tensorrt"

    def missing(self, machine: Machine) -> str:
        """What this machine lacks to make and serve it, as a sentence; empty where it lacks nothing."""
        lacks = [*self._lacking_server(machine), *self._lacking_tools(machine)]
        return f"not run on this machine: needs {_listed(lacks)}" if lacks else ""

    def slow(self, machine: Machine) -> str:
        """Why `auto` leaves it out although it would run; empty where it does not."""
        if self.name == "torch_bf16" and not machine.gpus and not machine.bf16_instructions:
            return (
                "not run on this machine: needs a processor with bf16 instructions or a GPU; it would run here about "
                'seven times slower than fp32 (ask for it by name: variants = ["torch_bf16"])'
            )
        return ""

    def _lacking_server(self, machine: Machine) -> list[str]:
        if machine.server == "embedded" and not self.embedded_engine:
            return [f'a server with the {self.container_backend} backend (server = "container")']
        if machine.server == "container" and not self.container_backend:
            return ['a server whose Python has PyTorch, which the container lacks (server = "embedded")']
        return []

    def _lacking_tools(self, machine: Machine) -> list[str]:
        if self.engine != "tensorrt":
            return (
                [] if self.engine in machine.libraries else [f"the library {self.engine} ({how_to_get(self.engine)})"]
            )
        lacks = [] if machine.gpus else ["an NVIDIA GPU"]
        if machine.trtexec is None:
            lacks.append(how_to_get_trtexec())
        elif self.precision == "best" and machine.trtexec.generation == 11:
            lacks.append("trtexec of TensorRT 10 (in 11 the ONNX file sets the precision, there is no --best)")
        return lacks


def how_to_get(library: str) -> str:
    """The command that installs a library in the version this project pins for this Python."""
    from packaging.requirements import Requirement

    pins = [Requirement(line) for line in requires("workbook") or []]
    here = [pin for pin in pins if pin.name == library and (not pin.marker or pin.marker.evaluate())]
    return f"pip install {library}{here[0].specifier}" if here else "make setup"


def choose_variants(names: str | Sequence[str], machine: Machine) -> tuple[list[Variant], list[tuple[Variant, str]]]:
    """Split variants into those this machine can run and those it cannot, each with the sentence that says why.

    Args:
        names: `"auto"` or `["auto"]` for all, or names; a variant that would only be slow runs if it is named.
        machine: from `describe_machine`.

    Returns:
        Variants to run, and (variant, sentence) of those not to; both in the order asked for.

    Raises:
        SettingError: no variant has such a name, or none is named.
    """
    listed = [names] if isinstance(names, str) else list(names)
    automatic = set(listed) == {"auto"}
    asked = list(VARIANTS) if automatic else [find_variant(name) for name in listed]
    if not asked:
        raise SettingError('variants is empty: give "auto" or some of ' + ", ".join(v.name for v in VARIANTS))
    runnable, not_run = [], []
    for variant in dict.fromkeys(asked):
        reason = variant.missing(machine) or (variant.slow(machine) if automatic else "")
        if reason:
            not_run.append((variant, reason))
        else:
            runnable.append(variant)
    return runnable, not_run


def find_variant(name: str) -> Variant:
    """The variant of this name.

    Raises:
        SettingError: there is none.
    """
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    if name == "auto":
        raise SettingError('variants holds "auto" beside names: give ["auto"] alone for all, or the names alone.')
    names = [variant.name for variant in VARIANTS]
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f'Known: "auto", {", ".join(names)}.'
    raise SettingError(f"there is no variant called {name!r}. {hint}")


def make_variant(variant: Variant, ingredients: Ingredients) -> VariantModel:
    """Build what the variant serves, or return what was built before.

    Raises:
        SetupError: this machine lacks something it needs to make it.
        ModelError: the export, conversion or engine build failed.
    """
    if lacks := variant._lacking_tools(ingredients.machine):
        raise SetupError(f"{variant.name} cannot be made on this machine: it needs {_listed(lacks)}")
    made = variant.make(ingredients)
    return VariantModel(variant=variant, hidden_size=ingredients.exported.hidden_size, **vars(made))


def _listed(things: Sequence[str]) -> str:
    """A, b and c."""
    return " and ".join([", ".join(things[:-1])] * (len(things) > 1) + list(things[-1:]))


def _onnx(precision: str, make: Make, min_cosine: float, engine: str = "onnxruntime") -> Variant:
    name = f"{'onnx' if engine == 'onnxruntime' else engine}_{precision}"
    return Variant(name, engine, precision, MODEL_FILE, make, engine, engine, min_cosine)


def _torch(precision: str, min_cosine: float) -> Variant:
    make = from_torch(precision)
    return Variant(f"torch_{precision}", "torch", precision, PROGRAM_FILE, make, None, "torch", min_cosine)


def _tensorrt(precision: str, min_cosine: float) -> Variant:
    make = from_tensorrt(precision)
    return Variant(f"tensorrt_{precision}", "tensorrt", precision, PLAN_FILE, make, "tensorrt", None, min_cosine)


# 0.9999 for what should be the same function but for rounding, 0.999 for 8 bits of mantissa, 0.98 for 8-bit integers;
# TensorRT's fp32 may use TF32 (10 bits of mantissa), its best any of them.
VARIANTS: tuple[Variant, ...] = (
    _onnx("fp32", from_onnx(), 0.9999),
    _onnx("fp16", from_onnx(convert_fp16), 0.9999),
    _onnx("int8", from_onnx(quantise_int8), 0.98),
    _onnx("fp32", from_onnx(), 0.9999, engine="openvino"),
    _torch("fp32", 0.9999),
    _torch("bf16", 0.999),
    _tensorrt("fp32", 0.9999),
    _tensorrt("fp16", 0.999),
    _tensorrt("bf16", 0.999),
    _tensorrt("best", 0.98),
)
