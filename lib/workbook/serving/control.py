"""Triton's control plane (health, statistics, model control) over plain HTTP, with the standard library.

No gRPC channel is opened for it: a channel in this process would not survive a later fork (a data loader's workers).
"""

from __future__ import annotations

import http.client
import json
from typing import Any

from workbook.errors import ServerError

_TIMEOUT_S = 10.0


def call(
    url: str, path: str, *, method: str = "GET", body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
) -> tuple[int, str]:
    """One HTTP exchange with the server at `url` (`host:port`); returns status and body.

    Goes straight to the address: the proxy variables of the environment do not apply to a loopback server.

    Raises:
        OSError: nothing listens there, or the connection broke.
    """
    connection = http.client.HTTPConnection(url, timeout=timeout_s)
    try:
        connection.request(method, path, body=json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except UnicodeError as error:
        raise ConnectionError(f"{url!r} holds no name of a machine: {error}") from error
    except http.client.HTTPException as error:
        raise ConnectionError(f"{url} does not speak HTTP: {error!r}") from error
    finally:
        connection.close()


def is_ready(url: str, model: str | None = None) -> bool:
    """Whether the server, or one of its models, is ready; False also where nothing answers."""
    try:
        return call(url, f"/v2/models/{model}/ready" if model else "/v2/health/ready")[0] == 200
    except OSError:
        return False


def get_json(
    url: str, path: str, *, method: str = "GET", body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
) -> Any:
    """The parsed JSON answer of one call; None where the answer is empty.

    Raises:
        ServerError: nothing answers, or the answer is an error.
    """
    try:
        status, text = call(url, path, method=method, body=body, timeout_s=timeout_s)
    except OSError as error:
        raise ServerError(f"The server at {url} does not answer {path}: {error}.") from error
    if status != 200:
        raise ServerError(f"The server at {url} refused {path}: {_error_of(text) or f'HTTP status {status}'}.")
    return json.loads(text) if text else None


def _error_of(text: str) -> str:
    try:
        answer = json.loads(text)
    except ValueError:
        return text.strip()
    return str(answer.get("error", "")).rstrip(".") if isinstance(answer, dict) else text
