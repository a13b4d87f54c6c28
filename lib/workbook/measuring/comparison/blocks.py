"""What is measured in turn with what: the names of the records, and the arms that every row goes through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbook.measuring.comparison.protocol import Protocol
    from workbook.measuring.comparison.switches import Plan

MAIN, SWITCHES = "main", "switch"
PEER, CEILING, PLAIN, REGIMES, ARRIVALS, REPEATS = "peer", "ceiling", "plain", "regimes", "arrivals", "repeats"


def main_arms(plan: Plan) -> dict[str, Protocol]:
    """The arms that every row goes through, by name."""
    tuned = plan.tuned_state
    openvino = {} if tuned.batch.engine == "torch" else {"tuned OpenVINO": replace(tuned.batch, engine="openvino")}
    return {
        "article batch": plan.article.batch,
        "article online": plan.article.online,
        "fair PyTorch": replace(plan.fair_state.batch, engine="torch"),
        "fair batch": plan.fair_state.batch,
        "fair online": plan.fair_state.online,
        "tuned batch": tuned.batch,
        "tuned online": tuned.online,
        **openvino,
    }
