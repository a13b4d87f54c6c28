"""The model repository as a reader sees it in a file browser, with one configuration opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbook.errors import SettingError

if TYPE_CHECKING:
    from IPython.display import Markdown

_BYTES_PER_MB = 1e6


def show_repository(repository: Path, model: str) -> Markdown:
    """The repository's files with their sizes, then the model's `config.pbtxt`.

    Raises:
        SettingError: the folder holds no such model.
    """
    from IPython.display import Markdown

    config = repository / model / "config.pbtxt"
    if not config.is_file():
        raise SettingError(f"{repository} holds no model {model!r}: there is no {model}/config.pbtxt in it.")
    tree = "\n".join(_tree(repository))
    text = f"```text\n{tree}\n```\n\n`{model}/config.pbtxt`:\n\n```protobuf\n{config.read_text().rstrip()}\n```"
    return Markdown(text)  # type: ignore[no-untyped-call]


def _tree(folder: Path, indent: str = "") -> list[str]:
    lines = []
    for path in sorted(path for path in folder.iterdir() if path.name != "__pycache__"):
        lines.append(f"{indent}{path.name}/" if path.is_dir() else f"{indent}{path.name}  {_size(path)}")
        if path.is_dir():
            lines += _tree(path, indent + "    ")
    return lines


def _size(path: Path) -> str:
    size_bytes = path.stat().st_size
    return f"{size_bytes / _BYTES_PER_MB:,.1f} MB" if size_bytes >= _BYTES_PER_MB / 10 else f"{size_bytes:,} bytes"
