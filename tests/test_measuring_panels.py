import csv
import threading
import time

import pytest

from busy_machine import in_one_of, wait_for
from past_runs import NOTEBOOK, save_requests
from tiny_encoder import save_tiny
from workbook.analysis.stored import stored_measurements
from workbook.display.live_panel import LivePanel
from workbook.display.measuring_panel import MeasuringPanel
from workbook.display.own_panel import OwnPanel
from workbook.display.panel import STATIC_FIGURE
from workbook.display.records_panel import RecordsPanel, draw_measurements
from workbook.errors import CorpusError, LoadError, ModelError, ServerError, SettingError
from workbook.measuring.background import BackgroundJob
from workbook.measuring.online.live import LiveLoad, LiveRequest, always_served
from workbook.own_comparison import OwnComparison, OwnRequest, named_model
from workbook.runs import Run
from workbook.settings import Settings

LONG_S = 120.0


def ended(job):
    return job.wait(LONG_S)


def until(condition):
    wait_for(condition, LONG_S)


def patient_work(job):
    """Works until it is cancelled."""
    job.report(0.5, "counting")
    while True:
        job.raise_if_cancelled()
        time.sleep(0.01)


# --- the job ------------------------------------------------------------------------------------------------------


def test_a_job_gives_back_what_its_work_returns():
    job = BackgroundJob()
    assert job.sentence == "" and job.start(lambda job: 7)
    assert ended(job) and (job.state, job.result, job.share) == ("done", 7, 1.0)
    assert job.sentence.startswith("Done in ")


def test_a_second_start_does_nothing_while_the_first_runs():
    job = BackgroundJob()
    assert job.start(patient_work)
    assert not job.start(lambda job: "second")
    assert job.is_running and "s left" not in BackgroundJob().sentence
    until(lambda: job.share == 0.5)
    assert job.sentence.startswith("Counting: 50%, about")
    job.cancel()
    assert job.sentence.startswith("Stopping") or not job.is_running
    assert ended(job) and job.state == "cancelled" and job.result is None
    assert "what was measured so far is kept" in job.sentence
    assert job.start(lambda job: "third") and ended(job) and job.result == "third"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ServerError("It died.", "log line\nlog line"), "It died."),
        (KeyError("x"), "The measurement stopped: KeyError: 'x'"),
    ],
)
def test_a_failure_is_one_sentence(error, words):
    def work(job):
        raise error

    job = BackgroundJob()
    job.start(work)
    assert ended(job) and job.state == "failed" and job.error == words


# --- buttons ------------------------------------------------------------------------------------------------------


class Clicker(MeasuringPanel):
    NAME = "clicker"

    def __init__(self, work):
        self.job, self.work, self.starts = BackgroundJob(), work, 0
        self.arrange(self.buttons(), redrawn_by=())

    def begin(self):
        if self.work is None:
            raise SettingError("There is nothing to do.\nMore of it in the log.")
        return self.job.start(self.counted)

    def counted(self, job):
        self.starts += 1
        return self.work(job)

    def drawn(self):
        from workbook.display.drawing import new_figure

        return new_figure("?", "", f"started {self.starts} times", 100)


def test_a_double_click_starts_one_measurement_and_cancel_ends_it():
    panel = Clicker(patient_work)
    assert panel.stop.disabled and not panel.start.disabled
    panel.start.click()
    panel.start.click()
    until(lambda: panel.job.share == 0.5)
    assert panel.start.disabled and not panel.stop.disabled and panel.starts == 1
    panel.stop.click()
    until(lambda: not panel.busy)
    assert "Cancelled" in panel.status.value and panel.stop.disabled
    assert panel.reading.value == "<p>started 1 times</p>" and not panel.error.value
    assert {"workbook-measure"} <= set(panel.start._dom_classes) and "workbook-cancel" in panel.stop._dom_classes
    assert "workbook-panel-status" in panel.status._dom_classes


