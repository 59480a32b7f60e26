# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
"""The ratio of a trial, against queues with a known answer (tests/support/replica_queue.py)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.core.work_hours import WorkHour
from skuwise.advisor.ledger.trials.outcome import trial_verdict
from skuwise.advisor.ledger.trials.ratio import Compared, Means, NotCompared, basis_so_far, compare
from skuwise.advisor.ledger.trials.sides import HOUR, paired
from skuwise.tests.support.replica_queue import (
    ONE_BY_ONE,
    Balancer,
    Engine,
    canary,
    evenly,
    least_requests,
    replica,
    replicas,
)

ENGINE = Engine(answer=600.0)
PLAIN = Means()
ALL = ("busy", "watts", "tokens", "requests", "running")


def run(
    slow: float, share: float | None, told=ALL, *, seed: int = 1, hours: int = 24, engine: Engine = ENGINE, gpus=1.0
):
    """The hours of one replica; `share`: of a full batch's throughput at the peak, None: a backlog."""
    peak = engine.most * share if share is not None else 0.0
    own = replica(replace(engine, slow=slow), peak, hours, np.random.default_rng(seed), backlog=share is None)
    return tuple(
        WorkHour((n + 1) * HOUR, HOUR, gpus, **{name: one[name] for name in told}) for n, one in enumerate(own)
    )


def found(slow: float, share: float | None, told=ALL, means=PLAIN, **how) -> Compared | NotCompared:
    rest = [run(1.0, share, told, seed=seed, **how) for seed in (2, 3)]
    return compare(paired([run(slow, share, told, **how)], rest, 0.0), means, np.random.default_rng(7))


