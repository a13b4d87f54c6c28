"""Ledger, costs, claims and advice on numbers that can be checked in the head."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from workbook.analysis.arrangement_choice import (
    HELD,
    NOT_HELD,
    UNDECIDED,
    Claim,
    Situation,
    advice_table,
    batching_claim,
    best_arrangement,
    expect,
    judge_claims,
)
from workbook.analysis.copies import (
    copied_bytes,
    copy_ms,
    large_copies,
    ledger,
    ledger_table,
    mean_rates,
    predicted_ms,
    rates_table,
    reading_of_rates,
    tensor_sizes,
)
from workbook.analysis.copy_costs import (
    HOPS,
    HopCost,
    added_latency,
    compare_counted,
    compare_sizes,
    compare_statistics,
    copies_of_lone_requests,
    copy_times,
    fit_line,
    held_of_counted,
    hop_costs,
    measured_over_predicted,
    relay_bytes,
)
from workbook.analysis.intervals import Interval
from workbook.errors import SettingError
from workbook.serving.pipelines import relay_pipeline

MB = 1_000_000
KINDS = ("region", "heap", "array", "held")


def linear_rates(ms_per_mb: float = 0.1) -> pd.DataFrame:
    """Every kind costs the same for each MB, up to 100 MB."""
    rows = [(kind, size, size / MB * ms_per_mb) for kind in KINDS for size in (MB, 100 * MB)]
    return pd.DataFrame(rows, columns=["kind", "bytes", "ms"])


def big(arrangement: str, size: int = MB) -> list[str]:
    """Where the copies of the tensors that are handed on show, in order."""
    copies = ledger(relay_pipeline(), arrangement, relay_bytes(size))
    return [f"{copy.shown_in} {copy.stage}" for copy in copies if copy.bytes == size]


# --- ledger ----------------------------------------------------------------------------------------------------------


def test_a_monolith_hands_nothing_on() -> None:
    assert big("monolith") == big("monolith_x2") == []


def test_a_hop_of_an_ensemble_costs_four_copies_two_of_which_show() -> None:
    assert sorted(big("ensemble")) == sorted(
        [
            "compute_infer make", "compute_output make", "compute_input shift", "compute_infer shift",
            "compute_infer shift", "compute_output shift", "compute_input total", "compute_infer total",
        ]
    )  # fmt: skip


def test_a_caller_adds_one_copy_a_tensor() -> None:
    assert len(big("bls")) == len(big("ensemble")) + 2
    assert big("bls").count("compute_infer caller") == 2
    assert big("bls_async") == big("bls")


def test_a_handle_leaves_its_tensor_where_it_is() -> None:
    assert big("handle") == []
    assert copied_bytes(ledger(relay_pipeline(), "handle", relay_bytes(MB))) < 5000


def test_the_ledger_says_who_copies_what_where() -> None:
    first = ledger(relay_pipeline(), "ensemble", relay_bytes(MB))[2]
    assert (first.hop, first.tensor, first.copied_by, first.kind, first.place, first.bytes) == (
        "make → shift", "payload", "stub of make", "region", "host", MB,
    )  # fmt: skip


def test_a_tensor_without_a_size_or_an_unknown_arrangement_is_refused() -> None:
    with pytest.raises(SettingError, match="lacks payload, shifted, total"):
        ledger(relay_pipeline(), "ensemble", {"request": 16})
    with pytest.raises(SettingError, match="arrangement is 'chain'"):
        ledger(relay_pipeline(), "chain", relay_bytes(8))


def test_sizes_of_tensors_follow_from_the_specs() -> None:
    assert tensor_sizes(relay_pipeline(), 1, 24) == {"request": 16, "payload": 24, "shifted": 24, "total": 16}


def test_a_copy_is_predicted_between_measured_sizes_and_beyond_them() -> None:
    rates = pd.DataFrame({"kind": "heap", "bytes": [10, 20, 40], "ms": [1.0, 3.0, 4.0]})
    assert [copy_ms("heap", size, rates) for size in (5, 10, 15, 40, 80)] == [0.5, 1, 2, 4, 8]
    with pytest.raises(SettingError, match="no rate was measured for copies of kind 'array'"):
        copy_ms("array", 10, rates)


def test_rates_stand_side_by_side_with_pages_where_there_are_any() -> None:
    rates = pd.DataFrame({"kind": ["region", "heap"], "bytes": 8, "ms": [1.0, 2.0], "fresh_pages": [0.0, 3.0]})
    assert rates_table(rates).to_dict("records") == [{"bytes": 8, "region_ms": 1, "heap_ms": 2, "heap_fresh_pages": 3}]


def test_predictions_add_up_and_can_be_told_apart_by_statistic() -> None:
    copies = ledger(relay_pipeline(), "ensemble", relay_bytes(10 * MB))  # eight copies of 1 ms
    assert predicted_ms(copies, linear_rates()) == pytest.approx(8, abs=1e-4)
    assert predicted_ms(copies, linear_rates(), ["compute_input"]) == pytest.approx(2, abs=1e-4)
    table = ledger_table(copies, linear_rates())
    assert table["predicted_ms"].sum() == pytest.approx(8, abs=1e-4)
    assert large_copies(table)["bytes"].tolist() == [10 * MB] * 8  # the request and the answer are left out


# --- costs -----------------------------------------------------------------------------------------------------------


def latencies(runs: int = 2) -> pd.DataFrame:
    """The monolith takes 5 ms + 1 ms/MB; ensemble 2 ms more and 0.8 ms/MB, handle 1 ms more."""
    added = {"monolith": (0.0, 0.0), "ensemble": (2.0, 0.8), "handle": (1.0, 0.0)}
    rows = [
        {"arrangement": name, "bytes": size, "run": run, "latency_ms": 5 + size / MB + fixed + slope * size / MB + run}
        for (name, (fixed, slope)), size, run in itertools.product(added.items(), (MB, 10 * MB, 20 * MB), range(runs))
    ]
    return pd.DataFrame(rows)


def test_added_latency_is_taken_from_the_monoliths_run_beside_it() -> None:
    added = added_latency(latencies()).set_index(["arrangement", "bytes", "run"])["added_ms"]
    assert added["ensemble", 10 * MB, 1] == pytest.approx(10)
    assert "monolith" not in added.index.get_level_values(0)
    with pytest.raises(SettingError, match="monolith was not measured"):
        added_latency(latencies().query("arrangement != 'monolith'"))


def test_slope_is_cost_of_a_byte_and_intercept_cost_of_a_hop() -> None:
    costs = hop_costs(latencies(), linear_rates())
    ensemble = costs["ensemble"]
    assert ensemble.per_hop_ms.estimate == pytest.approx(2 / HOPS)
    assert ensemble.per_mb_ms.estimate == pytest.approx(0.8 / HOPS)
    assert ensemble.predicted_per_mb_ms == pytest.approx(0.8 / HOPS, rel=1e-3)  # eight copies at 0.1 ms/MB
    assert (ensemble.per_mb_ms.low, ensemble.per_mb_ms.high) == pytest.approx((0.4, 0.4))
    assert costs["handle"].per_mb_ms.estimate == pytest.approx(0, abs=1e-12)
    assert ensemble.copying_per_mb_ms.estimate == pytest.approx(0.4)  # the control's slope is none
    assert ensemble.added_ms(10) == pytest.approx(10)


def test_one_size_makes_no_line() -> None:
    with pytest.raises(SettingError, match="two sizes up to"):
        hop_costs(latencies().query("bytes == 1_000_000"), linear_rates())
    with pytest.raises(SettingError, match="handle was not measured"):
        hop_costs(latencies().query("arrangement != 'handle'"), linear_rates())


def test_a_line_weighs_small_sizes_as_much_as_large_ones() -> None:
    assert fit_line([0, 1, 3], [2, 5, 11]) == pytest.approx((3, 2))


def test_a_prediction_within_a_fifth_is_called_held() -> None:
    right = compare_sizes(latencies(), linear_rates()).set_index(["arrangement", "bytes"])
    assert right.loc[("ensemble", 10 * MB), "measured_copy_ms"] == pytest.approx(8, rel=1e-3)
    assert right.loc[("ensemble", 10 * MB), "copies"] == 8
    assert list(right.loc["ensemble", "held"]) == [True, True]  # growth is counted from the smallest size on
    assert right.loc["handle", "held"].isna().all()  # nothing was predicted
    wrong = compare_sizes(latencies(), linear_rates(0.13))
    assert not wrong.set_index("arrangement").loc["ensemble", "held"].any()
    assert not wrong["undecided"].any()  # the runs agree to the bit


def test_a_prediction_inside_a_wide_interval_is_undecided() -> None:
    unsteady = latencies()
    unsteady.loc[(unsteady["arrangement"] == "ensemble") & (unsteady["run"] == 1), "latency_ms"] *= 1.5
    table = compare_sizes(unsteady, linear_rates()).set_index(["arrangement", "bytes"])
    assert table.loc[("ensemble", 20 * MB), ["held", "undecided"]].tolist() == [False, True]


def test_copying_is_growth_beyond_small_tensors_and_beyond_the_control() -> None:
    """The control grows by 2 ms from leaving the cache; so does the ensemble, and by 5 ms more."""
    table = {8: (10, 11, 12), 100_000: (10, 11, 14), 4 * MB: (10, 13, 20)}  # monolith, handle, ensemble
    rows = [
        {"arrangement": name, "bytes": size, "run": run, "latency_ms": ms + run}
        for size, times in table.items()
        for name, ms in zip(("monolith", "handle", "ensemble"), times, strict=True)
        for run in (0, 1)
    ]
    times = copy_times(pd.DataFrame(rows)).set_index(["arrangement", "bytes", "run"])["copy_ms"]
    assert times["ensemble", 4 * MB, 1] == pytest.approx((20 - 13) - 2)  # small: 12 and 14 ms, 2 more than the handle's
    assert times["handle", 4 * MB, 0] == pytest.approx(13 - 11)
    assert set(times.index.get_level_values("bytes")) == {4 * MB}


def test_all_sizes_together_weigh_the_same() -> None:
    slow = latencies()
    slow.loc[(slow["arrangement"] == "ensemble") & (slow["bytes"] == 20 * MB), "latency_ms"] += 1.52
    overall = measured_over_predicted(slow, linear_rates())
    assert list(overall) == ["ensemble"]
    assert overall["ensemble"].estimate == pytest.approx((1 + 1.1) / 2)  # 15.2 ms are predicted beyond the smallest


def test_copies_of_lone_requests_are_beyond_the_control_and_beyond_bare_hops() -> None:
    """By ensemble a hop takes 1 ms more than by handle, whatever it carries; copies take 3 ms."""
    rows = [("road", run, 20 + run, 22 + run, 27 + run) for run in (0, 1)]
    bare = [("relay", run, 2, 3.5, 5.5) for run in (0, 1)]
    found = copies_of_lone_requests(*(lone_requests(table) for table in (rows, bare)))
    assert set(found) == {("road", "ensemble"), ("road", "handle")}
    assert found["road", "ensemble"].estimate == pytest.approx((27 - 22) - (5.5 - 3.5))
    assert found["road", "handle"].estimate == pytest.approx((22 - 20) - (3.5 - 2))
    assert found["road", "handle"].n == 2


def lone_requests(rows: Sequence[tuple[str, int, float, float, float]]) -> pd.DataFrame:
    wide = pd.DataFrame(rows, columns=["pipeline", "run", "monolith", "handle", "ensemble"])
    return wide.melt(["pipeline", "run"], var_name="arrangement", value_name="latency_ms")


def test_rates_of_two_readings_are_averaged_and_their_drift_said() -> None:
    before, after = linear_rates(0.1), linear_rates(0.12)
    around = mean_rates(before, after)
    assert copy_ms("region", 10 * MB, around) == pytest.approx(1.1)
    assert "took 20% longer than before" in reading_of_rates(before, after)
    assert "took 17% less" in reading_of_rates(after, before)


def test_statistics_are_compared_less_their_fixed_part() -> None:
    rows = [
        {"arrangement": "ensemble", "bytes": size, "run": 0, "model": model,
         "compute_input_ms": 0.5 + size / MB * 0.1, "compute_output_ms": 0.25 + size / MB * 0.1}
        for size, model in itertools.product((8, 10 * MB), ("shift", "total"))
    ]  # fmt: skip
    table = compare_statistics(pd.DataFrame(rows), linear_rates()).set_index(["bytes", "statistic"])
    for statistic in ("compute_input", "compute_output"):
        measured, predicted = table.loc[(10 * MB, statistic), ["measured_ms", "predicted_ms"]]
        assert measured == pytest.approx(2, rel=1e-4)
        assert predicted == pytest.approx(2, rel=1e-3)


def test_counted_copies_are_held_to_the_predicted_time() -> None:
    counted = pd.DataFrame({"arrangement": ["ensemble", "handle"], "bytes": 10 * MB, "counted_ms": [10.0, 0.0]})
    table = compare_counted(counted, linear_rates())
    assert table["predicted_ms"].tolist() == pytest.approx([8, 0])
    assert table["ratio"].tolist() == pytest.approx([0.8, np.nan], nan_ok=True)
    assert table["held"].tolist() == [True, None]
    assert held_of_counted(table) == {"held": 1, "of": 1}
    assert held_of_counted(table.assign(bytes=MB // 2)) == {"held": 0, "of": 0}


# --- claims and advice -----------------------------------------------------------------------------------------------


def sure(value: float) -> Interval:
    return Interval(value, value, value, 0.95, 4)


COSTS = {
    "ensemble": HopCost("ensemble", sure(0.5), sure(0.5), sure(0.5), 0.5),
    "bls": HopCost("bls", sure(1.0), sure(0.5), sure(0.5), 0.5),
    "handle": HopCost("handle", sure(0.5), sure(0.0), sure(0.0), 0.0),
}


def test_expected_latency_adds_up_and_throughput_has_two_bounds() -> None:
    expected = expect(Situation(9, (10, 20, 10), instances=2, processors=2), COSTS, base_ms=1)
    assert expected["monolith"].latency_ms == 41
    assert expected["monolith"].throughput_per_s == 25
    assert expected["monolith_x2"].throughput_per_s == 50
    assert expected["ensemble"].latency_ms == 41 + 2 * (0.5 + 4.5)
    assert expected["ensemble"].throughput_per_s == pytest.approx(
        1000 / 25
    )  # slowest stage, and two processors at 50 ms
    assert expected["bls"].throughput_per_s == pytest.approx(1000 / (40 + 2 * 5.5))  # blocks: one request at a time
    assert expected["handle"].throughput_per_s == pytest.approx(1000 / 20.5)


def test_the_simpler_arrangement_wins_where_both_are_equal() -> None:
    assert best_arrangement(Situation(0.1, (100, 100, 100)), COSTS) == ("monolith", "monolith_x2")
    assert best_arrangement(Situation(0.1, (1, 100, 1), instances=1, processors=4), COSTS) == ("monolith", "monolith")


def test_advice_has_a_row_a_size_and_time() -> None:
    table = advice_table(COSTS, sizes_mb=(1, 10), stage_ms=(10,))
    assert table["ensemble_adds_percent"].tolist() == pytest.approx([100 * 2 / 30, 100 * 11 / 30])


@pytest.mark.parametrize("wrong", [{"megabytes": -1}, {"stage_ms": (0.0, 0.0)}, {"instances": 0}])
def test_an_impossible_situation_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        Situation(**{"megabytes": 1, "stage_ms": (1.0,), **wrong})  # type: ignore[arg-type]


def judged(ensemble_per_s: tuple[float, float]) -> list[Claim]:
    numbers = {
        "monolith": ((10, 100), (10.2, 98)),
        "monolith_x2": ((10, 160), (10, 158)),
        "ensemble": ((15, ensemble_per_s[0]), (15.2, ensemble_per_s[1])),
        "bls": ((20, 50), (20, 51)),
    }
    runs = [("road", name, run, *numbers[name][run]) for name in numbers for run in (0, 1)]
    table = pd.DataFrame(runs, columns=["pipeline", "arrangement", "run", "latency_ms", "requests_per_s"])
    alone, busy = table.drop(columns="requests_per_s"), table.drop(columns="latency_ms").assign(concurrency=4)
    return judge_claims(alone, busy)


def test_claims_are_judged_by_their_intervals() -> None:
    best, more, slower, overlap, blocking = judged((150, 147))
    assert [claim.verdict for claim in (best, more, slower, overlap, blocking)] == [HELD] * 5
    assert best.numbers.startswith("ensemble 15.1, monolith 10.1 ms alone: ratio 1.5")
    assert overlap.numbers.startswith("ensemble 148, monolith 99 requests/s with 4 in flight: ratio 1.50")
    assert "monolith_x2 12.6, monolith 10.1 ms in an instance" in slower.numbers  # 2 instances at 159/s
    assert judged((90, 91))[3].verdict == NOT_HELD
    assert judged((100, 150))[3].verdict == UNDECIDED


def test_gathering_is_a_copy_where_it_takes_as_long_as_one() -> None:
    assert batching_claim(1.1, 1.0, 6).verdict == HELD
    assert batching_claim(0.1, 1.0, 6).verdict == NOT_HELD
