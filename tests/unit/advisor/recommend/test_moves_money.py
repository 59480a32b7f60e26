# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportOperatorIssue=false
"""Dollars of moves: prices, cash, what excludes what, what contradicts; and the evidence that each claim needs."""

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.types import MigInstance, Verdicts
from skuwise.advisor.core.advice_types import Advice, Recommendation, Unobserved
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import KindVerdict
from skuwise.advisor.plan.inputs import why_held
from skuwise.advisor.recommend.predict.mig_model import fits, pack
from skuwise.advisor.recommend.prediction import percentiles
from skuwise.advisor.recommend.pricing import PriceBook, fabric_premium, price_notes, reconcile, with_costs
from skuwise.advisor.recommend.recommender import best_together, recoverable_cash, without_losers
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support import moves_builders as made
from skuwise.tests.support.moves_builders import END, IB, PLAIN, advice_of, gpus_of, node, usage, verdicts, workload

CATALOG = load_catalog()
HOUR, PLAIN_HOUR = (CATALOG.price(sku, "eastus").usd_per_hour for sku in (IB, PLAIN))


def test_the_parts_sum_to_node_price_times_hours():
    chat, job = workload("chat", ("n1",)), workload("job", ("n2",), kind="training", gpus=gpus_of("n2", 4))
    both = workload("both", ("n3",), shared=True)
    given = verdicts([node("n1"), node("n2", PLAIN), node("n3")], [chat, job, both], idle_hours={"w-job": 100.0})
    r, notes = reconcile(given, PriceBook(CATALOG)), price_notes(given.nodes, PriceBook(CATALOG))
    assert r.total == pytest.approx(336 * (2 * HOUR + PLAIN_HOUR))
    parts = r.workloads + r.shared + r.allocated_idle + r.unallocated + r.drained + r.unobserved
    assert parts == pytest.approx(r.total, rel=1e-3)
    assert (r.shared, r.allocated_idle) == pytest.approx((336 * HOUR, 100 * PLAIN_HOUR / 8))
    assert notes == () and with_costs(given, PriceBook(CATALOG))[-1].cost_usd == pytest.approx(336 * HOUR)


def test_the_premium_comes_from_a_pair_else_from_a_prior_that_is_labelled():
    nodes = node(), node("h", "azure/Standard_ND96isr_H200_v5", region="eastus2")
    paired, assumed = (fabric_premium(PriceBook(CATALOG), n) for n in nodes)
    assert (paired.assumed, paired.usd_per_hour) == (False, pytest.approx(HOUR - PLAIN_HOUR))
    assert (assumed.assumed, assumed.share) == (True, pytest.approx(0.105 / 1.105))


HELD = workload("held", ("n1",), kind="idle", gpus=gpus_of("n1", 4))
BUSY = workload("chat", ("n1",), gpus=gpus_of("n1")[4:])
HALF = verdicts([node()], [HELD, BUSY], uses=[usage(HELD, u_c=0, u_m=0, g=0, label="idle"), usage(BUSY)],
                idle_hours={"w-held": 4 * 336.0})  # fmt: skip
FREE = verdicts([node()], [], bare_gpus=[made.bare("n1", i) for i in range(8)])


@pytest.mark.parametrize(
    ("given", "prices", "realisation", "usd"),
    [
        (HALF, [], "capacity-freed", None),
        (FREE, [made.price_of(basis="list")], "cash-now", 50.0),
        (FREE, [made.price_of(basis="reserved")], "capacity-freed", None),
        (FREE, [made.price_of(basis="committed", until="2099-01-01")], "cash-at", 50.0),
        (FREE, [made.price_of(basis="committed", until="2026-09-15")], "cash-now", 50.0),  # within the window
        # Two prices of one node: the lower one, so that no saving rests on the higher.
        (FREE, [made.price_of(usd=50.0), replace(made.price_of(usd=40.0), id="other")], "cash-now", 40.0),
        (FREE, [made.price_of(usd=50.0), made.price_of(usd=40.0, basis="owned")], "capacity-freed", None),
    ],
)
def test_what_is_released_is_cash_where_whole_nodes_fall_free_and_nothing_binds_them(given, prices, realisation, usd):
    advice = advice_of(given, prices)
    (released,) = made.ways(advice, "release")
    saving = released.saving_usd_per_month
    assert (released.realisation, saving and saving.p50) == (realisation, usd and pytest.approx(usd * 730))
    assert released.available_from == ("2099-01-01" if realisation == "cash-at" else None)
    assert released.freed_gpu_hours_per_month == len(released.findings) * (4 if given is HALF else 8) * 730
    recoverable = usd * 730 if realisation == "cash-now" else 0.0
    assert advice.summary.recoverable_usd_per_month == pytest.approx(recoverable)


