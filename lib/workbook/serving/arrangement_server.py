"""All arrangements of the pipelines on one server, from the settings of a notebook; and one that counts its copies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbook.serving.arrangements import (
    HandleOptions,
    Pipeline,
    arrange,
    entry_model,
    relay_pipeline,
    source_model,
)
from workbook.serving.repository import Backend, assemble_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from workbook.measuring.copy_counter import CountedCopy
    from workbook.runs import Run
    from workbook.settings import Settings

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has malloc ask for 2 MiB pages (glibc 2.35 and later, "Memory Allocation Tunables" in its manual)."""
_MIB = 1 << 20
_UNCOUNTED = 2
_LOG_S = 0.02


def start_arrangement_server(
    pipelines: Sequence[Pipeline], settings: Settings, run: Run, *, huge_pages: bool = False
) -> Server:
    """Serve every arrangement of the pipelines, and the model that answers with any number of bytes.

    Args:
        pipelines: what is arranged.
        settings: server, instances, handles, shared memory of the stubs.
        run: where repository and log go.
        huge_pages: let the server's malloc ask for large pages; embedded server only.

    Returns:
        The running server; a remote one is only looked at.

    Raises:
        SettingError, SetupError, ServerError: as `start_server`.
    """
    kind = resolve_kind(settings.server)
    options = handle_options(settings)
    made = [
        entry
        for pipeline in pipelines
        for entry in arrange(pipeline, instances=settings.monolith_instances, handle_options=options)
    ]
    models = [*made, source_model()]
    if kind.startswith("remote:"):
        return start_server(kind, models=[spec.name for spec, _ in models])
    backend: Backend = "container" if kind == "container" else "embedded"
    repository = assemble_repository(run.directory / "model_repository" / run.notebook, models, backend)
    with environment(HUGE_PAGES if huge_pages else {}):
        return start_server(kind, repository, options=server_options(settings), log_file=run.log_path)


def handle_options(settings: Settings) -> HandleOptions:
    """Slots as large as the largest tensor of the sweep, a little more for the headers."""
    largest = max(settings.copy_sizes_kb) * 1000
    return HandleOptions(settings.handle_slots, max(largest, 8 * _MIB), settings.handle_ttl_ms)


def server_options(settings: Settings) -> ServerOptions:
    """Start-up time and the region that each stub shares with the server."""
    return ServerOptions(
        startup_timeout_s=settings.startup_timeout_s,
        shm_default_bytes=settings.stub_memory_mb * _MIB,
        shm_growth_bytes=settings.stub_growth_mb * _MIB,
        container_shm_bytes=max(1 << 30, 16 * settings.stub_memory_mb * _MIB),
    )


@contextmanager
def environment(added: dict[str, str]) -> Iterator[None]:
    """Environment variables for what is started inside the block."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def count_copies(
    settings: Settings, run: Run, arrangements: Sequence[str], sizes_bytes: Sequence[int], requests: int = 5
) -> pd.DataFrame:
    """Send requests to each arrangement of the relay on a server that reports its copies; hold them to the ledger.

    Args:
        settings: as for `start_arrangement_server`; the server is an embedded one.
        run: where repository and log go.
        arrangements: which.
        sizes_bytes: of the tensor.
        requests: counted for each size, after two that are not.

    Returns:
        A row an arrangement and size, as `measuring.copy_counter.counted_row`.

    Raises:
        SetupError: there is no C compiler.
        ServerError: the server did not start or did not answer.
    """
    import pandas as pd

    from workbook.analysis.copies import ledger
    from workbook.analysis.copy_costs import relay_bytes
    from workbook.measuring.copy_counter import counted_row, counter_environment

    pipeline = relay_pipeline()
    log = run.log_path.with_name(f"{run.notebook}_counted.log")
    made = arrange(pipeline, instances=settings.monolith_instances, handle_options=handle_options(settings))
    repository = assemble_repository(run.directory / "model_repository" / f"{run.notebook}_counted", made, "embedded")
    with environment(counter_environment(sizes_bytes)):
        server = start_server("embedded", repository, options=server_options(settings), log_file=log)
    rows = []
    with server:
        for size in sizes_bytes:
            for name in arrangements:
                reported = _counted_requests(server, entry_model(pipeline, name), size, log, requests)
                expected = ledger(pipeline, name, relay_bytes(size))
                rows.append(counted_row(name, size, reported, expected, server.pid or 0))
    return pd.DataFrame(rows)


def _counted_requests(server: Server, model: str, size: int, log: Path, requests: int) -> list[list[CountedCopy]]:
    from workbook.measuring.copy_counter import read_counted

    reported = []
    for number in range(-_UNCOUNTED, requests):
        start = log.stat().st_size
        _ask(server, model, size)
        time.sleep(_LOG_S)  # a line may be written a moment after the answer
        with log.open("rb") as file:
            file.seek(start)
            if number >= 0:
                reported.append(read_counted(file.read().decode(errors="replace")))
    return reported


def _ask(server: Server, model: str, size_bytes: int) -> None:
    from workbook.measuring.copies import relay_request
    from workbook.measuring.requests import prepare_requests
    from workbook.measuring.transports import RequestError, open_transport

    (request,) = prepare_requests(model, [relay_request(size_bytes)], ["total"], "grpc")
    transport = open_transport("grpc", server.grpc_url, 60)
    try:
        transport.connect()
        transport.send(request.message)
    except RequestError as error:
        raise server.explain_failure(error) from error
    finally:
        transport.close()
