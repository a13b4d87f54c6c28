"""The seed's two questions, answered in sentences made from the run's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbook.analysis.arrangement_choice import Claim
from workbook.analysis.copies import ARRAY, BYTES_PER_MB, REGION, copy_ms
from workbook.analysis.copy_costs import HopCost

if TYPE_CHECKING:
    import pandas as pd

NOT_WITHOUT_GPU = (
    "Not run on this machine, for it has no GPU: whether a tensor stays on the device with "
    "FORCE_CPU_ONLY_INPUT_TENSORS=no, what the device-to-device copy of each output costs, and when the CUDA pool runs "
    "out. `python tests/gpu/measure_copies.py` measures them where there is one."
)


def same_backend(costs: Mapping[str, HopCost], comparison: pd.DataFrame, counted: pd.DataFrame | None) -> str:
    """Is there a way without copies between models of the Python backend?

    Args:
        costs: of `copy_costs.hop_costs`.
        comparison: of `copy_costs.compare_sizes`.
        counted: of `copy_costs.compare_counted`; None where the copies could not be counted.
    """
    size = int(comparison["bytes"].max())
    added = comparison[comparison["bytes"] == size].set_index("arrangement")["added_ms"]
    ensemble, handle = costs["ensemble"], costs["handle"]
    text = (
        "**Between Python models: not by Triton's own means.** A hop of an ensemble copies the tensor four times in "
        "main memory, a hop through a BLS caller five times. A hop of the ensemble takes "
        f"{ensemble.per_mb_ms.estimate:.2f} ms per MB, of which copying is {ensemble.copying_per_mb_ms.estimate:.2f} "
        f"(predicted {ensemble.predicted_per_mb_ms:.2f}). A handle in place of the tensor costs "
        f"{max(0.0, handle.per_mb_ms.estimate):.3f} ms per MB: at {size / BYTES_PER_MB:g} MB two hops add "
        f"{added['ensemble']:.1f} ms by ensemble and {added['handle']:.1f} ms by handle. What that demands is listed "
        "above: same machine, trust, and a lifetime of one's own making."
    )
    if counted is not None:
        verdict = "agree" if counted["agree"].all() else "do NOT all agree"
        text += f" The copies were counted in the running server; count and ledger {verdict}."
    return text


def other_backend(measured_input_ms: float, size_bytes: int, rates: pd.DataFrame) -> str:
    """Is there a way without copies from another backend to Python, say onnxruntime?

    Args:
        measured_input_ms: of `measuring.copies.measure_foreign_input`.
        size_bytes: at that size.
        rates: of `measuring.copies.bandwidth.measure_copy_rates`.
    """
    predicted = copy_ms(REGION, size_bytes, rates)
    hidden = copy_ms(ARRAY, size_bytes, rates)
    return (
        "**From a C++ backend such as onnxruntime to Python: not on the CPU either.** Such a backend leaves its output "
        "in the server's memory; the Python backend copies it into the region of its stub, and the stub into an array. "
        f"For {size_bytes / BYTES_PER_MB:g} MB the first of the two took {measured_input_ms:.2f} ms (`compute_input`; "
        f"a copy should take {predicted:.2f}), the second should take {hidden:.2f} and is part of `compute_infer`. "
        "That is half of what a hop between two Python models costs. What onnxruntime itself copies was not measured: "
        "the embedded server has the Python backend only."
    )


def reading_of_claims(claims: list[Claim]) -> str:
    """How many of the claims held."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("held", "did not hold")}
    undecided = len(claims) - sum(counts.values())
    return (
        f"Of {len(claims)} statements {counts['held']} held here, {counts['did not hold']} did not"
        + (f", {undecided} are undecided" if undecided else "")
        + "."
    )
