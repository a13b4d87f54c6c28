from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from busy_machine import wait_for
from fake_triton import FakeTriton
from workbook.errors import LoadError, ServerError, SettingError
from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.capacity import capacity_warning, null_load
from workbook.measuring.online.load import Load, measure_load, send_all
from workbook.measuring.online.requests import prepare_requests
from workbook.measuring.online.transports import GrpcAnswer, open_transport
from workbook.measuring.online.windows import WARM_UP, Window, WindowClock, is_stable
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.serving.statistics import ModelStatistics
from workbook.settings import Settings


def batch(number: int, rows: int = 2, width: int = 3) -> Batch:
    """Rows 10n, 10n+1, ...; token ids 100n, ...; the last token of every row is padding."""
    ids = np.full((rows, width), 100 * number, np.int64)
    mask = np.ones((rows, width), np.int64)
    mask[:, -1] = 0
    return Batch(ids, mask, np.arange(rows) + 10 * number, ("a",) * rows)


BATCHES = [batch(number) for number in range(5)]
QUICK = {"warmup_s": 0.2, "window_s": 0.4, "stability_percent": 1000.0}


def load(**changes: object) -> Load:
    return Load("fake", **{"transport": "http", **QUICK, **changes})


def no_client_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name.startswith("load-client")]


def wait_for_answers(fake: FakeTriton, count: int) -> None:
    wait_for(lambda: fake.answered >= count)


# --- windows ---------------------------------------------------------------------------------------------------------


def test_a_request_belongs_to_the_window_it_ends_in():
    clock = WindowClock(start_ns=1000, length_ns=10)
    assert [clock.number_at(t) for t in (0, 999, 1000, 1009, 1010, 1029)] == [WARM_UP, WARM_UP, 0, 0, 1, 2]
    assert clock.end_ns(1) == 1020


def test_window_rates():
    window = Window(0, duration_ns=2_000_000_000, requests=4, rows=32, latency_sum_ns=20_000_000)
    assert (window.throughput_rows_per_s, window.latency_mean_ms) == (16, 5)
    assert np.isnan(Window(0, 1).latency_mean_ms)


@pytest.mark.parametrize(
    ("rows", "latencies", "stable"),
    [
        ((100, 105, 110), (10, 10, 10), True),  # max / min is 1.10 exactly
        ((100, 105, 111), (10, 10, 10), False),
        ((100, 100, 100), (10, 12, 10), False),  # latency counts too
        ((50, 100, 100, 100), (10, 10, 10, 10), True),  # only the last three
        ((100, 100), (10, 10), False),
        ((100, 0, 100), (10, 10, 10), False),
    ],
)
def test_three_windows_within_the_percentage_are_stable(rows, latencies, stable):
    windows = [
        Window(n, 1_000_000_000, requests=r, rows=r, latency_sum_ns=r * ms * 1_000_000)
        for n, (r, ms) in enumerate(zip(rows, latencies, strict=True))
    ]
    assert is_stable(windows, 10) is stable


# --- settings and requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("concurrency", 0), ("transport", "smtp"), ("window_s", 0), ("max_windows", 2), ("timeout_s", float("nan"))],
)
def test_impossible_loads_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        load(**{name: value})


@pytest.mark.parametrize(
    ("batches", "outputs", "says"),
    [
        ([], ("sentence_embedding",), "at least one batch"),
        ([batch(1, rows=9)], ("sentence_embedding",), "9 rows and model fake takes at most 8"),
        (BATCHES, ("logits",), "no output 'logits': it has sentence_embedding"),
        (BATCHES, (), "no output of model fake is asked for"),
    ],
)
def test_what_the_model_would_refuse_is_refused_before_the_load(tmp_path, batches, outputs, says):
    with FakeTriton() as fake, pytest.raises(LoadError, match=says):
        measure_load(fake, load(outputs=outputs), batches, tmp_path / "r.csv", progress=False)
    assert not fake.received
    assert not (tmp_path / "r.csv").exists()


