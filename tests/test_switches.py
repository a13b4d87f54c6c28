from __future__ import annotations

import itertools
import re
from dataclasses import fields

import pytest

from workbook.errors import SettingError
from workbook.measuring.comparison.protocol import Protocol
from workbook.measuring.comparison.switches import Plan, make_plan


def plan(**changes: object) -> Plan:
    options = {"on_gpu": False, "precision": "fp32", "pad_to": 128, "streams": 2, "in_flight": 3, "batch_size": 32}
    return make_plan(**{**options, **changes})


def differing(a: Protocol, b: Protocol) -> set[str]:
    return {f.name for f in fields(Protocol) if getattr(a, f.name) != getattr(b, f.name)}


def test_the_fair_state_differs_in_the_server_alone():
    fair = plan().fair_state
    assert differing(fair.batch, fair.online) == {"side", "way"}


def test_the_tuned_state_differs_in_the_server_and_what_keeps_it_busy():
    tuned = plan().tuned_state
    assert differing(tuned.batch, tuned.online) == {"side", "way", "in_flight"}
    assert (tuned.batch.streams, tuned.online.in_flight, tuned.batch.cut) == (2, 3, "tokens")


def test_every_order_leads_from_the_same_start_to_the_same_ends():
    whole = plan()
    for order in whole.orders():
        kept = [step for step in order if not step.switch.detour]
        assert kept[0].before == whole.article
        assert kept[len(whole.fair) - 1].after == whole.fair_state
        assert kept[-1].after == whole.tuned_state
        assert all(a.after == b.before for a, b in itertools.pairwise(kept))


def test_a_detour_is_measured_and_not_built_on():
    order = plan().orders()[0]
    detour = next(step for step in order if step.switch.name == "shared memory")
    following = order[order.index(detour) + 1]
    assert detour.after.online.way == "shared memory"
    assert following.before == detour.before


def test_switches_that_change_nothing_here_are_left_out():
    assert [s.name for s in plan(pad_to=0).fair] == ["clock", "outputs", "pooling", "engine"]
    assert [s.name for s in plan(precision="bf16").fair][:3] == ["clock", "precision", "padding"]


def test_on_a_gpu_the_engine_stays_and_is_named():
    here = plan(on_gpu=True, precision="bf16", shared_memory=False)
    names = [switch.name for switch in (*here.fair, *here.tuning)]
    assert names == ["clock", "precision", "padding", "outputs", "pooling", "single rows", "sorting", "in flight"]
    assert differing(here.fair_state.batch, here.fair_state.online) == {"side", "way", "engine"}
    assert "engine stays different" in here.note
    assert plan().note == ""


def test_arms_have_files_of_their_own_and_survive_json():
    arms = plan(precision="bf16").arms()
    assert len({arm.key for arm in arms}) == len(arms)
    assert all(re.fullmatch(r"[a-z0-9-]+", arm.key) for arm in arms)
    assert [Protocol.from_json(arm.as_json()) for arm in arms] == list(arms)


@pytest.mark.parametrize(
    "changes", [{"side": "both"}, {"way": "in-process"}, {"in_flight": 0}, {"pad_to": -1}, {"cut": "random"}]
)
def test_impossible_arms_are_refused(changes):
    with pytest.raises(SettingError):
        Protocol(**{"side": "online", "engine": "onnxruntime", **changes})
