# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportArgumentType=false
"""GPUs that nobody uses: free ones, those that are held without use, and those whose telemetry contradicts itself."""

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
KINDS = ("training", "batch-inference", "online-inference", "interactive", "unknown")
AT_REST = {"u_c": 0, "u_m": 0, "g": 0, "label": "idle"}


def test_a_node_that_runs_nothing_is_idle_and_its_fabric_is_not_counted_again():
    advice = advice_of(verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)]))
    assert fired(advice) == ["idle"]
    assert found(advice, "idle").cost_usd == advice.summary.wasted_usd == pytest.approx(98.32 * 336)


def test_a_telemetry_fault_is_told_as_one_and_is_no_waste():
    faulty = [bare("n1", i, telemetry_fault="power is high while every counter is zero") for i in range(8)]
    advice = advice_of(verdicts([node()], [], bare_gpus=faulty))
    assert (fired(advice), found(advice, "telemetry-fault").cost_usd) == (["telemetry-fault"], None)
    assert "idle-not-judged" in {n.code for n in advice.notes}


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
    assert not {n.code for n in advice.notes} & {"too-little-data", "idle-seen-too-short"}


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


@pytest.mark.parametrize(
    ("kind", "works", "hours"),
    [
        # What is left for days is held whatever its kind, and nights are use.
        *((kind, lambda h: h < HOURS - 60, 60) for kind in KINDS),
        *((kind, lambda h: h % 24 < 4, 0) for kind in KINDS),
        # A rest that work followed before may end the same way: 50 h once, and 60 h at the end.
        ("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 60)), 0),
        ("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 90)), 90),
    ],
)
def test_a_rest_at_the_end_is_held_where_it_is_longer_than_those_before(kind, works, hours):
    """`works`: in which hours from the window's start; else it rests with its memory held."""
    w = workload("w", kind=kind)
    used = usage(w, label="compute", g=0.5).assign(g_max=1.0)
    rests = ~works((used["ts"].to_numpy() - START) / 3600 - 1)
    used.loc[rests, ["u_c", "u_m", "c", "m", "g", "g_max"]] = 0.0
    used.loc[rests, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: float(rests.sum())}))
    assert sum(f.gpu_hours for f in advice.findings if f.rule == "held-idle") == pytest.approx(8 * hours)


def test_a_request_now_and_then_is_use_however_little_it_is() -> None:
    w = workload("rare", kind="idle")
    used = usage(w, u_c=0, u_m=0, g=0.0, label="idle")
    asked = (used["ts"] / 3600) % 5 < 1
    used["g_max"] = np.where(asked, 0.9, 0.0)
    used.loc[asked, "g"] = 0.01
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: 8.0 * HOURS}))
    assert "held-idle" not in fired(advice)