def test_wrong_inputs_are_refused_by_name(tmp_path):
    class Other:
        first_row, rows, real_tokens, padded_tokens = 0, 1, 1, 1

        def __init__(self, **inputs):
            self.inputs = inputs

    ids = np.ones((1, 2), np.int64)
    for inputs, says in [
        ({"image": ids}, "no input 'image': it has input_ids, attention_mask"),
        ({"input_ids": ids}, "also needs the input attention_mask"),
        ({"input_ids": ids.astype(np.int32), "attention_mask": ids}, "input_ids of model fake takes INT64"),
    ]:
        with FakeTriton() as fake, pytest.raises(LoadError, match=says):
            send_all(fake, load(), [Other(**inputs)], tmp_path / "r.csv", progress=False)


def test_an_unknown_model_is_refused_with_the_servers_words(tmp_path):
    with FakeTriton() as fake, pytest.raises(ServerError, match="unknown model: nosuch"):
        send_all(fake, Load("nosuch", transport="http"), BATCHES, tmp_path / "r.csv", progress=False)


def test_a_grpc_request_reads_back_as_what_it_was_made_from():
    from tritonclient.grpc import service_pb2

    (prepared,) = prepare_requests("fake", [batch(7)], ["a", "b"], "grpc")
    request = service_pb2.ModelInferRequest.FromString(prepared.message)
    assert request.model_name == "fake"
    assert [output.name for output in request.outputs] == ["a", "b"]
    assert [list(given.shape) for given in request.inputs] == [[2, 3], [2, 3]]
    assert np.frombuffer(request.raw_input_contents[0], np.int64).tolist() == [700] * 6
    assert (prepared.first_row, prepared.rows, prepared.real_tokens, prepared.padded_tokens) == (70, 2, 4, 6)
    assert prepared.body_bytes == len(prepared.message)


def test_a_grpc_answer_decodes_numbers_text_and_nothing():
    from tritonclient.grpc import service_pb2

    response = service_pb2.ModelInferResponse()
    half = np.array([[1.5], [2.5]], np.float16)
    for name, kind, shape, raw in [
        ("half", "FP16", (2, 1), half.tobytes()),
        ("text", "BYTES", (1,), b"\x02\x00\x00\x00hi"),
        ("none", "FP32", (0, 4), b""),
        ("brain", "BF16", (2,), b"\x80\x3f\x20\xc0"),
    ]:
        response.outputs.add(name=name, datatype=kind, shape=shape)
        response.raw_output_contents.append(raw)
    outputs = GrpcAnswer(response.SerializeToString(), service_pb2.ModelInferResponse).decode()
    np.testing.assert_array_equal(outputs["half"], half)
    assert outputs["text"].tolist() == [b"hi"]
    assert outputs["none"].shape == (0, 4)
    assert outputs["brain"].tolist() == [1.0, -2.5]  # 0x3f80 and 0xc020 are their upper halves in float32


def test_no_server_is_said_at_once():
    for name in ("grpc", "http"):
        transport = open_transport(name, "127.0.0.1:9", 5)
        with pytest.raises(Exception, match=r"no .* server answers at 127.0.0.1:9"):
            transport.connect()
        transport.close()


# --- the closed loop -------------------------------------------------------------------------------------------------


