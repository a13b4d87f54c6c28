"""Any stored run of a notebook, drawn again from its records: run, variants, concurrency, quantity, scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.analysis.stored import QUANTITIES, stored_measurements
from workbook.display.drawing import dots, fill, name_rows, new_figure, spread_out
from workbook.display.panel import Panel, toggles
from workbook.display.scales import ticks_for
from workbook.display.theme import COLOURS, DASHES, INK, SYMBOLS
from workbook.display.wording import number
from workbook.errors import SettingError
from workbook.past_runs import runs_with_records

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from workbook.runs import Run

SCALES = ("linear", "log")
_HIGHER_IS_BETTER = ("throughput_rows_per_s",)


def draw_measurements(
    table: pd.DataFrame,
    quantity: str = "throughput_rows_per_s",
    scale: str = "linear",
) -> go.Figure:
    """A quantity of stored measurements: over the requests in flight where there are several, else a bar an arm.

    Args:
        table: rows of `stored.stored_measurements`, of one measurement.
        quantity: a name in QUANTITIES.
        scale: `linear` or `log`, of the quantity.

    Raises:
        SettingError: no such quantity or scale, or nothing of it was measured.
    """
    if quantity not in QUANTITIES or scale not in SCALES:
        raise SettingError(f"{quantity!r} on a {scale!r} axis cannot be drawn: choose from the lists.")
    if table.empty:
        raise SettingError("Nothing is chosen. Choose at least one variant and one concurrency.")
    known = table[table[quantity].notna()]
    if known.empty:
        raise SettingError(f"Not measured here, or in too few requests to say: {QUANTITIES[quantity]}.")
    over = known.groupby("arm")["concurrency"].nunique().max() > 1
    figure = _over_concurrency(known, quantity) if over else _by_arm(known, quantity)
    values = known[quantity][known[quantity] > 0]
    axis: dict[str, Any] = {"title_text": QUANTITIES[quantity], "rangemode": "tozero"}
    if scale == "log" and len(values):
        axis = {
            "title_text": QUANTITIES[quantity],
            "type": "log",
            **ticks_for([values.min() / 1.5, values.max() * 1.5]),
        }
    return figure.update_yaxes(**axis) if over else figure.update_xaxes(**axis)


def reading_of_measurements(known: pd.DataFrame, quantity: str) -> str:
    """Where the quantity is best and worst, means over runs."""
    means = known.groupby(["arm", "concurrency"])[quantity].mean()
    best, worst = means.idxmax(), means.idxmin()
    if quantity not in _HIGHER_IS_BETTER:
        best, worst = worst, best
    words = QUANTITIES[quantity][:1].upper() + QUANTITIES[quantity][1:]
    if len(means) == 1:
        return f"{words}: {number(means[best])} with {_called(best)}."
    ends = f"best with {_called(best)}, {number(means[best])}; worst with {_called(worst)}, {number(means[worst])}"
    return f"{words}: {ends}."


def _called(key: Any) -> str:
    arm, concurrency = key
    return f"{arm}, {concurrency} in flight" if concurrency else str(arm)


def _new(known: pd.DataFrame, quantity: str, how_to_read: str, height: int) -> go.Figure:
    question = f"How does {QUANTITIES[quantity].partition(' (')[0]} change with what is chosen?"
    return new_figure(question, how_to_read, reading_of_measurements(known, quantity), height)


def _over_concurrency(known: pd.DataFrame, quantity: str) -> go.Figure:
    import plotly.graph_objects as go

    figure = _new(known, quantity, "Line: mean over runs. Dots: single runs.", 440)
    for place, (arm, group) in enumerate(known.groupby("arm", sort=False)):
        colour = COLOURS[place % len(COLOURS)]
        means = group.groupby("concurrency")[quantity].mean()
        line = {"color": colour, "dash": DASHES[place % len(DASHES)], "width": 3}
        marker = {
            "symbol": SYMBOLS[place % len(SYMBOLS)],
            "size": 9,
            "color": colour,
            "line": {"color": INK, "width": 1},
        }
        figure.add_trace(
            go.Scatter(x=list(means.index), y=list(means), mode="lines+markers", line=line, marker=marker,
                       name=str(arm),
                       hovertemplate=f"{arm}, %{{x}} in flight: %{{y:.4g}}<extra></extra>")
        )  # fmt: skip
        if group["run"].nunique() > 1:
            single = dots(
                group["concurrency"].to_numpy(), group[quantity].to_numpy(), place, f"{arm}, one run: %{{y:.4g}}"
            )
            figure.add_trace(single.update(showlegend=False))
    ticks = sorted(int(value) for value in known["concurrency"].unique())
    figure.update_layout(showlegend=True)
    return figure.update_xaxes(title_text="requests in flight", tickvals=ticks)


def _by_arm(known: pd.DataFrame, quantity: str) -> go.Figure:
    import plotly.graph_objects as go

    groups = list(known.groupby("arm", sort=False)[quantity])
    figure = _new(known, quantity, "Bar: mean over runs. Dots: single runs.", 150 + 52 * len(groups))
    for place, (arm, values) in enumerate(groups):
        figure.add_trace(
            go.Bar(x=[float(values.mean())], y=[place], orientation="h", width=0.6, marker=fill(place),
                   hovertemplate=f"{arm}: %{{x:.4g}}<extra></extra>")
        )  # fmt: skip
        if len(values) > 1:
            figure.add_trace(
                dots(values.to_numpy(), place + 0.15 * spread_out(len(values)), place, "one run: %{x:.4g}")
            )
    name_rows(figure, [f"{arm}<br><b>{number(float(values.mean()))}</b>" for arm, values in groups])
    return figure


class RecordsPanel(Panel):
    """Choose a run, what of it, and a quantity.

    Attributes:
        runs, measurement, arms, concurrency, quantity, scale: the controls; set `.value` to move one.
        table: all measurements of the chosen run.
    """

    NAME = "records"

    def __init__(self, run: Run) -> None:
        """Make the panel over all runs that hold records of this run's notebook; it starts at this run."""
        import ipywidgets as widgets

        self.run = run
        self.table: pd.DataFrame | None = None
        self._filling = False
        wide = {"layout": {"width": "420px"}, "style": {"description_width": "110px"}}
        self.runs = widgets.Dropdown(options=self._choices(), description="run", **wide)
        self.measurement = widgets.Dropdown(description="measurement", **wide)
        self.quantity = widgets.Dropdown(
            options=[(words, name) for name, words in QUANTITIES.items()], description="quantity", **wide
        )
        self.scale = toggles(list(SCALES), "axis")
        self.arms = widgets.SelectMultiple(description="variants", rows=5, **wide)
        self.concurrency = widgets.SelectMultiple(description="concurrency", rows=4, **wide)
        self.runs.observe(self.take_run, names="value")
        self.measurement.observe(self.take_measurement, names="value")
        left = widgets.VBox([self.runs, self.measurement, self.quantity, self.scale])
        controls = widgets.HBox([left, widgets.VBox([self.arms, self.concurrency])])
        self._fill()
        self.arrange(controls, redrawn_by=(self.arms, self.concurrency, self.quantity, self.scale))

    def _choices(self) -> list[tuple[str, Path]]:
        here = self.run.directory.resolve()
        found = dict.fromkeys([here, *(path.resolve() for path in reversed(runs_with_records(self.run.notebook)))])
        return [(f"{path.name} (this run)" if path == here else path.name, path) for path in found]

    def take_run(self, change: Any = None) -> None:
        """Offer what the chosen run holds, and draw it."""
        self._fill()
        self.redraw()

    def take_measurement(self, change: Any = None) -> None:
        """Offer the arms and concurrencies of the chosen measurement, and draw them."""
        if not self._filling:
            self._fill_arms()
            self.redraw()

    def _fill(self) -> None:
        self._filling = True  # lists that change their options draw nothing until all of them are filled
        try:
            self.table = stored_measurements(self.runs.value, self.run.notebook)
            names, before = list(self.table["measurement"].unique()), self.measurement.value
            self.measurement.options = [(name.replace("_", " "), name) for name in names]
            self.measurement.value = before if before in names else names[0]
        except SettingError:
            self.table, self.measurement.options = None, []
        finally:
            self._filling = False
        self._fill_arms()

    def _fill_arms(self) -> None:
        here = self._measured()
        self._filling = True
        try:
            for control, column in ((self.arms, "arm"), (self.concurrency, "concurrency")):
                values: Sequence[Any] = [] if here is None else here[column].unique().tolist()
                words = [("batch job" if value == 0 else str(value), value) for value in values]
                with control.hold_sync():  # one message: a list shorter than its old choice is an error in the browser
                    control.options = words
                    control.value = tuple(values)
        finally:
            self._filling = False

    def _measured(self) -> pd.DataFrame | None:
        if self.table is None:
            return None
        return self.table[self.table["measurement"] == self.measurement.value]

    def redraw(self, change: Any = None) -> None:
        """Draw, unless the lists are just being filled."""
        if not self._filling:
            super().redraw(change)

    def drawn(self) -> go.Figure:
        """The figure that the controls ask for."""
        here = self._measured()
        if here is None:
            self.table = stored_measurements(self.runs.value, self.run.notebook)  # says what is missing
            raise SettingError("The run has records now: choose it again.")
        chosen = here[here["arm"].isin(self.arms.value) & here["concurrency"].isin(self.concurrency.value)]
        return draw_measurements(chosen, self.quantity.value, self.scale.value)
