# pyright: reportArgumentType=false
"""No finding leaves the pipeline beside evidence, a limit or a kind of its own workload that says the opposite."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import BottleneckVerdict, KindVerdict, Phase
from skuwise.tests.support.moves_builders import (
    END,
    IB,
    START,
    advice_of,
    fabric,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.seeds import examples

KINDS = ("training", "fine-tuning", "online-inference", "batch-inference", "interactive", "unknown", "idle")
LIMITS = (
    "compute",
    "hbm-bandwidth",
    "mixed",
    "nvlink",
    "network",
    "pcie",
    "host-input",
    "latency",
    "throttled",
    "idle",
)
# Rule and code of evidence that no reader would believe together.
FORBIDDEN = {
    "idle-nvlink": ("shape-collectives", "shape-links-with-compute", "shape-links-against-compute", "nvlink-use"),
    "idle-fabric": ("shape-fabric-busy", "fabric-use"),
    "too-many-gpus": ("kv-cache-full", "kv-cache-preempted"),
    "over-tier": ("shape-compute-bound", "limited-by-compute"),
    "memory-unused": ("kv-cache-full", "kv-cache-preempted", "shape-memory-pool"),
    "under-tier": ("ports-quiet", "nvlink-quiet", "limited-by-latency"),
}
CODES = sorted({"shape-always-busy", *(code for codes in FORBIDDEN.values() for code in codes)})
# Rule and limit of which a good part of the busy time cannot be told beside it.
FORBIDDEN_LIMITS = {"idle-nvlink": "nvlink", "over-tier": "compute"}
FORBIDDEN_KINDS = {
    "under-tier": ("online-inference", "interactive"), "fix-first": ("online-inference", "interactive"),
    "too-many-gpus": ("training", "fine-tuning"), "idle-fabric": ("training", "fine-tuning"),
}  # fmt: skip
shares = st.floats(0.0, 1.0)


@st.composite
def fleets(draw: st.DrawFn) -> Advice:
    """One workload of one node, its verdicts drawn apart from what it used."""
    count = draw(st.sampled_from([1, 2, 8]))
    label, other = draw(st.sampled_from(LIMITS)), draw(st.sampled_from(LIMITS))
    share = draw(st.sampled_from([0.05, 0.3, 0.6, 0.95]))
    codes = draw(st.lists(st.sampled_from(CODES), max_size=2, unique=True))
    told = tuple(CodedText(code, code) for code in codes)
    kind = draw(st.sampled_from(KINDS))
    phases = (Phase(START, END, draw(st.sampled_from(KINDS)), label),) if draw(st.booleans()) else ()
    features = {
        "mem_flat": draw(st.sampled_from([0.0, 1.0])), "cpu": 0.1, "engine_active": draw(shares),
        "tensor_nvlink_correlation": draw(st.floats(-1.0, 1.0)),
    }  # fmt: skip
    work = workload(
        kind=KindVerdict(kind, 0.9, told), gpus=gpus_of("n1", count), features=features, phases=phases,
        bottleneck=BottleneckVerdict(label, 0.9, {label: share, other: 1 - share} if other != label else {label: 1.0},
                                     told[:1]),
    )  # fmt: skip
    level = st.sampled_from([0.0, 0.002, 0.05, 0.2, 0.7])
    busy = usage(
        work, u_c=draw(level), u_m=draw(level), u_n=draw(st.sampled_from([0.0, 0.0002, 0.003, 0.2, math.nan])),
        u_i=draw(level), u_p=draw(level), g=draw(shares), memory=draw(shares), label=label,
    )  # fmt: skip
    rests = draw(st.sampled_from([0, 10, 40, 200]))
    left = busy["ts"] > END - rests * 3600
    for name in ("u_c", "u_m", "u_n", "c", "m", "n", "g"):
        busy.loc[left, name] = 0.0
    busy.loc[left, "bottleneck"] = "idle"
    ethernet = draw(st.booleans())
    there = node(
        nvlink_util_p995=draw(st.sampled_from([None, 0.0, 0.008, 0.5])),
        fabric=fabric(link_layer="Ethernet") if ethernet else fabric(), sku=None if ethernet else IB,
    )  # fmt: skip
    idle = {work.id: float(rests * count)} if draw(st.booleans()) else {}
    return advice_of(verdicts([there], [work], uses=[busy], idle_hours=idle))


@settings(max_examples=examples(400), deadline=None)
@given(fleets())
def test_no_finding_contradicts_its_own_workload(advice: Advice) -> None:
    (work,) = advice.workloads
    codes = {one.code for one in (*work.kind.evidence, *work.bottleneck.evidence)}
    busy = 1 - work.bottleneck.time_shares.get("idle", 0.0)
    for found in advice.findings:
        assert not codes & set(FORBIDDEN.get(found.rule, ())), found.rule
        assert work.kind.label not in FORBIDDEN_KINDS.get(found.rule, ()), found.rule
        limit = FORBIDDEN_LIMITS.get(found.rule)
        if limit is not None and busy > 0:
            assert work.bottleneck.time_shares.get(limit, 0.0) / busy < 0.1, found.rule
        if found.rule == "held-idle":
            assert found.gpu_hours <= work.gpu_hours + 1e-6


@pytest.mark.parametrize("code", FORBIDDEN["idle-nvlink"])
def test_a_link_that_evidence_speaks_of_is_not_called_silent(code: str) -> None:
    alone = workload(gpus=gpus_of("n1", 1))
    says = replace(alone, kind=replace(alone.kind, evidence=(CodedText(code, "said"),)))
    silent = node(fabric=None, nvlink_util_p995=0.004)
    assert "idle-nvlink" in {f.rule for f in advice_of(verdicts([silent], [alone])).findings}
    advice = advice_of(verdicts([silent], [says]))
    assert "idle-nvlink" not in {f.rule for f in advice.findings}
    (note,) = [n for n in advice.notes if n.code == "finding-contradicted"]
    assert note.fields == {"rule": "idle-nvlink", "workload": alone.id, "evidence": code}


@pytest.mark.parametrize(("days_at_rest", "held"), [(5, True), (1, False)])
def test_no_more_is_said_to_be_held_than_rested(days_at_rest: int, held: bool) -> None:
    """Two accounts of the same hours: allocated and idle for five days, at rest for so many."""
    job = workload(kind=KindVerdict("idle", 0.9), gpus=gpus_of("n1", 1))
    rows = usage(job, g=0.9, label="compute")
    left = rows["ts"] > END - days_at_rest * 86_400
    for name in ("u_c", "u_m", "u_n", "c", "m", "n", "g"):
        rows.loc[left, name] = 0.0
    rows.loc[left, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node()], [job], uses=[rows], idle_hours={job.id: 120.0}))
    assert ("held-idle" in {f.rule for f in advice.findings}) is held
    against = [n.fields["evidence"] for n in advice.notes if n.code == "finding-contradicted"]
    assert against == ([] if held else ["worked-meanwhile"])
