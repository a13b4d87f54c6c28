"""The arrangements on the real server: the same bytes, the copies that the ledger says, nothing left after a kill."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from serving_helpers import assert_gone, traces, urls_of
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from busy_machine import in_one_of
from workbook.analysis.gpu_copies import place_of_input
from workbook.models.e5 import Encoder
from workbook.serving import handles, supervisor
from workbook.serving.arrangements import HandleOptions, arrange, arrangement_names, entry_model
from workbook.serving.embedded import EmbeddedServer
from workbook.serving.gpu_arrangements import GPU_ARRANGEMENTS, gpu_arrange
from workbook.serving.model_spec import InstanceSpec
from workbook.serving.pipelines import Pipeline, passage_pipeline, relay_pipeline, road_pipeline
from workbook.serving.repository import assemble_repository
from workbook.serving.server import start_server

pytestmark = pytest.mark.integration
SIZE = 1 << 20


def start(folder: Path, *pipelines: Pipeline, options: HandleOptions | None = None) -> EmbeddedServer:
    made = [entry for pipeline in pipelines for entry in arrange(pipeline, handle_options=options or HandleOptions())]
    repository = assemble_repository(folder / "repository", made, "embedded")
    server = start_server("embedded", repository, log_file=folder / "triton.log")
    assert isinstance(server, EmbeddedServer)
    return server


def ask(server: EmbeddedServer, model: str, output: str, **arrays: np.ndarray) -> np.ndarray:
    inputs = []
    for name, array in arrays.items():
        inputs.append(tritonclient.grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        answer: np.ndarray = client.infer(model, inputs, client_timeout=120).as_numpy(output)
        return answer


def relay(server: EmbeddedServer, arrangement: str, seed: int, size: int = SIZE) -> tuple[int, int]:
    total = ask(server, entry_model(relay_pipeline(), arrangement), "total", request=np.array([[size, seed]], np.int64))
    return int(total[0, 0]), int(total[0, 1])


def expected(seed: int, size: int = SIZE) -> tuple[int, int]:
    """The relay's answer, computed here in another way."""
    payload = bytearray([seed % 251]) * size
    payload[:8] = seed.to_bytes(8, "little")
    shifted = bytes((byte + 1) % 256 for byte in payload)
    words = int.from_bytes(shifted[:8], "little") + (size // 8 - 1) * int.from_bytes(shifted[8:16], "little")
    return (words + (1 << 63)) % (1 << 64) - (1 << 63), size


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bundled_encoder: Encoder) -> Iterator[EmbeddedServer]:
    from workbook.models.export import export_onnx

    folder = tmp_path_factory.mktemp("arrangements")
    exported = export_onnx(bundled_encoder)
    pipelines = (
        relay_pipeline(),
        road_pipeline(small_segmentation(folder / "small.safetensors")),
        passage_pipeline(exported.path, exported.hidden_size),
    )
    with start(folder, *pipelines) as running:
        yield running


def small_segmentation(checkpoint: Path) -> Path:
    """A network nobody has trained: for equal bytes any weights will do."""
    from workbook.models.segmentation import load_segmentation
    from workbook.models.segmentation_checkpoint import write_checkpoint
    from workbook.models.segmentation_export import export_segmentation
    from workbook.models.segmentation_images import Iou
    from workbook.models.semantic_fpn import build_network

    write_checkpoint(checkpoint, build_network(8).eval(), {"width": 8, "backbone": "residual"}, Iou(0.0, 0.0))
    return export_segmentation(load_segmentation(f"checkpoint:{checkpoint}")).path


# --- the same bytes --------------------------------------------------------------------------------------------------


def test_relay_gives_what_it_should_in_every_arrangement(server: EmbeddedServer) -> None:
    for arrangement in arrangement_names():
        assert relay(server, arrangement, 300) == expected(300), arrangement


