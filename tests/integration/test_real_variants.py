"""The real e5, two layers of it, through every variant this machine runs; the conversions against each other."""

from __future__ import annotations

import numpy as np
import pytest

from workbook.analysis.quality import quality_table
from workbook.measuring.corpus.sample import sample_rows
from workbook.models.e5 import Encoder, embed
from workbook.models.variant_sessions import open_variant
from workbook.models.variants import VariantModel

pytestmark = pytest.mark.integration

ROWS = 64


@pytest.fixture(scope="module")
def encoder(short_encoder: Encoder) -> Encoder:
    return short_encoder


@pytest.fixture(scope="module")
def made(short_variants: dict[str, VariantModel]) -> dict[str, VariantModel]:
    return short_variants


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [row.text for row in sample_rows(rows=ROWS)]


@pytest.fixture(scope="module")
def embeddings(encoder: Encoder, made: dict[str, VariantModel], texts: list[str]) -> dict[str, np.ndarray]:
    batches = [encoder.tokenize(texts[start : start + 32]) for start in range(0, ROWS, 32)]
    found = {}
    for name, model in made.items():
        session = open_variant(model, 2)
        parts = [session(batch.input_ids, batch.attention_mask)["sentence_embedding"] for batch in batches]
        found[name] = np.concatenate(parts)
    return found


def test_every_variant_is_close_to_pytorch(encoder: Encoder, made, embeddings, texts: list[str]):
    assert set(made) >= {"onnx_fp32", "onnx_fp16", "onnx_int8", "openvino_fp32", "torch_fp32", "torch_bf16"}
    table = quality_table(embed(encoder, texts), embeddings).set_index("variant")
    print(table.to_string())
    for name, model in made.items():
        assert table.min_cosine[name] >= model.variant.min_cosine, name
    assert table.acceptable[["onnx_fp32", "onnx_fp16", "openvino_fp32", "torch_fp32"]].all()
    # int8 is another function, not the fp32 file under its name
    assert table.min_cosine["onnx_int8"] < 0.9999 < table.min_cosine["openvino_fp32"]


def test_smaller_numbers_make_smaller_files(encoder: Encoder, made):
    weights = sum(tensor.numel() for tensor in encoder.module.parameters())
    table = encoder.config.vocab_size * encoder.hidden_size  # the embedding table, which int8 leaves alone
    bytes_a_weight = {name: model.bytes / weights for name, model in made.items()}
    for name, expected in (("onnx_fp32", 4), ("onnx_fp16", 2), ("torch_fp32", 4), ("torch_bf16", 2)):
        assert expected <= bytes_a_weight[name] < expected * 1.01, name
    assert 4 * table < made["onnx_int8"].bytes < 4 * table + 1.5 * (weights - table)
