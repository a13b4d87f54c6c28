import json

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.intervals import Interval
from workbook.analysis.split import PARTS, LatencySplit
from workbook.display.plots import (
    box_plot,
    latency_split_bars,
    parity_plot,
    reading_of_latencies,
    reading_of_parity,
    reading_of_split,
    reading_of_throughput,
    reading_of_trace,
    throughput_bars,
    throughput_runs,
    trace_over_time,
    violin_plot,
)
from workbook.display.scales import choose_axis, density, ticks_for
from workbook.display.tables import cell_text, readable_table
from workbook.display.theme import COLOURS, PATTERNS, RENDERER, SYMBOLS, TEMPLATE, use_theme
from workbook.display.wording import heading, interval_words, milliseconds, number
from workbook.errors import SettingError


def latencies(**arms):
    """Latencies in ms of each arm, one a second, all in one run."""
    frames = [
        pd.DataFrame({"label": name, "run": 0, "start_s": np.arange(len(ms), dtype=float), "latency_ms": ms, "rows": 2})
        for name, ms in arms.items()
    ]
    return pd.concat(frames, ignore_index=True).assign(ms_per_row=lambda frame: frame["latency_ms"] / 2)


TWO_ARMS = latencies(batch=np.linspace(100, 200, 101), online=np.linspace(200, 400, 101))
SPLIT = LatencySplit(100.0, dict(zip(PARTS, [1.0, 9.0, 5.0, 1.0, 80.0, 2.0, 2.0], strict=True)), 10, 10)
RUNS = pd.DataFrame({"label": ["batch", "batch", "online", "online"], "rows_per_s": [39.0, 41.0, 19.0, 21.0]})
PARITY = pd.DataFrame(
    {"batch": [1, 1, 2, 2], "sequence": [2, 512, 2, 512], "output": "sentence_embedding",
     "max_abs_error": [1e-7, 2e-6, 1e-7, 1e-6], "min_cosine": [1.0, 0.9999999, 1.0, 0.9999998]}
)  # fmt: skip
FIGURES = {
    "box": box_plot(TWO_ARMS),
    "violin": violin_plot(TWO_ARMS),
    "trace": trace_over_time(TWO_ARMS),
    "throughput": throughput_bars(RUNS),
    "split": latency_split_bars({"online": SPLIT}),
    "parity": parity_plot(PARITY),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_asks_a_question_names_its_unit_and_carries_its_reading(name):
    figure = FIGURES[name]
    assert figure.layout.title.text.endswith("?")
    axes = [axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes()) if axis.title.text]
    assert any("(ms)" in text or "second" in text or "tokens" in text for text in axes)
    assert len(figure.layout.meta["reading"]) > 20
    assert len(json.dumps(json.loads(figure.to_json()))) < 60_000


def test_box_shows_the_quartiles_of_0_to_100():
    box = next(trace for trace in box_plot(latencies(arm=np.arange(101.0))).data if trace.type == "box")
    assert (box.lowerfence[0], box.q1[0], box.median[0], box.q3[0], box.upperfence[0]) == (5, 25, 50, 75, 95)


def test_a_figure_of_100_000_requests_stays_small():
    many = latencies(online=np.random.default_rng(0).lognormal(5, 0.5, 100_000))
    for draw in (box_plot, violin_plot, trace_over_time):
        assert len(draw(many).to_json()) < 100_000


def test_the_trace_keeps_the_slowest():
    values = np.full(20_000, 100.0)
    values[12_345] = 900.0
    (trace,) = trace_over_time(latencies(online=values), scale="linear").data
    assert trace.y.max() == 900 and len(trace.y) < 2000


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_or_equal_values_are_drawn_too(count):
    for draw in (box_plot, violin_plot, trace_over_time):
        draw(latencies(online=np.full(count, 7.0)))


def test_a_long_tail_is_cut_on_a_linear_axis_and_counted():
    values = np.r_[np.full(998, 100.0), 5000.0, 6000.0]
    axis = choose_axis([values], "linear")
    assert axis.high == pytest.approx(115)
    assert axis.note == "2 of 1,000 points lie beyond the end of the axis, up to 6.00 s."
    assert axis.note in box_plot(latencies(online=values), scale="linear").layout.title.subtitle.text


def test_auto_goes_logarithmic_where_arms_are_far_apart():
    assert choose_axis([np.full(10, 2.0), np.full(10, 900.0)]).log
    assert not choose_axis([np.full(10, 200.0), np.full(10, 900.0)]).log
    assert not choose_axis([np.zeros(10), np.full(10, 900.0)]).log
    with pytest.raises(SettingError, match="scale is 'cubic'"):
        choose_axis([], "cubic")


def test_ticks_of_a_logarithmic_axis():
    assert ticks_for([90, 1100])["ticktext"][:6] == ["10", "20", "50", "100", "200", "500"]


def test_density_has_both_humps():
    values = np.r_[np.random.default_rng(0).normal(100, 5, 500), np.random.default_rng(1).normal(200, 5, 500)]
    x, height = density(values, choose_axis([values], "linear"))
    assert height.max() == 1 and height[np.abs(x - 150).argmin()] < 0.3
    assert height[np.abs(x - 200).argmin()] > 0.8


def test_bars_are_told_apart_without_colour():
    bars = [trace for trace in FIGURES["throughput"].data if trace.type == "bar"]
    assert len({bar.marker.pattern.shape for bar in bars}) == len({bar.marker.color for bar in bars}) == 2
    assert len(set(COLOURS)) == len(set(PATTERNS)) == len(set(SYMBOLS)) == 8


