"""One headline number once more, in plain Python: Triton's own client in a loop, nothing of the load generator.

If the two disagree, one of them is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbook.measuring.corpus.batches import Batch


def plain_client_seconds(grpc_url: str, model: str, batches: Sequence[Batch], output: str) -> float:
    """Seconds that `tritonclient` needs for all batches, one after the other, until each answer is an array."""
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(grpc_url)
    client.is_server_live()  # connects
    started = time.perf_counter()
    for batch in batches:
        inputs = []
        for name, array in batch.inputs.items():
            inputs.append(triton.InferInput(name, list(array.shape), "INT64"))
            inputs[-1].set_data_from_numpy(array)
        client.infer(model, inputs, outputs=[triton.InferRequestedOutput(output)]).as_numpy(output)
    seconds = time.perf_counter() - started
    client.close()
    return seconds
