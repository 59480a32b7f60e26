"""No move breaks a service's latency class unseen: figures of each kind of move against its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Action, Configuration, Interval, Recommendation
from skuwise.advisor.core.verdict_types import Latency, LatencyFigures
from skuwise.advisor.moves.base.workload_groups import groups_of
from skuwise.advisor.moves.context.fleet_context import SAME_SPEED, recommend
from skuwise.advisor.moves.context.latency_gate import held_to_class
from skuwise.advisor.moves.context.move_context import Baseline, MoveContext, baseline_for
from skuwise.advisor.pipeline import move_context_of
from skuwise.rules.policy.latency_classes import load_latency_classes
from skuwise.tests.support.moves_builders import END, advice_of, catalog, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook

CLASSES = load_latency_classes().classes
DECODE = {"power_watts": 400.0, "power_over_idle": 4.0, "tensor_of_sustained_p95": 0.1, "mem_flat": 1.0, "cpu": 0.1}
SLOWER = Interval(1.0, 1.05, 1.1)


def latency(label: str | None = "interactive", first: float | None = 0.06, token: float | None = 0.03) -> Latency:
    """Measured at p90; the 99th percentile is twice that."""
    told = (None if p90 is None else LatencyFigures(5000.0, p90 / 2, p90, p90, 2 * p90) for p90 in (first, token))
    return Latency(label, "measured", dict(CLASSES[label].limits) if label else {}, *told, busy_hours=8.0)


def weighed(told: Latency | None, *, kind: str = "online-inference", u_m: float = 0.3) -> tuple[MoveContext, Baseline]:
    """A service of two replicas of 8 GPUs each at this load, as the moves see it."""
    nodes = [node("n1"), node("n2")]
    works = [workload("chat", (n.node,), id=f"w-{n.node}", kind=kind, latency=told, features=DECODE) for n in nodes]
    given = verdicts(nodes, works, uses=[usage(w, u_m=u_m, u_c=0.05) for w in works])
    scene = move_context_of(given.window, rulebook(catalog()), END, np.random.default_rng(1))
    return baseline_for(scene, groups_of(given)[0])


def proposed(action: Action, time: Interval | None, gpus: int = 16, **parts: Any) -> Recommendation:
    one = Configuration("H100-SXM5", None, 16)
    return recommend(
        action, "s-chat", text="Do it.", source=one, target=Configuration("H100-SXM5", None, gpus), risk="low",
        exclusive="place:s-chat", would_change_if=(), time_ratio=time, **parts,
    ).recommendation  # fmt: skip


def held(action: Action, time: Interval | None, told: Latency | None, gpus: int = 16, **parts: Any) -> Recommendation:
    return held_to_class(proposed(action, time, gpus, **parts), weighed(told)[1])


@pytest.mark.parametrize("action", ["lower-clock", "power-cap", "mig-slice", "move-sku"])
def test_a_move_that_breaks_a_limit_is_blocked_with_both_figures(action: Action) -> None:
    way = held(action, SLOWER, latency(token=0.047))
    (why,) = way.blocked_by
    assert why.code == "latency-class-broken"
    assert why.fields["predicted_seconds"] == pytest.approx(0.047 * 1.1)
    assert (why.fields["limit_seconds"], why.fields["class"]) == (0.05, "interactive")
    assert why.fields["measure"] == "output_token"
    assert "52 ms" in why.text and "50 ms" in why.text and "47 ms now" in why.text
    assert why.text in way.text
    assert way.risk == "low"


def test_the_outer_limit_is_held_at_the_99th_percentile() -> None:
    (why,) = held("lower-clock", SLOWER, latency("waited-for", first=0.95)).blocked_by
    assert (why.fields["percentile"], why.fields["limit_seconds"]) == (0.99, 2.0)
    assert why.fields["predicted_seconds"] == pytest.approx(2 * 0.95 * 1.1)


@pytest.mark.parametrize("told", [None, latency(None, 9.0), latency("batch", 9.0, 9.0)])
def test_where_nobody_waits_or_no_class_is_kept_nothing_is_held_against_a_move(told: Latency | None) -> None:
    before = proposed("lower-clock", SLOWER)
    assert held("lower-clock", SLOWER, told) == before


def test_what_is_broken_today_is_broken_by_what_slows_it_and_by_nothing_else() -> None:
    late = latency(token=0.06)
    assert held("lower-clock", SLOWER, late).blocked_by
    assert held("move-sku", Interval(0.5, 0.6, 0.9), late).blocked_by == ()
    assert held("move-sku", Interval(0.8, 0.95, 1.3), late).blocked_by == ()


@pytest.mark.parametrize("told", [latency(first=None, token=None), latency(token=None), latency("waited-for", None)])
def test_where_it_cannot_be_predicted_the_risk_is_a_step_higher_and_what_to_measure_is_said(told: Latency) -> None:
    way = held("lower-clock", SLOWER, told)
    assert (way.blocked_by, way.risk) == ((), "medium")
    assert "histogram" in way.text
    assert way.would_change_if[-1].code == "latency-not-measured"
    faster = Interval(0.5, 0.6, 0.9)
    assert held("move-sku", faster, told) == proposed("move-sku", faster)


def test_fewer_gpus_make_requests_wait() -> None:
    _, base = weighed(latency())
    assert base.demand == pytest.approx(0.3, rel=0.05)
    way = held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 8), base)
    (why, *_) = way.blocked_by
    # Twice the load on each: 0.7 / 0.4 of the time.
    assert why.fields["queue_factor"] == pytest.approx(1.75, rel=0.1)
    assert why.fields["time_ratio"] == 1.0
    roomy = held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 8), weighed(latency(first=0.03, token=0.02))[1])
    assert roomy.blocked_by == () and "is met" in roomy.text
    assert held_to_class(proposed("reduce-gpus", SAME_SPEED.interval, 4), base).blocked_by[0].code == (
        "latency-without-end"
    )


def test_advice_blocks_the_lower_clock_of_a_chat_service_that_has_no_room() -> None:
    tight = workload(features=DECODE, latency=latency(first=0.06, token=0.0499))
    given = verdicts([node()], [tight], uses=[usage(tight, u_m=0.85, u_c=0.05, g=0.95)])
    (way,) = [r for r in advice_of(given).recommendations if r.action == "lower-clock"]
    assert [why.fields["measure"] for why in way.blocked_by] == ["output_token"]
    assert way.counts is False
    roomy = workload(features=DECODE, latency=latency(first=0.03, token=0.02))
    given = verdicts([node()], [roomy], uses=[usage(roomy, u_m=0.85, u_c=0.05, g=0.95)])
    (way,) = [r for r in advice_of(given).recommendations if r.action == "lower-clock"]
    assert way.blocked_by == ()