def test_the_closed_loop_keeps_n_requests_in_flight_and_records_each(tmp_path):
    with FakeTriton(service_s=0.02) as fake:
        result = measure_load(fake, load(concurrency=3), BATCHES, tmp_path / "r.csv", arm="here", run=2, progress=False)
    assert fake.most_in_flight == 3
    # 3 clients, 2 rows each, 20 ms: at most 300 rows/s; a busy machine makes it less, and may need a fourth window
    assert result.duration_s == pytest.approx(1.2)
    assert result.throughput_rows_per_s == pytest.approx(2 * len(result.records) / 1.2)
    assert result.requests_per_s == pytest.approx(len(result.records) / 1.2)
    assert 0 < result.throughput_rows_per_s <= 300
    latency_ms = (result.records["decoded_ns"] - result.records["sent_ns"]) / 1e6
    assert latency_ms.min() >= 20
    earlier = len(result.windows) - 3
    assert result.windows["measured"].tolist() == [False] * earlier + [True] * 3
    assert no_client_is_left()

    records = read_records(result.records_path, REQUEST_COLUMNS)
    assert len(records) == len(fake.received)
    assert set(records["window"]) == {-1, *result.windows.loc[result.windows["requests"] > 0, "window"]}
    measured = result.windows[result.windows["measured"]]
    assert len(result.records) == (records["window"] >= earlier).sum() == measured["requests"].sum()
    for _, own in records.sort_values("request").groupby("client"):  # free when the last answer is there, not before
        assert own["intended_ns"].tolist()[1:] == own["decoded_ns"].tolist()[:-1]
    assert (records["arm"] == "here").all()
    assert (records["run"] == 2).all()
    assert set(records["client"]) == {0, 1, 2}
    assert sorted(records["request"]) == list(range(len(records)))
    for earlier, later in [("intended_ns", "sent_ns"), ("sent_ns", "received_ns"), ("received_ns", "decoded_ns")]:
        assert (records[earlier] <= records[later]).all()
    # batches are cycled in order
    assert (records["first_row"] == records["request"] % 5 * 10).all()
    assert set(records["real_tokens"]) == {4}
    assert set(records["padded_tokens"]) == {6}


class ChangingTriton(FakeTriton):
    """Takes another time for its answers after each reading of its counters, the last one for good."""

    def __init__(self, *services_s: float) -> None:
        super().__init__(service_s=services_s[0])
        self.services_s = list(services_s)

    def statistics(self, model: str, *, settled: bool = False) -> ModelStatistics:
        if len(self.services_s) > 1:
            self.services_s.pop(0)
        self.service_s = self.services_s[0]
        return super().statistics(model, settled=settled)


def test_windows_are_tried_until_three_agree(tmp_path):
    with ChangingTriton(0.005, 0.005, 0.005, 0.08) as fake:  # warm-up, two windows, all others
        result = measure_load(fake, load(stability_percent=200.0), BATCHES, tmp_path / "r.csv", progress=False)
    assert len(result.windows) > 3
    assert result.windows["measured"].tolist() == [False] * (len(result.windows) - 3) + [True] * 3
    assert set(result.records["window"]) == set(result.windows["window"][-3:])


def test_windows_that_never_agree_are_reported_as_unstable(tmp_path):
    with ChangingTriton(0.005, 0.005, 0.02, 0.005, 0.02) as fake:
        result = measure_load(
            fake, load(stability_percent=0.1, max_windows=4), BATCHES, tmp_path / "r.csv", progress=False
        )
    assert not result.stable
    # more only where the machine stood still for three of them
    assert len(result.windows) == 4 or not result.windows["requests"][:-1].tail(3).any()


def test_windows_follow_until_a_slow_request_ends_in_one(tmp_path):
    slow = load(window_s=0.1, warmup_s=0.0, max_windows=3, stability_percent=1000.0)
    with FakeTriton(service_s=1.0) as fake:
        result = measure_load(fake, slow, BATCHES, tmp_path / "r.csv", progress=False)
    assert len(result.windows) >= 8 and len(result.records) >= 1
    assert no_client_is_left()


def test_requests_that_never_end_are_an_error(tmp_path):
    stuck = load(window_s=0.1, warmup_s=0.0, max_windows=3, timeout_s=0.5)
    with FakeTriton(service_s=60.0) as fake, pytest.raises(LoadError, match="time"):
        measure_load(fake, stuck, BATCHES, tmp_path / "r.csv", progress=False)
    assert no_client_is_left()


# --- a fixed number --------------------------------------------------------------------------------------------------


