"""Proof that an ONNX file still answers as PyTorch does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError
from workbook.models.e5 import Encoder, Tokens, mean_pool
from workbook.models.export import ExportedModel
from workbook.models.sessions import open_session

if TYPE_CHECKING:
    import pandas as pd
    from onnxruntime import InferenceSession


def parity_table(
    encoder: Encoder,
    exported: ExportedModel,
    batches: Sequence[int] = (1, 2, 32),
    lengths: Sequence[int] = (2, 7, 128, 512),
    *,
    max_tokens: int | None = None,
    threads: int = 2,
    seed: int = 0,
) -> pd.DataFrame:
    """How far the ONNX file's answers are from PyTorch's, on random ids with ragged masks.

    The first row of a batch is full; each other row has a random number of real tokens and is padded. Hidden states are
    compared at real tokens only: what stands at padding is read by nothing, and engines may put anything there.

    Args:
        encoder: the reference.
        exported: its ONNX file.
        batches: rows in a batch.
        lengths: tokens in a row, at most `encoder.max_length`.
        max_tokens: leave out shapes of more than so many tokens (rows x length), which take long on few cores.
        threads: onnxruntime threads.
        seed: of the random ids and masks.

    Returns:
        One row for each shape and output: batch, sequence, output, max_abs_error (largest absolute difference of an
        element), min_cosine (smallest cosine of a token's hidden state, or of a row's embedding).

    Raises:
        SettingError: a batch or length is out of bounds.
    """
    import pandas as pd

    if min(batches) < 1 or min(lengths) < 1 or max(lengths) > encoder.max_length:
        raise SettingError(f"batches={batches}, lengths={lengths}: rows from 1, tokens within 1..{encoder.max_length}")
    session = open_session(exported.path, threads)
    random = np.random.default_rng(seed)
    shapes = [(batch, length) for batch in batches for length in lengths]
    records = []
    for batch, length in shapes:
        if max_tokens is None or batch * length <= max_tokens:
            records += _compare(encoder, session, random_tokens(encoder, batch, length, random))
    return pd.DataFrame(records, columns=["batch", "sequence", "output", "max_abs_error", "min_cosine"])


def random_tokens(encoder: Encoder, batch: int, length: int, random: np.random.Generator) -> Tokens:
    """Ids the encoder knows, drawn evenly, `batch sequence`; row 0 is full, the others padded from a random place."""
    known = min(len(encoder.tokenizer), int(encoder.config.vocab_size))
    real = random.integers(1, length, size=batch, endpoint=True)
    real[0] = length
    mask = (np.arange(length) < real[:, None]).astype(np.int64)
    ids = random.integers(0, known, size=(batch, length))
    return Tokens(np.where(mask == 1, ids, encoder.tokenizer.pad_token_id or 0), mask)


def _compare(encoder: Encoder, session: InferenceSession, tokens: Tokens) -> list[dict[str, object]]:
    import torch

    ids, mask = torch.from_numpy(tokens.input_ids), torch.from_numpy(tokens.attention_mask)
    with torch.inference_mode():
        hidden = encoder.module(input_ids=ids, attention_mask=mask).last_hidden_state
        expected = {
            "last_hidden_state": hidden[mask == 1].numpy(),
            "sentence_embedding": mean_pool(hidden, mask).numpy(),
        }
    got_hidden, got_embedding = session.run(list(expected), tokens.inputs)
    got = {"last_hidden_state": got_hidden[tokens.attention_mask == 1], "sentence_embedding": got_embedding}
    batch, length = tokens.input_ids.shape
    return [
        {
            "batch": batch,
            "sequence": length,
            "output": name,
            "max_abs_error": float(np.abs(got[name] - reference).max()),
            "min_cosine": float(cosine(got[name], reference).min()),
        }
        for name, reference in expected.items()
    ]


def cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine between rows that stand at the same place, `rows hidden` -> `rows`, computed in float64."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(axis=-1) / norms)