def test_throughput_bars_have_the_interval_of_the_mean():
    runs = pd.DataFrame({"label": "a", "run": [0, 1, 2], "rows_per_s": [39.0, 40.0, 41.0]})
    bar = throughput_bars(runs).data[0]
    # standard deviation 1, standard error 1/sqrt(3) = 0.57735, t(0.975, 2 df) = 4.3027
    assert bar.x[0] == 40 and bar.error_x.array[0] == pytest.approx(2.484, abs=0.001)
    assert throughput_bars(runs.iloc[:2]).data[0].error_x.array is None  # two runs: nothing but the dots


def test_a_whisker_never_reaches_below_zero_rows():
    runs = pd.DataFrame({"label": "a", "run": [0, 1, 2], "rows_per_s": [1.0, 10.0, 40.0]})
    bar = throughput_bars(runs).data[0]
    assert bar.x[0] - bar.error_x.arrayminus[0] == pytest.approx(0)


def test_split_bars_are_the_parts_in_order():
    bars = FIGURES["split"].data
    assert [bar.name for bar in bars] == list(PARTS.values())
    assert sum(bar.x[0] for bar in bars) == 100


def test_readings_are_plain_sentences():
    assert reading_of_latencies(TWO_ARMS) == (
        "Time for one request or batch: batch has a median of 150 ms, 95% within 195 ms; "
        "online has a median of 300 ms, 95% within 390 ms."
    )
    assert reading_of_throughput(RUNS) == (
        "batch handled 40.0 rows/s (mean of 2 runs); online handled 20.0 rows/s (mean of 2 runs): "
        "batch is 2.00 times as fast as online."
    )
    assert reading_of_split({"online": SPLIT}) == (
        "online: of 100 ms on average, 80.0 ms (80%) are “model computes”; "
        "next is “network and waiting” with 9.00 ms (9%)."
    )
    assert "batch 1, 512 tokens" in reading_of_parity(PARITY) and "0.9999998" in reading_of_parity(PARITY)


def test_a_drift_that_only_one_of_two_runs_shows_is_not_called_one():
    calm, tiring = np.full(30, 100.0), np.r_[np.full(15, 100.0), np.full(15, 150.0)]
    both = pd.concat([latencies(online=calm), latencies(online=tiring).assign(run=1)], ignore_index=True)
    assert "no drift that its runs agree on (median moves by +22%" in reading_of_trace(both)


def test_a_run_that_slows_down_is_named():
    reading = reading_of_trace(
        latencies(steady=np.full(30, 100.0), tiring=np.r_[np.full(15, 100.0), np.full(15, 150.0)])
    )
    assert "steady is steady" in reading and "tiring gets slower (median moves by +50%" in reading
    assert "The slowest took 150 ms (tiring, run 1, 15 s after its start)." in reading


def test_nothing_measured_is_said_not_drawn_wrong():
    empty = TWO_ARMS.iloc[:0]
    assert "Nothing was answered" in reading_of_latencies(empty) and "Nothing was answered" in reading_of_trace(empty)
    assert "no throughput" in reading_of_throughput(RUNS.iloc[:0])


def test_throughput_runs_puts_both_kinds_of_summaries_together():
    batch = pd.DataFrame({"arm": "batch", "run": [0, 1], "throughput_rows_per_s": [40.0, 41.0]})
    online = pd.DataFrame(
        {"arm": "online", "concurrency": [1, 4], "run": [0, 0], "throughput_rows_per_s": [20.0, float("nan")]}
    )
    assert list(throughput_runs(batch, online)["label"]) == ["batch", "batch", "online, 1 in flight"]


def test_use_theme_sets_the_default_look_and_a_small_renderer():
    import plotly.io as pio

    before = pio.templates.default, pio.renderers.default
    try:
        use_theme()
        assert pio.templates.default == TEMPLATE and pio.renderers.default == RENDERER
    finally:
        pio.templates.default, pio.renderers.default = before


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234"), (12.34, "12.3"), (0.01234, "0.0123"), (0, "0"), (-5.678, "-5.68"), (1e-9, "1.00e-09"),
     (float("nan"), "–")],
)  # fmt: skip
def test_number(value, text):
    assert number(value) == text


def test_words():
    assert milliseconds(1234) == "1.23 s" and milliseconds(0.42) == "0.420 ms"
    assert interval_words(Interval(2, 1.9, 2.1, 0.95, 4), "rows/s") == "1.90 to 2.10 rows/s"
    assert "at least two" in interval_words(Interval(2, float("nan"), float("nan"), 0.95, 1, "measure at least two"))
    assert heading("throughput_rows_per_s") == "throughput (rows/s)" and heading("latency_p95_ms") == "95% within (ms)"


def test_tables_have_words_units_and_dashes():
    frame = pd.DataFrame(
        {"arm": ["a", "a"], "concurrency": [1, 4], "latency_mean_ms": [12.345, None], "rows": [12345, 1], "note": ""}
    )
    table = readable_table(frame, "Requests").to_html()
    for text in ("mean latency (ms)", "12.3", "–", "12,345", "<caption>Requests</caption>"):
        assert text in table
    assert "note" not in table
    assert "a, 4 in flight" in readable_table(frame, transpose=True).to_html()
    assert cell_text(True) == "yes" and cell_text(np.int64(1000)) == "1,000" and cell_text(5.0) == "5"