@pytest.mark.parametrize("slow", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("share", [0.1, 0.5, None])
def test_tokens_and_requests_in_flight_tell_the_ratio_at_every_load(slow: float, share: float | None) -> None:
    told = found(slow, share)
    assert told.basis == "tokens-at-equal-concurrency"
    assert told.ratio.p50 == pytest.approx(slow, rel=0.04)
    assert told.ratio.p10 < slow < told.ratio.p90
    assert told.ratio.p90 / told.ratio.p10 < 1.15


def test_a_slower_replica_has_more_in_flight_than_it_is_slower() -> None:
    """What a plain ratio of waiting times would make of it."""
    there, here = run(1.3, 0.7), run(1.0, 0.7, seed=2)
    plain = sum(one.running for one in there) / sum(one.running for one in here)
    assert plain > 1.37
    assert found(1.3, 0.7).ratio.p50 == pytest.approx(1.3, rel=0.04)


@pytest.mark.parametrize("slow", [0.7, 1.0, 1.4])
def test_each_basis_takes_over_where_the_one_before_it_is_not_told(slow: float) -> None:
    bases = {
        ("busy", "tokens"): "tokens-per-busy-second",
        ("requests", "running"): "requests-at-equal-concurrency",
        ("busy", "requests"): "requests-per-busy-second",
    }
    for told, basis in bases.items():
        one = found(slow, 0.1, told)
        assert one.basis == basis
        assert one.ratio.p10 < slow < one.ratio.p90
        assert one.ratio.p50 == pytest.approx(slow, rel=0.12)


def test_engines_that_work_one_by_one_are_told_by_their_busy_time() -> None:
    one = found(1.3, 0.4, ("busy", "requests"), engine=ONE_BY_ONE)
    assert one.basis == "requests-per-busy-second"
    assert one.ratio.p10 < 1.3 < one.ratio.p90


def behind(balancer: Balancer, slow: float, told, means=PLAIN, *, share: float = 0.4) -> Compared | NotCompared:
    """Three replicas on the source and one that takes `slow` times as long, behind one balancer."""
    fleet = replicas(
        [replace(ENGINE, slow=slow), ENGINE, ENGINE, ENGINE],
        4 * ENGINE.most * share,
        24,
        np.random.default_rng(3),
        balancer,
    )
    there, *rest = [
        [WorkHour((n + 1) * HOUR, HOUR, 1.0, **{name: one[name] for name in told}) for n, one in enumerate(own)]
        for own in fleet
    ]
    return compare(paired([there], rest, 0.0), means, np.random.default_rng(7))


@pytest.mark.parametrize("balancer", [evenly, least_requests, canary])
@pytest.mark.parametrize("slow", [0.7, 1.4])
def test_the_ratio_is_the_same_however_requests_are_split(balancer: Balancer, slow: float) -> None:
    """A balancer to the fewest requests in flight makes them equal, and a canary has a tenth."""
    for told in (("tokens", "running"), ("requests", "running")):
        one = behind(balancer, slow, told)
        assert one.ratio.p50 == pytest.approx(slow, rel=0.08)
        assert trial_verdict(one.ratio, Interval(0.93, 1.0, 1.08)) == ("worse" if slow > 1 else "better")


@pytest.mark.parametrize("balancer", [evenly, least_requests, canary])
@pytest.mark.parametrize("told", [("running",), ("busy",), ("busy", "watts")])
def test_nothing_is_compared_where_nothing_tells_the_split(balancer: Balancer, told) -> None:
    means = Means(rest_watts=ENGINE.rest_watts)
    assert behind(balancer, 1.4, told, means, share=0.1) == NotCompared("trial-split-unknown")


@pytest.mark.parametrize("balancer", [evenly, least_requests, canary])
@pytest.mark.parametrize("slow", [0.6, 1.0, 1.6])
def test_energy_and_requests_in_flight_are_never_wrong_about_the_same_gpu(balancer: Balancer, slow: float) -> None:
    one = behind(balancer, slow, ("busy", "watts", "running"), Means(rest_watts=ENGINE.rest_watts))
    assert one.basis == "energy-per-busy-second"
    verdict = trial_verdict(one.ratio, Interval(0.9, 1.0, 1.12))
    assert verdict in {None, "worse" if slow > 1 else "better" if slow < 1 else "as predicted"}
    assert one.ratio.p10 < slow < one.ratio.p90


def test_rates_of_busy_engines_are_no_proof_of_speed() -> None:
    """A batch with room takes more, so a rate is what the balancer sends, equal or not."""
    told = ("busy", "tokens")
    for share in (0.5, None):
        there, here = (
            [replace(one, busy=0.99) for one in run(slow, share, told, seed=s)] for slow, s in ((1.3, 1), (1.0, 2))
        )
        one = compare(paired([there], [here], 0.0), Means(), np.random.default_rng(7))
        assert one == NotCompared("trial-saturated")


def test_power_tells_the_time_of_saturated_engines_on_the_same_gpu_alone() -> None:
    told = ("busy", "watts", "running")
    one = found(1.3, None, told, Means(rest_watts=ENGINE.rest_watts))
    assert one.basis == "energy-per-busy-second"
    assert one.ratio.p10 < 1.3 < one.ratio.p90
    assert one.ratio.p90 / one.ratio.p10 > 1.25  # wide: it is inferred
    assert found(1.3, None, told) == NotCompared("trial-split-unknown")
    assert found(1.3, None, told, Means(shared=True)) == NotCompared("trial-gpus-shared")


def test_what_is_not_told_is_said() -> None:
    assert found(1.0, 0.1, ()) == NotCompared("trial-nothing-told")
    assert found(1.0, 0.1, ("tokens",)) == NotCompared("trial-load-unknown")


def test_gpus_are_counted_not_replicas() -> None:
    """The same speed on twice the GPUs is twice the GPU time."""
    for told in (ALL, ("busy", "tokens"), ("busy", "requests")):
        rest = [run(1.0, 0.1, told, seed=seed) for seed in (2, 3)]
        twice = compare(paired([run(1.0, 0.1, told, gpus=2.0)], rest, 0.0), Means(), np.random.default_rng(7))
        assert twice.ratio.p50 == pytest.approx(2.0, rel=0.1)


# ---- hours: the same on both sides, and no others


def test_only_hours_of_both_sides_count_and_none_from_before_the_trial() -> None:
    there, here = run(1.0, 0.1), run(1.0, 0.1, seed=2)
    both = paired([there[6:]], [here[:20]], 10 * HOUR)
    assert both.ends[0] == 11 * HOUR  # begun within the eleventh hour or later
    assert both.hours == pytest.approx(10.0)


def test_a_load_that_differs_between_days_does_not_become_a_ratio() -> None:
    """The rest's quiet days before the trial would make the replica look slow (whole runs were compared once)."""
    quiet = [replace(one, end=one.end - 240 * HOUR) for one in run(1.0, 0.02, seed=5, hours=24)]
    there, here = run(1.0, 0.1), [*quiet, *run(1.0, 0.1, seed=2)]
    whole = [sum(one.busy for one in side) / len(side) for side in (there, here)]
    assert whole[0] / whole[1] > 1.3
    one = compare(paired([there], [here], 0.0), Means(), np.random.default_rng(7))
    assert one.ratio.p50 == pytest.approx(1.0, rel=0.06)


def test_a_restarted_replica_a_scaled_rest_and_gaps_leave_the_ratio_as_it_is() -> None:
    there = run(1.3, 0.3, hours=48)
    parts = [there[:20], there[22:]]  # two hours without it
    rest = [run(1.0, 0.3, seed=seed, hours=48) for seed in (2, 3, 4)]
    rest = [rest[0], rest[1][:30], [one for n, one in enumerate(rest[2]) if n % 5]]
    both = paired(parts, rest, 0.0)
    assert both.hours == 46
    one = compare(both, Means(), np.random.default_rng(7))
    assert one.ratio.p50 == pytest.approx(1.3, rel=0.04)


def test_an_hour_in_which_the_replica_came_does_not_count() -> None:
    there = list(run(1.0, 0.3))
    there[0] = replace(there[0], seconds=1800.0, tokens=0.0)
    assert paired([there], [run(1.0, 0.3, seed=2)], 0.0).hours == 23


def test_a_replica_that_lived_for_a_part_of_an_hour_does_not_count_in_it() -> None:
    """What its counters grew by may be of more than the part that was observed."""
    there, rest = run(1.0, 0.3), [list(run(1.0, 0.3, seed=seed)) for seed in (2, 3)]
    for n, one in enumerate(rest[1]):
        rest[1][n] = replace(one, seconds=1200.0, requests=1.0) if n % 2 else one
    both = paired([there], rest, 0.0)
    assert both.here.replicas.tolist() == [2.0, 1.0] * 12
    assert both.here.requests[1] == rest[0][1].requests
    halves = [[replace(one, seconds=1750.0) for one in there]] * 2
    assert paired(halves, rest, 0.0).hours == 0  # two that came in an hour are not one that was there


def test_hours_of_a_server_with_coarser_rows_are_as_long_as_its_rows() -> None:
    there, here = (
        [replace(one, end=one.end * 4, seconds=s * HOUR, length_seconds=4 * HOUR) for one in run(1.0, 0.3, seed=seed)]
        for seed, s in ((1, 3.9), (2, 4.0))
    )
    assert paired([there], [here], 0.0).hours == 96
    assert paired([there], [here], HOUR).hours == 92


def test_missing_and_impossible_measures_are_left_out() -> None:
    there = [
        replace(one, tokens=(None, math.nan, -5.0)[n % 3] if n < 6 else one.tokens)
        for n, one in enumerate(run(1.3, 0.3))
    ]
    both = paired([there], [run(1.0, 0.3, seed=2)], 0.0)
    assert np.isnan(both.there.tokens[:6]).all()
    one = compare(both, Means(), np.random.default_rng(7))
    assert (one.basis, one.hours) == ("tokens-at-equal-concurrency", 18)
    assert one.ratio.p50 == pytest.approx(1.3, rel=0.06)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))] * 5), min_size=26,
                max_size=30), st.floats(0, 500))  # fmt: skip
