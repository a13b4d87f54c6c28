"""Our load generator and the batch arm against the real server and the real model."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from serving_helpers import settled

from busy_machine import in_one_of, wait_for
from workbook.errors import LoadError, ServerError
from workbook.measuring.corpus.batches import Batch, make_batches, restore_order
from workbook.measuring.offline.batch import BatchJob, run_batch
from workbook.measuring.online.load import Load, LoadResult, measure_load, send_all
from workbook.measuring.online.session import Reading
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.models.e5 import Encoder
from workbook.models.export import export_onnx
from workbook.serving.handle import Server
from workbook.serving.repository import committed_repository
from workbook.serving.server import start_server

pytestmark = pytest.mark.integration

TEXTS = [
    "Forest fire near La Ronge Sask. Canada",
    "I'm on top of the hill and I can see a fire in the woods...",
    "Überschwemmung in der Altstadt, alle Straßen gesperrt",
    "地震で建物が揺れた",
    "just got sent this photo #wildfires\nas smoke pours into a school &amp; town",
    "What a lovely day",
    "LOOOOOOL",
    "The storm has taken the roof off our house and the whole street is without power since yesterday evening",
    "13,000 people receive evacuation orders",
    "ok",
]


def tokens(rows: int = 8, width: int = 32, count: int = 4) -> list[Batch]:
    ones = np.ones((rows, width), np.int64)
    return [Batch(ones, ones, np.arange(rows) + rows * n, ("a",) * rows) for n in range(count)]


def wait_for_lines(path: Path, count: int) -> None:
    """Wait until so many records are on disk."""
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


@pytest.mark.parametrize("transport", ["grpc", "http"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_windows_count_what_triton_counts(
    null_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport, concurrency
):
    take, readings_ns = Reading.take, []

    def take_and_note(*arguments: object, **options: object) -> Reading:
        before_ns = time.perf_counter_ns()
        reading = take(*arguments, **options)
        readings_ns.append((before_ns, time.perf_counter_ns()))
        return reading

    monkeypatch.setattr(Reading, "take", take_and_note)
    load = Load("null", concurrency, transport, warmup_s=0.3, window_s=0.5, stability_percent=1000.0, max_windows=3)
    result = measure_load(null_server, load, tokens(), tmp_path / "r.csv", progress=False)
    assert result.failed == 0
    assert result.requests_per_s == pytest.approx(len(result.records) / 1.5)
    # Triton is asked while requests run: it has counted all that ended between the two readings, and may have counted
    # what ended while it was asked; at both a request of each client may be between its counter and our record
    ended_ns = read_records(tmp_path / "r.csv", REQUEST_COLUMNS)["decoded_ns"]
    (first_before, first_after), (last_before, last_after) = readings_ns[-4], readings_ns[-1]
    between = 2 * concurrency
    least = ended_ns.between(first_after, last_before).sum() - between
    most = ended_ns.between(first_before, last_after).sum() + between
    assert len(readings_ns) == len(result.windows) + 1
    assert least <= result.statistics.success_count <= most
    # the two counters of a request are not raised at one instant either: each client may be between them
    assert result.statistics.inference_count == pytest.approx(8 * result.statistics.success_count, abs=8 * between)
    assert 0 < result.client_cpu_share < os.cpu_count()
    assert set(result.records["client"]) == set(range(concurrency))
    assert set(result.records["bytes_out"] > 8 * 384 * 4) == {True}
    assert result.to_the_end is not None
    to_the_end = result.to_the_end.ended_ns.tolist()  # the windows, and what was on its way when the last one ended
    assert to_the_end == sorted(ended_ns)[-len(to_the_end) :]
    assert len(to_the_end) >= len(result.records)


def test_requests_longer_than_all_windows_make_the_load_longer(e5_server: Server, tmp_path: Path):
    load = Load("e5_onnx", warmup_s=0.0, window_s=0.05, max_windows=3, stability_percent=1000.0, timeout_s=280)
    long = tokens(rows=32, width=512, count=1)
    result = measure_load(e5_server, load, long, tmp_path / "r.csv", progress=False)
    assert len(result.records) >= 1
    assert len(result.windows) > load.max_windows


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_every_batch_is_sent_once(null_server: Server, tmp_path: Path, transport):
    load = Load("null", 3, transport)
    before = psutil.Process().num_fds()

    def send(number: int) -> LoadResult:  # Triton books a request some time after it has answered it
        path = tmp_path / f"{number}.csv"
        result = send_all(null_server, load, tokens(5, count=20), path, keep_outputs=True, progress=False)
        assert (result.statistics.success_count, result.statistics.inference_count) == (20, 100)
        return result

    result = in_one_of(send)
    assert result.records["first_row"].tolist() == list(range(0, 100, 5))
    assert {output["sentence_embedding"].shape for output in result.outputs} == {(5, 384)}
    assert psutil.Process().num_fds() <= before + 6  # gRPC keeps a few of its own for the whole process
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("load-client")]


@pytest.mark.parametrize("transport", ["grpc", "http"])
@pytest.mark.parametrize("order", ["file", "length"])
def test_online_and_batch_give_the_same_embeddings(
    e5_server: Server, bundled_encoder: Encoder, tmp_path: Path, transport, order
):
    batches = make_batches(bundled_encoder, TEXTS, 4, order=order)
    load = Load("e5_onnx", 2, transport)
    online = send_all(e5_server, load, batches, tmp_path / "r.csv", keep_outputs=True, progress=False)
    answers = [output["sentence_embedding"] for output in online.outputs]
    embeddings = restore_order([batch.row_index for batch in batches], answers)
    job = BatchJob(batch_size=4, order=order, threads=2)
    batch = run_batch(bundled_encoder, TEXTS, job, tmp_path / "b.csv", progress=False)
    assert (embeddings * batch.embeddings).sum(axis=1).min() > 0.99999
    columns = ["first_row", "rows", "real_tokens", "padded_tokens"]
    assert online.records[columns].equals(batch.records[columns])


def test_the_engine_alone_gives_the_same_embeddings(bundled_encoder: Encoder, tmp_path: Path):
    path = export_onnx(bundled_encoder).path
    results = [
        run_batch(
            bundled_encoder,
            TEXTS,
            BatchJob(engine, batch_size=4, threads=2),
            tmp_path / "b.csv",
            model_path=path,
            progress=False,
        )
        for engine in ("torch", "onnxruntime")
    ]
    assert (results[0].embeddings * results[1].embeddings).sum(axis=1).min() > 0.99999


def test_only_the_outputs_asked_for_come_back(e5_server: Server, bundled_encoder: Encoder, tmp_path: Path):
    batches = make_batches(bundled_encoder, TEXTS, 5, pad_to=40)
    load = Load("e5_onnx", outputs=("last_hidden_state", "cls_embedding"))
    result = send_all(e5_server, load, batches, tmp_path / "r.csv", keep_outputs=True, progress=False)
    assert set(result.outputs[0]) == {"last_hidden_state", "cls_embedding"}
    hidden = result.outputs[0]["last_hidden_state"]
    assert hidden.shape == (5, 40, 384)
    np.testing.assert_array_equal(hidden[:, 0], result.outputs[0]["cls_embedding"])
    assert result.records["bytes_out"].min() > hidden.nbytes


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_what_triton_refuses_is_a_record_with_its_words(e5_server: Server, tmp_path: Path, transport):
    good, bad = tokens(2, 8, 2)
    bad.input_ids.setflags(write=True)
    bad = Batch(bad.input_ids + 10_000_000, bad.attention_mask, bad.row_index, bad.texts)
    result = send_all(e5_server, Load("e5_onnx", 1, transport), [good, bad, good], tmp_path / "r.csv", progress=False)
    assert (result.records["error"] == "").tolist() == [True, False, True]
    assert "10000001" in result.records["error"][1]


def test_bad_input_is_refused_before_the_load(e5_server: Server, tmp_path: Path):
    before = settled(e5_server, "e5_onnx")
    for load, batches, error, says in [
        (Load("nosuch"), tokens(), ServerError, "unknown model"),
        (Load("e5_onnx"), tokens(rows=33), LoadError, "33 rows and model e5_onnx takes at most 32"),
        (Load("e5_onnx", outputs=("logits",)), tokens(), LoadError, "no output 'logits'"),
    ]:
        with pytest.raises(error, match=says):
            measure_load(e5_server, load, batches, tmp_path / "r.csv", progress=False)
    assert settled(e5_server, "e5_onnx") == before
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_a_killed_server_ends_the_run_with_its_log_and_the_records_stay(tmp_path: Path, transport):
    path = tmp_path / "r.csv"
    log = tmp_path / "triton.log"
    with start_server("embedded", committed_repository(), models=["null"], log_file=log) as server:

        def kill() -> None:
            wait_for_lines(path, 50)
            os.kill(server.pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        load = Load("null", 4, transport, warmup_s=60.0)
        with pytest.raises(ServerError) as caught:
            measure_load(server, load, tokens(), path, progress=False)
    assert "null" in caught.value.log_tail
    assert (read_records(path, REQUEST_COLUMNS)["error"] == "").sum() >= 49
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("load-client")]


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_an_interrupt_leaves_records_and_a_server_that_still_answers(null_server: Server, tmp_path: Path, transport):
    path = tmp_path / "r.csv"

    def interrupt() -> None:
        wait_for_lines(path, 50)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        measure_load(null_server, Load("null", 4, transport, warmup_s=60.0), tokens(), path, progress=False)
    assert (read_records(path, REQUEST_COLUMNS)["error"] == "").sum() >= 49
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("load-client")]
    assert send_all(null_server, Load("null"), tokens(), path, progress=False).failed == 0
