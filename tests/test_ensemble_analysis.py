import itertools
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from workbook.analysis.ensemble_search import (
    a_batches_grid,
    choose,
    choose_a_batch,
    chosen_variant,
    pareto,
    reason_for,
    search_grid,
)
from workbook.analysis.loss_causes import (
    Cause,
    choose_causes,
    effects,
    loss_causes,
    settings_of,
    stall_like_the_issue_us,
)
from workbook.analysis.trace import describe_timeline, read_trace
from workbook.errors import LoadError, SettingError
from workbook.serving.ensemble_spec import EnsembleVariant, pin_apart

APART = pin_apart(EnsembleVariant(), (0, 1))


def row(rate: float, p99: float, **changes: object) -> dict[str, object]:
    values = {"b_instances": 1, "b_max_batch": 0, "a_delay_us": 0, "hop": "mask", "a_max_batch": 32}
    return {**values, "images_per_s": rate, "latency_mean_ms": p99 / 2, "latency_p99_ms": p99, **changes}


FOUND = pd.DataFrame([row(100, 50), row(98, 20, b_instances=2), row(90, 30), row(60, 10)])


def test_pareto_keeps_what_no_other_beats_in_both() -> None:
    assert pareto(FOUND)["images_per_s"].tolist() == [100, 98, 60]


def test_the_choice_is_the_lowest_p99_among_the_fastest() -> None:
    chosen = choose(FOUND)
    assert (chosen["images_per_s"], chosen["latency_p99_ms"]) == (98, 20)
    assert chosen_variant(chosen, APART) == replace(APART, b_instances=2, a_delay_us=0, hop="mask")
    assert "98/s, 98% of the slower member's 100/s (as reported: 45%)" in reason_for(chosen, 45, 100)


def test_a_search_without_points_is_refused() -> None:
    with pytest.raises(LoadError, match="measured nothing"):
        choose(FOUND.iloc[:0])


def test_the_grid_holds_every_combination_once() -> None:
    grid = search_grid(APART, [1, 2], [0, 8], [0, 150_000])
    assert len(grid) == len(set(grid)) == 2 * 2 * 2 * 2
    assert all(variant.a_processors == (0,) and variant.b_processors == (1,) for variant in grid)


def test_each_cause_is_one_switch_away() -> None:
    for cause in loss_causes(APART, 128, 5000):
        if not cause.emulated:
            assert cause.off.variant.b_stall_us == cause.on.variant.b_stall_us == 0
        assert cause.on.connections == cause.off.connections
        differing = [
            name for name in vars(APART) if getattr(cause.on.variant, name) != getattr(cause.off.variant, name)
        ]
        assert len(differing) == 1 or differing == ["a_processors", "b_processors"]


def verdict_of(causes: tuple[Cause, ...], rates: list[float]) -> str:
    return str(effects(causes, {causes[0].on: rates, causes[0].off: [100] * len(rates)}).loc[0, "verdict"])


def test_the_second_step_changes_only_as_batches() -> None:
    assert a_batches_grid(APART, [1, 32]) == [APART, replace(APART, a_max_batch=1)]
    rates = {32: 100, 4: 96, 1: 94}
    assert choose_a_batch(pd.DataFrame([row(r, 9, a_max_batch=b) for b, r in rates.items()]))["a_max_batch"] == 4


def test_effects_are_ratios_of_rounds_with_their_interval() -> None:
    """Two rounds, each 20% slower with the cause: 0.8 whatever the machine's speed was."""
    causes = loss_causes(APART, 128, 5000)[:1]
    table = effects(causes, {causes[0].on: [80, 40], causes[0].off: [100, 50]})
    assert table.loc[0, ["effect", "ci95_low", "ci95_high"]].tolist() == pytest.approx([0.8, 0.8, 0.8])
    assert table.loc[0, "verdict"] == "costs throughput here"
    assert verdict_of(causes, [99, 101, 99, 101]) == "no effect seen, 10% at most"
    assert verdict_of(causes, [80, 130, 80, 130]) == "not resolved"
    once = effects(causes, {causes[0].on: [80], causes[0].off: [100]})
    assert once.loc[0, "verdict"] == "one round, no interval"