def test_whatever_is_measured_gives_a_ratio_in_order_or_a_reason(values, rest_watts) -> None:
    hours = [WorkHour((n + 1) * HOUR, HOUR, 1.0, *one) for n, one in enumerate(values)]
    both = paired([hours], [hours[::-1], hours], 0.0)
    one = compare(both, Means(rest_watts=rest_watts), np.random.default_rng(7))
    basis_so_far(both, Means())
    assert isinstance(one, NotCompared) or 0 < one.ratio.p10 <= one.ratio.p50 <= one.ratio.p90


def test_the_same_hours_and_seed_give_the_same_interval() -> None:
    assert found(1.1, 0.3) == found(1.1, 0.3)


# ---- the verdict


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ((0.97, 1.0, 1.03), "as predicted"), ((0.87, 0.95, 1.17), "as predicted"), ((1.2, 1.3, 1.4), "worse"),
        ((0.7, 0.75, 0.8), "better"), ((1.0, 1.1, 1.25), None), ((0.7, 1.0, 1.4), None),
        ((1.12, 1.15, 1.2), "as predicted"), ((1.16, 1.19, 1.22), None),
    ],
)  # fmt: skip
def test_a_verdict_needs_an_interval_on_one_side_of_the_limits(measured, verdict) -> None:
    assert trial_verdict(Interval(*measured), Interval(0.9, 1.0, 1.12)) == verdict
