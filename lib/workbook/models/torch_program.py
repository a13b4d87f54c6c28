"""The encoder as a PyTorch program in one file: it loads without transformers and without the model's code."""

from __future__ import annotations

import copy
from pathlib import Path

from workbook.artifacts import build_once
from workbook.errors import ModelError
from workbook.models.e5 import Encoder
from workbook.models.export import with_pooling
from workbook.models.quiet import quiet_libraries

PROGRAM_FILE = "model.pt2"
RECIPE = 1  # raise it when the program changes for a reason that no other part of the key shows
PRECISIONS = ("fp32", "bf16")


def export_program(encoder: Encoder, precision: str) -> Path:
    """Write the encoder with pooling by `torch.export`, once for each model and precision.

    Its inputs and outputs are those of the ONNX export. In bf16 weights and layers are bf16 and pooling is fp32; the
    article's autocast keeps fp32 weights and casts them at every call.

    Args:
        encoder: what is exported.
        precision: fp32 or bf16.

    Returns:
        The `model.pt2`, for `torch.export.load`.

    Raises:
        ModelError: no such precision, or the exporter failed.
    """
    import torch
    import transformers

    if precision not in PRECISIONS:
        raise ModelError(f"a PyTorch program in {precision!r} is not made; give one of {', '.join(PRECISIONS)}")
    key = {
        "fingerprint": encoder.fingerprint,
        "precision": precision,
        "recipe": RECIPE,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return build_once("torch", key, lambda folder: _write(encoder, precision, folder)) / PROGRAM_FILE


def _write(encoder: Encoder, precision: str, folder: Path) -> None:
    import torch

    module = encoder.module if precision == "fp32" else copy.deepcopy(encoder.module).to(torch.bfloat16)
    # unequal sizes of 2 and more: the exporter takes 0 and 1 for constants, and equal sizes for the same dimension
    ids, mask = torch.ones((2, 7), dtype=torch.int64), torch.ones((2, 7), dtype=torch.int64)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with quiet_libraries(), torch.no_grad():
            program = torch.export.export(with_pooling(module), (ids, mask), dynamic_shapes=(axes, axes))
            torch.export.save(program, folder / PROGRAM_FILE)
    except Exception as error:  # the exporter's errors have many types and one meaning
        raise ModelError(f"cannot export {encoder.source} to PyTorch: {type(error).__name__}: {error}") from error
