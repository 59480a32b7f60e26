# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Silent fabrics: found, clean, or not judged with the reason and the price at stake (surfaces.md, case 1)."""

from dataclasses import replace

import pytest
from skuwise.advisor.core.verdict_types import Alternative, KindVerdict, Phase
from skuwise.tests.support.moves_builders import advice_of, fabric, fired, found, node, usage, verdicts, workload

PREMIUM = 9.832  # USD a node-hour: azure/Standard_ND96isr_H100_v5 over ND96is in eastus


def replicas(*kinds: KindVerdict):
    return [workload("chat", (f"n{i}",), id=f"w-{i}", kind=kind) for i, kind in enumerate(kinds, 1)]


def served(confidence: float, training: float = 0.0, label: str = "online-inference") -> KindVerdict:
    others = (Alternative("training", training),) if training else ()
    others += (Alternative("online-inference", 1 - training),) if label == "unknown" else ()
    return KindVerdict(label, confidence, (), others)


def judged(own, **silent):
    nodes = [node(w.nodes[0], fabric=fabric(**silent)) for w in own]
    return advice_of(verdicts(nodes, own, uses=[usage(w, u_c=0.4) for w in own]))


def counts(advice) -> tuple[int, int, int]:
    (one,) = [j for j in advice.judged if j.rule == "idle-fabric"]
    return one.found, one.clean, one.not_judged


def test_one_unsure_replica_does_not_silence_the_others_of_its_deployment():
    own = replicas(served(0.99), served(0.99), served(0.99), served(0.586, 0.4, "unknown"))
    finding = found(judged(own), "idle-fabric")
    assert finding.nodes == ("n1", "n2", "n3", "n4")
    assert finding.cost_usd == pytest.approx(4 * PREMIUM * 336, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (served(0.6, 0.35), "may-train"),
        (served(0.55, 0.4, "unknown"), "may-train"),
        (served(0.95, label="training"), "training-there"),
    ],
)
def test_a_silent_fabric_under_what_may_train_is_not_judged_with_the_price_at_stake(kind, code):
    advice = judged(replicas(kind, kind))
    (one,) = [n for n in advice.not_judged if n.rule == "idle-fabric"]
    assert "idle-fabric" not in fired(advice) and counts(advice) == (0, 0, 2)
    assert (one.reason.code, one.nodes, one.gpu_count) == (code, ("n1", "n2"), 16)
    assert one.usd_per_month == pytest.approx(2 * PREMIUM * 730, rel=1e-3)
    (note,) = [n for n in advice.notes if n.code == "fabric-silent-not-judged"]
    assert note.fields["nodes"] == "n1, n2" and "$14,3" in note.text


@pytest.mark.parametrize(
    ("silent", "expected", "code"),
    [
        ({}, (1, 0, 0), None),
        # What a training on two nodes uses in the mean, and the next bin above housekeeping.
        ({"util_p995": 0.005, "util_max": 0.005}, (0, 1, 0), None),
        ({"util_p995": 0.002, "util_max": 0.0019}, (0, 1, 0), None),
        ({"hours": 12.0}, (0, 0, 1), "seen-too-short"),
        ({"readable": False, "reason": "port not ACTIVE"}, (0, 0, 1), "counters-unreadable"),
    ],
)
def test_every_node_with_a_fabric_is_found_clean_or_not_judged(silent, expected, code):
    advice = judged(replicas(served(0.99)), **silent)
    assert counts(advice) == expected
    assert [n.reason.code for n in advice.not_judged if n.rule == "idle-fabric"] == ([code] if code else [])


def test_a_fabric_of_which_no_port_is_seen_is_not_judged():
    own = replicas(served(0.99))
    advice = advice_of(verdicts([node("n1", fabric=None)], own, uses=[usage(w) for w in own]))
    assert counts(advice) == (0, 0, 1)
    assert "fabrics-not-observed" in {n.code for n in advice.notes}


def test_training_in_a_phase_leaves_the_fabric_open():
    (one,) = replicas(served(0.99))
    day = 86400.0
    phases = (
        Phase(one.start, one.start + day, "training", "compute"),
        Phase(one.start + day, one.end, "online-inference", "hbm-bandwidth"),
    )
    assert counts(judged([replace(one, phases=phases)])) == (0, 0, 1)
