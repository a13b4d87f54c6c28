from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import LoadError, SettingError
from workbook.measuring.comparison.bench import shares
from workbook.measuring.comparison.protocol import CLS, Protocol
from workbook.measuring.corpus.batches import make_batches, restore_order
from workbook.measuring.offline.article_loop import run_article_loop
from workbook.measuring.offline.fast_batch import StreamPool, cut_by_tokens, make_token_batches
from workbook.measuring.offline.peers import open_peer
from workbook.measuring.records import BATCH_COLUMNS, read_records
from workbook.models.e5 import Encoder, embed, load_encoder
from workbook.models.export import ExportedModel, export_onnx
from workbook.models.sessions import open_session

# tokens with "query : " and two specials: 5, 7, 5, 6, 8
TEXTS = ("storm", "fire a b", "flood", "calm a", "storm fire a b")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(f"path:{save_tiny(tmp_path_factory.mktemp('models') / 'tiny-e5')}")


@pytest.fixture(scope="module")
def exported(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> ExportedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_ARTIFACTS", str(tmp_path_factory.mktemp("artifacts")))
        return export_onnx(encoder)


def test_batches_hold_as_many_tokens_as_the_budget_allows():
    cut = cut_by_tokens([5, 7, 5, 6, 8], token_budget=16, most_rows=9)
    assert [rows.tolist() for rows in cut] == [[4, 1], [3, 0], [2]]  # 2 x 8, 2 x 6, 1 x 5
    assert [rows.tolist() for rows in cut_by_tokens([5, 7, 5], 100, most_rows=2)] == [[1, 0], [2]]
    assert [rows.tolist() for rows in cut_by_tokens([5, 700], 100, 9)] == [[1], [0]]


@pytest.mark.parametrize(("lengths", "budget", "most"), [([], 10, 1), ([5], 0, 1), ([5], 10, 0)])
def test_impossible_cuts_are_refused(lengths, budget, most):
    with pytest.raises(SettingError):
        cut_by_tokens(lengths, budget, most)


def test_token_batches_hold_what_a_tokeniser_gives(encoder):
    for batch in make_token_batches(encoder, TEXTS, 16, 9):
        tokens = encoder.tokenize(batch.texts)
        np.testing.assert_array_equal(batch.input_ids, tokens.input_ids)
        np.testing.assert_array_equal(batch.attention_mask, tokens.attention_mask)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_streams_give_the_reference_in_file_order(encoder, exported, tmp_path: Path, engine):
    batches = make_token_batches(encoder, TEXTS, 8, 9)
    made = StreamPool(engine, exported.path, 2, 2).run(batches, tmp_path / "b.csv", arm="x", run=3, started_ns=1)
    embeddings = restore_order([batch.row_index for batch in batches], made)
    np.testing.assert_allclose(embeddings, embed(encoder, TEXTS), atol=2e-6)
    records = read_records(tmp_path / "b.csv", BATCH_COLUMNS)
    assert sorted(records["batch"]) == [0, 1, 2, 3, 4]
    assert (records["rows"].sum(), records["real_tokens"].sum()) == (5, 31)
    assert records.loc[records["batch"] == 0, "start_ns"].tolist() == [1]


def test_a_failed_batch_is_named(encoder, exported, tmp_path: Path):
    batches = make_token_batches(encoder, TEXTS, 8, 9)
    batches[2].input_ids[:] = 10_000
    with pytest.raises(LoadError, match="batch 2 failed"):
        StreamPool("onnxruntime", exported.path, 2, 2).run(batches, tmp_path / "b.csv")
    with pytest.raises(SettingError, match="onnxruntime or openvino"):
        StreamPool("torch", exported.path, 2, 2)


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_articles_loop_computes_the_same_with_either_engine(encoder, exported, tmp_path: Path, engine, pooling):
    outputs = {"outputs": (CLS,)} if pooling == "cls" else {}
    protocol = Protocol("batch", engine, pooling=pooling, as_list=True, way="in-process", **outputs)
    batches = make_batches(encoder, TEXTS, 2)
    made = run_article_loop(
        encoder, batches, protocol, tmp_path / "b.csv", threads=1, session=open_session(exported.path, 1)
    )
    tokens = encoder.tokenize(TEXTS[:2])
    if pooling == "mean":
        wanted = embed(encoder, TEXTS[:2])
    else:
        import torch

        with torch.inference_mode():
            ids, mask = torch.from_numpy(tokens.input_ids), torch.from_numpy(tokens.attention_mask)
            wanted = encoder.module(ids, mask).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(made[0], wanted, atol=2e-6)
    records = read_records(tmp_path / "b.csv", BATCH_COLUMNS)
    times = records[["start_ns", "tokenised_ns", "inferred_ns", "pooled_ns"]].to_numpy()
    assert (np.diff(times.ravel()) >= 0).all()
    assert records["first_row"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(("clock", "waits"), [("launched", 0), ("in memory", 2)])
def test_on_a_gpu_only_the_honest_clock_waits(encoder, tmp_path: Path, monkeypatch, clock, waits):
    """Computes on the CPU under the name of a GPU."""
    import torch

    calls: list[str] = []
    autocast, from_numpy = torch.autocast, torch.from_numpy

    def to_cpu(array: np.ndarray) -> object:
        return type("OnCpu", (), {"to": lambda self, device: from_numpy(array)})()

    monkeypatch.setattr(torch, "autocast", lambda kind, dtype, enabled: autocast("cpu", dtype, enabled))
    monkeypatch.setattr(torch, "from_numpy", to_cpu)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait"))
    monkeypatch.setattr(type(encoder.module), "to", lambda self, device: self)
    protocol = Protocol("batch", "torch", clock, "bf16", "cls", outputs=(CLS,), way="in-process")
    batches = make_batches(encoder, TEXTS, 3)
    made = run_article_loop(encoder, batches, protocol, tmp_path / "b.csv", threads=1, device="cuda")
    assert len(calls) == waits
    assert [part.shape for part in made] == [(3, 8), (2, 8)]


def test_the_library_to_beat_gives_the_reference(encoder):
    name, encode = open_peer(encoder, 2)
    assert name.startswith("sentence-transformers'")
    np.testing.assert_allclose(encode(TEXTS), embed(encoder, TEXTS), atol=2e-6)


def test_every_row_is_in_one_share():
    texts = [str(i) for i in range(10)]
    assert shares(texts, 4) == [("0", "1", "2"), ("3", "4", "5"), ("6", "7"), ("8", "9")]
    assert shares(texts, 4, rows=8) == [("0", "1"), ("3", "4"), ("6", "7"), ("8", "9")]
