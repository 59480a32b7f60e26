# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false, reportOperatorIssue=false
"""What if: a chosen node, count, slice, clock and price, compared with the recommendation, and what is missing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.advice_types import Recommendation
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.pipeline import fleet_of
from skuwise.advisor.recommend.fleet import baseline_for
from skuwise.advisor.recommend.moves.release import off_hours
from skuwise.advisor.recommend.predict.clock_model import Draw
from skuwise.advisor.recommend.whatif import WhatIfChoice, WhatIfResult, survey, what_if
from skuwise.advisor.show.series.whatif_session import workbench
from skuwise.advisor.show.writers.formats import render
from skuwise.tests.support import moves_builders as made
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.moves_builders import PLAIN, advice_of, founding, gpus_of, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook

H200 = "azure/Standard_ND96isr_H200_v5"
DRAWN = Draw(watts=400.0, peak_watts=420.0, rest_watts=90.0, hours_per_month=5000.0)


def scene_of(given: Verdicts, prices=()):
    """The fleet and the baseline of the largest group of these verdicts."""
    context = fleet_of(given, rulebook(made.catalog(), prices=prices), made.END, 1)
    return context, baseline_for(context, context.groups[0])


def asked(given: Verdicts, node: str | None = None, drawn: Draw | None = None, **choice) -> WhatIfResult:
    return what_if(*scene_of(given), WhatIfChoice(node, **choice), drawn)


def service(gpus: int = 8, **use) -> Verdicts:
    """Replicas of one GPU each on one node, which do not talk to one another."""
    names = gpus_of("n1", gpus)
    features = {"mem_flat": 0.0, "mem_max": 0.05, "cpu": 0.1}
    many = [workload("chat", gpus=(g,), id=f"w-{n}", features=features) for n, g in enumerate(names)]
    return verdicts([node()], many, uses=[usage(w, **{"memory": 0.05, **use}) for w in many])


def test_the_node_of_a_way_out_comes_to_what_the_way_out_says() -> None:
    (recommendation,) = [r for r in advice_of(founding()).recommendations if r.target.node_sku == PLAIN]
    result = asked(founding(), PLAIN)
    assert result.open and result.is_that(recommendation)
    for field in ("saving_usd_per_month", "realisation", "time_ratio", "risk"):
        assert getattr(result, field) == getattr(recommendation, field)
    assert {price.id for price in result.prices} == set(recommendation.prices)
    saved = result.today.usd_per_month - result.then.usd_per_month
    assert saved == pytest.approx(recommendation.saving_usd_per_month.p50)


@pytest.mark.parametrize(("target", "usd"), [(PLAIN, 50.0), (None, 90.0)])
def test_a_price_that_was_typed_is_taken_and_told_as_such(target, usd) -> None:
    result = asked(founding(), target, usd_per_hour=usd)
    assert result.saving_usd_per_month.p50 == pytest.approx(2 * (98.32 - usd) * 730)
    assert ("chosen", "entered here", usd) in [(p.basis, p.source, p.usd_per_hour) for p in result.prices]


LIGHT = {"u_c": 0.02, "u_m": 0.05, "g": 0.3}


@pytest.mark.parametrize(
    ("given", "choice", "blocked", "missing"),
    [
        (founding(), {"node": H200}, set(), {"price-unknown"}),
        (service(u_m=0.2), {"gpus": 4}, set(), set()),
        (service(u_m=0.2), {"gpus": 2}, {"overloaded"}, set()),
        (service(u_m=0.2), {"gpus": 1}, {"overloaded", "below-least-gpus"}, set()),
        (service(**LIGHT), {"profile": "1g.10gb"}, set(), set()),
        (founding(), {"profile": "3g.40gb"}, set(), {"slice-unknown"}),
        (service(**LIGHT), {"profile": "9g.1gb"}, set(), {"slice-unknown"}),
        (service(**LIGHT), {"node": H200, "profile": "1g.10gb"}, set(), {"slice-unknown", "price-unknown"}),
        (founding(), {"clock_share": 0.3, "drawn": DRAWN}, set(), {"no-prediction-at-clock"}),
        (founding(), {"clock_share": 0.9}, set(), {"power-not-measured"}),
        (founding(), {"node": H200, "clock_share": 0.9}, set(), {"clock-of-another-gpu", "price-unknown"}),
    ],
)
def test_what_forbids_a_choice_and_what_is_missing_is_told(given, choice, blocked, missing) -> None:
    result = asked(given, **choice)
    assert [{why.code for why in said} for said in (result.blocked_by, result.missing)] == [blocked, missing]


def test_where_no_price_is_known_nothing_is_claimed() -> None:
    result = asked(founding(), H200)
    assert "no price for azure/Standard_ND96isr_H200_v5 in eastus" in str(result.missing[0])
    assert (result.saving_usd_per_month, result.then.usd_per_month) == (None, None) and result.time_ratio.p50 < 1
    given = founding()
    nowhere = replace(given, nodes=tuple(replace(n, node_sku=None, region=None, provider=None) for n in given.nodes))
    result = asked(nowhere, PLAIN)
    assert result.saving_usd_per_month is None and "todays-price-unknown" in {reason.code for reason in result.missing}


def test_without_a_count_the_demand_sets_it() -> None:
    result = asked(service(u_m=0.2))
    assert (result.then.gpus, result.then.nodes, result.freed_gpu_hours_per_month) == (3, 1, pytest.approx(5 * 730))
    assert result.saving_usd_per_month is None  # no whole node falls free
    sliced = asked(service(**LIGHT), profile="1g.10gb")
    assert sliced.then.gpus == 2 and sliced.time_ratio.p50 > 1


def test_training_on_another_count_changes_its_time_and_its_cost() -> None:
    job = workload("train", kind="training")
    given = verdicts([node()], [job], uses=[usage(job, u_c=0.7, u_m=0.3, u_n=0.2, label="compute")])
    more = asked(given, gpus=16)
    # Parallelism that changes is a guess: it may as well be slower, and the risk says so.
    assert more.time_ratio.p50 < 1 < more.time_ratio.p90 and (more.risk, more.then.nodes) == ("medium", 2)
    assert more.then.usd_per_month == pytest.approx(2 * 98.32 * 730 * more.time_ratio.p50)


def test_a_lower_clock_tells_time_power_and_energy_and_no_dollars_where_power_is_in_the_price() -> None:
    result = asked(founding(), clock_share=0.7, drawn=DRAWN)
    (saves,) = [note for note in result.notes if note.code == "clock-saves"]
    assert result.time_ratio.p50 > 1 and saves.fields["joules_per_month"] > 0
    assert DRAWN.rest_watts < result.then.watts < result.today.watts
    assert "no dollar value" in saves.text and result.saving_usd_per_month is None


def test_a_survey_begins_with_what_is_open_and_saves_most() -> None:
    fleet, base = scene_of(founding())
    results = survey(fleet, base, made.catalog().nodes.values())
    assert len(results) == len(made.catalog().nodes)
    savings = [o.saving_usd_per_month.p50 for o in results if o.open and o.saving_usd_per_month is not None]
    for answer in (savings, [o.open for o in results]):
        assert answer == sorted(answer, reverse=True)
    assert all(o == what_if(fleet, base, o.choice) for o in results[::20])


def test_a_bench_judges_only_the_nodes_of_its_series_and_agrees_with_the_advice() -> None:
    bench = HandLoader().bench(fleet(), "w-serve", lambda _: None)
    assert [n.node for n in bench.base.group.nodes] == ["n1"]
    move = next(r for r in made.ways(fleet().advice, "move-sku") if r.workload == "w-serve" and r.target.node_sku)
    result = bench.ask(WhatIfChoice(move.target.node_sku))
    assert result.is_that(move)
    assert result.saving_usd_per_month.p50 == pytest.approx(move.saving_usd_per_month.p50)
    assert bench.profiles[0] == "1g.10gb"
    held = [o.choice.node.partition("/")[0] for o in bench.targets]
    assert held == sorted(held, key=lambda provider: provider != "azure")
    assert workbench(fleet().frame, fleet().advice.workloads, "nobody", HandLoader().rulebook(), NOW) is None


ETHERNET = made.fabric(util_p995=0.9, util_max=1.0, link_layer="Ethernet", line_rate_bytes_per_second=10e9)


def tables(first: int = 0, last: int = 1):
    """A session on these GPUs whose kernels fill nothing and whose memory is known."""
    features = {"g": 0.5, "mem_flat": 0.0}
    return workload(f"nb-n1-{first}", kind="interactive", gpus=gpus_of("n1")[first:last], features=features)


def session(w) -> pd.DataFrame:
    return usage(w, u_c=0.01, u_m=0.02, g=0.5, memory=0.05, label="latency")


def test_work_that_fills_nothing_gets_a_slice_and_no_dollars_for_part_of_a_node():
    w = tables()
    advice = advice_of(verdicts([node(fabric=made.fabric(util_p995=0.5))], [w], uses=[session(w)]))
    (recommendation,) = made.ways(advice, "mig-slice")
    assert not recommendation.blocked_by and recommendation.findings
    assert (recommendation.risk in {"very-low", "low"}, recommendation.saving_usd_per_month) == (True, None)
    assert 0 < recommendation.freed_gpu_hours_per_month < 730


HALVES = [workload(name, (at,), gpus=gpus_of(at, 4)) for name, at in (("a", "n1"), ("b", "n2"))]


def packed(services) -> list[Recommendation]:
    nodes, uses = [node(n, fabric=None) for n in ("n1", "n2")], [usage(w, u_n=0.2, u_m=0.6) for w in services]
    return made.ways(advice_of(verdicts(nodes, services, uses=uses)), "consolidate")


def test_two_half_empty_nodes_become_one_and_a_whole_node_is_cash():
    (recommendation,) = packed(HALVES)
    assert recommendation.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)
    assert recommendation.realisation == "cash-now"
    assert (recommendation.source.gpu_count, recommendation.target.gpu_count) == (16, 8)


@pytest.mark.parametrize(
    "services",
    [
        [replace(w, gpus=gpus_of(w.nodes[0], 5)) for w in HALVES],  # does not fit on one node
        [replace(w, shared=True) for w in HALVES],
        [replace(HALVES[0], kind=replace(HALVES[0].kind, label="batch-inference")), HALVES[1]],
        [replace(w, series_id="s-one") for w in HALVES],  # replicas that stand apart on purpose
        [replace(w, end=made.END - 3 * 86400) for w in HALVES],
    ],
)
def test_nothing_is_packed_that_may_not_or_does_not_fit(services):
    assert packed(services) == []


def hours(days: int) -> pd.DataFrame:
    """Rows of hours from midnight: the engine works from 08:00 to 18:00."""
    n = np.arange(24 * days)
    works = np.where((n - 8) % 24 < 10, 0.9, 0.01)
    return pd.DataFrame({"ts": made.START // 86400 * 86400 + (n + 1) * 3600, "seconds": 3600.0, "g_max": works})


def test_the_quiet_hours_of_the_day_are_those_that_were_quiet_on_every_day():
    assert off_hours(hours(14)) == (18, 14, 14) and off_hours(hours(7))[2] == 7
    once = hours(14)
    once.loc[0, "g_max"] = 0.06
    assert off_hours(once)[1] < 14


def test_a_node_of_its_own_is_switched_off_for_cash_and_part_of_one_is_not():
    def off(*work):
        uses = [use.assign(g_max=np.where((use["ts"] / 3600 - 9) % 24 < 10, 0.9, 0.0)) for use in map(session, work)]
        return made.ways(advice_of(verdicts([node(fabric=None)], work, uses=uses)), "schedule-off")

    (recommendation,) = off(tables(0, 8))
    assert recommendation.saving_usd_per_month.p50 == pytest.approx(98.32 * 730 * 14 / 24)
    for recommendation in off(tables(0, 1), tables(1, 2)):
        assert (recommendation.saving_usd_per_month, recommendation.realisation) == (None, "capacity-freed")


def test_a_training_changes_places_once_and_first_of_all_on_owned_nodes():
    chats = [workload(n, (f"{n}1", f"{n}2")) for n in "xy"]
    starved = BottleneckVerdict("network", 0.9, {"network": 0.6, "compute": 0.4})
    job = workload("job", ("e1", "e2"), kind="training", node_sku=PLAIN, features={}, bottleneck=starved)
    nodes = [*(node(n) for c in chats for n in c.nodes), *(node(n, PLAIN, fabric=ETHERNET) for n in job.nodes)]
    uses = [*(usage(c, u_n=0.2) for c in chats), usage(job, u_c=0.4, u_i=0.5)]
    prices = [made.price_of(sku, 60.0, "owned") for sku in (made.IB, PLAIN)]
    advice = advice_of(verdicts(nodes, [*chats, job], uses=uses), prices)
    first, blocked = sorted(made.ways(advice, "swap-placement"), key=lambda r: bool(r.blocked_by))
    assert not first.blocked_by and advice.recommendations[0] is first
    assert {f.rule for f in advice.findings if f.id in first.findings} == {"idle-fabric", "under-tier"}
    assert "swaps-already" in str(blocked.blocked_by[0].fields["because"])


def test_other_providers_are_shown_apart_and_in_no_sum():
    chat = workload(features={"mem_flat": 1.0, "cpu": 0.01})
    given = verdicts([node()], [chat], uses=[usage(chat, u_n=0.2)])
    without, beside = advice_of(given), advice_of(given, with_market=True)
    assert without.market is None and beside.market
    assert (beside.recommendations, beside.summary) == (without.recommendations, without.summary)
    counted = {q.id for q in beside.prices}
    assert all(not r.target.node_sku.startswith("azure/") and counted.issuperset(r.prices) for r in beside.market)
    assert all(
        beside.market[0].target.node_sku.rpartition("/")[2] in render(beside, form) for form in ("table", "json")
    )
