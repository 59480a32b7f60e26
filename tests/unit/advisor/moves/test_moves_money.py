# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.moves.base.prediction import percentiles
from skuwise.advisor.moves.base.pricing import PriceBook, cash_of, fabric_premium, reconcile, with_costs
from skuwise.advisor.moves.context.move_context import DrawnRecommendation
from skuwise.advisor.moves.recommender import recoverable_cash
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.moves_builders import (
    END,
    IB,
    PLAIN,
    advice_of,
    bare,
    catalog,
    founding,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)

HOUR = catalog().price(IB, "eastus").usd_per_hour
PLAIN_HOUR = catalog().price(PLAIN, "eastus").usd_per_hour


def own(sku=IB, usd=50.0, basis="negotiated", until=None, region="eastus"):
    return Price(f"{sku}@{region}:{basis}", sku, region, usd, basis, "contract 1", "2026-10-01", until)


def parts(r):
    return r.workloads + r.shared + r.allocated_idle + r.unallocated + r.drained + r.unobserved


def test_the_parts_sum_to_node_price_times_hours():
    chat, job = workload("chat", ("n1",)), workload("job", ("n2",), kind="training", gpus=gpus_of("n2", 4))
    both = workload("both", ("n3",), shared=True)
    given = verdicts([node("n1"), node("n2", PLAIN), node("n3")], [chat, job, both], idle_hours={"w-job": 100.0})
    r, notes = reconcile(given, PriceBook(catalog()))
    assert r.total == pytest.approx(336 * (2 * HOUR + PLAIN_HOUR))
    assert parts(r) == pytest.approx(r.total, rel=1e-3)
    assert r.shared == pytest.approx(336 * HOUR)
    assert r.allocated_idle == pytest.approx(100 * PLAIN_HOUR / 8)
    assert notes == ()
    costs = {w.name: w.cost_usd for w in with_costs(given, PriceBook(catalog()))}
    assert costs["both"] == pytest.approx(336 * HOUR)


def test_the_premium_comes_from_a_pair_else_from_a_prior_that_is_labelled():
    book = PriceBook(catalog())
    paired = fabric_premium(book, node())
    assert not paired.assumed
    assert paired.usd_per_hour == pytest.approx(HOUR - PLAIN_HOUR)
    lone = "azure/Standard_ND96isr_H200_v5"
    assumed = fabric_premium(book, node("h", lone, region="eastus2"))
    assert assumed.assumed
    assert assumed.share == pytest.approx(0.105 / 1.105)


@pytest.mark.parametrize(
    ("basis", "until", "nodes", "expected"),
    [
        ("list", None, 1, ("cash-now", None)),
        ("list", None, 0, None),
        ("owned", None, 2, None),
        ("committed", "2099-01-01", 2, ("cash-at", "2099-01-01")),
        ("committed", "2020-01-01", 2, ("cash-now", None)),
        ("reserved", None, 2, None),
    ],
)
def test_cash_only_where_whole_nodes_fall_free_and_nothing_binds(basis, until, nodes, expected):
    cash = cash_of(own(basis=basis, until=until), nodes, END)
    assert (cash and (cash.realisation, cash.date)) == expected


def test_no_dollars_for_part_of_a_node():
    idle = workload("held", ("n1",), kind="idle", gpus=gpus_of("n1", 4))
    busy = workload("chat", ("n1",), gpus=gpus_of("n1")[4:])
    given = verdicts([node()], [idle, busy], uses=[usage(idle, u_c=0, u_m=0, g=0, label="idle"), usage(busy)],
                     idle_hours={"w-held": 4 * 336.0})  # fmt: skip
    advice = advice_of(given)
    released = next(r for r in advice.recommendations if r.action == "release")
    assert released.realisation == "capacity-freed"
    assert released.saving_usd_per_month is None
    assert released.freed_gpu_hours_per_month == 4 * 730
    assert advice.summary.recoverable_usd_per_month == 0.0


def test_a_commitment_is_cash_at_its_end_and_not_recoverable_now():
    given = verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)])
    advice = advice_of(given, (own(basis="committed", until="2099-01-01"),))
    released = next(r for r in advice.recommendations if r.action == "release")
    assert (released.realisation, released.available_from) == ("cash-at", "2099-01-01")
    assert "2099-01-01" in released.text
    assert advice.summary.recoverable_usd_per_month == 0.0


def test_moves_that_exclude_one_another_count_once():
    draws = np.random.default_rng(0).normal(100, 10, 500)
    advice = advice_of(founding())
    template = next(r for r in advice.recommendations if r.saving_usd_per_month is not None)

    def option(name, values, key):
        r = replace(template, id=name, saving_usd_per_month=percentiles(values), blocked_by=(), realisation="cash-now")
        return DrawnRecommendation(r, values, key)

    rivals = [option("a", draws, "place:x"), option("b", draws + 50, "place:x")]
    best, _ = recoverable_cash(rivals)
    assert best == pytest.approx(np.median(draws + 50))
    both, spread = recoverable_cash([*rivals, option("c", -draws + 300, "count:x")])
    assert both == pytest.approx(350)
    # Joint draws: what one loses the other gains, so the sum has no spread; adding percentiles would show one.
    assert spread.p90 - spread.p10 == pytest.approx(0, abs=1e-6)


def test_the_fleet_sum_is_the_best_of_each_group():
    advice = advice_of(founding())
    counted = [
        r.saving_usd_per_month.p50
        for r in advice.recommendations
        if r.realisation == "cash-now" and not r.blocked_by and r.saving_usd_per_month
    ]
    assert advice.summary.recoverable_usd_per_month == pytest.approx(max(counted))
    twin = next(r for r in advice.recommendations if r.target.node_sku == PLAIN)
    swap = next(r for r in advice.recommendations if r.action == "swap-placement")
    assert swap.id in twin.excludes
    assert twin.id in swap.excludes
