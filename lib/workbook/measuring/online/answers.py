"""Are Triton's answers the model's? The same batches over each transport, against PyTorch in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.measuring.corpus.batches import Batch
from workbook.measuring.online.load import Load, send_all
from workbook.measuring.online.requests import TransportName

if TYPE_CHECKING:
    import pandas as pd

    from workbook.models.e5 import Encoder
    from workbook.serving.handle import Server

_EMBEDDING = "sentence_embedding"


def answer_table(
    server: Server,
    model: str,
    encoder: Encoder,
    batches: Sequence[Batch],
    records_path: Path,
    transports: Sequence[TransportName] = ("grpc", "http"),
) -> pd.DataFrame:
    """Send the batches once over each transport and compare what comes back.

    Returns:
        A row a transport: `transport`, `requests`, `rows`, `min_cosine` and `max_abs_error` against PyTorch, and
        `equal_to_first`: whether every bit is that of the first transport's answer.

    Raises:
        LoadError: the model refuses the batches, or no request was answered.
        ServerError: the server is gone.
    """
    import pandas as pd

    from workbook.models.e5 import embed

    wanted = np.concatenate([embed(encoder, batch.texts, batch.rows) for batch in batches])
    first: NDArray[np.float32] | None = None
    rows = []
    for transport in transports:
        load = Load(model, transport=transport, outputs=(_EMBEDDING,))
        result = send_all(server, load, batches, records_path, arm="answers", keep_outputs=True, progress=False)
        got = np.concatenate([outputs[_EMBEDDING] for outputs in result.outputs or []])
        first = got if first is None else first
        rows.append(
            {
                "transport": transport,
                "requests": len(batches),
                "rows": len(got),
                "min_cosine": float((wanted.astype(np.float64) * got).sum(axis=1).min()),
                "max_abs_error": float(np.abs(wanted - got).max()),
                "equal_to_first": bool(np.array_equal(first, got)),
            }
        )
    return pd.DataFrame(rows)
