"""Start a Triton server, whichever way this machine can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbook.errors import SettingError
from workbook.serving.handle import Server, ServerInfo
from workbook.serving.options import ServerOptions

__all__ = ["Server", "ServerInfo", "ServerOptions", "resolve_kind", "start_server"]


def start_server(
    kind: str,
    repository: Path | None = None,
    *,
    models: Sequence[str] | None = None,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - frozen
    log_file: Path | None = None,
) -> Server:
    """Start a server and wait until its models are ready.

    Args:
        kind: `embedded` (a process of this machine), `container` (Docker), `auto` (the container where Docker and an
        NVIDIA
            GPU are found, else embedded), or `remote:HOST:GRPC_PORT[:HTTP_PORT[:METRICS_PORT]]` (runs already).
        repository: folder with one folder a model; not used by a remote server.
        models: which of them to serve; None: all.
        options: ports, time limits, Triton's settings.
        log_file: where the server's log goes (appended); None: a temporary file.

    Returns:
        The handle, a context manager: leaving it stops the server (a remote one goes on).

    Raises:
        SettingError: no such kind, or no repository.
        SetupError: what this kind needs is missing from the machine.
        ServerError: the server did not come up; the message holds the end of its log.
    """
    from workbook.serving import container, embedded, remote

    kind = resolve_kind(kind)
    if kind.startswith("remote:"):
        return remote.connect(kind, models or ())
    if repository is None:
        raise SettingError(f"A server of kind {kind!r} needs a model repository; give its folder.")
    start = embedded.start_embedded if kind == "embedded" else container.start_container
    return start(repository, models, options, log_file)


def resolve_kind(kind: str) -> str:
    """The kind that will really be started: `embedded`, `container`, or a `remote:` address as it is.

    Raises:
        SettingError: no such kind, or a malformed address.
    """
    from workbook.serving import container, remote

    if kind == "auto":
        return "container" if container.is_usable() else "embedded"
    if kind.startswith("remote:"):
        remote.parse_address(kind)
    elif kind not in ("embedded", "container"):
        raise SettingError(
            f"server is {kind!r}; give auto, embedded, container or remote:HOST:GRPC_PORT[:HTTP_PORT[:METRICS_PORT]]."
        )
    return kind
