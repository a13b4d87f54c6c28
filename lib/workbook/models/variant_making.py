"""How the files that variants serve come into being: converted ONNX, PyTorch programs, TensorRT engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from workbook.artifacts import file_sha256
from workbook.models.e5 import Encoder
from workbook.models.engines import Engine, build_engine
from workbook.models.export import ExportedModel
from workbook.models.machine import Machine
from workbook.models.precision import convert_bf16, convert_fp16
from workbook.models.torch_program import export_program
from workbook.models.trtexec import EngineShapes


@dataclass(frozen=True)
class Ingredients:
    """What variants are made from.

    Attributes:
        encoder: the PyTorch encoder.
        exported: its fp32 ONNX file.
        machine: where it is made, and for which GPU.
        shapes: of TensorRT engines.
        notify: gets the sentences of a long build.
    """

    encoder: Encoder
    exported: ExportedModel
    machine: Machine
    shapes: EngineShapes = field(default_factory=EngineShapes)
    notify: Callable[[str], None] = print


@dataclass(frozen=True)
class Made:
    """A file to serve.

    Attributes:
        path: the file; weights too large for it lie beside it.
        sha256: of the file, or as the export gives it.
        bytes: size of all its files.
        max_length: most tokens a row may have.
        engine: figures of the build, for TensorRT.
    """

    path: Path
    sha256: str
    bytes: int
    max_length: int
    engine: Engine | None = None


Make = Callable[[Ingredients], Made]


def from_onnx(convert: Callable[[ExportedModel], ExportedModel] | None = None) -> Make:
    """Make the ONNX file, converted from the fp32 export, or the export itself."""

    def make(ingredients: Ingredients) -> Made:
        model = convert(ingredients.exported) if convert else ingredients.exported
        return Made(model.path, model.sha256, model.bytes, model.max_length)

    return make


def from_torch(precision: str) -> Make:
    """Make the PyTorch program in a precision."""

    def make(ingredients: Ingredients) -> Made:
        path = export_program(ingredients.encoder, precision)
        return Made(path, file_sha256(path), path.stat().st_size, ingredients.exported.max_length)

    return make


def from_tensorrt(precision: str) -> Make:
    """Make the TensorRT engine: TensorRT 10 gets the fp32 file and a flag, 11 a file in the precision itself."""
    convert = {"fp16": convert_fp16, "bf16": convert_bf16}.get(precision)

    def make(ingredients: Ingredients) -> Made:
        machine, exported, shapes = ingredients.machine, ingredients.exported, ingredients.shapes
        assert machine.trtexec is not None  # whoever calls has looked what the machine lacks
        source = convert(exported) if convert and machine.trtexec.generation == 11 else exported
        engine = build_engine(
            source, precision, machine.trtexec, machine.gpus[0], shapes=shapes, notify=ingredients.notify
        )
        longest = min(exported.max_length, shapes.max[1])
        return Made(engine.path, engine.sha256, engine.path.stat().st_size, longest, engine)

    return make
