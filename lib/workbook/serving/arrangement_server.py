"""All arrangements of the pipelines on one server, from the settings of a notebook."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbook.serving.arrangements import HandleOptions, arrange, source_model
from workbook.serving.model_spec import backend_of
from workbook.serving.pipelines import Pipeline
from workbook.serving.repository import assemble_repository
from workbook.serving.server import Server, ServerOptions, resolve_kind, start_server

if TYPE_CHECKING:
    from workbook.runs import Run
    from workbook.settings import Settings

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has malloc ask for 2 MiB pages (glibc 2.35 and later, "Memory Allocation Tunables" in its manual)."""
_MIB = 1 << 20


def start_arrangement_server(
    pipelines: Iterable[Pipeline],
    settings: Settings,
    run: Run,
    *,
    only: Sequence[str] = (),
    part: str = "",
    added: dict[str, str] | None = None,
) -> Server:
    """Serve every arrangement of the pipelines, and the model that answers with any number of bytes.

    Args:
        pipelines: what is arranged.
        settings: server, instances, handles, shared memory of the stubs.
        run: where repository and log go.
        only: arrangements; empty for all.
        part: added to the names of repository and log, for a second server of the same notebook.
        added: environment variables for an embedded server.

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
        for entry in arrange(pipeline, instances=settings.monolith_instances, handle_options=options, only=only)
    ]
    models = [*made, source_model()]
    if kind.startswith("remote:"):
        return start_server(kind, models=[spec.name for spec, _ in models])
    backend = backend_of(kind)
    name = f"{run.notebook}{part}"
    repository = assemble_repository(run.directory / "model_repository" / name, models, backend)
    with environment(added or {}):
        log_file = run.log_path.with_name(f"{name}.log")
        return start_server(kind, repository, options=server_options(settings), log_file=log_file)


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
