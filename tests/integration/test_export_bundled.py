"""The whole bundled e5 through the exporter, and its answers against PyTorch's."""

from __future__ import annotations

import pytest

from workbook.models.e5 import Encoder, embed
from workbook.models.export import ExportedModel, export_onnx
from workbook.models.parity import cosine, parity_table
from workbook.models.sessions import open_session

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def encoder(bundled_encoder: Encoder) -> Encoder:
    return bundled_encoder


@pytest.fixture(scope="module")
def exported(encoder: Encoder) -> ExportedModel:
    return export_onnx(encoder)


def test_parity_over_batch_and_length(encoder: Encoder, exported: ExportedModel):
    table = parity_table(encoder, exported, max_tokens=4096)
    print(table.to_string())
    assert len(table) == 2 * 11  # 3 batches x 4 lengths, less 32 x 512, two outputs
    assert table.max_abs_error.max() < 1e-4
    assert table.min_cosine.min() > 0.999999


def test_weights_are_in_the_file_once(encoder: Encoder, exported: ExportedModel):
    weights = sum(4 * tensor.numel() for tensor in encoder.module.parameters())
    assert weights <= exported.bytes < weights * 1.01


def test_sentence_embedding_of_real_text(encoder: Encoder, exported: ExportedModel):
    texts = ["The river took the bridge", "台風が来る", "Das Feuer ist gelöscht, alle sind in Sicherheit."]
    tokens = encoder.tokenize(texts)
    feed = tokens.inputs
    (embedding,) = open_session(exported.path, 2).run(["sentence_embedding"], feed)
    assert cosine(embedding, embed(encoder, texts)).min() > 0.999999