def test_what_is_wrong_with_the_controls_is_one_sentence():
    panel = Clicker(None)
    panel.start.click()
    assert "There is nothing to do." in panel.error.value and "log" not in panel.error.value
    assert not panel.job.is_running and not panel.start.disabled


def test_what_goes_wrong_later_is_a_sentence_too():
    def work(job):
        raise LoadError("The server <refused>.")

    panel = Clicker(work)
    panel.start.click()
    until(lambda: not panel.busy)
    assert "The server &lt;refused&gt;." in panel.error.value
    panel.work = lambda job: None
    panel.start.click()
    until(lambda: panel.starts == 2 and not panel.busy)
    assert not panel.error.value


# --- stored records -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two runs: 1 in flight takes 100 ms a request of 2 rows, so 20 rows/s; 2 in flight 150 ms."""
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path))
    for name, arm in (("20260101-000000-a", "old"), ("20260102-000000-b", "e5_onnx")):
        path = Run(tmp_path / name, NOTEBOOK).records_path("closed_loop")
        save_requests(path, arm, 100)
        save_requests(path, arm, 150, concurrency=2)
    return Run(tmp_path / "20260102-000000-b", NOTEBOOK)


def test_every_control_of_the_records_panel_redraws(run):
    panel = RecordsPanel(run)
    assert "best with e5_onnx, 2 in flight, 26.7; worst with e5_onnx, 1 in flight, 20.0" in panel.reading.value
    panel.quantity.value = "latency_p50_ms"
    assert "best with e5_onnx, 1 in flight, 100; worst with e5_onnx, 2 in flight, 150" in panel.reading.value
    panel.scale.value = "log"
    assert panel.figure.layout.yaxis.type == "log"
    panel.concurrency.value = (2,)
    assert panel.figure.data[0].type == "bar" and "150" in panel.reading.value
    panel.quantity.value = "queue_ms"
    assert "Not measured here" in panel.error.value and not panel.reading.value
    panel.quantity.value = "throughput_rows_per_s"
    panel.runs.value = panel.runs.options[1][1]
    assert "old" in panel.reading.value and not panel.error.value
    panel.arms.value = ()
    assert "Nothing is chosen" in panel.error.value


def test_a_run_without_records_says_so(run):
    panel = RecordsPanel(Run(run.directory, "04_online_benchmark"))
    assert "holds no records of 04_online_benchmark" in panel.error.value
    report = panel._repr_mimebundle_()[STATIC_FIGURE]
    assert "holds no records of 04_online_benchmark" in report["layout"]["title"]["text"]


def test_a_record_added_later_is_drawn(run):
    panel = RecordsPanel(run)
    save_requests(run.records_path("live"), "e5_onnx", 10)
    panel.take_run()
    panel.measurement.value = "live"
    assert "200" in panel.reading.value


def test_only_the_last_three_windows_count_as_in_the_notebook(run):
    """Warm-up, an unsteady first window, and what ended after the last one are in the records too."""
    path = run.records_path("windows")
    for window, latency_ms in ((-1, 7), (0, 500), (1, 100), (2, 100), (3, 100), (-1, 3)):
        save_requests(path, "e5_onnx", latency_ms, window=window)
    found = stored_measurements(run.directory, NOTEBOOK).set_index("measurement").loc["windows"]
    assert found["latency_mean_ms"] == 100


def test_an_unknown_quantity_is_refused():
    with pytest.raises(SettingError, match="'price' on a 'linear' axis"):
        draw_measurements(None, "price")


def test_a_run_of_10_000_requests_is_drawn_anew_within_a_second(run):
    path = run.records_path("many")
    for concurrency in (1, 2, 3, 4):
        save_requests(path, "e5_onnx", 7, concurrency=concurrency, count=2500)
    panel = RecordsPanel(run)
    panel.measurement.value = "many"

    def draw_anew(_):
        panel.quantity.value = "latency_p50_ms"
        for name in ("latency_p99_ms", "throughput_rows_per_s"):
            started_s = time.process_time()
            panel.quantity.value = name
            assert time.process_time() - started_s < 1  # processor time, which neighbours only lengthen

    in_one_of(draw_anew)


