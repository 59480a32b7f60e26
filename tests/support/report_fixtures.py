"""Weeks of advice built by hand for reports: as many teams, workloads and names as a test or a benchmark asks for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skuwise.advisor.core.advice_types import (
    Advice,
    Configuration,
    Evidence,
    FabricUse,
    Finding,
    Fleet,
    Interval,
    Recommendation,
    Reconciliation,
    Summary,
)
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import BottleneckVerdict, Coverage, KindVerdict, Owner, WorkloadVerdict
from skuwise.rules.catalog.types import Price

WEEK = 7 * 86400.0
END = 1_794_787_200.0 // WEEK * WEEK + 4 * 86400.0  # a Monday, 00:00 UTC
IB, PLAIN = "azure/Standard_ND96isr_H100_v5", "azure/Standard_ND96is_H100_v5"
# Whose telemetry it is, where a state file is used; no advice of `fleet` has it by itself.
IDENTITY = Fleet(
    "f", False, (), frozenset({"c"}), {"GPU-1": "n"}, frozenset({"n"}), frozenset({"fleet.db"}), "", {}, END - WEEK, END
)  # fmt: skip
KINDS = ("online-inference", "training", "interactive", "batch-inference")


def fleet(
    teams: int = 3, each: int = 4, *, end: float = END, scale: float = 1.0, name: Callable[[str], str] = str
) -> Advice:
    """A week of `teams` namespaces with `each` workloads of 8 GPUs: the first is silent on its fabric, the second is
    held idle, the rest work. `scale`: of the GPU-hours. `name` makes of every outside name what it shall be."""
    hours = 8 * 168 * scale
    prices = tuple(
        Price(f"{sku}@eastus", sku, "eastus", usd, "list", "a survey", "2026-09-19")
        for sku, usd in ((IB, 98.32), (PLAIN, 88.49))
    )
    workloads, findings, moves, fabrics = [], [], [], []
    for t in range(teams):
        team = name(f"team-{t:03}")
        for n in range(each):
            w = _workload(t, n, team, name, end, hours)
            workloads.append(w)
            fabrics.append(FabricUse(w.nodes[0], IB, "InfiniBand", 168.0, 0.4 if n else 0.0, 0.9, 1651.8, False))
            if n > 1:
                continue
            findings.append(_finding(w, ("idle-fabric", "held-idle")[n], hours))
            moves.append(_way(w, findings[-1], ("move-sku", "release")[n]))
    count, cost = 8 * len(workloads), 12.29 * hours * len(workloads)
    waste = sum(f.cost_usd or 0.0 for f in findings)
    gain = sum(r.saving_usd_per_month.p50 for r in moves if r.saving_usd_per_month)
    return Advice(
        generated_at=end + 6 * 3600.0, start=end - WEEK, end=end, source={"kind": "sqlite"},
        summary=Summary(
            count, hours * len(workloads), cost, waste, gain,
            Reconciliation(cost * 0.9, 0.0, cost * 0.1, 0.0, 0.0, 0.0, cost),
            recoverable_interval_usd_per_month=Interval(gain * 0.9, gain, gain * 1.1),
        ),
        prices=prices, workloads=tuple(workloads), findings=tuple(findings), recommendations=tuple(moves),
        notes=(CodedText(
                "counters-unreadable", f"No verdict on the fabric of {name('node-x')}: its counters cannot be read."
            ),),
        nodes=tuple(sorted(w.nodes[0] for w in workloads)), fabrics=tuple(fabrics),
    )  # fmt: skip


def unpriced(advice: Advice) -> Advice:
    """The same where no price is known."""
    nothing = Reconciliation(None, None, None, None, None, None, None)
    return replace(
        advice,
        summary=replace(
            advice.summary, cost_usd=None, wasted_usd=None, recoverable_usd_per_month=None, reconciliation=nothing,
            recoverable_interval_usd_per_month=None,
        ),
        prices=(),
        workloads=tuple(replace(w, cost_usd=None) for w in advice.workloads),
        findings=tuple(replace(f, cost_usd=None, price=None) for f in advice.findings),
        recommendations=tuple(
            replace(r, saving_usd_per_month=None, realisation="capacity-freed", prices=())
            for r in advice.recommendations
        ),
        fabrics=tuple(replace(f, cost_usd=None) for f in advice.fabrics),
    )  # fmt: skip


def nothing(*, end: float = END) -> Advice:
    """A week in which nothing was seen."""
    empty = fleet(0, end=end)
    return replace(empty, summary=unpriced(empty).summary, notes=(), prices=())


def way(saving: float | tuple[float, float, float] | None = None, freed: float = 0.0, **changes: Any) -> Recommendation:
    """A recommendation that saves so many US dollars a month (with or without percentiles), or frees GPU-hours."""
    (base,) = fleet(1, 1).recommendations
    usd = saving if isinstance(saving, tuple) or saving is None else (saving, saving, saving)
    recommendation = replace(
        base, saving_usd_per_month=Interval(*usd) if usd else None, freed_gpu_hours_per_month=freed, shown=None,
        realisation="cash-now" if usd else "capacity-freed",
    )  # fmt: skip
    return replace(recommendation, **changes)


def by_namespace(workload: WorkloadVerdict) -> str | None:
    return workload.owner.namespace


def _workload(t: int, n: int, team: str, name: Callable[[str], str], end: float, hours: float) -> WorkloadVerdict:
    key, called = f"{t}-{n}", name(f"chat-{t}-{n}")
    return WorkloadVerdict(
        id=f"w-{key}", series_id=f"s-{key}", name=called, owner=Owner(namespace=team, user=name("ann")),
        nodes=(name(f"node-{key}"),), gpus=tuple(f"GPU-{key}-{i}" for i in range(8)), gpu_sku="H100-SXM5", node_sku=IB,
        start=end - WEEK, end=end, gpu_hours=hours, cost_usd=12.29 * hours,
        kind=KindVerdict("idle" if n == 1 else KINDS[n % len(KINDS)], 0.95, (CodedText("said", "by its shape"),)),
        bottleneck=BottleneckVerdict("hbm-bandwidth", 0.9, {"hbm-bandwidth": 1.0}), phases=(),
        coverage=Coverage(0.98, 1.0, {"u_c": "Nobody measured what it sustains."} if n == 0 else {}),
    )  # fmt: skip


def _finding(w: WorkloadVerdict, rule: str, hours: float) -> Finding:
    return Finding(
        id=f"f-{w.id}", rule=rule, severity="high", workload=w.id, node=w.nodes[0], gpus=w.gpus, nodes=w.nodes,
        evidence=(Evidence("fabric_util_p995", 0.0005, 0.01, "ratio of line rate"),), gpu_hours=hours,
        cost_usd=1651.8 if rule == "idle-fabric" else 12.29 * hours, price=f"{IB}@eastus", confidence=0.9,
        would_change_if=(CodedText("soon", "Jobs that span nodes will run there soon."),),
        text=f"The service {w.name} ({w.owner.namespace}) runs on {w.nodes[0]} and shows {rule}. That is not cheap.",
    )  # fmt: skip


def _way(w: WorkloadVerdict, f: Finding, action: str) -> Recommendation:
    saving = 7177.0 if action == "move-sku" else 71_773.6
    target = Configuration("H100-SXM5", PLAIN, 8) if action == "move-sku" else Configuration(None, None, 0)
    return Recommendation(
        id=f"r-{w.id}", findings=(f.id,), workload=w.id, action="move-sku" if action == "move-sku" else "release",
        source=Configuration("H100-SXM5", IB, 8), target=target,
        time_ratio=Interval(0.98, 1.0, 1.03) if action == "move-sku" else None,
        saving_usd_per_month=Interval(saving * 0.9, saving, saving * 1.1), freed_gpu_hours_per_month=5840.0,
        realisation="cash-now", risk="very-low", blocked_by=(), rejected=(),
        would_change_if=(CodedText("scarce", "the node is not to be had in the numbers needed"),),
            prices=(f"{PLAIN}@eastus",),
        text=f"{w.name} moves. It saves money every month.",
    )  # fmt: skip
