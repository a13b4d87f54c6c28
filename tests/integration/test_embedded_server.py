"""The real server: it answers, it counts, it explains itself, and nothing of it is left when it goes."""

from __future__ import annotations

import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from serving_helpers import booked, infer, settled, start_null, urls_of
from tritonclient.utils import InferenceServerException

from workbook.errors import ServerError
from workbook.serving.encoder_spec import null_spec
from workbook.serving.handle import Server
from workbook.serving.model_config import to_config_pbtxt
from workbook.serving.options import ServerOptions
from workbook.serving.repository import committed_repository
from workbook.serving.server import start_server

pytestmark = pytest.mark.integration


# --- it answers and counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_answers_over_both_transports(null_server: Server, kind: str) -> None:
    transport = getattr(tritonclient, kind)
    url = getattr(null_server, f"{kind}_url")
    answer = infer(url, "null", np.ones((3, 5), np.int64), ["sentence_embedding"], transport=transport)
    assert answer["sentence_embedding"].shape == (3, 384)
    assert answer["sentence_embedding"].dtype == np.float32


def test_listens_on_the_loopback_only(null_server: Server) -> None:
    listening = {c.laddr for c in psutil.Process(null_server.pid).net_connections("inet") if c.status == "LISTEN"}
    # gRPC binds the IPv4 loopback through an IPv6 socket
    assert {f"{ip.removeprefix('::ffff:')}:{port}" for ip, port in listening} == set(urls_of(null_server))


def test_statistics_difference_counts_what_was_sent(null_server: Server) -> None:
    before = settled(null_server, "null")
    for rows in (1, 2, 4):
        infer(null_server.grpc_url, "null", np.ones((rows, 5), np.int64), ["sentence_embedding"])
    delta = booked(null_server, "null", before, requests=3)
    assert (delta.success_count, delta.inference_count, delta.execution_count, delta.fail_count) == (3, 7, 3, 0)
    parts = delta.queue_ns + delta.compute_input_ns + delta.compute_infer_ns + delta.compute_output_ns
    assert 0 < parts <= delta.success_ns


def test_says_what_it_is_and_uses(null_server: Server) -> None:
    assert null_server.server_info.version == "2.51.0"
    assert null_server.model_config("null")["max_batch_size"] == 4096
    assert null_server.cpu_seconds() > 0
    assert "Started HTTPService" in null_server.log_tail()
    assert null_server.is_alive()
    null_server.check_alive()


def test_remote_handle_on_the_same_server_leaves_it_running(null_server: Server) -> None:
    ports = [url.rpartition(":")[2] for url in (null_server.grpc_url, null_server.http_url)]
    with start_server(f"remote:127.0.0.1:{':'.join(ports)}", models=["null"]) as remote:
        assert remote.server_info == null_server.server_info
        assert remote.statistics("null").model == "null"
    assert null_server.is_alive()
    with pytest.raises(ServerError, match="does not serve e5; it serves null"):
        start_server(f"remote:127.0.0.1:{':'.join(ports)}", models=["e5"])


# --- e5 --------------------------------------------------------------------------------------------------------------

LENGTHS = (3, 9, 17, 40)


def ids_of(length: int, rows: int = 2) -> np.ndarray:
    return np.random.default_rng(length).integers(4, 1000, (rows, length), dtype=np.int64)


def test_ragged_requests_batched_together_answer_as_alone(e5_server: Server) -> None:
    outputs = ["sentence_embedding", "last_hidden_state"]
    alone = [infer(e5_server.grpc_url, "e5_onnx", ids_of(length), outputs) for length in LENGTHS]
    for _attempt in range(20):  # the batcher waits 20 ms for company, which a busy machine may send later
        before = settled(e5_server, "e5_onnx")
        with ThreadPoolExecutor(len(LENGTHS)) as pool:
            together = list(
                pool.map(lambda length: infer(e5_server.grpc_url, "e5_onnx", ids_of(length), outputs), LENGTHS)
            )
        delta = booked(e5_server, "e5_onnx", before, requests=4)
        assert delta.success_count == 4
        if delta.execution_count < 4:
            break
    assert delta.execution_count < 4  # some of them really ran together
    for length, one, other in zip(LENGTHS, alone, together, strict=True):
        assert other["last_hidden_state"].shape == (2, length, 384)
        np.testing.assert_allclose(other["last_hidden_state"], one["last_hidden_state"], atol=2e-5)
        np.testing.assert_allclose(other["sentence_embedding"], one["sentence_embedding"], atol=2e-6)
        np.testing.assert_allclose(np.linalg.norm(other["sentence_embedding"], axis=1), 1, atol=1e-6)


def test_outputs_equal_the_encoder_in_pytorch(e5_server: Server, bundled_encoder) -> None:  # type: ignore[no-untyped-def]
    from workbook.models.e5 import embed

    texts = ["flood in the valley", "der Wald brennt", "地震"]
    tokens = bundled_encoder.tokenize(texts)
    got = infer(e5_server.grpc_url, "e5_onnx", tokens.input_ids, ["sentence_embedding"], mask=tokens.attention_mask)
    cosines = (got["sentence_embedding"] * embed(bundled_encoder, texts)).sum(axis=1)
    assert cosines.min() > 0.99999


