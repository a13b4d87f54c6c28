from __future__ import annotations

import _thread
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny_encoder import save_tiny
from workbook.errors import LoadError, SettingError
from workbook.measuring.corpus.batches import Batch, count_tokens, cut_rows, make_batches, restore_order
from workbook.measuring.offline.batch import BatchJob, run_batch
from workbook.measuring.offline.engines import TorchEngine
from workbook.measuring.records import BATCH_COLUMNS, read_records
from workbook.models.e5 import Encoder, Tokens, embed, load_encoder

# tokens with "query : " and two specials: 5, 7, 5, 6, 8
TEXTS = ["storm", "fire a b", "flood", "calm a", "storm fire a b"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(f"path:{save_tiny(tmp_path_factory.mktemp('models') / 'tiny-e5')}")


# --- batches ---------------------------------------------------------------------------------------------------------


def test_file_order_cuts_rows_as_they_come(encoder):
    batches = make_batches(encoder, TEXTS, 2)
    assert [batch.row_index.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert [batch.texts for batch in batches] == [("storm", "fire a b"), ("flood", "calm a"), ("storm fire a b",)]
    assert [(b.first_row, b.rows, b.real_tokens, b.padded_tokens) for b in batches] == [
        (0, 2, 12, 14),
        (2, 2, 11, 12),
        (4, 1, 8, 8),
    ]
    tokens = encoder.tokenize(TEXTS[:2])
    np.testing.assert_array_equal(batches[0].inputs["input_ids"], tokens.input_ids)
    np.testing.assert_array_equal(batches[0].inputs["attention_mask"], tokens.attention_mask)


def test_length_order_is_stable_and_pads_less(encoder):
    assert count_tokens(encoder, TEXTS).tolist() == [5, 7, 5, 6, 8]
    assert [rows.tolist() for rows in cut_rows(encoder, TEXTS, 2, "length")] == [[0, 2], [3, 1], [4]]
    padded = {
        order: sum(b.padded_tokens for b in make_batches(encoder, TEXTS, 2, order=order))
        for order in ("file", "length")
    }
    assert padded == {"file": 34, "length": 32}


def test_one_length_for_all(encoder):
    assert {batch.input_ids.shape for batch in make_batches(encoder, TEXTS, 5, pad_to=9)} == {(5, 9)}


def test_lengths_are_counted_across_pieces(encoder, monkeypatch):
    monkeypatch.setattr("workbook.measuring.corpus.batches._TEXTS_AT_ONCE", 2)
    assert count_tokens(encoder, TEXTS).tolist() == [5, 7, 5, 6, 8]


def test_order_is_restored():
    rows = [np.array([2, 0]), np.array([1])]
    values = [np.array([[20.0], [0.0]], np.float32), np.array([[10.0]], np.float32)]
    assert restore_order(rows, values).tolist() == [[0.0], [10.0], [20.0]]
    with pytest.raises(SettingError, match="no permutation"):
        restore_order([np.array([2, 0]), np.array([2])], values)
    with pytest.raises(SettingError, match="do not match"):
        restore_order(rows, values[::-1])


@pytest.mark.parametrize(
    ("texts", "size", "order", "says"),
    [(TEXTS, 0, "file", "batch_size is 0"), ([], 2, "file", "no texts"), (TEXTS, 2, "random", "file, length")],
)
def test_impossible_cuts_are_refused(encoder, texts, size, order, says):
    with pytest.raises(SettingError, match=says):
        make_batches(encoder, texts, size, order=order)


def test_a_batch_whose_parts_do_not_fit_is_refused():
    with pytest.raises(SettingError, match="3 rows do not fit"):
        Batch(np.ones((2, 4), np.int64), np.ones((2, 4), np.int64), np.arange(3), ("a",) * 3)


# --- the offline arm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["file", "length"])
def test_embeddings_are_those_of_the_reference_in_file_order(encoder, tmp_path, order):
    result = run_batch(
        encoder, TEXTS, BatchJob(batch_size=2, order=order), tmp_path / "b.csv", arm="x", run=3, progress=False
    )
    np.testing.assert_allclose(result.embeddings, embed(encoder, TEXTS, 1), atol=1e-6)
    assert result.embeddings.dtype == np.float32
    records = read_records(tmp_path / "b.csv", BATCH_COLUMNS)
    assert records.equals(result.records)
    assert records["batch"].tolist() == [0, 1, 2]
    assert records["rows"].tolist() == [2, 2, 1]
    assert records["first_row"].tolist() == {"file": [0, 2, 4], "length": [0, 3, 4]}[order]
    assert (records["real_tokens"].sum(), records["padded_tokens"].sum()) == (31, {"file": 34, "length": 32}[order])
    assert (records["arm"] == "x").all()
    assert (records["run"] == 3).all()
    times = records[["start_ns", "tokenised_ns", "inferred_ns", "pooled_ns"]].to_numpy()
    assert (np.diff(times.ravel()) >= 0).all()
    assert (times[:, -1] > times[:, 0]).all()
    assert (result.ordering_s > 0) == (order == "length")
    assert result.duration_s == pytest.approx((times[-1, -1] - times[0, 0]) / 1e9)
    assert result.throughput_rows_per_s == pytest.approx(5 / (result.duration_s + result.ordering_s))


def test_cls_is_the_first_token_as_it_is(encoder, tmp_path):
    import torch

    result = run_batch(encoder, TEXTS[:1], BatchJob(pooling="cls"), tmp_path / "b.csv", progress=False)
    tokens = encoder.tokenize(TEXTS[:1])
    with torch.inference_mode():
        hidden = encoder.module(torch.from_numpy(tokens.input_ids), torch.from_numpy(tokens.attention_mask))
    np.testing.assert_allclose(result.embeddings, hidden.last_hidden_state[:, 0].numpy(), atol=1e-6)


def test_bf16_computes_in_bf16(encoder, tmp_path):
    exact = embed(encoder, TEXTS)
    result = run_batch(encoder, TEXTS, BatchJob(precision="bf16"), tmp_path / "b.csv", progress=False)
    assert result.embeddings.dtype == np.float32
    error = np.abs(result.embeddings - exact).max()
    assert 1e-5 < error < 0.05  # 8 bits of mantissa: not exact, not far


def test_threads_are_set_and_restored(encoder, tmp_path, monkeypatch):
    import torch

    before, seen = torch.get_num_threads(), []
    infer = TorchEngine.infer
    monkeypatch.setattr(TorchEngine, "infer", lambda *a: (seen.append(torch.get_num_threads()), infer(*a))[1])
    run_batch(encoder, TEXTS, BatchJob(threads=before + 1), tmp_path / "b.csv", progress=False)
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


def test_on_a_gpu_inference_ends_with_a_synchronise(encoder):
    import torch

    calls = []

    class Cuda:
        def synchronize(self, device: object) -> None:
            calls.append("synchronise")

    class Torch:  # computes on the CPU, under the name of a GPU
        cuda, bfloat16 = Cuda(), torch.bfloat16
        inference_mode = staticmethod(torch.inference_mode)

        @staticmethod
        def autocast(kind: str, dtype: object, enabled: bool) -> object:
            calls.append((kind, enabled))
            return torch.autocast("cpu", dtype, enabled)

        @staticmethod
        def from_numpy(array: np.ndarray) -> object:
            tensor = torch.from_numpy(array)
            return type("OnCpu", (), {"to": lambda self, device: tensor})()

    engine = TorchEngine(encoder, "cuda", "fp32", "mean")
    engine._torch = Torch
    engine.infer(encoder.tokenize(TEXTS))
    assert calls == [("cuda", False), "synchronise"]


class Failing:
    """An encoder whose tokenizer fails at one text, with an error of the test's choosing."""

    def __init__(self, encoder: Encoder, error: type[BaseException]) -> None:
        self._encoder, self._error = encoder, error
        self.module = encoder.module

    def tokenize(self, texts: list[str], *, pad_to: int | None = None) -> Tokens:
        if "calm a" in texts:
            if self._error is KeyboardInterrupt:
                _thread.interrupt_main()
            raise self._error("bad text")
        return self._encoder.tokenize(texts, pad_to=pad_to)


def test_a_failed_batch_is_named_and_what_was_done_is_kept(encoder, tmp_path):
    with pytest.raises(LoadError, match=r"batch 1 \(2 rows, from row 2\) failed: ValueError: bad text"):
        run_batch(Failing(encoder, ValueError), TEXTS, BatchJob(batch_size=2), tmp_path / "b.csv", progress=False)
    assert read_records(tmp_path / "b.csv", BATCH_COLUMNS)["error"].tolist() == ["", "ValueError: bad text"]


def test_an_interrupt_keeps_the_records(encoder, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_batch(
            Failing(encoder, KeyboardInterrupt), TEXTS, BatchJob(batch_size=2), tmp_path / "b.csv", progress=False
        )
    assert read_records(tmp_path / "b.csv", BATCH_COLUMNS)["batch"].tolist() == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("engine", "jax"), ("batch_size", 0), ("threads", 0), ("pooling", "max"), ("precision", "fp8"), ("device", "tpu")],
)
def test_impossible_jobs_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        BatchJob(**{name: value})


def test_jobs_this_machine_cannot_do_are_refused_before_any_record(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = tmp_path / "b.csv"
    with pytest.raises(SettingError, match="sees no GPU"):
        run_batch(encoder, TEXTS, BatchJob(device="cuda"), path, progress=False)
    with pytest.raises(SettingError, match="model_path"):
        run_batch(encoder, TEXTS, BatchJob(engine="onnxruntime"), path, progress=False)
    with pytest.raises(SettingError, match="computes in fp32"):
        BatchJob(engine="onnxruntime", precision="bf16")
    assert not path.exists()
    auto = run_batch(encoder, TEXTS, replace(BatchJob(), device="auto"), path, progress=False)
    assert auto.job.device == "cpu"