# --- live ---------------------------------------------------------------------------------------------------------


def test_a_live_panel_measures_nothing_by_being_shown(run):
    asked = []
    live = LiveLoad(run, {"e5_onnx": always_served("e5_onnx", [])}, lambda: asked.append("started"))
    panel = LivePanel(live)
    assert STATIC_FIGURE in panel._repr_mimebundle_()
    assert not asked and live.job.state == "idle" and not live.records_path.exists()


def test_a_server_that_does_not_start_is_a_sentence_in_the_panel(run):
    def start():
        raise ServerError("Triton did not start.", "a\nb")

    live = LiveLoad(run, {"e5_onnx": always_served("e5_onnx", [])}, start)
    panel = LivePanel(live)
    panel.start.click()
    until(lambda: not panel.busy)
    assert "Triton did not start." in panel.error.value and "log" not in panel.error.value
    live.close()


def test_cancel_does_not_wait_for_a_server_that_starts(run):
    may_start, stopped = threading.Event(), threading.Event()

    class Slow:
        def stop(self):
            stopped.set()

    def start():
        may_start.wait(LONG_S)
        return Slow()

    live = LiveLoad(run, {"e5_onnx": always_served("e5_onnx", [])}, start)
    assert live.measure(LiveRequest("e5_onnx")) and not live.measure(LiveRequest("e5_onnx"))
    live.cancel()
    assert ended(live.job) and live.job.state == "cancelled" and not may_start.is_set()
    live.close()
    may_start.set()
    assert stopped.wait(LONG_S)  # it came up after nobody wanted it any more


def test_the_cell_run_again_closes_the_earlier_one(run):
    live = LiveLoad(run, {"e5_onnx": always_served("e5_onnx", [])}, lambda: None)
    live.job.start(patient_work)
    LiveLoad(run, {}, lambda: None)
    assert ended(live.job) and live.job.state == "cancelled"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"seconds": 0.1}, "seconds is 0.1"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"transport": "carrier pigeon"}, "must be grpc or http"),
    ],
)
def test_a_load_that_cannot_be_is_refused(asked, message):
    with pytest.raises(SettingError, match=message):
        LiveRequest("e5_onnx", **asked)


# --- bring your own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("bundled", "bundled"),
        (" sentence-transformers/all-MiniLM-L6-v2 ", "hub:sentence-transformers/all-MiniLM-L6-v2"),
        ("/models/mine", "path:/models/mine"),
        ("./mine", "path:./mine"),
        ("mine", "path:mine"),
        ("path:mine", "path:mine"),
    ],
)
def test_a_folder_and_a_hub_id_need_no_prefix(written, named):
    assert named_model(written) == named


def test_a_bare_onnx_file_says_what_is_needed():
    with pytest.raises(SettingError, match=r"bare ONNX file, .* give the folder that holds the model's config\.json"):
        named_model("/models/model.onnx")


@pytest.mark.parametrize("inside", ["model.onnx", "onnx/model_O2.ONNX"])
def test_an_onnx_file_stands_for_the_folder_of_its_model(tmp_path, inside):
    (tmp_path / "config.json").touch()
    assert named_model(str(tmp_path / inside)) == f"path:{tmp_path}"


@pytest.fixture
def tickets(tmp_path):
    path = tmp_path / "tickets.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body"], *([number, "storm a flood b"] for number in range(64))])
    return path


def test_what_is_not_there_is_named_before_any_work(tmp_path, tickets):
    folder = save_tiny(tmp_path / "tiny")
    comparison = OwnComparison()
    with pytest.raises(ModelError, match="there is no folder"):
        comparison.measure(OwnRequest(str(tmp_path / "none"), str(tickets), "body", 64))
    with pytest.raises(CorpusError, match=r"(?s)no column.*body"):
        comparison.measure(OwnRequest(str(folder), str(tickets), "text", 64))
    with pytest.raises(CorpusError, match="is not there"):
        comparison.measure(OwnRequest(str(folder), str(tmp_path / "none.csv"), "body", 64))
    with pytest.raises(SettingError, match="rows is 1"):
        comparison.measure(OwnRequest(str(folder), str(tickets), "body", 1))
    assert comparison.job.state == "idle"
    OwnRequest(str(folder), str(tickets), "body", 64).check()


