"""Figures of the comparison taken apart: the waterfall, its order's effect, the test that misleads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbook.analysis.intervals import Interval
from workbook.analysis.replication import LEVEL, SameArmVerdict
from workbook.analysis.waterfall import Account, StepEffect
from workbook.display.drawing import dots, fill, name_rows, new_figure, spread_out
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, INK, MUTED
from workbook.display.wording import number

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LOWERS, RAISES, STANDS = 2, 1, 0
"""Places in the palette: a step that brings the two together, one that parts them, a ratio that stands."""
NARROWEST_SPAN = 1.02
APART = " Measured apart from the numbers above, on fewer rows."
P_TICKS = {1e-12: "≤1e-12", 1e-9: "1e-9", 1e-6: "1e-6", 1e-3: "0.001", 0.05: "0.05", 1.0: "1"}


def waterfall_plot(
    effects: Sequence[StepEffect],
    article: Interval,
    fair: Interval,
    tuned: Interval,
    fair_switches: set[str],
    compact: bool = False,
) -> go.Figure:
    """The ratio online / batch from the article's protocol to the fair one and to the tuned one, a bar a switch.

    Args:
        effects: steps of one order; those in `fair_switches` first.
        article: ratio of the article's state, on the rows of the waterfall.
        fair: ratio of the fair state.
        tuned: ratio of the tuned state.
        fair_switches: names of the switches that make the two sides equal.
        compact: leave out the alternatives and draw smaller, for a report's first screen.
    """
    shown = [effect for effect in effects if not (compact and effect.detour)]
    rows: list[tuple[str, float, float, Interval, int]] = [_standing("<b>the article's protocol</b>", article)]
    rows += [_moving(effect) for effect in shown if effect.switch in fair_switches]
    rows.append(_standing("<b>equal conditions</b>", fair))
    rows += [_moving(effect) for effect in shown if effect.switch not in fair_switches]
    rows.append(_standing("<b>both tuned</b>", tuned))
    figure = new_figure(
        "What is the difference between online and batch made of?",
        "Time of an online batch / time of a batch job's batch: at 1 they are equal. Bar: what one switch changes; the "
        "dot is<br>where it ends. Whisker: 95% interval over runs."
        + (APART if compact else " Hatched: an alternative, which the next switch does not build on."),
        reading_of_waterfall(effects, article, fair, tuned, fair_switches),
        height=(150 + 32 * len(rows)) if compact else (210 + 42 * len(rows)),
    )
    for place, (_, low, high, interval, kind) in enumerate(rows):
        _add_bar(figure, place, low, high, interval, kind)
    figure.add_vline(x=1, line={"color": INK, "width": 1.5, "dash": "dot"})
    name_rows(figure, [name for name, *_ in rows])
    ends = [value for _, low, high, _, _ in rows for value in (low, high)] + [1.0]
    span = [min(ends) / 1.25, max(ends) * 1.4]
    figure.update_layout(margin={"t": 116}, font={"size": 12 if compact else 14})
    return figure.update_xaxes(
        title_text="online time / batch time", type="log", range=[float(np.log10(v)) for v in span], **_ticks(span)
    )


def reading_of_waterfall(
    effects: Sequence[StepEffect], article: Interval, fair: Interval, tuned: Interval, fair_switches: set[str]
) -> str:
    """Where the ratio starts and ends, and the switch that is worth most on the way to equal conditions."""
    towards = [effect for effect in effects if effect.switch in fair_switches]
    sentence = f"By the article's protocol online takes {number(article.estimate)} times as long as batch here; "
    sentence += (
        f"on equal conditions {number(fair.estimate)} times, with both sides tuned {number(tuned.estimate)} times."
    )
    if towards:
        largest = max(towards, key=lambda effect: abs(np.log(effect.factor.estimate)))
        sentence += f" The largest single step is “{largest.words}”: a factor of {number(largest.factor.estimate)}."
    return sentence


def order_plot(effects: pd.DataFrame) -> go.Figure:
    """Each switch's factor in both orders, joined by a line.

    Args:
        effects: from `waterfall.effects_over_orders`.
    """
    import plotly.graph_objects as go

    widest = effects.assign(spread=effects["factor_high"] / effects["factor_low"]).nlargest(1, "spread").iloc[0]
    reading = (
        f"What a switch is worth depends on what was switched before it most for “{widest['switch']}”: "
        f"a factor of {number(widest['factor_low'])} to {number(widest['factor_high'])}."
    )
    figure = new_figure(
        "Does the order of the switches change what each is worth?",
        "Circle: switched in the order above. Diamond: fair switches in reverse. Left of 1: online gains on batch.",
        reading,
        height=150 + 44 * len(effects),
    )
    places = np.arange(len(effects))
    for place, (low, high) in enumerate(zip(effects["factor_low"], effects["factor_high"], strict=True)):
        figure.add_trace(go.Scatter(x=[low, high], y=[place, place], mode="lines", line={"color": MUTED, "width": 4}))
    for order, symbol in ((1, "circle"), (2, "diamond")):
        marker = {
            "size": 18 if order == 1 else 10,
            "symbol": symbol,
            "color": COLOURS[order - 1],
            "line": {"color": INK, "width": 1},
        }
        x = effects[f"factor_order_{order}"].to_numpy()
        figure.add_trace(
            go.Scatter(x=x, y=places, mode="markers", marker=marker, hovertemplate="%{x:.3g}<extra></extra>")
        )
    figure.add_vline(x=1, line={"color": INK, "width": 1.5, "dash": "dot"})
    name_rows(figure, list(effects["switch"]))
    span = [float(effects["factor_low"].min()) / 1.15, float(effects["factor_high"].max()) * 1.15]
    return figure.update_xaxes(
        title_text="factor on online time / batch time",
        type="log",
        range=[float(np.log10(v)) for v in span],
        **_ticks(span),
    )


def waterfall_table(effects: Sequence[StepEffect]) -> pd.DataFrame:
    """The steps as rows: gap before and after, ms a batch, interval of the change, ratio, factor."""
    import pandas as pd

    return pd.DataFrame(
        {
            "switch": effect.words,
            "before_ms": effect.before_ms,
            "after_ms": effect.after_ms,
            "change_from_ms": effect.change_ms.low,
            "change_to_ms": effect.change_ms.high,
            "ratio_before": effect.ratio_before,
            "ratio_after": effect.ratio_after,
            "factor": effect.factor.estimate,
        }
        for effect in effects
    )


def account_table(account: Account) -> pd.DataFrame:
    """The account as rows: `part`, `factor`."""
    import pandas as pd

    return pd.DataFrame(
        [
            ("article's ratio, measured at once", account.article_ratio),
            ("all switches to equal conditions, measured one by one", 1 / account.steps_factor),
            ("sending, waiting and receiving, timed inside the requests", account.owned_factor),
            ("unexplained", account.unexplained_factor),
        ],
        columns=["part", "factor"],
    )


def same_arm_plot(table: pd.DataFrame, runs: Mapping[int, Sequence[float]], verdict: SameArmVerdict) -> go.Figure:
    """Left: means of runs of one and the same arm. Right: p values of both tests for every pair of them.

    Args:
        table: from `replication.same_arm_table`.
        runs: latencies of each run, ms.
        verdict: of the same runs.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    panels = make_subplots(cols=2, column_widths=[0.42, 0.58], horizontal_spacing=0.16)
    figure = new_figure(
        "What does the article's test say where nothing differs?",
        "Left: the same arm, run again and again; whisker: what a test over requests believes. "
        "Right: p of every pair of runs,<br>by test; left of the line it is called significant.",
        verdict.sentence,
        height=430,
        figure=panels,
    )
    for place, (run, values) in enumerate(runs.items()):
        half = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5
        figure.add_trace(
            go.Scatter(
                x=[float(np.mean(values))], y=[place], mode="markers", marker={"size": 10, "color": COLOURS[0]},
                error_x={"array": [half], "color": INK, "thickness": 2, "width": 6},
                hovertemplate=f"run {run + 1}: %{{x:.4g}} ms<extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip
    for place, column in enumerate(("naive_p", "block_p")):
        p = np.maximum(table[column].dropna().to_numpy(), 1e-12)
        figure.add_trace(dots(p, place + 0.25 * spread_out(len(p)), place, "p = %{x:.2g}"), row=1, col=2)
    figure.add_vline(x=LEVEL, line={"color": COLOURS[4], "width": 2, "dash": "dash"}, row=1, col=2)
    figure.update_yaxes(
        tickvals=list(range(len(runs))), ticktext=[f"run {run + 1}" for run in runs], range=[len(runs) - 0.5, -0.5],
        row=1, col=1,
    )  # fmt: skip
    names = ["over requests,<br>as the article", "over means<br>of blocks"]
    figure.update_yaxes(tickvals=[0, 1], ticktext=names, range=[1.5, -0.5], row=1, col=2)
    figure.update_layout(margin={"t": 116})
    figure.update_xaxes(title_text="mean latency (ms)", row=1, col=1)
    return figure.update_xaxes(
        title_text="p", type="log", tickvals=list(P_TICKS), ticktext=list(P_TICKS.values()),
        range=[-12.3, 0.2], row=1, col=2,
    )  # fmt: skip


def _standing(name: str, ratio: Interval) -> tuple[str, float, float, Interval, int]:
    return f"{name}  <b>{number(ratio.estimate)}</b>", 1.0, ratio.estimate, ratio, STANDS


def _moving(effect: StepEffect) -> tuple[str, float, float, Interval, int]:
    interval = effect.factor
    shifted = Interval(
        effect.ratio_after,
        effect.ratio_before * interval.low,
        effect.ratio_before * interval.high,
        interval.confidence,
        interval.n,
        interval.note,
    )
    kind = LOWERS if effect.ratio_after <= effect.ratio_before else RAISES
    detour = " (alternative)" if effect.detour else ""
    name = f"{_broken(effect.words)}{detour}  <b>× {number(interval.estimate)}</b>"
    return name, effect.ratio_before, effect.ratio_after, shifted, kind + 10 * effect.detour


def _broken(words: str) -> str:
    """Words in two lines where they are long."""
    if len(words) < 46:
        return words
    cut = words.rfind(" ", 0, max(30, len(words) // 2 + 8))
    return f"{words[:cut]}<br>{words[cut + 1 :]}"


def _add_bar(figure: go.Figure, place: int, start: float, end: float, interval: Interval, kind: int) -> None:
    """A bar between two ratios; on a logarithmic axis a plain bar would start at 0, so it is drawn as an area."""
    import plotly.graph_objects as go

    low, high = sorted((start, end))
    if high / low < NARROWEST_SPAN:
        low, high = low / NARROWEST_SPAN**0.5, high * NARROWEST_SPAN**0.5
    style = fill(kind % 10)
    pattern = {"shape": "/" if kind >= 10 else "", "fgcolor": INK, "fgopacity": 0.4, "size": 9, "solidity": 0.25}
    figure.add_trace(
        go.Scatter(
            x=[low, high, high, low, low],
            y=[place - 0.32, place - 0.32, place + 0.32, place + 0.32, place - 0.32],
            fill="toself",
            fillcolor=style["color"],
            fillpattern={**pattern, "bgcolor": style["color"]},
            mode="lines",
            line={"color": INK, "width": 1},
            hoverinfo="skip",
        )
    )
    whisker = None
    if interval.known:
        whisker = {
            "array": [max(0.0, interval.high - end)], "arrayminus": [max(0.0, end - interval.low)],
            "symmetric": False, "color": INK, "thickness": 2, "width": 7,
        }  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=[end], y=[place], mode="markers", marker={"color": INK, "size": 5}, error_x=whisker,
            hovertemplate="%{x:.3f}<extra></extra>",
        )
    )  # fmt: skip


def _ticks(span: Sequence[float]) -> dict[str, object]:
    if span[1] / span[0] > 8:
        return dict(ticks_for(span))
    ticks = [
        t
        for t in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6)
        if span[0] <= t <= span[1]
    ]
    return {"tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}