def test_among_many_causes_one_clear_by_its_own_interval_alone_gets_no_verdict() -> None:
    causes = loss_causes(APART, 128, 5000)
    scattered = itertools.cycle([[103.0, 97.0], [97.0, 103.0]])
    rates = dict(zip(settings_of(causes), scattered, strict=False))
    rates[causes[3].on] = [1.15 * rate for rate in rates[causes[3].on]]
    table = effects(causes, rates)
    assert table.loc[3, "ci95_low"] > 1
    assert table.loc[3, "verdict"] == "not resolved"
    assert effects(causes[3:4], rates).loc[0, "verdict"] == "gains here"


def test_settings_are_measured_once_however_many_causes_need_them() -> None:
    causes = loss_causes(APART, 128, 5000)
    assert len(settings_of(causes)) == len(set(settings_of(causes))) == 9


def test_settings_that_leave_a_as_it_is_follow_each_other() -> None:
    settings = settings_of(loss_causes(APART, 128, 5000))
    loads = [(s.variant.a_processors, s.variant.a_delay_us, s.variant.hop) for s in settings]
    changes = sum(before != after for before, after in itertools.pairwise(loads))
    assert changes == len(set(loads)) - 1


def test_the_stand_in_makes_b_as_slow_beside_a_as_it_was() -> None:
    """6.773 ms beside 3.176 ms: 2.13 times A. A 10 ms, B 1 ms of work: 20.3 ms of wait."""
    assert stall_like_the_issue_us(0.010, 0.001) == pytest.approx(20_325, abs=5)


def write_trace(path: Path) -> None:
    """Two images: one batch in A from 10 to 30 ms, then B one after the other, 5 ms each."""
    entries: list[dict[str, object]] = []

    def request(number: int, model: str, parent: int | None, **moments_ms: int) -> None:
        head = {"id": number, "model_name": model, "model_version": 1}
        entries.append(head if parent is None else {**head, "parent_id": parent})
        for name, moment in moments_ms.items():
            entries.append({"id": number, "timestamps": [{"name": name, "ns": 7_000_000 + moment * 1_000_000}]})

    for image, b_start in ((0, 30), (1, 35)):
        request(10 + image, "sfpn16_pypost16", None, REQUEST_START=image, REQUEST_END=b_start + 5)
        request(20 + image, "sfpn16", 10 + image, QUEUE_START=image, COMPUTE_START=10, COMPUTE_END=30)
        request(30 + image, "pypost16", 10 + image, QUEUE_START=30, COMPUTE_START=b_start, COMPUTE_END=b_start + 5)
    path.write_text(json.dumps(entries))


def test_a_trace_becomes_waits_and_work_of_each_image(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json")
    timeline = read_trace(tmp_path / "trace.json")
    assert timeline["image"].tolist() == [0, 0, 1, 1]
    assert timeline["work_start_ms"].tolist() == [10, 30, 10, 35]
    assert timeline["execution"].tolist() == [0, 0, 0, 1]
    described = describe_timeline(timeline).set_index("member")
    assert described.loc["sfpn16", ["executions", "largest_batch", "wait_mean_ms"]].tolist() == [1, 2, 9.5]
    assert described.loc["pypost16", ["executions", "arrivals_in_5_ms", "wait_max_ms"]].tolist() == [2, 2, 5]


def test_a_trace_of_a_server_that_still_runs_is_read(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json")
    whole = (tmp_path / "trace.json").read_text()
    (tmp_path / "trace.json").write_text(whole.removesuffix("]"))
    assert len(read_trace(tmp_path / "trace.json")) == 4


def test_a_trace_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        read_trace(tmp_path / "absent.json")
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(LoadError, match="no request to sfpn16_pypost16"):
        read_trace(tmp_path / "empty.json")


def test_causes_are_chosen_by_key() -> None:
    causes = loss_causes(APART, 128, 5000)
    assert choose_causes(causes, ["all"]) == causes
    assert [cause.key for cause in choose_causes(causes, ["tensor", "delay"])] == ["delay", "tensor"]
    with pytest.raises(SettingError, match="'gpu'; known are all, processors"):
        choose_causes(causes, ["gpu"])
