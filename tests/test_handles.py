from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workbook.serving import handles
from workbook.serving.handles import Arena, HandleError, Reader, clear_dead


@pytest.fixture
def prefix() -> Iterator[str]:
    """Names of this test's own; nothing may be left under them."""
    name = f"workbook-test-{os.getpid()}-"
    yield name
    for file in handles.SHARED_MEMORY_DIR.glob(f"{name}*"):
        file.unlink()


@pytest.fixture
def arena(prefix: str) -> Iterator[Arena]:
    made = Arena(prefix, slots=2, slot_bytes=800, ttl_s=60)
    yield made
    made.close()


def files(prefix: str) -> list[Path]:
    return list(handles.SHARED_MEMORY_DIR.glob(f"{prefix}*"))


def send(arena: Arena, value: int, count: int = 100) -> bytes:
    lease = arena.lease((1, count), np.int64)
    lease.array[:] = value
    return lease.publish()


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_the_consumer_reads_what_the_producer_wrote_where_it_lies(arena: Arena, prefix: str) -> None:
    lease = arena.lease((2, 3), np.float16)
    lease.array[:] = np.arange(6).reshape(2, 3)
    with Reader(prefix).borrow(lease.publish()) as array:
        assert (array.dtype, array.shape) == (np.float16, (2, 3))
        np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])
        assert not array.flags.writeable
        lease.array[0, 0] = 9  # no copy lies between: the mapping of the one shows what the other writes
        assert array[0, 0] == 9


def test_a_slot_comes_back_when_it_was_read(arena: Arena, prefix: str) -> None:
    reader = Reader(prefix)
    for value in range(20):  # ten times as many as there are slots
        with reader.borrow(send(arena, value)) as array:
            assert (array == value).all()


def test_a_handle_is_good_for_one_reading(arena: Arena, prefix: str) -> None:
    reader, handle = Reader(prefix), send(arena, 1)
    with reader.borrow(handle):
        pass
    with pytest.raises(HandleError, match="another tensor by now, or none"), reader.borrow(handle):
        pass


def test_never_the_data_of_another_request(prefix: str) -> None:
    arena = Arena(prefix, slots=1, slot_bytes=800, ttl_s=0.01)
    late = send(arena, 1)
    time.sleep(0.02)  # its lease runs out, the only slot goes to the next request
    current = send(arena, 2)
    reader = Reader(prefix)
    with pytest.raises(HandleError, match="another tensor"), reader.borrow(late):
        pass
    with reader.borrow(current) as array:
        assert (array == 2).all()


def test_a_slot_that_is_read_is_not_taken_back_though_its_lease_runs_out(prefix: str) -> None:
    arena = Arena(prefix, slots=1, slot_bytes=800, ttl_s=0.01)
    with Reader(prefix).borrow(send(arena, 1)) as array:
        time.sleep(0.02)
        with pytest.raises(HandleError, match="all 1 slots are on their way"):
            arena.lease((1, 1), np.int64)
        assert (array == 1).all()
    send(arena, 2)  # read to the end: free again


def test_a_slot_that_is_being_written_cannot_be_read(arena: Arena, prefix: str) -> None:
    handle = send(arena, 1)
    with Reader(prefix).borrow(handle):
        pass
    lease = arena.lease((1, 1), np.int64)
    with pytest.raises(HandleError), Reader(prefix).borrow(handle):
        pass
    lease.give_back()


def test_memory_is_bounded(arena: Arena) -> None:
    send(arena, 1)
    arena.lease((1, 1), np.int64)
    with pytest.raises(HandleError, match="raise handle_slots"):
        arena.lease((1, 1), np.int64)
    with pytest.raises(HandleError, match="808 bytes, a slot 800: raise handle_slot_bytes"):
        arena.lease((1, 101), np.int64)


def test_what_was_given_back_is_free(arena: Arena) -> None:
    for _ in range(5):
        arena.lease((1, 1), np.int64).give_back()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "../etc/passwd"}, "not one of this server's slots"),
        ({"file": "workbook-triton-1-2-3-x"}, "not one of this server's slots"),
        ({"nonce": "00" * 16}, "another tensor"),
        ({"nonce": "00"}, "no handle"),
        ({"shape": [1, 99]}, "holds 800 bytes, the handle speaks of 792"),
        ({"shape": [-1]}, "no handle"),
        ({"dtype": "O"}, "no handle"),
    ],
)
def test_a_forged_handle_is_refused(arena: Arena, prefix: str, change: dict[str, object], message: str) -> None:
    handle = json.dumps({**json.loads(send(arena, 1)), **change}).encode()
    with pytest.raises(HandleError, match=message), Reader(prefix).borrow(handle):
        pass


def test_noise_is_no_handle(prefix: str) -> None:
    with pytest.raises(HandleError, match="this is no handle"), Reader(prefix).borrow(b"\xff"):
        pass


# --- processes that die ----------------------------------------------------------------------------------------------


def _read_for_ever(prefix: str, handle: bytes, pipe) -> None:  # type: ignore[no-untyped-def]
    with Reader(prefix).borrow(handle):
        pipe.send("reading")
        time.sleep(300)


def test_a_consumer_killed_while_it_reads_gives_the_slot_back(prefix: str) -> None:
    arena = Arena(prefix, slots=1, slot_bytes=800, ttl_s=0.01)
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    consumer = multiprocessing.get_context("fork").Process(target=_read_for_ever, args=(prefix, send(arena, 1), theirs))
    consumer.start()
    assert ours.recv() == "reading"
    time.sleep(0.02)
    with pytest.raises(HandleError, match="on their way"):
        arena.lease((1, 1), np.int64)
    assert consumer.pid is not None
    os.kill(consumer.pid, signal.SIGKILL)
    consumer.join()
    assert (arena.lease((1, 1), np.int64).array == 1).all()


PRODUCER = """
import sys, time, numpy as np
from workbook.serving.handles import Arena
arena = Arena(sys.argv[1], slots=2, slot_bytes=800)
lease = arena.lease((1, 100), np.int64)
lease.array[:] = 7
print(lease.publish().decode(), flush=True)
time.sleep(300)
"""


def test_a_killed_producer_leaves_no_file_after_the_next_start(prefix: str) -> None:
    producer = subprocess.Popen([sys.executable, "-c", PRODUCER, prefix], stdout=subprocess.PIPE, text=True)
    assert producer.stdout is not None
    handle = producer.stdout.readline().encode()
    with producer.stdout:
        assert len(files(prefix)) == 2
        with Reader(prefix).borrow(handle) as array:
            producer.kill()
            producer.wait()
            assert len(files(prefix)) == 2  # nobody was left to remove them
            survivor = Arena(prefix, slots=1, slot_bytes=8)
            assert [str(os.getpid()) in file.name for file in files(prefix)] == [True]
            assert (array == 7).all()  # the consumer reads on: what it has mapped stays until it lets go
            survivor.close()
    assert files(prefix) == []


def test_living_producers_and_other_programs_are_left_alone(arena: Arena, prefix: str) -> None:
    other = handles.SHARED_MEMORY_DIR / f"{prefix}handle-notes"
    other.touch()
    assert clear_dead(prefix) == []
    assert len(files(prefix)) == 3
