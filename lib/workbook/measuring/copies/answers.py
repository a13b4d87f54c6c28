"""Whether all arrangements give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from workbook.errors import LoadError
from workbook.measuring.copies.requests import TIMEOUT_S, TensorRequest
from workbook.measuring.online.requests import check_requests, prepare_requests
from workbook.measuring.online.transports import RequestError, open_transport
from workbook.serving.arrangements import entry_model
from workbook.serving.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd

    from workbook.serving.handle import Server


def check_answers(
    server: Server, pipeline: Pipeline, request: TensorRequest, arrangements: Sequence[str]
) -> pd.DataFrame:
    """Ask every arrangement once; say whether the answers are equal to the bit.

    Returns:
        A row an arrangement: `pipeline`, `arrangement`, `answer_bytes`, `equals_the_first`.

    Raises:
        LoadError: a request failed.
    """
    import pandas as pd

    answers = {name: ask_once(server, entry_model(pipeline, name), pipeline.outputs, request) for name in arrangements}
    first = next(iter(answers.values()))
    return pd.DataFrame(
        {
            "pipeline": pipeline.name,
            "arrangement": name,
            "answer_bytes": len(answer),
            "equals_the_first": answer == first,
        }
        for name, answer in answers.items()
    )


def ask_once(server: Server, model: str, outputs: Sequence[str], request: TensorRequest) -> bytes:
    """The bytes of the outputs, one behind the other.

    Raises:
        LoadError: the request failed.
        ServerError: the server is gone.
    """
    check_requests(server, model, [request], outputs)
    (prepared,) = prepare_requests(model, [request], outputs, "grpc")
    with closing(open_transport("grpc", server.grpc_url, TIMEOUT_S)) as transport:
        try:
            transport.connect()
            decoded = transport.send(prepared.message).decode()
        except RequestError as error:
            server.check_alive()
            raise LoadError(f"{model} did not answer: {error}.") from None
    return b"".join(decoded[name].tobytes() for name in outputs)