def test_road_gives_the_same_jpeg_in_every_arrangement(server: EmbeddedServer) -> None:
    from workbook.models.road_scenes import road_scenes

    images, _ = road_scenes(3, 1)
    files = {
        name: ask(server, f"copies_road_{name}", "jpeg", image=images[:1]).tobytes() for name in arrangement_names()
    }
    assert {file[:2] for file in files.values()} == {b"\xff\xd8"}
    assert len(set(files.values())) == 1


def test_passage_gives_the_same_embedding_in_every_arrangement(
    server: EmbeddedServer, bundled_encoder: Encoder
) -> None:
    from workbook.models.e5 import embed

    texts = ["flood in the valley", "der Wald brennt"]
    tokens = bundled_encoder.tokenize(texts)
    arrays = {"input_ids": tokens.input_ids, "attention_mask": tokens.attention_mask}
    answers = {name: ask(server, f"copies_passage_{name}", "embedding", **arrays) for name in arrangement_names()}
    assert len({answer.tobytes() for answer in answers.values()}) == 1
    assert (answers["handle"] * embed(bundled_encoder, texts)).sum(axis=1).min() > 0.99999


def test_requests_side_by_side_keep_their_own_data(server: EmbeddedServer) -> None:
    def one(seed: int) -> bool:
        return relay(server, ("handle", "bls_async", "ensemble")[seed % 3], seed, 1 << 16) == expected(seed, 1 << 16)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, range(60)))


def test_a_stage_that_fails_says_so_and_takes_the_next_request(server: EmbeddedServer) -> None:
    for arrangement in arrangement_names():
        with pytest.raises(InferenceServerException, match=r"negative dimensions|ValueError"):
            relay(server, arrangement, 1, -8)
        assert relay(server, arrangement, 1, 80) == expected(1, 80)


def test_a_tensor_larger_than_a_slot_is_refused(server: EmbeddedServer) -> None:
    for _ in range(10):  # more often than there are slots: none is lost on the way
        with pytest.raises(InferenceServerException, match="raise handle_slot_bytes"):
            relay(server, "handle", 1, (64 << 20) + 8)
    assert relay(server, "handle", 1) == expected(1)


def test_gpu_stages_answer_on_a_cpu_too(tmp_path: Path) -> None:
    """The code of the GPU path, DLPack in and out, as far as it can be tried without a GPU."""
    made = []
    for spec, files in gpu_arrange(stay_on_gpu=False):
        on_cpu = () if spec.steps else (InstanceSpec(1, "cpu"),)
        made.append((replace(spec, instances=on_cpu), files))
    repository = assemble_repository(tmp_path / "repository", made, "embedded")
    with start_server("embedded", repository, log_file=tmp_path / "triton.log") as server:
        assert isinstance(server, EmbeddedServer)
        for name in GPU_ARRANGEMENTS:
            request = np.array([[80, 4]], np.int64)
            total, said = ask(server, f"copies_gpu_{name}", "total", request=request)[0].tolist()
            assert total == 10 * int.from_bytes(bytes([5] * 8), "little")
            assert place_of_input(said) == (80, "CPU")


# --- a process is killed ---------------------------------------------------------------------------------------------


def slots_of(identity: str) -> list[Path]:
    return list(handles.SHARED_MEMORY_DIR.glob(f"{supervisor.shared_memory_prefix(identity)}handle-*"))


def stub_of(server: EmbeddedServer, model: str) -> psutil.Process:
    """The stub that serves a model, by its command line."""
    (found,) = (
        child
        for child in psutil.Process(server.pid).children(recursive=True)
        if re.search(rf"/{model}/1/model\.py", " ".join(child.cmdline()))
    )
    return found


def frozen_request(server: EmbeddedServer, stub: psutil.Process, pool: ThreadPoolExecutor, seed: int):  # type: ignore[no-untyped-def]
    """A request that is inside the handle arrangement and cannot leave it: a stage is stopped on its way."""
    stub.suspend()
    pending = pool.submit(relay, server, "handle", seed)
    time.sleep(0.3)
    assert not pending.done()
    return pending


