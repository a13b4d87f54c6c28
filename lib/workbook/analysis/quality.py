"""Does a faster variant still say the same? Its embeddings against those of fp32, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbook.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

NEIGHBOURS = 10
FOLDS = 5
COLUMNS = (
    "variant",
    "min_cosine",
    "mean_cosine",
    "neighbour_agreement",
    "probe_accuracy",
    "acceptable",
    "why",
)
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Tolerance:
    """What a variant may lose and still count as the same model.

    Attributes:
        min_cosine: the least similar row's cosine to fp32 must reach this.
        neighbour_agreement: share of the nearest neighbours that must be the same.
        probe_accuracy_loss: most that the probe's accuracy may fall (0.01: one row in a hundred).

    Raises:
        SettingError: a value is outside 0..1.
    """

    min_cosine: float = 0.99
    neighbour_agreement: float = 0.90
    probe_accuracy_loss: float = 0.01

    def __post_init__(self) -> None:
        for name in ("min_cosine", "neighbour_agreement", "probe_accuracy_loss"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise SettingError(f"Tolerance.{name} is {value}; give a number from 0 to 1")

    @property
    def words(self) -> str:
        """The tolerance in words."""
        return (
            f"lowest cosine {self.min_cosine:g}, {self.neighbour_agreement:.0%} of the neighbours, "
            f"{self.probe_accuracy_loss:.1%} of the probe's accuracy"
        )


def quality_table(
    reference: NDArray[np.float32],
    variants: Mapping[str, NDArray[np.float32]],
    targets: Sequence[float | None] | NDArray[Any] | None = None,
    *,
    tolerance: Tolerance | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """One row a variant: how close its embeddings are to the reference's, and whether that is close enough.

    Args:
        reference: float32, `rows hidden`: the fp32 embeddings.
        variants: name -> embeddings of the same rows.
        targets: class of each row; None or NaN where it has none. Without at least 5 rows in each of two classes the
            probe is left out.
        tolerance: what may be lost; by default `Tolerance()`.
        seed: of the probe's folds.

    Returns:
        variant; min_cosine and mean_cosine over rows; neighbour_agreement and probe_accuracy, see those functions, NaN
        where left out; acceptable; why, which names what was lost, empty where acceptable.

    Raises:
        SettingError: embeddings or targets do not fit the reference, or hold NaN or infinity.
    """
    import pandas as pd

    tolerance = tolerance or Tolerance()
    _check_fit("reference", reference, reference)
    for name, embeddings in variants.items():
        _check_fit(name, embeddings, reference)
    labels = _labels(targets, len(reference))
    expected = probe_accuracy(reference, labels, seed=seed)
    records = []
    for name, embeddings in variants.items():
        cosines = row_cosines(embeddings, reference)
        record: dict[str, Any] = {
            "variant": name,
            "min_cosine": float(cosines.min()),
            "mean_cosine": float(cosines.mean()),
            "neighbour_agreement": neighbour_agreement(embeddings, reference),
            "probe_accuracy": probe_accuracy(embeddings, labels, seed=seed),
        }
        why = _why_not(record, expected, tolerance)
        records.append({**record, "acceptable": not why, "why": why})
    return pd.DataFrame(records, columns=list(COLUMNS))


def row_cosines(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine between rows at the same place, `rows hidden` -> `rows`, in float64; 0 where a row is all zeros."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / np.where(norms == 0, 1.0, norms))


def neighbour_agreement(
    embeddings: NDArray[np.float32], reference: NDArray[np.float32], neighbours: int = NEIGHBOURS
) -> float:
    """Share of each row's nearest neighbours by cosine that both have, averaged over rows: |A and B| / k.

    A row is no neighbour of itself, and k is at most the number of other rows. Of equally near rows the earlier counts
    as nearer. NaN for a single row.
    """
    k = min(neighbours, len(reference) - 1)
    if k < 1:
        return float("nan")
    ours, theirs = _nearest(embeddings, k), _nearest(reference, k)
    shared = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(ours, theirs, strict=True)]
    return float(np.mean(shared) / k)


def probe_accuracy(embeddings: NDArray[np.float32], labels: NDArray[np.float64], *, seed: int = 0) -> float:
    """Accuracy of a logistic regression from embedding to class, on rows it did not see.

    Stratified 5-fold cross-validation, the same folds for every variant; regularisation C=1 on standardised columns.

    Args:
        embeddings: float32, `rows hidden`.
        labels: class of each row, NaN where it has none.
        seed: of the folds.

    Returns:
        Share of labelled rows whose class is predicted right; NaN with fewer than 5 rows in a class or one class.
    """
    known = ~np.isnan(labels)
    classes, counts = np.unique(labels[known], return_counts=True)
    if len(classes) < 2 or counts.min() < FOLDS:
        return float("nan")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scores = cross_val_score(probe, embeddings[known].astype(np.float64), labels[known], cv=folds)
    sizes = [len(test) for _, test in folds.split(embeddings[known], labels[known])]
    return float(np.average(scores, weights=sizes))


def _nearest(embeddings: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Positions of the k rows nearest to each row by cosine, `rows k`, in blocks that fit in memory."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.where(norms == 0, 1.0, norms)
    found = np.empty((len(unit), k), np.intp)
    for start in range(0, len(unit), _ROWS_AT_ONCE):
        block = slice(start, min(start + _ROWS_AT_ONCE, len(unit)))
        similarity = unit[block] @ unit.T
        similarity[np.arange(block.stop - start), np.arange(start, block.stop)] = -np.inf
        found[block] = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return found


def _why_not(record: Mapping[str, float], expected_accuracy: float, tolerance: Tolerance) -> str:
    """What the variant lost beyond the tolerance; a NaN was not measured and breaks nothing."""
    losses = []
    if record["min_cosine"] < tolerance.min_cosine:
        losses.append(f"a row's cosine to fp32 is {record['min_cosine']:.4f}, below {tolerance.min_cosine}")
    if record["neighbour_agreement"] < tolerance.neighbour_agreement:
        losses.append(
            f"{record['neighbour_agreement']:.0%} of the nearest neighbours agree, below "
            f"{tolerance.neighbour_agreement:.0%}"
        )
    loss = expected_accuracy - record["probe_accuracy"]
    if loss > tolerance.probe_accuracy_loss:
        losses.append(
            f"the probe's accuracy falls from {expected_accuracy:.1%} to {record['probe_accuracy']:.1%}, by more than "
            f"{tolerance.probe_accuracy_loss:.1%}"
        )
    return "; ".join(losses)


def _check_fit(name: str, embeddings: NDArray[np.float32], reference: NDArray[np.float32]) -> None:
    if embeddings.ndim != 2 or embeddings.shape != reference.shape or not len(reference):
        raise SettingError(
            f"embeddings of {name} are {embeddings.shape}, those of the reference {reference.shape}: give both as "
            "`rows hidden`, of the same rows, at least one"
        )
    if not np.isfinite(embeddings).all():
        row = int(np.flatnonzero(~np.isfinite(embeddings).all(axis=1))[0])
        raise SettingError(f"embeddings of {name} hold NaN or infinity, first in row {row}: the variant computes wrong")


def _labels(targets: Sequence[float | None] | NDArray[Any] | None, rows: int) -> NDArray[np.float64]:
    if targets is None:
        return np.full(rows, np.nan)
    if len(targets) != rows:
        raise SettingError(f"{len(targets)} targets for {rows} rows: give one for each, NaN where there is none")
    labels = [np.nan if value is None or value != value else float(value) for value in targets]
    return np.array(labels, np.float64)
