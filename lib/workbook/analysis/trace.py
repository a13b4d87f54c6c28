"""Triton's trace of requests to an ensemble: when each image waited and was worked on, in A and in B."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.errors import LoadError
from workbook.serving.ensemble_spec import ENSEMBLE

if TYPE_CHECKING:
    import pandas as pd

_MOMENTS = {"QUEUE_START": "queue_start_ms", "COMPUTE_START": "work_start_ms", "COMPUTE_END": "work_end_ms"}
_NS_PER_MS = 1e6


def read_trace(path: Path, ensemble: str = ENSEMBLE) -> pd.DataFrame:
    """Read a trace that Triton wrote with `mode=triton,level=TIMESTAMPS`.

    Args:
        path: the trace's file.
        ensemble: requests to this model are taken, with what they caused in its members.

    Returns:
        A row an image and member, in order of sending: `image` (from 0), `member`, `queue_start_ms` (it began to wait),
        `work_start_ms`, `work_end_ms` (of the execution it was part of), all since the first request, and `execution`
        (images with the same number were one batch; counted for each member from 0).

    Raises:
        LoadError: no such file, it is no trace, or it holds no request to the ensemble.
    """
    import pandas as pd

    requests = _requests(path)
    parents = {number: request for number, request in requests.items() if request.get("model_name") == ensemble}
    if not parents:
        raise LoadError(f"{path} holds no request to {ensemble}: was it traced, and did the server stop before?")
    started = {number: request["REQUEST_START"] for number, request in parents.items()}
    order = {number: place for place, number in enumerate(sorted(started, key=lambda number: started[number]))}
    zero_ns = min(started.values())
    rows = [
        {"image": order[request["parent_id"]], "member": request["model_name"], **_moments(request, zero_ns)}
        for request in requests.values()
        if request.get("parent_id") in order and set(_MOMENTS) <= set(request)
    ]
    frame = pd.DataFrame(rows).sort_values(["image", "queue_start_ms"], ignore_index=True)
    frame["execution"] = frame.groupby("member")["work_start_ms"].rank(method="dense").astype(int) - 1
    return frame


def describe_timeline(timeline: pd.DataFrame) -> pd.DataFrame:
    """What the timeline holds, a row a member.

    Returns:
        `member`, `images`, `executions`, `largest_batch`, `wait_mean_ms`, `wait_max_ms`, `work_mean_ms` (of an
        execution), `arrivals_in_5_ms` (most images that began to wait for it within 5 ms: a burst).
    """
    import pandas as pd

    rows = []
    for member, group in timeline.groupby("member", sort=False):
        waits = group["work_start_ms"] - group["queue_start_ms"]
        executions = group.drop_duplicates("execution")
        rows.append(
            {
                "member": member,
                "images": len(group),
                "executions": len(executions),
                "largest_batch": int(group["execution"].value_counts().max()),
                "wait_mean_ms": waits.mean(),
                "wait_max_ms": waits.max(),
                "work_mean_ms": (executions["work_end_ms"] - executions["work_start_ms"]).mean(),
                "arrivals_in_5_ms": _largest_burst(group["queue_start_ms"].tolist(), 5.0),
            }
        )
    return pd.DataFrame(rows)


def _largest_burst(moments_ms: list[float], within_ms: float) -> int:
    ordered, first, largest = sorted(moments_ms), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] > within_ms:
            first += 1
        largest = max(largest, last - first + 1)
    return largest


def _requests(path: Path) -> dict[int, dict[str, Any]]:
    """Everything the trace says of each request, by its number."""
    try:
        entries = _parse(path.read_text())
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read as a trace: {error}.") from error
    requests: dict[int, dict[str, Any]] = defaultdict(dict)
    for entry in entries:
        request = requests[int(entry["id"])]
        request |= {name: entry[name] for name in ("model_name", "parent_id") if name in entry}
        request |= {moment["name"]: int(moment["ns"]) for moment in entry.get("timestamps", ())}
    return requests


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text + "]")  # Triton closes the list when it stops


def _moments(request: dict[str, Any], zero_ns: int) -> dict[str, float]:
    return {column: (request[name] - zero_ns) / _NS_PER_MS for name, column in _MOMENTS.items()}
