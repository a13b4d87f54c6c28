"""A Triton server that runs already, here or elsewhere: used, never stopped."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from workbook.errors import ServerError, SettingError
from workbook.serving import control
from workbook.serving.handle import Server
from workbook.serving.ports import Ports

_SYNTAX = "remote:HOST:GRPC_PORT[:HTTP_PORT[:METRICS_PORT]]"
_CONNECT_TIMEOUT_S = 10.0


class RemoteServer(Server):
    """A server somebody else started. Its log and its process are out of our sight."""

    kind = "remote"

    @property
    def pid(self) -> None:
        """None: the process is not ours to look at."""
        return

    def is_alive(self) -> bool:
        """Whether it answers that it is live."""
        try:
            return control.call(self.http_url, "/v2/health/live")[0] == 200
        except OSError:
            return False

    def log_tail(self, lines: int = 40) -> str:
        """Empty: only the one who started it sees its log."""
        return ""

    def stop(self) -> None:
        """Nothing: whoever started it stops it."""


def parse_address(address: str) -> tuple[str, Ports]:
    """Host and ports of `remote:HOST:GRPC_PORT[:HTTP_PORT[:METRICS_PORT]]`.

    Ports left out follow Triton's own numbering, 8000 HTTP, 8001 gRPC, 8002 metrics: one below and one above gRPC's.

    Raises:
        SettingError: it is not of that form.
    """
    host, *numbers = address.removeprefix("remote:").split(":")
    if (
        not re.fullmatch(r"[\w.-]+", host)
        or not 1 <= len(numbers) <= 3
        or not all(re.fullmatch(r"[0-9]{1,5}", number) for number in numbers)
    ):
        raise SettingError(f"server is {address!r}; give {_SYNTAX}, for example remote:192.0.2.7:8001.")
    grpc, *others = (int(number) for number in numbers)
    http, metrics = (*others, *(grpc - 1, grpc + 1)[len(others) :])
    for port in (grpc, http, metrics):
        if not 1 <= port <= 65535:
            raise SettingError(f"server is {address!r}: port {port} is not within 1..65535; give {_SYNTAX}.")
    return host, Ports(http=http, grpc=grpc, metrics=metrics)


def connect(address: str, models: Sequence[str]) -> RemoteServer:
    """A handle on the server at an address, after a look that it and its models are there; see `start_server`.

    Raises:
        SettingError: the address is malformed.
        ServerError: nothing answers on one of its ports, or a model is not ready.
    """
    host, ports = parse_address(address)
    server = RemoteServer(ports, tuple(models), None, host=host)
    if not control.is_ready(server.http_url):
        raise ServerError(
            f"No ready Triton server answers at http://{server.http_url} (from {address!r}). Start it, open the port, "
            f"or give its HTTP port: {_SYNTAX}."
        )
    _check_reachable(host, ports.grpc, address)
    for model in models:
        if not control.is_ready(server.http_url, model):
            raise ServerError(f"The server at {server.http_url} does not serve {model}; {_served(server.http_url)}.")
    return server


def _check_reachable(host: str, port: int, address: str) -> None:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ServerError(f"Nothing answers on the gRPC port {host}:{port} (from {address!r}): {error}.") from error


def _served(url: str) -> str:
    index = control.get_json(url, "/v2/repository/index", method="POST", body={})
    ready = sorted(entry["name"] for entry in index if entry.get("state") == "READY")
    return f"it serves {', '.join(ready)}" if ready else "it serves none"
