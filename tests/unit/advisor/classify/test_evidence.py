"""The gate of evidence: each thing that a claim needs, its absence, and the words for it."""

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.advice_types import Advice, Recommendation, Unobserved
from skuwise.advisor.plan.inputs import why_held
from skuwise.tests.support.moves_builders import END, advice_of, bare, fabric, founding, node, usage, verdicts, workload


def idle_node(**changes: object) -> Verdicts:
    return verdicts([node("spare", fabric=None)], bare_gpus=[bare("spare", i, **changes) for i in range(8)])


def release_of(given: Verdicts) -> Recommendation:
    (recommendation,) = [r for r in advice_of(given).recommendations if r.action == "release"]
    return recommendation


def changed(given: Verdicts, name: str, **changes: object) -> Verdicts:
    nodes = dict(given.inventory.nodes)
    nodes[name] = replace(nodes[name], **changes)  # type: ignore[arg-type]
    return replace(given, inventory=replace(given.inventory, nodes=nodes))


def with_gpus(given: Verdicts, name: str, change: dict[str, object], *, only: int | None = None) -> Verdicts:
    gpus = [
        replace(gpu, **change) if only is None or n == only else gpu  # type: ignore[arg-type]
        for n, gpu in enumerate(given.inventory.nodes[name].gpus)
    ]
    return changed(given, name, gpus=tuple(gpus))


def refused(r: Recommendation) -> bool:
    return r.saving_usd_per_month is None and r.freed_gpu_hours_per_month == 0.0 and r.risk == "high"


def test_a_node_of_which_every_gpu_was_observed_and_idle_is_given_back() -> None:
    recommendation = release_of(idle_node())
    assert (recommendation.realisation, recommendation.blocked_by, recommendation.risk) == ("cash-now", (), "very-low")
    assert recommendation.saving_usd_per_month is not None


def test_gpus_that_nobody_observed_keep_their_node() -> None:
    dark = Unobserved("spare", tuple(f"unnamed-{n}" for n in range(6)), "No series names them.", "not-named")
    given = idle_node()
    two = given.inventory.nodes["spare"].gpus[:2]
    given = replace(given, bare=given.bare[:2])
    advice = advice_of(changed(given, "spare", gpus=two, unobserved=(dark,)))
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
        *((with_gpus(idle_node(), "spare", change, only=only), said) for change, said in NEEDS for only in (None, 3)),
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
    given = verdicts([node("spare", fabric=None)], bare_gpus=[bare("spare", i) for i in range(gpus)])
    given = changed(given, "spare", unaccounted_pods=("research/train-0", "research/train-1"))
    recommendation = release_of(given)
    assert refused(recommendation) and "research/train-0" in recommendation.blocked_by[0].text
    assert recommendation.blocked_by[0].code == "pods-not-named"
    held = why_held(given, given.nodes[0], 30.0)
    assert held is not None and held.code == "plan-pods-not-named"


def test_below_one_percent_the_claim_stands_and_names_the_gap() -> None:
    recommendation = release_of(with_gpus(idle_node(), "spare", {"hours": 334.0}))
    assert not recommendation.blocked_by and "0.6 % of the window has no data." in recommendation.text


def demanding(**measured: float) -> Advice:
    """A service on four nodes that needs half of them, by what was measured of it."""
    pods = [workload("api", (n,), id=f"w-api-{n}") for n in ("n1", "n2", "n3", "n4")]
    nodes = [node(w.nodes[0], fabric=fabric(util_p995=0.5)) for w in pods]
    values = {"u_c": 0.05, "u_m": 0.15, "u_n": 0.1, "g": 0.9, **measured}
    u_c, u_m = values["u_c"], values["u_m"]
    uses = [usage(w, u_c=u_c, u_m=u_m, u_n=values["u_n"], g=values["g"]) for w in pods]
    given = verdicts(nodes, pods, uses=uses)
    for node_facts in nodes:
        lacking = [name for name, key in (("dram_active", "u_m"), ("tensor_active", "u_c")) if np.isnan(values[key])]
        measured = {
            k: v for k, v in given.inventory.nodes[node_facts.node].gpus[0].measured.items() if k not in lacking
        }
        given = with_gpus(given, node_facts.node, {"measured": measured})
    return advice_of(given)


def test_the_service_whose_bandwidth_is_missing_keeps_its_gpus() -> None:
    advice, blind = demanding(), demanding(u_m=float("nan"))
    assert [r.counts for r in advice.recommendations if r.action == "reduce-gpus"] == [True]
    for kept in (r for r in blind.recommendations if r.action == "reduce-gpus"):
        assert not kept.counts and any("memory bandwidth" in why.text for why in kept.blocked_by)
    assert blind.summary.recoverable_usd_per_month == 0.0


def test_a_service_leaves_no_fabric_that_was_not_observed() -> None:
    given = founding()
    blind = replace(given, nodes=tuple(replace(n, fabric=None) for n in given.nodes))
    advice = advice_of(blind)
    assert not [r for r in advice.recommendations if r.counts]
    assert any(note.code == "fabrics-not-observed" for note in advice.notes)


def test_a_fabric_that_was_observed_for_a_part_of_the_window_is_not_called_silent_for_all_of_it() -> None:
    given = founding()
    part = replace(given, nodes=tuple(replace(n, fabric=fabric(hours=300.0)) for n in given.nodes))
    moved = [r for r in advice_of(part).recommendations if r.action == "move-sku"]
    assert moved and all(r.blocked_by and not r.counts for r in moved)
