import json
import time

import numpy as np
import pandas as pd
import pytest

from busy_machine import in_one_of
from workbook.display.panel import PLOTLY_FIGURE, STATIC_FIGURE
from workbook.display.widgets import KINDS, LatencyPanel, draw_latencies
from workbook.errors import SettingError


def latencies(count=50):
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"label": label, "run": np.arange(count) % 4, "start_s": np.arange(count) / 10, "rows": 32,
                      "latency_ms": rng.lognormal(5, 0.3, count)})
        for label in ("batch", "online")
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True).assign(ms_per_row=lambda frame: frame["latency_ms"] / 32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantity", ["latency_ms", "ms_per_row"])
@pytest.mark.parametrize("scale", ["auto", "linear", "log"])
def test_every_position_of_the_controls_draws(kind, quantity, scale):
    assert draw_latencies(latencies(), ["batch", "online"], quantity, scale, kind).data


def shown(panel):
    """Types of the traces that JupyterLab is given to draw."""
    (output,) = panel.widget.children[-3].outputs
    return {trace["type"] for trace in output["data"][PLOTLY_FIGURE]["data"]}


def test_moving_a_control_draws_the_figure_anew():
    panel = LatencyPanel(latencies())
    reading = panel.reading.value
    assert shown(panel) == {"box", "scatter"}
    assert {trace.type for trace in panel.figure.data} == {"box", "scatter"}
    panel.kind.value = "over time"
    assert {trace.type for trace in panel.figure.data} == shown(panel) == {"scatter"}
    assert panel.reading.value != reading and "The slowest took" in panel.reading.value
    panel.arms.value = ("online",)
    assert "batch" not in panel.reading.value and len(panel.figure.data) == 4
    panel.kind.value, panel.scale.value = "box", "log"
    assert panel.figure.layout.xaxis.type == "log"
    panel.quantity.value = "ms_per_row"
    assert "one row" in panel.figure.layout.xaxis.title.text


def test_a_mistake_is_a_sentence_in_the_panel():
    panel = LatencyPanel(latencies())
    panel.arms.value = ()
    assert "Choose at least one arm" in panel.error.value and not panel.reading.value
    panel.arms.value = ("batch",)
    assert "median" in panel.reading.value and not panel.error.value


def test_a_surprise_is_a_sentence_too_and_escaped():
    panel = LatencyPanel(latencies())
    panel.latencies = panel.latencies.rename(columns={"latency_ms": "<b>"})
    panel.redraw()
    assert "The figure cannot be drawn: KeyError: " in panel.error.value and "<b>" not in panel.error.value


def test_an_unknown_kind_is_refused():
    with pytest.raises(SettingError, match="kind is 'pie'"):
        draw_latencies(latencies(), ["batch"], kind="pie")


def test_20_000_requests_are_drawn_anew_within_a_second():
    panel = LatencyPanel(latencies(10_000))

    def draw_anew(_):
        panel.kind.value = "box"
        for kind in ("violin", "over time", "box"):
            start = time.process_time()
            panel.kind.value = kind
            assert time.process_time() - start < 1  # processor time, which neighbours only lengthen

    in_one_of(draw_anew)


def test_the_panel_leaves_a_picture_of_itself_for_the_report():
    bundle = LatencyPanel(latencies())._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    layout = json.loads(json.dumps(bundle[STATIC_FIGURE]))["layout"]
    assert layout["title"]["text"].endswith("?") and "width" not in layout


def test_style_sheets_and_tests_find_the_parts_by_their_classes():
    panel = LatencyPanel(latencies())
    assert {"workbook-panel", "workbook-panel-latency"} <= set(panel.widget._dom_classes)
    assert "workbook-panel-error" in panel.error._dom_classes
    assert "workbook-panel-reading" in panel.reading._dom_classes


def test_an_error_reads_as_a_sentence():
    panel = LatencyPanel(latencies())
    panel.complain('there is no folder /nowhere: model = "bundled"')
    assert ">There is no folder /nowhere: model = &quot;bundled&quot;.</p>" in panel.error.value
