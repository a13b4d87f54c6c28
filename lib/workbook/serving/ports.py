"""The three loopback ports of a server."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from workbook.errors import ServerError
from workbook.serving.options import ServerOptions

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    http: int
    grpc: int
    metrics: int


def choose_ports(options: ServerOptions) -> Ports:
    """The ports the options ask for, free ones for the rest.

    All sockets are held until the last is chosen, so no two are the same. Another program may take one before Triton
    does: the caller has to be ready for that.

    Raises:
        ServerError: a port that was asked for is taken.
    """
    with contextlib.ExitStack() as held:
        wanted = {"http_port": options.http_port, "grpc_port": options.grpc_port, "metrics_port": options.metrics_port}
        bound = {name: _bind(name, port, held) for name, port in wanted.items() if port is not None}
        bound.update({name: _bind(name, 0, held) for name, port in wanted.items() if port is None})
    return Ports(http=bound["http_port"], grpc=bound["grpc_port"], metrics=bound["metrics_port"])


def _bind(name: str, port: int, held: contextlib.ExitStack) -> int:
    listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # as Triton does: a port whose last connections are still fading away can be taken again
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        raise ServerError(
            f"{name} {port} cannot be taken on {LOOPBACK} ({error.strerror}). "
            "Stop the program that holds it, give another port, or leave it out for a free one."
        ) from error
    taken: int = listener.getsockname()[1]
    return taken