def test_each_batch_is_sent_once_and_its_outputs_kept_in_order(tmp_path):
    with FakeTriton(service_s=0.005) as fake:
        result = send_all(fake, load(concurrency=2), BATCHES, tmp_path / "r.csv", keep_outputs=True, progress=False)
    assert sorted(fake.received) == [0, 100, 200, 300, 400]
    assert [output["sentence_embedding"].tolist() for output in result.outputs] == [[[100.0 * n]] * 2 for n in range(5)]
    assert result.records["first_row"].tolist() == [0, 10, 20, 30, 40]
    assert result.throughput_rows_per_s == pytest.approx(10 / result.duration_s)
    assert result.statistics.success_count == 5
    assert result.stable


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failed_request_is_a_record_with_the_servers_text(tmp_path):
    with FakeTriton(reply=lambda first: "too hot" if first == 300 else "") as fake:
        result = send_all(fake, load(), BATCHES, tmp_path / "r.csv", keep_outputs=True, progress=False)
    assert result.records["error"].tolist() == ["", "", "", "HTTP 400: too hot", ""]
    assert result.failed == 1
    assert result.outputs[3] == {}
    assert result.throughput_rows_per_s == pytest.approx(8 / result.duration_s)


def test_when_every_request_fails_the_first_text_is_the_error(tmp_path):
    with FakeTriton(reply=lambda first: f"no {first}") as fake:
        with pytest.raises(LoadError, match="no 0"):
            send_all(fake, load(), BATCHES, tmp_path / "all.csv", progress=False)
        with pytest.raises(LoadError, match=r"the first \d\d+ requests all failed.*no 0"):
            measure_load(fake, load(warmup_s=60.0), BATCHES, tmp_path / "loop.csv", progress=False)
    assert len(read_records(tmp_path / "all.csv", REQUEST_COLUMNS)) == 5


def test_a_request_without_an_answer_ends_at_its_time_limit(tmp_path):
    with FakeTriton(service_s=60.0) as fake, pytest.raises(LoadError, match=r"no answer within 0.1 s \(timeout_s\)"):
        send_all(fake, load(timeout_s=0.1), BATCHES[:1], tmp_path / "r.csv", progress=False)


def test_a_server_that_dies_ends_the_run_and_the_records_stay(tmp_path):
    with FakeTriton(service_s=0.01) as fake:
        threading.Thread(target=lambda: (wait_for_answers(fake, 20), fake.die()), daemon=True).start()
        with pytest.raises(ServerError, match="its last line"):
            measure_load(fake, load(concurrency=2, warmup_s=60.0), BATCHES, tmp_path / "r.csv", progress=False)
    records = read_records(tmp_path / "r.csv", REQUEST_COLUMNS)
    assert (records["error"] == "").sum() >= 10
    assert records["error"].str.contains("the connection broke").any()
    assert no_client_is_left()


def test_an_interrupt_ends_all_clients_at_once_and_the_records_stay(tmp_path):
    with FakeTriton(service_s=0.01) as fake:

        def hang_then_interrupt() -> None:
            wait_for_answers(fake, 20)
            fake.service_s = 120.0
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=hang_then_interrupt, daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            measure_load(fake, load(concurrency=2, warmup_s=60.0), BATCHES, tmp_path / "r.csv", progress=False)
        assert time.monotonic() - began < 100  # of the 120 s that an answer takes
        thread.join()
        fake.service_s = 0.0
    assert no_client_is_left()
    assert (read_records(tmp_path / "r.csv", REQUEST_COLUMNS)["error"] == "").sum() >= 10


# --- capacity --------------------------------------------------------------------------------------------------------


def test_the_warning_names_share_and_limit():
    assert capacity_warning(500, 1000) is None
    assert "60% of the 1,000/s" in capacity_warning(600, 1000)
    assert capacity_warning(600, 1000, limit=0.7) is None


def test_records_files_of_several_runs_add_up(tmp_path: Path):
    with FakeTriton() as fake:
        for run in range(2):
            send_all(fake, load(), BATCHES, tmp_path / "r.csv", run=run, progress=False)
    records = read_records(tmp_path / "r.csv", REQUEST_COLUMNS)
    assert records.groupby("run").size().to_dict() == {0: 5, 1: 5}


def test_the_capacity_is_measured_no_longer_than_the_notebooks_own_load():
    asked = [
        null_load(Settings(warmup_s=warmup, window_s=window, max_windows=most))
        for warmup, window, most in ((2.0, 4.0, 8), (0.1, 0.2, 3))
    ]
    assert [(load.model, load.warmup_s, load.window_s, load.max_windows) for load in asked] == [
        ("null", 0.5, 1.0, 5),
        ("null", 0.1, 0.2, 3),
    ]