def test_a_fleet_of_one_gpu():
    node_facts = node(sku=None, gpu_count=1)
    free = advice_of(verdicts([node_facts], [], bare_gpus=[made.bare("n1")]))
    (released,) = made.ways(free, "release")
    figures = released.source.gpu_count, released.saving_usd_per_month, released.freed_gpu_hours_per_month
    assert figures == (1, None, 730)
    chat = workload(gpus=gpus_of("n1", 1), node_sku=None)
    busy = advice_of(verdicts([node_facts], [chat], uses=[usage(chat)]))
    assert not [r for r in busy.recommendations if not r.blocked_by and r.saving_usd_per_month]
    assert busy.summary.gpu_count == 1


TEMPLATE = next(r for r in advice_of(made.founding()).recommendations if r.saving_usd_per_month is not None)


def option(name, values, *claims):
    values = np.broadcast_to(np.asarray(values, dtype=float), (500,))
    return replace(TEMPLATE, id=name, saving_usd_per_month=percentiles(values), draws=values, claims=claims,
                   blocked_by=(), realisation="cash-now")  # fmt: skip


def test_moves_that_exclude_one_another_count_once():
    draws = np.random.default_rng(0).normal(100, 10, 500)
    rivals = [option("a", draws, "place:x"), option("b", draws + 50, "place:x")]
    best, _ = recoverable_cash(rivals)
    assert best == pytest.approx(np.median(draws + 50))
    both, spread = recoverable_cash([*rivals, option("c", -draws + 300, "count:x")])
    assert both == pytest.approx(350)
    # Joint draws: what one loses the other gains, so the sum has no spread; adding percentiles would show one.
    assert spread.p90 - spread.p10 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("usd", "best"),
    [
        ([10, 10, 10], "a"),
        ([10, 10, 10, 10], "ac"),
        ([30, 20, 30, 20, 30], "ac"),  # a and e exclude each other too
        ([50, 60, 50, 60, 1], "bd"),
        ([100, 60, 1, 60], "bd"),  # not the largest first
        ([10] * 24, "acegikmoqsuw"),
        ([10] * 30, "acegikmoqsuwy{}"),  # beyond what is compared: the first names first
    ],
)
def test_recommendations_that_exclude_each_other_in_a_ring(usd, best):
    names = [chr(97 + n) for n in range(len(usd))]
    ring = [option(n, usd[i], f"k{i}", f"k{(i + 1) % len(usd)}") for i, n in enumerate(names)]
    chosen = best_together(reversed(ring))
    claims = [key for r in chosen for key in r.claims]
    assert len(claims) == len(set(claims))
    assert "".join(sorted(r.id for r in chosen)) == best


def test_an_option_that_may_as_well_lose_lowers_no_sum_of_medians_and_what_surely_saves_stays() -> None:
    rng = np.random.default_rng(1)
    skewed = 10_000.0 - 3000.0 * rng.exponential(1.0, 4000)
    gamble = rng.normal(10.0, 2000.0, 4000)
    assert np.median(gamble) > -100 and np.median(skewed + gamble) < np.median(skewed)
    (left,) = without_losers([skewed, gamble])
    assert left is skewed
    assert len(without_losers([rng.uniform(100.0, 300.0, 4000) for _ in range(5)])) == 5 and without_losers([]) == []


SLICES = {
    "1g.10gb": (1, 1), "1g.20gb": (1, 2), "2g.20gb": (2, 2), "3g.40gb": (3, 4), "4g.40gb": (4, 4), "7g.80gb": (7, 8),
}  # fmt: skip


