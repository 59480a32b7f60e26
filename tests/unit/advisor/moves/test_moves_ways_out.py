# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""The ways out beside other nodes: slices, fewer nodes, hours switched off, one swap a training, other providers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.core.advice_types import Advice, Recommendation
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.moves.kinds.schedule_off import off_hours
from skuwise.advisor.pipeline import AdviseOptions
from skuwise.advisor.render import format_names, render
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.moves_builders import (
    END,
    IB,
    PLAIN,
    START,
    advice_of,
    fabric,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)

ETHERNET = fabric(util_p995=0.9, util_max=1.0, link_layer="Ethernet", line_rate_bytes_per_second=10e9)
OWNED = tuple(Price(sku, sku, "eastus", 60.0, "owned", "books", "2026-10-01") for sku in (IB, PLAIN))


def ways(advice: Advice, action: str) -> list[Recommendation]:
    return [r for r in advice.recommendations if r.action == action]


def tables(name: str = "n1", gpu: int = 0, **changes):
    """A session on one GPU whose kernels fill nothing and whose memory is known."""
    values = {"kind": "interactive", "gpus": gpus_of(name, gpu + 1)[gpu:], "features": {"g": 0.5, "mem_flat": 0.0}}
    return workload(f"nb-{name}-{gpu}", (name,), **{**values, **changes})


def session(w, **changes) -> pd.DataFrame:
    return usage(w, **{"u_c": 0.01, "u_m": 0.02, "g": 0.5, "memory": 0.05, "label": "latency", **changes})


def test_work_that_fills_nothing_gets_a_slice_and_no_dollars_for_part_of_a_node():
    w = tables()
    (way,) = ways(advice_of(verdicts([node(fabric=fabric(util_p995=0.5))], [w], uses=[session(w)])), "mig-slice")
    assert not way.blocked_by
    assert way.risk in {"very-low", "low"}
    assert way.saving_usd_per_month is None
    assert 0 < way.freed_gpu_hours_per_month < 730
    assert way.findings


def halves(**changes):
    return [
        workload(name, (at,), gpus=gpus_of(at, 4), features={"cpu": 0.1, "mem_flat": 1.0} | changes)
        for name, at in (("a", "n1"), ("b", "n2"))
    ]


def packed(services, prices=(), uses=None) -> list[Recommendation]:
    nodes = [node(n, fabric=None) for n in ("n1", "n2")]
    given = verdicts(nodes, services, uses=uses or [usage(w, u_n=0.2, u_m=0.6) for w in services])
    return ways(advice_of(given, prices), "consolidate")


def test_two_half_empty_nodes_become_one_and_a_whole_node_is_cash():
    (way,) = packed(halves())
    assert way.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)
    assert way.realisation == "cash-now"
    assert (way.source.gpu_count, way.target.gpu_count) == (16, 8)


@pytest.mark.parametrize(
    "services",
    [
        [replace(w, gpus=gpus_of(w.nodes[0], 5)) for w in halves()],  # does not fit on one node
        [replace(w, shared=True) for w in halves()],
        [replace(halves()[0], kind=replace(halves()[0].kind, label="batch-inference")), halves()[1]],
        [replace(w, series_id="s-one") for w in halves()],  # replicas that stand apart on purpose
        [replace(w, end=END - 3 * 86400) for w in halves()],
    ],
)
def test_nothing_is_packed_that_may_not_or_does_not_fit(services):
    assert packed(services) == []


def hours(days: int, used: range, *, gaps: frozenset[int] = frozenset()) -> pd.DataFrame:
    """Rows of hours from midnight: the engine works in the hours of the day in `used`."""
    rows = [
        {"ts": START // 86400 * 86400 + (24 * day + hour + 1) * 3600, "seconds": 3600.0,
         "g_max": 0.9 if hour in used else 0.01}
        for day in range(days) for hour in range(24) if hour not in gaps
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_quiet_hours_of_the_day_are_those_that_were_quiet_on_every_day():
    quiet = off_hours(hours(14, range(8, 18)))
    assert (quiet.begin, quiet.end, quiet.length, quiet.days) == (18, 8, 14, 14)
    assert quiet.risk == "low"
    once = hours(14, range(8, 18))
    once.loc[(once["ts"] / 3600 % 24 == 1.0) & (once["ts"] == once["ts"].iloc[0]), "g_max"] = 0.06
    assert off_hours(once).begin != 18 or off_hours(once).end != 8
    assert off_hours(hours(7, range(8, 18))).risk == "medium"


def daily(w) -> pd.DataFrame:
    use = session(w)
    hour = (use["ts"] / 3600 - 1) % 24
    return use.assign(g_max=np.where((hour >= 8) & (hour < 18), 0.9, 0.0))


def test_a_node_of_its_own_is_switched_off_for_cash_and_part_of_one_is_not():
    w = tables(gpus=gpus_of("n1", 8))
    (way,) = ways(advice_of(verdicts([node(fabric=None)], [w], uses=[daily(w)])), "schedule-off")
    assert way.saving_usd_per_month.p50 == pytest.approx(98.32 * 730 * 14 / 24)
    pair = [tables(gpu=0), tables(gpu=1)]
    for way in ways(advice_of(verdicts([node(fabric=None)], pair, uses=[daily(w) for w in pair])), "schedule-off"):
        assert way.saving_usd_per_month is None
        assert way.realisation == "capacity-freed"


def test_a_training_changes_places_once_and_first_of_all_on_owned_nodes():
    chats = [workload(n, (f"{n}1", f"{n}2"), gpus=(*gpus_of(f"{n}1"), *gpus_of(f"{n}2"))) for n in ("x", "y")]
    job = workload(
        "job", ("e1", "e2"), kind="training", node_sku=PLAIN, gpus=(*gpus_of("e1"), *gpus_of("e2")), features={},
        bottleneck=BottleneckVerdict("network", 0.9, {"network": 0.6, "compute": 0.4}),
    )  # fmt: skip
    nodes = [*(node(f"{n}{i}") for n in "xy" for i in (1, 2)), *(node(n, PLAIN, fabric=ETHERNET) for n in ("e1", "e2"))]
    uses = [*(usage(c, u_n=0.2) for c in chats), usage(job, u_c=0.4, u_i=0.5)]
    advice = advice_of(verdicts(nodes, [*chats, job], uses=uses), OWNED)
    open_ = [r for r in ways(advice, "swap-placement") if not r.blocked_by]
    assert len(open_) == 1
    assert advice.recommendations[0] is open_[0]
    rules = {f.id: f.rule for f in advice.findings}
    assert {rules[f] for f in open_[0].findings} == {"idle-fabric", "under-tier"}
    (blocked,) = [r for r in ways(advice, "swap-placement") if r.blocked_by]
    assert "swaps-already" in str(blocked.blocked_by[0].fields["because"])


def test_other_providers_are_shown_apart_and_in_no_sum():
    chat = workload(features={"mem_flat": 1.0, "cpu": 0.01})
    given = verdicts([node()], [chat], uses=[usage(chat, u_n=0.2)])
    without, beside = advice_of(given), advice_of(given, options=AdviseOptions(END, with_market=True))
    assert without.market is None
    assert beside.market
    assert all(not r.target.node_sku.startswith("azure/") for r in beside.market)
    assert all(p in {q.id for q in beside.prices} for r in beside.market for p in r.prices)
    assert beside.recommendations == without.recommendations
    assert beside.summary == without.summary
    for form in format_names():
        assert beside.market[0].target.node_sku.rpartition("/")[2] in render(beside, form)
