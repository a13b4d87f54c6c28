"""Embeddings of the corpus by every variant, computed once: what quality is judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbook.artifacts import build_once
from workbook.measuring.corpus.batches import Batch, make_batches, restore_order
from workbook.measuring.online.load import Load, send_all
from workbook.models.variant_sessions import EMBEDDING, open_variant
from workbook.serving.variant_server import serving, start_variant_server

if TYPE_CHECKING:
    import pandas as pd

    from workbook.measuring.corpus.reading import Corpus
    from workbook.models.e5 import Encoder
    from workbook.models.variants import VariantModel
    from workbook.runs import Run
    from workbook.serving.handle import Server
    from workbook.settings import Settings

_BATCH_SIZE = 32
_FILE = "embeddings.npy"
Embed = Callable[[Sequence[Batch]], list[NDArray[np.float32]]]


def variant_embeddings(
    encoder: Encoder, models: Sequence[VariantModel], texts: Sequence[str], settings: Settings, run: Run
) -> dict[str, NDArray[np.float32]]:
    """Sentence embeddings of the texts by each variant, `rows hidden` in the order of the texts.

    They are kept in `artifacts/` for each file, library and corpus. A variant that this process cannot run, such as a
    TensorRT engine, is asked over a server that is started for it.

    Returns:
        Variant's name -> float32.

    Raises:
        ModelError, SetupError, ServerError, LoadError: a variant cannot be opened, served or asked.
    """
    batches = make_batches(encoder, texts, _BATCH_SIZE, order="length")
    found: dict[str, NDArray[np.float32]] = {}
    for model in models:
        if model.variant.in_process:
            found[model.variant.name] = _kept(model, texts, batches, _in_process(model, settings.compute_threads))
    served = [model for model in models if not model.variant.in_process]
    if served:
        with start_variant_server(encoder, served, settings, run, in_turn=True) as server:
            for model in served:
                ask = _over_the_server(server, model, run.records_path("quality"))
                found[model.variant.name] = _kept(model, texts, batches, ask)
    return {model.variant.name: found[model.variant.name] for model in models}


def reference_embeddings(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Those of the encoder itself in PyTorch, in fp32: what every variant is held against."""
    from workbook.models.e5 import embed

    return _build(
        {"encoder": encoder.fingerprint, "texts": _digest(texts), "prefix": encoder.prefix},
        lambda: embed(encoder, texts),
    )


def corpus_targets(corpus: Corpus) -> list[float | None] | None:
    """Class of each row, None where it has none; None for a corpus without a target."""
    if "target" not in corpus.frame:
        return None
    return [None if value is None or value != value else float(value) for value in corpus.frame["target"]]


def _kept(model: VariantModel, texts: Sequence[str], batches: Sequence[Batch], embed: Embed) -> NDArray[np.float32]:
    key = {
        "variant": model.variant.name,
        "file": model.sha256,
        "library": _library_version(model.variant.engine),
        "texts": _digest(texts),
        "batch": _BATCH_SIZE,
    }
    return _build(key, lambda: restore_order([batch.row_index for batch in batches], embed(batches)))


def _build(key: Mapping[str, object], compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
    folder = build_once("embeddings", key, lambda unfinished: np.save(unfinished / _FILE, compute()))
    loaded: NDArray[np.float32] = np.load(folder / _FILE)
    return loaded


def _in_process(model: VariantModel, threads: int) -> Embed:
    def embed(batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        session = open_variant(model, threads)
        return [session(batch.input_ids, batch.attention_mask)[EMBEDDING] for batch in batches]

    return embed


def _over_the_server(server: Server, model: VariantModel, records_path: Path) -> Embed:
    def embed(batches: Sequence[Batch]) -> list[NDArray[np.float32]]:
        with serving(server, model) as name:
            result = send_all(server, Load(name), batches, records_path, keep_outputs=True, progress=False)
        return [outputs[EMBEDDING] for outputs in result.outputs or []]

    return embed


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    return digest.hexdigest()


def _library_version(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return "of the server"


def served_agreement(
    server: Server,
    models: Sequence[VariantModel],
    batches: Sequence[Batch],
    embeddings: Mapping[str, NDArray[np.float32]],
    records_path: Path,
) -> pd.DataFrame:
    """Does the server answer what the variant answers in this process?

    Args:
        server: from `start_variant_server`.
        models: the variants.
        batches: requests, sent one at a time; their `row_index` counts the rows of the embeddings.
        embeddings: variant -> embeddings of all rows, from `variant_embeddings`.
        records_path: CSV file of REQUEST_COLUMNS that the records are appended to.

    Returns:
        `variant`, `rows`, `min_cosine` and `max_abs_error` between both, a row a variant.
    """
    import pandas as pd

    from workbook.analysis.quality import row_cosines

    rows = []
    for model in models:
        answered = np.concatenate(_over_the_server(server, model, records_path)(batches))
        expected = embeddings[model.variant.name][np.concatenate([batch.row_index for batch in batches])]
        rows.append(
            {
                "variant": model.variant.name,
                "rows": len(answered),
                "min_cosine": float(row_cosines(answered, expected).min()),
                "max_abs_error": float(np.abs(answered - expected).max()),
            }
        )
    return pd.DataFrame(rows)