def test_the_panel_gives_the_command_line_the_same_parameters(tickets):
    from workbook.overrides import read_overrides

    panel = OwnPanel(request=OwnRequest("bundled", str(tickets), "body", 64))
    panel.model.value = "/my models/encoder"
    parameters = read_overrides(panel.request.overrides())
    assert parameters["model"] == "path:/my models/encoder" and parameters["layers"] is None
    assert (parameters["corpus"], parameters["text_column"], parameters["rows"]) == (str(tickets), "body", 64)
    Settings.from_parameters(parameters)
    assert "'model=path:/my models/encoder'" in panel.request.command


def test_a_wrong_field_is_a_sentence_in_the_panel(tmp_path, tickets):
    panel = OwnPanel(request=OwnRequest("bundled", str(tickets), "texts", 64))
    assert "Nothing was measured yet" in panel.reading.value
    panel.start.click()
    assert "body" in panel.error.value and panel.job.state == "idle"


STAND_IN = """
import json, pathlib, signal, sys, time
print("Profile smoke, 1 notebook, run directory {directory}", flush=True)
place = pathlib.Path("{directory}")
def stop(*_):
    (place / "stopped").touch()
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
for path in ("records/05_batch_versus_online/main-a.csv", "results/05_batch_versus_online.json"):
    (place / path).parent.mkdir(parents=True)
(place / "records/05_batch_versus_online/main-a.csv").write_text("rows\\n" + 256 * "1\\n")
{then}
"""
"""Says and writes what the command does, without measuring."""
RESULTS = {
    "runs": [{"label": label, "run": run, "rows_per_s": 100.0} for label in ("batch", "online") for run in (0, 1)],
    "headline": {"answer": "Equal.", "numbers": [{"label": "batch / online", "value": "1.00x", "detail": "none"}]},
}


@pytest.fixture
def stand_in(tmp_path, monkeypatch, tickets):
    """A panel whose command is the stand-in that goes on as it is told."""
    monkeypatch.setenv("WORKBOOK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(OwnRequest, "check", lambda self: None)

    def make(then):
        script = STAND_IN.format(directory=tmp_path / "made", then=then)
        monkeypatch.setattr("workbook.own_comparison._STARTER", script)
        return OwnPanel(request=OwnRequest("bundled", str(tickets), "body", 64))

    return make


def test_cancel_asks_the_command_to_stop_and_sees_it_end(stand_in, tmp_path):
    panel = stand_in("time.sleep(600)")
    panel.start.click()
    panel.start.click()
    until(lambda: panel.job.share > 0.1)
    assert panel.job.share == pytest.approx(0.1 + 0.5 * 256 / (8 * 64)) and "left" in panel.job.sentence
    panel.stop.click()
    until(lambda: not panel.busy)
    assert (tmp_path / "made" / "stopped").exists() and "Cancelled" in panel.status.value
    assert not list((tmp_path / "runs").glob(".own*"))


def test_the_answer_comes_with_its_command(stand_in):
    panel = stand_in(f"(place / 'results/05_batch_versus_online.json').write_text(json.dumps({RESULTS!r}))")
    panel.start.click()
    until(lambda: not panel.busy)
    assert "Equal." in panel.answer.value and "text_column=body" in panel.answer.value
    assert len(panel.figure.data) == 4 and not panel.error.value


def test_a_command_that_fails_says_why(stand_in):
    panel = stand_in("print('  failed after 3 s: ModelError: no such thing'); sys.exit(1)")
    panel.start.click()
    until(lambda: not panel.busy)
    assert "Failed after 3 s: ModelError: no such thing" in panel.error.value
