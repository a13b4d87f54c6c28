"""An overload: more requests than the members' queues may hold, for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from workbook.measuring.ensemble.answers import check_answers
from workbook.measuring.ensemble.images import Images, requests_for
from workbook.measuring.ensemble.runs import Probe, measure_long_enough
from workbook.measuring.online.windows import STABLE_WINDOWS
from workbook.serving.ensemble_server import EnsembleServer
from workbook.serving.ensemble_spec import ENSEMBLE, EnsembleVariant

OVERLOADED_QUEUE = 16
REFUSAL = "Exceeds maximum queue size"
"""What Triton answers where a queue is full."""


def overload(
    served: EnsembleServer,
    variant: EnsembleVariant,
    images: Images,
    probe: Probe,
    records: Callable[[str], Path],
    duration_s: float,
) -> dict[str, float | str]:
    """Ask for more than may wait, in two halves: who is refused, does anyone hang, what does the server do afterwards?

    Args:
        served: the running server.
        variant: the configuration; its queues are limited to OVERLOADED_QUEUE requests here.
        images: sent in turn.
        probe: connections, transport and time limit.
        records: gives the file for the records.
        duration_s: of both halves together, s; longer on a machine that answers nothing in it.

    Returns:
        `seconds`, `answered`, `refused` (with Triton's words for a full queue), `otherwise_failed`, `refusal` (those
        words), `answered_per_s`, `slowest_ms` (of all, refused ones too: none hangs), `memory_half_mb` and
        `memory_end_mb` (server and stubs, resident, after each half; NaN for a server that is not ours),
        `right_afterwards` (share of images that then come back as their own mask).
    """
    import pandas as pd

    served.configure(replace(variant, max_queue_size=OVERLOADED_QUEUE))
    requests = requests_for(ENSEMBLE, images, served.variant)
    pushed = replace(probe, warmup_s=0.2, window_s=duration_s / 2 / STABLE_WINDOWS)
    halves, memory_mb, seconds = [], [], 0.0
    for run in range(2):
        result = measure_long_enough(served, pushed, ENSEMBLE, requests, records("overload"), "overload", run)
        halves.append(result.records)
        seconds += result.duration_s
        memory_mb.append(_memory_mb(served.server.pid))
    together = pd.concat(halves, ignore_index=True)
    errors = together["error"]
    refused = errors.str.contains(REFUSAL)
    afterwards = check_answers(served, images, records("after_overload"), concurrency=OVERLOADED_QUEUE // 2)
    return {
        "seconds": seconds,
        "answered": float((errors == "").sum()),
        "refused": float(refused.sum()),
        "otherwise_failed": float(((errors != "") & ~refused).sum()),
        "refusal": errors[refused].iloc[0] if refused.any() else "",
        "answered_per_s": float((errors == "").sum() / seconds),
        "slowest_ms": float((together["decoded_ns"] - together["sent_ns"]).max() / 1e6),
        "memory_half_mb": memory_mb[0],
        "memory_end_mb": memory_mb[1],
        "right_afterwards": float((afterwards["nearest_image"] == afterwards["image"]).mean()),
    }


def reading_of_overload(overloaded: dict[str, float | str]) -> str:
    """What happened, in three sentences."""
    at = overloaded
    return (
        f"In {at['seconds']:g} s the overloaded server answered {at['answered']:,.0f} images and refused "
        f"{at['refused']:,.0f} with its own words (“{at['refusal']}”); {at['otherwise_failed']:.0f} failed otherwise, "
        f"and nobody waited longer than {at['slowest_ms']:,.0f} ms. Its memory went from "
        f"{at['memory_half_mb']:,.0f} MB half-way to {at['memory_end_mb']:,.0f} MB at the end. Afterwards "
        f"{at['right_afterwards']:.0%} of the images came back as their own mask."
    )


def _memory_mb(pid: int | None) -> float:
    """Resident memory of the server and its stubs, 10^6 bytes."""
    import psutil

    if pid is None:
        return float("nan")
    server = psutil.Process(pid)
    return float(sum(process.memory_info().rss for process in (server, *server.children(recursive=True))) / 1e6)
