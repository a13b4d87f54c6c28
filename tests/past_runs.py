"""Run directories as notebooks leave them, made by hand: numbers that can be checked in the head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbook.measuring.records import REQUEST_COLUMNS, RecordWriter

NOTEBOOK = "03_serve_with_triton"
MS = 1_000_000


def save_requests(
    path: Path, arm: str, latency_ms: int, *, run: int = 0, concurrency: int = 1, count: int = 20, window: int = 0
) -> None:
    """One request after the other, 2 rows each: 1000 / latency_ms requests a second for each in flight."""
    with RecordWriter(path, REQUEST_COLUMNS) as writer:
        for number in range(count):
            start = number // concurrency * latency_ms * MS
            numbers = dict.fromkeys((name for name, kind in REQUEST_COLUMNS.items() if kind == "int64"), 0)
            end = start + latency_ms * MS
            times = {"intended_ns": start, "sent_ns": start, "received_ns": end, "decoded_ns": end}
            own = {
                "arm": arm,
                "run": run,
                "concurrency": concurrency,
                "request": number,
                "rows": 2,
                "window": window,
                "error": "",
            }
            writer.append({**numbers, **own, **times, "real_tokens": 8, "padded_tokens": 8})


def save_run(
    runs: Path,
    name: str,
    numbers: Mapping[str, tuple[str, str]],
    *,
    parameters: Mapping[str, Any] | None = None,
    notebook: str = NOTEBOOK,
    **environment: Any,
) -> Path:
    """A run with results (label -> value and detail), parameters and an environment."""
    directory = runs / name
    headline = [{"label": label, "value": value, "detail": detail} for label, (value, detail) in numbers.items()]
    machine = {"processor": "P", "load_average_1min": 0.2, "started": name, "packages": {"torch": "1"}, **environment}
    for place, content in {
        f"results/{notebook}.json": {"headline": {"question": "?", "answer": "!", "numbers": headline}},
        f"parameters/{notebook}.json": {"rows": 8, **(parameters or {})},
        "environment.json": machine,
    }.items():
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return directory
