# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportArgumentType=false
"""GPUs that nobody uses: free ones, those that are held without use, and those whose telemetry contradicts itself."""

from collections.abc import Callable

import numpy as np
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import FREE, HOUR, FrameBuilder
from skuwise.tests.support.frame_builder import START as H_START
from skuwise.tests.support.moves_builders import (
    END,
    START,
    advice_of,
    bare,
    fired,
    found,
    gpus_of,
    node,
    usage,
    verdicts,
    ways,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook

HOURS = round((END - START) / 3600)
At = Callable[[np.ndarray], np.ndarray]
AT_REST = {"u_c": 0, "u_m": 0, "g": 0, "label": "idle"}


def codes(advice) -> set[str]:
    return {n.code for n in advice.notes}


def test_a_node_that_runs_nothing_is_idle_and_its_fabric_is_not_counted_again():
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    assert fired(advice) == ["idle"]
    told = found(advice, "idle")
    assert told.workload is None
    assert told.cost_usd == pytest.approx(98.32 * 336)
    assert advice.summary.wasted_usd == pytest.approx(told.cost_usd)


def test_a_telemetry_fault_is_told_as_one_and_is_no_waste():
    faulty = [bare("n1", i, telemetry_fault="power is high while every counter is zero") for i in range(8)]
    advice = advice_of(verdicts([node()], [], bare_gpus=faulty))
    assert (fired(advice), found(advice, "telemetry-fault").cost_usd) == (["telemetry-fault"], None)
    assert "idle-not-judged" in codes(advice)
    held = workload("held", kind="idle", features={"fault_share": 0.4})
    advice = advice_of(verdicts([node()], [held], idle_hours={"w-held": 8 * 336.0}))
    assert (fired(advice), advice.summary.wasted_usd) == (["telemetry-fault"], 0)
    assert "signals-contradict" in codes(advice)


def test_what_never_worked_is_held_idle_and_released_whole():
    held = workload("held", kind="idle")
    given = verdicts([node(fabric=None)], [held], uses=[usage(held, **AT_REST)], idle_hours={"w-held": 8 * 336.0})
    advice = advice_of(given)
    assert found(advice, "held-idle").gpu_hours == pytest.approx(8 * 336)
    (released,) = ways(advice, "release")
    assert released.realisation == "cash-now"
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


@pytest.mark.parametrize(
    ("life", "renamed", "released"),
    [(36, False, ["node-3"]), (20, False, []), (144, False, ["node-0"]), (36, True, ["node-3"]), (20, True, [])],
)
def test_a_pool_whose_nodes_are_replaced_is_judged_as_one_node_that_stays(life, renamed, released):
    """One node after another, all of them idle: the floor of 30 h is the pool's, a release needs it of its node.
    `renamed`: it is one machine with other names."""
    b = FrameBuilder(hours=144)
    for n, begin in enumerate(range(0, 144, life)):
        uuids = b.node(f"node-{n}", gpus=8, first_seen=H_START + begin * HOUR)
        if renamed:
            uuids = [f"GPU-node-0-{gpu}" for gpu in range(8)]
            for gpu, uuid in zip(b.gpus[-8:], uuids, strict=True):
                gpu["gpu_uuid"] = uuid
        end = min(begin + life, 144)
        b.nodes[-1]["last_seen"] = H_START + end * HOUR
        for uuid in uuids:
            b.use(FREE, f"node-{n}", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(load_catalog())))
    summary = advice.summary
    assert (summary.gpu_count, summary.judged_gpu_count, summary.gpu_hours) == (8, 8, pytest.approx(144 * 8))
    assert summary.cost_usd > 0
    assert summary.wasted_usd == pytest.approx(summary.cost_usd)
    assert [r.yardstick.nodes[0] for r in advice.recommendations if not r.blocked_by] == released
    assert not codes(advice) & {"too-little-data", "idle-seen-too-short"}


@pytest.mark.parametrize("idle", ["a", "z"])
def test_an_idle_replica_is_released_without_those_that_serve(idle):
    """Whichever of the replicas names the series."""
    pods = [
        workload("api", (f"n{n}",), id=f"w-{name}", kind="idle" if name == idle else "online-inference")
        for n, name in enumerate("amz")
    ]
    uses = [usage(w, **(AT_REST if w.id == f"w-{idle}" else {})) for w in pods]
    nodes = [node(w.nodes[0], fabric=None) for w in pods]
    advice = advice_of(verdicts(nodes, pods, uses=uses, idle_hours={f"w-{idle}": 8 * 336.0}))
    where = next(w.nodes[0] for w in pods if w.id == f"w-{idle}")
    told = found(advice, "held-idle")
    assert (told.node, told.gpus, told.gpu_hours) == (where, gpus_of(where), pytest.approx(8 * 336))
    (released,) = ways(advice, "release")
    assert (released.source.gpu_count, released.yardstick.nodes) == (8, (where,))
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


def held(kind: str, works: At) -> float:
    """GPU-hours held without use by what works in the hours (from the window's start) for which `works` holds, and else
    rests with its memory held."""
    w = workload("w", kind=kind)
    used = usage(w, label="compute", g=0.5).assign(g_max=1.0)
    rests = ~works((used["ts"].to_numpy() - START) / 3600 - 1)
    used.loc[rests, ["u_c", "u_m", "c", "m", "g", "g_max"]] = 0.0
    used.loc[rests, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: float(rests.sum())}))
    return sum(f.gpu_hours for f in advice.findings if f.rule == "held-idle")


@pytest.mark.parametrize("kind", ["training", "batch-inference", "online-inference", "interactive", "unknown"])
def test_what_is_left_for_days_is_held_whatever_its_kind_and_nights_are_use(kind: str) -> None:
    assert held(kind, lambda hour: hour < HOURS - 60) == pytest.approx(8 * 60)
    assert held(kind, lambda hour: hour % 24 < 4) == 0


def test_a_rest_that_work_followed_before_may_end_the_same_way() -> None:
    # 50 h without work once, and 60 h at the end: the same weekend and a morning.
    assert held("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 60))) == 0
    assert held("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 90))) == pytest.approx(8 * 90)


def test_a_request_now_and_then_is_use_however_little_it_is() -> None:
    w = workload("rare", kind="idle")
    used = usage(w, u_c=0, u_m=0, g=0.0, label="idle")
    asked = (used["ts"] / 3600) % 5 < 1
    used["g_max"] = np.where(asked, 0.9, 0.0)
    used.loc[asked, "g"] = 0.01
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: 8.0 * HOURS}))
    assert "held-idle" not in fired(advice)
