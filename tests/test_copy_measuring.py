"""Copy rates, the counter's lines, the ladder's table, figures and panel: no server needed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.arrangement_choice import Situation
from workbook.analysis.copies import ledger
from workbook.analysis.copy_costs import compare_sizes, hop_costs, measured_over_predicted, relay_bytes
from workbook.display.arrangement_panel import OWN, ArrangementPanel
from workbook.display.copies_plots import arrangement_plot, arrangement_points, copy_cost_plot, ladder_plot
from workbook.errors import SettingError
from workbook.measuring.copies import requests as copies
from workbook.measuring.copies.bandwidth import measure_copy_rates, measure_gather
from workbook.measuring.copies.caches import CacheSweeper
from workbook.measuring.copies.counter import CountedCopy, counted_row, counter_environment, read_counted
from workbook.measuring.online.rungs import HTTP_JSON, IN_PROCESS, load_stage
from workbook.measuring.online.transport_ladder import ladder_table, measure_ladder
from workbook.serving.pipelines import relay_pipeline


def test_rates_of_every_kind_and_size_and_affinity_as_before() -> None:
    rates = measure_copy_rates([1_000_000, 8000, 8000], repeats=3)
    assert rates.groupby("kind")["bytes"].apply(list).to_dict() == {
        kind: [8000, 1_000_000] for kind in ("array", "heap", "held", "region")
    }
    assert (rates["ms"] > 0).all()
    assert (rates["ms_p10"] <= rates["ms"]).all()
    np.testing.assert_allclose(rates["mb_per_s"], rates["bytes"] / 1e3 / rates["ms"])
    assert measure_gather(80_000, repeats=3) > 0


def test_memory_taken_anew_is_seen_by_its_pages() -> None:
    """Above 32 MiB glibc maps a block for each request: at least a fault for every page but those of 2 MiB."""
    rates = measure_copy_rates([40_000_000], repeats=2).set_index("kind")
    assert rates.loc["heap", "fresh_pages"] >= 40_000_000 // 4096 // 512
    assert rates.loc["region", "fresh_pages"] < 10


def test_a_sweep_leaves_the_thread_where_it_may_run() -> None:
    before = os.sched_getaffinity(0)
    CacheSweeper().sweep()
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("sizes", [[], [4], [1 << 31]])
def test_sizes_that_cannot_be_measured_are_refused(sizes: list[int]) -> None:
    with pytest.raises(SettingError):
        measure_copy_rates(sizes)


LOG = """I1130 started
workbook-copy pid=7 bytes=1000000 ns=20000
something workbook-copy pid=9 bytes=1 ns=1
workbook-copy pid=8 bytes=1000000 ns=30000
"""


def test_counted_copies_are_read_from_the_log() -> None:
    assert read_counted(LOG) == [CountedCopy(7, 1_000_000, 20_000), CountedCopy(8, 1_000_000, 30_000)]


def test_counted_copies_agree_with_the_ledger_only_if_each_request_does() -> None:
    size, expected = 1_000_000, ledger(relay_pipeline(), "ensemble", relay_bytes(1_000_000))
    right = [CountedCopy(1, size, 1_000_000)] * 4 + [CountedCopy(2, size, 2_000_000)] * 4
    row = counted_row("ensemble", size, [right, right], expected, server_pid=1)
    assert (row["counted_by_server"], row["counted_by_stubs"], row["agree"], row["counted_ms"]) == (4, 4, True, 12)
    assert not counted_row("ensemble", size, [right, right[1:]], expected, server_pid=1)["agree"]
    with pytest.raises(SettingError, match="65,536 or more"):
        counter_environment([100])


def test_every_small_tensor_is_asked_for_more_often_than_a_large_one() -> None:
    assert copies.relay_request(16, 3).inputs["request"].tolist() == [[16, 3]]
    with pytest.raises(SettingError, match="at least 8"):
        copies.relay_request(4)


def ladder() -> pd.DataFrame:
    rows = [
        {"rung": rung, "bytes": size, "run": run, "latency_ms": ms * size / 1e6 + run,
         "client_ms": client, "decode_ms": 0.1}
        for rung, ms, client in ((IN_PROCESS, 1, 9), (HTTP_JSON, 100, 9))
        for size in (1_000_000, 6_000_000) for run in (0, 2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_ladder_takes_medians_and_no_share_above_one() -> None:
    table = ladder_table(ladder()).set_index(["bytes", "rung"])
    assert table.loc[(6_000_000, HTTP_JSON), "latency_ms"] == 601
    assert table.loc[(6_000_000, HTTP_JSON), "mb_per_s"] == pytest.approx(6e3 / 601)
    assert table.loc[(1_000_000, IN_PROCESS), "client_share"] == 1
    assert "For 6.00 MB: in-process 7.00 ms" in ladder_plot(ladder_table(ladder())).layout.meta["reading"]


def test_ladder_refuses_what_it_does_not_know(tmp_path: Any) -> None:
    for sizes, rungs, message in (([7], [IN_PROCESS], "multiple of 4"), ([8], ["pigeon"], "no rung 'pigeon'")):
        with pytest.raises(SettingError, match=message):
            measure_ladder(None, sizes, tmp_path / "r.csv", rungs=rungs)  # type: ignore[arg-type]


def test_the_served_values_can_be_had_in_process() -> None:
    values = load_stage()({"request": np.array([[80, 1]])}, None)["values"]
    assert (values.shape, values.dtype, values.nbytes) == ((1, 20), np.float32, 80)


# --- figures and panel -----------------------------------------------------------------------------------------------


def swept() -> pd.DataFrame:
    added = {"monolith": 0.0, "ensemble": 0.8, "handle": 0.0}
    rows = [
        {"arrangement": name, "bytes": mb * 1_000_000, "run": run, "latency_ms": 5 + mb + slope * mb + 0.01 * run * mb}
        for name, slope in added.items() for mb in (1, 10, 20) for run in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def rates() -> pd.DataFrame:
    rows = [(kind, mb * 1_000_000, mb / 10) for kind in ("region", "heap", "array", "held") for mb in (1, 100)]
    return pd.DataFrame(rows, columns=["kind", "bytes", "ms"])


def points() -> pd.DataFrame:
    runs = [
        ("road", name, run, ms, 2e3 / ms)
        for name, ms in (("monolith", 10.0), ("monolith_x2", 10.0), ("ensemble", 12.0)) for run in (0, 1)
    ]  # fmt: skip
    table = pd.DataFrame(runs, columns=["pipeline", "arrangement", "run", "latency_ms", "requests_per_s"])
    return arrangement_points(table.drop(columns="requests_per_s"), table.drop(columns="latency_ms"))


def test_figures_say_what_they_show() -> None:
    costs = hop_costs(swept(), rates())
    overall = measured_over_predicted(swept(), rates())
    figure = copy_cost_plot(compare_sizes(swept(), rates()), costs, overall)
    assert "ensemble: 0.40 ms per MB and hop" in figure.layout.meta["reading"]
    assert "measured as a multiple of predicted: ensemble 1.00" in figure.layout.meta["reading"]
    assert "in 2 of 2 cases" in figure.layout.meta["reading"]
    assert {trace.name for trace in figure.data} >= {"ensemble", "ensemble, predicted"}
    figure = arrangement_plot(points())
    assert figure.layout.title.text.endswith("?")
    assert "monolith answers a lone request fastest (10.0 ms)" in figure.layout.meta["reading"]


@pytest.fixture
def panel() -> ArrangementPanel:
    situation = Situation(0.5, (1.0, 8.0, 1.0), instances=2, processors=2)
    return ArrangementPanel(hop_costs(swept(), rates()), {"road": situation}, points(), base_ms=0.5)


def test_panel_starts_where_a_pipeline_was_measured(panel: ArrangementPanel) -> None:
    assert panel.situation == Situation(0.5, (1.0, 8.0, 1.0), 2, 2)
    names = [trace.name for trace in panel.figure.data]
    assert "ensemble, measured" in names
    assert "application/vnd.workbook.figure+json" in panel._repr_mimebundle_()


def test_panel_follows_its_sliders(panel: ArrangementPanel) -> None:
    before = panel.reading.value
    panel.megabytes.value = 50
    assert panel.reading.value != before
    assert "With 50.0 MB from stage to stage" in panel.reading.value
    panel.pipeline.value = OWN
    assert not any("measured" in trace.name for trace in panel.figure.data)
    panel.pipeline.value = "road"
    assert panel.megabytes.value == 0.5


def test_panel_names_what_limits_and_answers_to_a_control_that_moves_no_point(panel: ArrangementPanel) -> None:
    for slider in (panel.processors, panel.instances, panel.megabytes, *panel.stages):
        before = panel.figure.to_json()
        slider.value += slider.step if slider in panel.stages else 1
        assert panel.figure.to_json() != before, slider.description
    panel.instances.value = panel.processors.value = 2
    assert "limited by the number of its copies" in panel.reading.value
    panel.instances.value = 1
    assert "limited by its slowest stage" in panel.reading.value  # more processors would not help


def test_panel_explains_what_cannot_be(panel: ArrangementPanel) -> None:
    for stage in panel.stages:
        stage.value = 0
    assert "role='alert'" in panel.error.value
    assert "one stage takes longer than 0" in panel.error.value