@pytest.mark.parametrize(
    ("profiles", "possible"),
    [
        (["1g.10gb"] * 7, True), (["1g.10gb"] * 8, False), (["3g.40gb"] * 2, True), (["3g.40gb"] * 3, False),
        (["4g.40gb", "3g.40gb"], True), (["4g.40gb", "4g.40gb"], False), (["3g.40gb", "2g.20gb", "1g.10gb"], True),
        (["3g.40gb", "3g.40gb", "1g.10gb"], False), (["2g.20gb"] * 3 + ["1g.10gb"], True), (["7g.80gb"], True),
        (["2g.20gb"] * 4, False), (["1g.20gb"] * 4, True), (["1g.20gb"] * 3 + ["2g.20gb"], True),
    ],
)  # fmt: skip
def test_a_gpu_holds_what_nvidias_placements_allow(profiles: list[str], possible: bool) -> None:
    assert fits([SLICES[profile] for profile in profiles]) is possible


def test_the_emptiest_gpu_is_emptied_onto_the_others() -> None:
    mig_instances = [
        MigInstance("n", f"{gpu}/{number}", gpu, profile, *SLICES[profile], tuple(held))
        for gpu, number, profile, held in (
            ("a", 1, "3g.40gb", "w"), ("a", 2, "1g.10gb", "w"), ("b", 1, "1g.10gb", "w"), ("b", 2, "3g.40gb", ""),
        )
    ]  # fmt: skip
    kept, freed, moved = pack(mig_instances)
    assert (kept, freed, [entry.gpu_uuid for entry in moved]) == (["a"], ["b"], ["b/1"])


@pytest.mark.parametrize("code", ["shape-collectives", "nvlink-use"])
def test_a_link_that_evidence_speaks_of_is_not_called_silent(code: str) -> None:
    alone = workload(gpus=gpus_of("n1", 1))
    says = replace(alone, kind=replace(alone.kind, evidence=(CodedText(code, "said"),)))
    quiet, advice = (advice_of(verdicts([node(fabric=None, nvlink_util_p995=0.004)], [w])) for w in (alone, says))
    assert [("idle-nvlink" in made.fired(given)) for given in (quiet, advice)] == [True, False]
    (case,) = [case for case in advice.not_judged if case.reason.code == "finding-contradicted"]
    assert (case.rule, case.workloads, case.reason.fields) == ("idle-nvlink", (alone.id,), {"evidence": code})


@pytest.mark.parametrize(("days_at_rest", "held"), [(5, True), (1, False)])
def test_no_more_is_said_to_be_held_than_rested(days_at_rest: int, held: bool) -> None:
    """Two accounts of the same hours: allocated and idle for five days, at rest for so many."""
    job = workload(kind=KindVerdict("idle", 0.9), gpus=gpus_of("n1", 1))
    rows = usage(job, g=0.9, label="compute")
    left = rows["ts"] > END - days_at_rest * 86_400
    rows.loc[left, ["u_c", "u_m", "u_n", "c", "m", "n", "g"]] = 0.0
    rows.loc[left, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node()], [job], uses=[rows], idle_hours={job.id: 120.0}))
    assert ("held-idle" in made.fired(advice)) is held
    against = [n.reason.fields["evidence"] for n in advice.not_judged if n.reason.code == "finding-contradicted"]
    assert against == ([] if held else ["worked-meanwhile"])


def idle_node(gpus: int = 8, **changes: object) -> Verdicts:
    return verdicts([node("spare", fabric=None)], bare_gpus=[made.bare("spare", i, **changes) for i in range(gpus)])


def release_of(given: Verdicts) -> Recommendation:
    (recommendation,) = [r for r in advice_of(given).recommendations if r.action == "release"]
    return recommendation


def changed(given: Verdicts, **changes: object) -> Verdicts:
    """With these facts of every node in the inventory."""
    nodes = {name: replace(n, **changes) for name, n in given.inventory.nodes.items()}
    return replace(given, inventory=replace(given.inventory, nodes=nodes))


def with_gpus(given: Verdicts, change: dict[str, object], only: slice = slice(None)) -> Verdicts:
    """With these facts of GPUs of the only node."""
    gpus = list(next(iter(given.inventory.nodes.values())).gpus)
    gpus[only] = [replace(gpu, **change) for gpu in gpus[only]]
    return changed(given, gpus=tuple(gpus))


def refused(r: Recommendation) -> bool:
    return r.saving_usd_per_month is None and r.freed_gpu_hours_per_month == 0.0 and r.risk == "high"


