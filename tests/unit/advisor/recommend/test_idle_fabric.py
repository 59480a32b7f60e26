# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Silent fabrics: found, clean, or not judged with the reason and the price at stake (surfaces.md, case 1)."""

import pytest
from skuwise.advisor.core.verdict_types import Alternative, KindVerdict, Phase
from skuwise.tests.support.moves_builders import END, START, advice_of, fabric, found, node, usage, verdicts, workload

PREMIUM = 9.832  # USD a node-hour: azure/Standard_ND96isr_H100_v5 over ND96is in eastus
DAY = 86400.0


def served(confidence: float = 0.99, training: float = 0.0, label: str = "online-inference") -> KindVerdict:
    others = (Alternative("training", training),) if training else ()
    others += (Alternative("online-inference", 1 - training),) if label == "unknown" else ()
    return KindVerdict(label, confidence, (), others)


SURE, UNSURE = served(), served(0.586, 0.4, "unknown")
PHASES = (Phase(START, START + DAY, "training", "compute"), Phase(START + DAY, END, "online-inference", "compute"))


@pytest.mark.parametrize(
    ("kinds", "changes", "seen", "expected", "code"),
    [
        ([SURE], {}, {}, (1, 0, 0), None),
        # One unsure replica does not silence the others of its deployment.
        ([SURE, SURE, SURE, UNSURE], {}, {}, (4, 0, 0), None),
        ([served(0.6, 0.35)] * 2, {}, {}, (0, 0, 2), "may-train"),
        ([served(0.55, 0.4, "unknown")] * 2, {}, {}, (0, 0, 2), "may-train"),
        ([served(0.95, label="training")] * 2, {}, {}, (0, 0, 2), "training-there"),
        ([SURE], {"phases": PHASES}, {}, (0, 0, 1), "may-train"),
        # What a training on two nodes uses in the mean, and the next bin above housekeeping.
        ([SURE], {}, {"util_p995": 0.005, "util_max": 0.005}, (0, 1, 0), None),
        ([SURE], {}, {"util_p995": 0.002, "util_max": 0.0019}, (0, 1, 0), None),
        ([SURE], {}, {"hours": 12.0}, (0, 0, 1), "seen-too-short"),
        ([SURE], {}, {"readable": False, "reason": "port not ACTIVE"}, (0, 0, 1), "counters-unreadable"),
        ([SURE], {}, None, (0, 0, 1), "fabric-not-observed"),
    ],
)
def test_every_node_with_a_fabric_is_found_clean_or_not_judged_with_the_price_at_stake(
    kinds, changes, seen, expected, code
):
    own = [workload("chat", (f"n{i}",), id=f"w-{i}", kind=kind, **changes) for i, kind in enumerate(kinds, 1)]
    nodes = [node(w.nodes[0], fabric=None if seen is None else fabric(**seen)) for w in own]
    advice = advice_of(verdicts(nodes, own, uses=[usage(w, u_c=0.4) for w in own]))
    (told,) = [j for j in advice.judged if j.rule == "idle-fabric"]
    assert (told.found, told.clean, told.not_judged) == expected
    if told.found:
        finding = found(advice, "idle-fabric")
        assert (len(finding.nodes), finding.cost_usd) == (len(own), pytest.approx(len(own) * PREMIUM * 336, rel=1e-3))
    open_ = [n for n in advice.not_judged if n.rule == "idle-fabric"]
    assert [n.reason.code for n in open_] == ([code] if code else [])
    for one in open_:
        assert (one.nodes, one.gpu_count) == (tuple(n.node for n in nodes), 8 * len(own))
        assert one.usd_per_month == pytest.approx(len(own) * PREMIUM * 730, rel=1e-3)
    for note in (n for n in advice.notes if n.code == "fabric-silent-not-judged"):
        assert note.fields["nodes"] == ", ".join(n.node for n in nodes)
        assert "At stake: $" in note.text
    assert ("fabrics-not-observed" in {n.code for n in advice.notes}) == (seen is None)
