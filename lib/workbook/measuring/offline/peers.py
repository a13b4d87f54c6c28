"""The library most people embed with, as the arm to beat: sentence-transformers' `encode`, on the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.models.quiet import quiet_libraries

if TYPE_CHECKING:
    from workbook.models.e5 import Encoder

PEER = "sentence-transformers"
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


def open_peer(encoder: Encoder, batch_size: int, device: str = "cpu") -> tuple[str, Encode]:
    """A function from texts to embeddings, and what it is called.

    The installed sentence-transformers (`pip install workbook[test]`) is used where there is one; else its algorithm,
    in a few lines: texts sorted by their characters, longest first, batches of `batch_size` padded to the longest, mean
    pooling, L2 norm. The name says which.

    Args:
        encoder: weights, tokenizer and prefix.
        batch_size: rows in a batch.
        device: `cpu` or `cuda`, for the installed library; the algorithm computes where the encoder is.
    """
    if find_spec("sentence_transformers") is None:
        return f"{PEER}' algorithm", _same_algorithm(encoder, batch_size)
    return f"{PEER}' encode", _installed(encoder, batch_size, device)


def _same_algorithm(encoder: Encoder, batch_size: int) -> Encode:
    from workbook.models.e5 import embed

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        embeddings = np.empty((len(texts), encoder.hidden_size), np.float32)
        embeddings[order] = embed(encoder, [texts[row] for row in order], batch_size)
        return embeddings

    return encode


def _installed(encoder: Encoder, batch_size: int, device: str) -> Encode:
    """A SentenceTransformer over the encoder's own weights, through a folder, as the library wants it."""
    with quiet_libraries(), tempfile.TemporaryDirectory() as folder:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

        module: Any = encoder.module
        module.save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
        transformer = Transformer(str(Path(folder)))
        model = SentenceTransformer(
            modules=[transformer, Pooling(encoder.hidden_size, pooling_mode="mean"), Normalize()], device=device
        )
    model.max_seq_length = encoder.max_length

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        prefixed = [encoder.prefix + text for text in texts]
        return np.asarray(model.encode(prefixed, batch_size=batch_size, show_progress_bar=False), np.float32)

    return encode
