"""Batch against online in two factors: the engine's and the serving's."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from workbook.analysis.comparison import Comparison, compare_arms
from workbook.measuring.conditions import Arm

if TYPE_CHECKING:
    import pandas as pd

QUESTION = "How much faster is batch than online on this machine, and what makes up the difference?"
ENGINE_DIFFERS = ("engine",)
SERVING_DIFFERS = ("serving", "transport")


@dataclass(frozen=True)
class Decomposition:
    """Three comparisons of the same runs; `whole.ratio` is `engine.ratio` x `serving.ratio` up to rounding.

    Attributes:
        batch_rows_per_s: mean over the runs of the batch job.
        online_rows_per_s: mean over the runs of the online arm.
        whole: the batch job / online.
        engine: the batch job / the same job around the served engine.
        serving: the served engine without a server / online.
    """

    batch_rows_per_s: float
    online_rows_per_s: float
    whole: Comparison
    engine: Comparison
    serving: Comparison

    def table(self) -> pd.DataFrame:
        """A row a comparison: what differs, ratio, bounds of the 95% interval, verdict."""
        import pandas as pd

        rows = [
            {
                "compared": f"{comparison.first} / {comparison.second}",
                "differs_in": ", ".join(comparison.differences) or "nothing",
                "ratio": comparison.ratio,
                "ci95_low": comparison.ci95[0] if comparison.ci95 else float("nan"),
                "ci95_high": comparison.ci95[1] if comparison.ci95 else float("nan"),
                "verdict": comparison.verdict,
            }
            for comparison in (self.whole, self.engine, self.serving)
        ]
        return pd.DataFrame(rows)

    @property
    def sentence(self) -> str:
        """Both factors and their product, in words."""
        return (
            f"Batch / online = {self.whole.ratio:.2f} = {self.engine.ratio:.2f} (PyTorch instead of ONNX Runtime) x "
            f"{self.serving.ratio:.2f} (no server in between). "
            f"Engine: {self.engine.verdict} Serving: {self.serving.verdict}"
        )

    def headline(self, figure: str) -> dict[str, Any]:
        """What the report's first screen shows, with the figure of this name."""
        return {
            "question": QUESTION,
            "answer": (
                f"{self.whole.verdict} Of that, the engine accounts for a factor of {self.engine.ratio:.2f} and the "
                f"server in between for a factor of {self.serving.ratio:.2f}."
            ),
            "numbers": [
                {
                    "label": "batch / online, as the article asks it",
                    "value": f"{self.whole.ratio:.2f}x",
                    "detail": f"{_interval(self.whole)}; {self.batch_rows_per_s:.1f} against "
                    f"{self.online_rows_per_s:.1f} rows/s",
                },
                {
                    "label": "batch / online, same engine on both sides",
                    "value": f"{self.serving.ratio:.2f}x",
                    "detail": f"{_interval(self.serving)}: what serving itself costs",
                },
                {
                    "label": "PyTorch / ONNX Runtime, both as batch jobs",
                    "value": f"{self.engine.ratio:.2f}x",
                    "detail": f"{_interval(self.engine)}: what the engine makes",
                },
            ],
            "figure": figure,
        }


def decompose(batch: Arm, same_engine: Arm, online: Arm, smallest_difference_percent: float) -> Decomposition:
    """Compare the three arms pairwise, run i with run i, since they were measured side by side.

    Args:
        batch: the batch job.
        same_engine: a batch job around the engine that is served.
        online: the server.
        smallest_difference_percent: a smaller difference is called none.

    Raises:
        NotComparableError: two arms differ in more than engine, serving and transport.
    """
    return Decomposition(
        batch_rows_per_s=fmean(batch.rows_per_s),
        online_rows_per_s=fmean(online.rows_per_s),
        whole=compare_arms(batch, online, (*ENGINE_DIFFERS, *SERVING_DIFFERS), smallest_difference_percent),
        engine=compare_arms(batch, same_engine, ENGINE_DIFFERS, smallest_difference_percent),
        serving=compare_arms(same_engine, online, SERVING_DIFFERS, smallest_difference_percent),
    )


def _interval(comparison: Comparison) -> str:
    if comparison.ci95 is None:
        return comparison.note
    return f"95% interval {comparison.ci95[0]:.2f} to {comparison.ci95[1]:.2f}"
