"""onnxruntime sessions with errors a reader can act on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbook.errors import ModelError, SettingError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def open_session(path: Path, threads: int, *, providers: Sequence[str] = ("CPUExecutionProvider",)) -> InferenceSession:
    """An onnxruntime session on an ONNX file.

    Args:
        path: the `model.onnx`; external data is found beside it.
        threads: threads within an operator; operators run one after the other.
        providers: onnxruntime execution providers, best first.

    Raises:
        SettingError: `threads` is below 1.
        ModelError: there is no such file, or it is no ONNX model that onnxruntime can run.
    """
    import onnxruntime

    if threads < 1:
        raise SettingError(f"threads={threads} must be at least 1")
    if not path.is_file():
        raise ModelError(f"there is no ONNX file {path}: export it again with export_onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=list(providers))
    except Exception as error:  # onnxruntime has an exception class for each of its status codes
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"onnxruntime cannot load {path} ({path.stat().st_size} bytes): {reason}\n"
            f"Delete the folder {path.parent} and export again."
        ) from error
