"""The ensemble on a real server: right answers under load, and clear errors when something goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from busy_machine import PATIENCE_S, in_one_of, wait_for
from workbook.errors import LoadError, ServerError
from workbook.measuring.ensemble.images import ImageRequest, Images, make_images, mask_agreement, requests_for
from workbook.measuring.ensemble.runs import MEMBERS, Probe, measure_point
from workbook.measuring.online.clients import Sample
from workbook.measuring.online.journal import Journal
from workbook.measuring.online.load import measure_load, send_all
from workbook.measuring.records import REQUEST_COLUMNS, read_records
from workbook.models.segmentation import load_segmentation
from workbook.models.segmentation_model import SegmentationModel
from workbook.serving.ensemble_server import EnsembleServer, start_ensemble_server
from workbook.serving.ensemble_spec import ENSEMBLE, MEMBER_A, MEMBER_B, EnsembleVariant
from workbook.serving.statistics import ModelStatistics

pytestmark = pytest.mark.integration
QUICK = EnsembleVariant(a_delay_us=2_000, a_max_batch=8)
FAILING = '''"""Fails for every image whose first logit is above 0, as a member with a bug would."""
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()) for request in requests]

    def answer(self, logits):
        if logits[1, 140, 60] > logits[0, 140, 60]:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("this member does not like roads"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([b"no road"], np.object_))])
'''


@pytest.fixture(scope="module")
def model() -> SegmentationModel:
    return load_segmentation("trained")


@pytest.fixture(scope="module")
def images(model: SegmentationModel) -> Images:
    return make_images(model, 100)


@pytest.fixture(scope="module")
def served(model: SegmentationModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnsembleServer]:
    folder = tmp_path_factory.mktemp("ensemble")
    with start_ensemble_server(
        model, folder / "repository", kind="embedded", variant=QUICK, log_file=folder / "triton.log"
    ) as running:
        yield running


@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize(
    "variant",
    [EnsembleVariant(), replace(QUICK, hop="mask", b_max_batch=8, b_instances=2)],
    ids=["as reported", "masks, B batched, two of it"],
)
def test_100_images_at_concurrency_32_come_back_as_their_own_masks(
    served: EnsembleServer, images: Images, variant: EnsembleVariant, transport: str, tmp_path: Path
) -> None:
    served.configure(variant)
    load = replace(Probe(connections=32).load(ENSEMBLE), transport=transport)  # type: ignore[arg-type]
    requests = requests_for(ENSEMBLE, images, variant)
    result = send_all(served.server, load, requests, tmp_path / "r.csv", keep_outputs=True, progress=False)
    assert result.failed == 0 and result.outputs is not None
    table = mask_agreement(result.outputs, images)
    assert table["answered"].all()
    assert table["pixel_agreement"].min() >= 0.99
    assert (table["nearest_image"] == table["image"]).all()


def test_a_point_knows_rates_statistics_and_processor_time(
    served: EnsembleServer, images: Images, tmp_path: Path
) -> None:
    served.configure(QUICK)

    def measure(number: int) -> None:  # the kernel counts processor time in ticks: few images may take none
        probe = Probe(16, "http", 0.3, 0.5 * (number + 1))
        point = measure_point(served, ENSEMBLE, images, probe, tmp_path / f"{number}.csv")
        assert point.images_per_s > 0 and point.failed == 0
        assert set(point.statistics) == {*MEMBERS, ENSEMBLE}
        assert all(point.processor_s_per_image[name] > 0 for name in (*MEMBERS, "server", "client"))
        assert point.statistics[MEMBER_B].mean_batch_size == pytest.approx(1, abs=0.2)  # two counters, read at once
        assert point.conditions.b_input == "float16 2x256x448"

    in_one_of(measure)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 256, 400), np.float16), r"takes the shape \[3, 256, 448\], the batch has \[3, 256, 400\]"),
        (np.zeros((1, 3, 256, 448), np.float16), r"takes the shape \[3, 256, 448\]"),
        (np.zeros((3, 256, 448), np.float32), "takes FP16, the batch has FP32"),
    ],
)
def test_a_wrong_image_is_refused_before_anything_is_sent(
    served: EnsembleServer, array: np.ndarray, message: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=message):
        send_all(served.server, Probe(1).load(ENSEMBLE), [ImageRequest({"INPUT": array}, 0)], tmp_path / "r.csv")
    assert not (tmp_path / "r.csv").exists()


def test_the_server_itself_names_what_is_wrong_with_an_image(served: EnsembleServer) -> None:
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(served.server.http_url)
    for array, kind, message in (
        (np.zeros((3, 256, 400), np.float16), "FP16", r"\[3,256,448\]|expected .* got"),
        (np.zeros((3, 256, 448), np.float32), "FP32", "data-type is FP16|data-type is 'FP32'|FP32"),
    ):
        tensor = tritonclient.http.InferInput("INPUT", array.shape, kind)
        tensor.set_data_from_numpy(array)
        with pytest.raises(tritonclient.utils.InferenceServerException, match=message):
            client.infer(ENSEMBLE, [tensor])
    client.close()


def test_overload_is_refused_with_tritons_words_and_the_server_goes_on(
    served: EnsembleServer, images: Images, tmp_path: Path
) -> None:
    served.configure(replace(QUICK, max_queue_size=16, b_max_batch=4))
    requests = requests_for(ENSEMBLE, images, served.variant)
    load = replace(Probe(128, timeout_s=120, warmup_s=1, window_s=1).load(ENSEMBLE))
    process = psutil.Process(served.server.pid)
    memory = []
    for run in range(2):
        result = measure_load(served.server, load, requests, tmp_path / "r.csv", run=run, progress=False)
        memory.append(process.memory_info().rss)
        refused = result.records[result.records["error"] != ""]
        assert len(refused) and refused["error"].str.contains("Exceeds maximum queue size").all()
        assert (result.records["error"] == "").any()
    assert memory[1] < 1.5 * memory[0] + 100e6
    afterwards = send_all(served.server, Probe(2).load(ENSEMBLE), requests[:8], tmp_path / "after.csv", progress=False)
    assert afterwards.failed == 0


def test_a_member_unloaded_during_a_run_gives_records_with_the_reason(
    served: EnsembleServer, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.configure(QUICK)
    requests = requests_for(ENSEMBLE, images, QUICK)
    records = tmp_path / "r.csv"

    unloading, failing = threading.Event(), threading.Event()
    statistics, finish = served.server.statistics, Journal.finish

    def unload_once_it_answers() -> None:
        wait_for(lambda: records.exists() and records.read_bytes().count(b"\n") >= 20)
        unloading.set()
        served.server.unload_model(MEMBER_B)

    def finish_and_note(journal: Journal, sample: Sample) -> None:
        finish(journal, sample)
        if sample.error:
            failing.set()

    def statistics_after_a_failure(name: str, *, settled: bool = False) -> ModelStatistics:
        """The server's own; from the unloading on not before a request has failed, else there might be no record."""
        assert not unloading.is_set() or failing.wait(PATIENCE_S)
        return statistics(name, settled=settled)

    unload = threading.Thread(target=unload_once_it_answers, daemon=True)
    unload.start()
    monkeypatch.setattr(served.server, "statistics", statistics_after_a_failure)
    monkeypatch.setattr(Journal, "finish", finish_and_note)
    started = time.perf_counter()
    try:
        with pytest.raises(ServerError, match=f"{ENSEMBLE}.*not available"):
            measure_load(
                served.server,
                replace(Probe(8, "http", 0.2, 1.0, 30).load(ENSEMBLE), stability_percent=0.1, max_windows=200),
                requests,
                records,
                progress=False,
            )
    finally:
        unload.join(60)
        served.server.load_model(MEMBER_B)
        served.server.load_model(ENSEMBLE)
    assert time.perf_counter() - started < 200
    kept = read_records(records, REQUEST_COLUMNS)
    failed = kept[kept["error"] != ""]
    assert (kept["error"] == "").any()
    assert len(failed) and failed["error"].str.contains(f"{MEMBER_B}|{ENSEMBLE}").all()
    again = send_all(served.server, Probe(2).load(ENSEMBLE), requests[:8], tmp_path / "after.csv", progress=False)
    assert again.failed == 0


def test_a_member_that_fails_spoils_only_its_own_images(served: EnsembleServer, images: Images, tmp_path: Path) -> None:
    served.configure(QUICK)
    code = tmp_path / "model.py"
    code.write_text(FAILING)
    served.replace_code(MEMBER_B, code)
    try:
        result = send_all(
            served.server,
            Probe(8).load(ENSEMBLE),
            requests_for(ENSEMBLE, images, QUICK),
            tmp_path / "r.csv",
            keep_outputs=True,
            progress=False,
        )
    finally:
        served.replace_code(MEMBER_B, None)
    road_ahead = images.logits[:, 1, 140, 60] > images.logits[:, 0, 140, 60]
    errors = result.records.sort_values("first_row")["error"]
    assert ((errors != "").to_numpy() == road_ahead).mean() > 0.95  # a logit near 0 may fall on the other side
    assert errors[errors != ""].str.contains("this member does not like roads").all()
    assert MEMBER_A in served.server.models