def test_a_node_of_which_every_gpu_was_observed_and_idle_is_given_back() -> None:
    r = release_of(idle_node())
    assert (r.realisation, r.blocked_by, r.risk) == ("cash-now", (), "very-low") and r.saving_usd_per_month is not None


def test_gpus_that_nobody_observed_keep_their_node() -> None:
    dark = Unobserved("spare", tuple(f"unnamed-{n}" for n in range(6)), "No series names them.", "not-named")
    given = idle_node(2)
    advice = advice_of(changed(given, gpus=given.inventory.nodes["spare"].gpus[:2], unobserved=(dark,)))
    assert not [r for r in advice.recommendations if r.counts] and advice.summary.recoverable_usd_per_month == 0.0


NEEDS = [
    ({"measured": dict.fromkeys(("engine_active", "mem_used"), 336.0)}, "no power data"),
    ({"measured": dict.fromkeys(("mem_used", "power"), 336.0)}, "no engine activity data"),
    ({"hours": 325.0}, "has data for 325 of 336 h"),
    ({"last_ts": END - 5 * 3600}, "no data for spare after"),
]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *((with_gpus(idle_node(), change, slice(*only)), said) for change, said in NEEDS for only in ((8,), (3, 4))),
        (idle_node(busy_hours=12.0), "worked without a workload label"),
        (idle_node(held_hours=300.0), "memory of 8 GPUs"),
    ],
)
def test_what_a_release_needs_of_each_gpu(given: Verdicts, said: str) -> None:
    recommendation = release_of(given)
    assert refused(recommendation) and "$" not in recommendation.text and said in recommendation.text
    assert any(said in why.text for why in recommendation.blocked_by), recommendation.blocked_by


@pytest.mark.parametrize("gpus", [8, 4])  # a node to return, GPUs for other work
def test_pods_that_requested_gpus_keep_their_node_and_are_named(gpus: int) -> None:
    given = changed(idle_node(gpus), unaccounted_pods=("research/train-0", "research/train-1"))
    recommendation = release_of(given)
    assert refused(recommendation) and "research/train-0" in recommendation.blocked_by[0].text
    assert recommendation.blocked_by[0].code == "pods-not-named"
    held = why_held(given, given.nodes[0], 30.0)
    assert held is not None and held.code == "plan-pods-not-named"


def test_below_one_percent_the_claim_stands_and_names_the_gap() -> None:
    recommendation = release_of(with_gpus(idle_node(), {"hours": 334.0}))
    assert not recommendation.blocked_by and "0.6 % of the window has no data." in recommendation.text


def demanding(bandwidth: float) -> Advice:
    """A service on four nodes that needs half of them, by what was measured of it."""
    pods = [workload("api", (n,), id=f"w-api-{n}") for n in ("n1", "n2", "n3", "n4")]
    nodes = [node(w.nodes[0], fabric=made.fabric(util_p995=0.5)) for w in pods]
    given = verdicts(nodes, pods, uses=[usage(w, u_c=0.05, u_m=bandwidth, u_n=0.1, g=0.9) for w in pods])
    for gpu in (gpu for n in given.inventory.nodes.values() for gpu in n.gpus):
        if np.isnan(bandwidth):
            gpu.measured.pop("dram_active", None)  # type: ignore[attr-defined]
    return advice_of(given)


def test_the_service_whose_bandwidth_is_missing_keeps_its_gpus() -> None:
    advice, blind = demanding(0.15), demanding(float("nan"))
    assert [r.counts for r in advice.recommendations if r.action == "reduce-gpus"] == [True]
    for kept in (r for r in blind.recommendations if r.action == "reduce-gpus"):
        assert not kept.counts and any("memory bandwidth" in why.text for why in kept.blocked_by)
    assert blind.summary.recoverable_usd_per_month == 0.0


@pytest.mark.parametrize("fabric", [None, made.fabric(hours=300.0)])
def test_a_service_leaves_no_fabric_that_was_not_observed_or_for_a_part_of_the_window_alone(fabric) -> None:
    given = made.founding()
    advice = advice_of(replace(given, nodes=tuple(replace(n, fabric=fabric) for n in given.nodes)))
    assert not [r for r in advice.recommendations if r.counts]
    moved = made.ways(advice, "move-sku")
    assert moved and all(r.blocked_by for r in moved)
    assert ("fabric-not-observed" in {case.reason.code for case in advice.not_judged}) == (fabric is None)