@pytest.mark.parametrize("stage", ["shift", "total"])  # producer and consumer in one; consumer
def test_killed_stage_mid_request_answers_nothing_and_leaves_nothing(tmp_path: Path, stage: str) -> None:
    with start(tmp_path / "first", relay_pipeline()) as server, ThreadPoolExecutor(1) as pool:
        assert relay(server, "handle", 1) == expected(1)
        stub = stub_of(server, f"copies_relay_{stage}_handle")
        pending = frozen_request(server, stub, pool, 2)
        stub.kill()
        with pytest.raises(InferenceServerException):
            pending.result(150)
        # this release starts no second stub: the arrangement is out of order until the next start, the others are not
        with pytest.raises(InferenceServerException, match="is not healthy"):
            relay(server, "handle", 3)
        assert relay(server, "ensemble", 4) == expected(4)
        identity = server.identity
        assert slots_of(identity)
    assert slots_of(identity) == []
    with start(tmp_path / "second", relay_pipeline()) as server:
        assert relay(server, "handle", 5) == expected(5)


def refused_after_a_pause(server: EmbeddedServer) -> int | None:
    """Twice as many requests as there are slots, while nobody reads: how many are refused, the others being right.

    None where the pause got so long, on a busy machine, that Triton gave the stage up.
    """
    stub = stub_of(server, "copies_relay_total_handle")
    refused, given_up = 0, False
    with ThreadPoolExecutor(6) as pool:
        stub.suspend()
        pending = {}
        for seed in range(4):
            pending[seed] = pool.submit(relay, server, "handle", seed)
            time.sleep(0.06)
        stub.resume()
        for seed, answer in pending.items():
            try:
                assert answer.result(150) == expected(seed)
            except InferenceServerException as error:
                late = re.search("another tensor by now|taken back|are on their way", str(error)) is not None
                assert late or re.search("not healthy|stub process", str(error)), error
                refused += late
                given_up |= not late
    return None if given_up else refused


def test_handles_that_come_too_late_are_refused_and_never_answered_with_other_data(tmp_path: Path) -> None:
    options = HandleOptions(slots=2, slot_bytes=SIZE, ttl_ms=50)
    for attempt in range(8):
        with start(tmp_path / str(attempt), relay_pipeline(), options=options) as server:
            refused = refused_after_a_pause(server)
            if refused is None or not 0 < refused < 4:
                continue  # the machine was too busy for the requests to overlap as they should
            for seed in range(10, 16):
                assert relay(server, "handle", seed) == expected(seed)
            return
    pytest.fail("in eight attempts there was none in which some requests were refused and some were answered")


def kill_mid_request(folder: Path) -> EmbeddedServer:
    victim = start(folder, relay_pipeline())
    with ThreadPoolExecutor(1) as pool:
        pending = frozen_request(victim, stub_of(victim, "copies_relay_total_handle"), pool, 2)
        os.kill(victim.supervisor_pid, signal.SIGSTOP)  # server and supervisor in one go: nobody is left to clean up
        os.kill(victim.pid, signal.SIGKILL)
        os.kill(victim.supervisor_pid, signal.SIGKILL)
        with pytest.raises(InferenceServerException):
            pending.result(150)
    assert slots_of(victim.identity)  # unless a server that the test beside this one starts has cleared them
    return victim


def test_killed_server_mid_request_leaves_nothing_after_the_next_start(tmp_path: Path) -> None:
    victim = in_one_of(lambda number: kill_mid_request(tmp_path / str(number)))
    with start(tmp_path / "second", relay_pipeline()) as server:
        assert traces(victim.identity) == []
        assert relay(server, "handle", 3) == expected(3)
    assert_gone(victim.identity, urls_of(victim))