def test_only_the_outputs_asked_for_are_computed(e5_server: Server) -> None:
    ids = ids_of(30)
    (name, pooled), *rest = infer(e5_server.grpc_url, "e5_onnx", ids, ["cls_embedding"]).items()
    assert (name, rest) == ("cls_embedding", [])
    hidden = infer(e5_server.grpc_url, "e5_onnx", ids, ["last_hidden_state"])["last_hidden_state"]
    np.testing.assert_allclose(pooled, hidden[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (np.ones((1, 513), np.int64), None, "a row has 513 tokens, this model takes 1 to 512"),
        (np.full((1, 4), 250037, np.int64), None, "token id 250037, this model knows 0 to 250036"),
        (np.full((1, 4), -1, np.int64), None, "token id -1"),
        (np.ones((1, 4), np.int64), np.zeros((1, 4), np.int64), "a row without a token"),
        (np.ones((1, 4), np.int64), np.ones((1, 5), np.int64), "give both the same"),
        (np.ones((1, 4), np.int32), None, "data-type is 'INT32', but model 'e5_onnx' expects 'INT64'"),
        (np.ones((33, 4), np.int64), None, "batch-size must be <= 32"),
    ],
    ids=["too long", "id too large", "id negative", "no token", "shapes differ", "dtype", "too many rows"],
)
def test_bad_requests_are_told_what_is_wrong(e5_server: Server, ids, mask, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InferenceServerException) as caught:
        infer(e5_server.grpc_url, "e5_onnx", ids, ["sentence_embedding"], mask=mask)
    assert message in str(caught.value)
    assert message in str(e5_server.explain_failure(caught.value))


def test_a_bad_request_does_not_spoil_those_batched_with_it(e5_server: Server) -> None:
    good, bad = ids_of(6), np.full((1, 6), 999_999, np.int64)
    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(infer, e5_server.grpc_url, "e5_onnx", ids, ["sentence_embedding"])
            for ids in (good, bad, good, bad)
        ]
    assert [call.exception() is None for call in calls] == [True, False, True, False]


# --- it explains why it does not start -------------------------------------------------------------------------------


def broken_repository(folder: Path, code: str) -> Path:
    (folder / "null" / "1").mkdir(parents=True)
    (folder / "null" / "config.pbtxt").write_text(to_config_pbtxt(null_spec()))
    (folder / "null" / "1" / "model.py").write_text(code)
    return folder


def test_broken_model_shows_its_own_error(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "triton.log"
    with pytest.raises(ServerError) as caught:
        start_server("embedded", broken_repository(tmp_path / "repository", "import no_such_module\n"), log_file=log)
    headline = str(caught.value).splitlines()[0]
    assert "Triton ended while it started" in headline
    assert "ModuleNotFoundError: No module named 'no_such_module'" in headline
    assert "no_such_module" in caught.value.log_tail
    assert log.is_file()


def test_missing_weights_say_how_they_are_built() -> None:
    with pytest.raises(ServerError, match="run notebook 01_export_models"):
        start_server("embedded", committed_repository(), models=["e5_onnx"])


def test_slow_model_runs_into_the_time_limit(tmp_path: Path) -> None:
    repository = broken_repository(tmp_path, "import time\ntime.sleep(600)\n")
    start = time.monotonic()
    with pytest.raises(ServerError, match=r"not ready after 2 s \(startup_timeout_s"):
        start_server("embedded", repository, options=ServerOptions(startup_timeout_s=2, stop_grace_s=1))
    assert time.monotonic() - start < 120  # of 600


def test_unknown_model_names_those_there() -> None:
    with pytest.raises(ServerError, match=r"has no model e6; it has .*e5_onnx, .*null"):
        start_server("embedded", committed_repository(), models=["e6"])


def test_port_taken_in_between_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbook.serving import starting

    choose = starting.choose_ports
    attempts = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def taken_once(options: ServerOptions):  # type: ignore[no-untyped-def]
            attempts.append(1)
            ports = choose(options)
            return replace(ports, grpc=other.getsockname()[1]) if len(attempts) == 1 else ports

        monkeypatch.setattr(starting, "choose_ports", taken_once)
        with start_null() as server:
            assert server.is_alive()
    assert len(attempts) >= 2  # a test beside this one may have taken one more


# --- options ---------------------------------------------------------------------------------------------------------


def test_trace_file_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    with start_null(trace_file=trace) as server:
        infer(server.grpc_url, "null", np.ones((1, 4), np.int64), ["sentence_embedding"])
    assert "REQUEST_START" in trace.read_text()


def test_models_are_loaded_and_unloaded_on_request(tmp_path: Path) -> None:
    shutil.copytree(committed_repository() / "null", tmp_path / "null")
    with start_server("embedded", tmp_path, options=ServerOptions(model_control_mode="explicit")) as server:
        with pytest.raises(ServerError, match="null"):
            server.statistics("null")
        server.load_model("null")
        assert server.statistics("null").success_count == 0
        server.unload_model("null")
