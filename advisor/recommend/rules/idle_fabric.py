"""The founding waste: an expensive fabric under work that never speaks over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....rules.base.templates import fill
from ....rules.catalog.fabric_premium import Premium
from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.types import FabricFacts, NodeFacts, Verdicts
from ...core.advice_types import Evidence, Finding
from ...core.coded_text import CodedText, coded
from ...core.formatting import dated, usd
from ...core.frame import Window
from ...core.ids import stable_id
from ...core.timestamps import day, span
from ...core.verdict_types import WorkloadVerdict
from ..finding_context import (
    FindingContext,
    clamped_confidence,
    listed,
    node_words,
    sampling_confidence,
    series_label,
    when_possible,
)
from ..groups import HOURS_PER_MONTH, Group
from ..pricing import FABRIC_REMEDY, PriceBook, fabric_premium, fabric_unobserved, lacks_fabric
from ..rule_context import (
    ReferenceLine,
    RuleContext,
    RuleDescription,
    RuleResult,
    busy_share,
    measured_percentile,
    seen_at_work,
    would_change_if,
)

# An unknown kind leaves the fabric's purpose open, unless it is a trace of the node's hours.
UNKNOWN_SHARE = 0.05
# What is left of that doubt where work only reads memory: recommenders train like that too.
_OF_READING = 0.5
# A bound in a sentence: below it the digits say nothing.
LEAST_PERCENT = 0.001

# The whole node was observed for too short a time, which its own note says.
_SAID = CodedText("node-seen-too-short", "")


def idle_fabric(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """One finding per set of series that sit together on silent fabrics, and notes where no verdict is possible."""
    verdicts, groups = scope.verdicts, scope.groups
    unjudged: dict[CodedText, list[str]] = {}
    hours = _hours_by_node(verdicts, groups)
    by_series = {g.series_id: g for g in groups}
    sets: dict[tuple[str, ...], list[NodeFacts]] = {}
    for node in verdicts.nodes:
        occupants = hours.get(node.node, {})
        # A replica on standby was never seen at its work, so what that needs of the fabric is not known: it neither
        # makes the fabric waste nor hides that it is.
        own = {s: rule.of(by_series[s].lead.owner) for s in occupants}
        working = {s: h for s, h in occupants.items() if seen_at_work(by_series[s], own[s])}
        if node.fabric is None or lacks_fabric(scope.book, node) or not working:
            continue
        # The strictest of those who work there decides.
        judged = [_unjudged(node, node.fabric, own[s], verdicts.window, scope.at) for s in working]
        reason = next((one for one in judged if one is not None), None)
        if reason is not None:
            unjudged.setdefault(reason, []).append(node.node)
            continue
        silent = all(_silent(node.fabric, own[s]) for s in working)
        if not silent or _may_need_it(working, by_series, own):
            continue
        # Night after night, work may be seen for fewer hours than the fabric that it leaves alone.
        enough = sum(working.values()) >= min(own[s].value("coverage_hours") for s in working)
        if not enough and not any(_ready(verdicts, by_series[s]) for s in working):
            continue
        if any(scope.faulty(by_series[s]) for s in working):
            continue
        sets.setdefault(tuple(sorted(working)), []).append(node)
    found = []
    for series, nodes in sets.items():
        lead = max(
            (by_series[s] for s in series), key=lambda g: sum(hours[n.node].get(g.series_id, 0.0) for n in nodes)
        )
        found.append(_finding(lead, series, nodes, hours, rule=rule.of(lead.lead.owner), book=scope.book))
    notes = [
        CodedText(
            "fabric-not-judged",
            f"No verdict on the fabric of {listed(nodes)}: {reason.text}",
            {"nodes": ", ".join(nodes), "because": reason.code, **reason.fields},
        )
        for reason, nodes in unjudged.items()
        if reason != _SAID
    ]
    dark = [node.node for node in verdicts.nodes if fabric_unobserved(scope.book, node)]
    return found, [*notes, *_dark(dark)]


def _dark(nodes: Sequence[str]) -> list[CodedText]:
    """That fabrics were not observed is no silence."""
    if not nodes:
        return []
    of = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes ({listed(nodes)})"
    return [
        CodedText(
            "fabrics-not-observed",
            f"No fabric data for {of}, so idle fabrics cannot be found there. {FABRIC_REMEDY}",
            {"nodes": ", ".join(nodes)},
        )
    ]


def _hours_by_node(verdicts: Verdicts, groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """GPU-hours of every series on every node, shared hours included by presence."""
    series = {w.id: g.series_id for g in groups for w in g.workloads}
    hours: dict[str, dict[str, float]] = {}
    for w in verdicts.workloads:
        for node in w.nodes:
            hours.setdefault(node, {}).setdefault(series[w.id], 0.0)
    rows = verdicts.occupancy[verdicts.occupancy["workload_id"].notna()]
    for workload, node, value in zip(rows["workload_id"], rows["node"], rows["gpu_hours"], strict=True):
        if str(workload) in series:
            on_node = hours.setdefault(str(node), {})
            key = series[str(workload)]
            on_node[key] = on_node.get(key, 0.0) + float(value)
    return hours


def _unjudged(node: NodeFacts, fabric: FabricFacts, rule: WasteRule, window: Window, at: float) -> CodedText | None:
    """Why there is no verdict; None: there is one; `_SAID`: for want of data, which the node's note says."""
    floor = rule.value("coverage_hours")
    if not fabric.readable:
        return coded("counters-unreadable", "{why}.", why=(fabric.reason or "Counters not readable").rstrip("."))
    if fabric.hours >= floor and fabric.util_p995 is not None:
        return None
    if node.hours_observed < floor:
        return _SAID
    observed = f"{span(fabric.hours * 3600)} of data, {floor:g} h needed."
    return CodedText(
        "fabric-seen-too-short",
        f"{observed} {when_possible(fabric.hours, floor, window, at, node)}",
        {"hours": fabric.hours, "needed_hours": floor},
    )


def _silent(fabric: FabricFacts, rule: WasteRule) -> bool:
    # The percentile is the upper edge of its bin, so "at or below" is "below" of what was measured.
    return fabric.util_p995 is not None and fabric.util_p995 <= rule.value("util_p995_max")


def _may_need_it(working: Mapping[str, float], by_series: Mapping[str, Group], rules: Mapping[str, WasteRule]) -> bool:
    """Whether training may well be among those who work there: one of them for itself, or all of them by their hours.

    Confidences keep what they promise, so weighed by hours they are the share of the node's hours that may have been
    training.
    """
    total = sum(working.values())
    in_all, limit = 0.0, 1.0
    for series, value in working.items():
        group, rule = by_series[series], rules[series]
        if any(w.kind.label in TRAINING_KINDS for w in group.workloads):
            return True
        part = value / total if total > 0 else 1.0
        likely = max((_training_confidence(w) for w in group.workloads), default=0.0)
        if likely >= rule.value("training_confidence_alone_max"):
            return True
        in_all += part * likely * (_OF_READING if _only_reads(group, rule) else 1.0)
        limit = min(limit, rule.value("training_confidence_max"))
        # The hours in which it trained, or did something unknown, though most of its time is something else.
        shares = group.kind_shares
        doubtful = sum(share for kind, share in shares.items() if kind in (*TRAINING_KINDS, "unknown"))
        if doubtful > 0 and doubtful * part >= UNKNOWN_SHARE:
            return True
    return in_all >= limit


def _only_reads(group: Group, rule: WasteRule) -> bool:
    """Whether it waits for memory and hardly computes, as decoding does: a training step computes with each weight that
    it reads for a whole batch."""
    compute = group.feature("tensor_of_sustained_p95") or measured_percentile(group.use.u_c, 95)
    bound = busy_share(group, "hbm-bandwidth") >= rule.value("hbm_share_min")
    return bound and compute is not None and compute < rule.value("u_c_p95_max")


def _training_confidence(workload: WorkloadVerdict) -> float:
    """How likely it is training after all, though it is called something else."""
    return sum(a.confidence for a in workload.kind.alternatives if a.label in TRAINING_KINDS)


def _ready(verdicts: Verdicts, group: Group) -> bool:
    return any(verdicts.waste_ready.get(w.id, False) for w in group.workloads)


def _finding(
    lead: Group,
    series: tuple[str, ...],
    nodes: Sequence[NodeFacts],
    hours: Mapping[str, Mapping[str, float]],
    *,
    rule: WasteRule,
    book: PriceBook,
) -> FindingContext:
    fabrics = [n.fabric for n in nodes if n.fabric is not None]
    premiums = [fabric_premium(book, n) for n in nodes]
    known = [p for p in premiums if p is not None]
    cost = (
        sum(p.usd_per_hour * f.hours for p, f in zip(known, fabrics, strict=True)) if len(known) == len(nodes) else None
    )
    rented = all(book.of(n) is not None for n in nodes)
    # A fabric that costs nothing extra is idle all the same, but nothing hangs on it.
    free = cost == 0 or (cost is None and rented)
    util = _util(fabrics)
    observed = min(f.hours for f in fabrics)
    values = {
        "workload": series_label(lead),
        "kind": lead.kind,
        "nodes": node_words(nodes),
        "node": nodes[0].node,
        "node_count": len(nodes),
        "gpu_sku": lead.lead.gpu_sku,
        "gpu_count": lead.gpu_count,
        "node_sku": nodes[0].node_sku,
        "fabric": fabrics[0].link_layer or "network",
        "line_rate": _line_rate(fabrics[0]),
        "util": _percent(util),
        "traffic": _traffic(util, _most(f.util_max for f in fabrics)),
        "hours": f"{observed:.0f}",
        "span": f"{observed / 24:.0f} days",
        "last_active": _last_active(fabrics),
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
    }
    text = f"{fill(rule.text, values)} {_cost_words(known if cost is not None else [], nodes, cost, rented)}"
    others = len(series) - 1
    if others:
        text += f" {others} other {'workload' if others == 1 else 'workloads'} ran there too; none needs a fabric."
    ambiguity = _training_confidence(lead.lead)
    coverage = lead.lead.coverage
    premium = known[0] if cost is not None else None
    finding = Finding(
        id=stable_id("f", rule.id, lead.series_id, *sorted(n.node for n in nodes) if others else ()),
        rule=rule.id,
        severity="low" if free else rule.severity,  # type: ignore[arg-type]
        workload=lead.lead.id,
        node=nodes[0].node if len(nodes) == 1 else None,
        gpus=tuple(g for g in lead.gpus),
        evidence=_evidence(fabrics, rule, premium),
        gpu_hours=sum(sum(hours[n.node].get(s, 0.0) for s in series) for n in nodes),
        cost_usd=cost,
        price=premium.price.id if premium else None,
        confidence=clamped_confidence(
            lead.lead.kind.confidence,
            min(coverage.fraction / 0.9, 1.0),
            sampling_confidence(coverage.resolution_seconds),
            1 - ambiguity,
        ),
        would_change_if=would_change_if(rule, values),
        text=text,
        nodes=tuple(n.node for n in nodes),
    )
    return FindingContext(finding, lead, tuple(nodes), premium=premium)


def _evidence(fabrics: Sequence[FabricFacts], rule: WasteRule, premium: Premium | None) -> tuple[Evidence, ...]:
    rows = [
        Evidence("fabric_util_p995", _util(fabrics), rule.value("util_p995_max"), "ratio of line rate"),
        Evidence("fabric_util_max", _most(f.util_max for f in fabrics), None, "ratio of line rate"),
        Evidence("fabric_hours", min(f.hours for f in fabrics), rule.value("coverage_hours"), "hours"),
        Evidence("fabric_hours_known", min(f.hours_known for f in fabrics), None, "hours"),
        Evidence("compute_ports", float(sum(len(f.ports_compute) for f in fabrics)), None, "ports"),
    ]
    if premium is not None:
        rows.append(Evidence("fabric_premium", premium.usd_per_hour, None, "USD per node-hour"))
    return tuple(rows)


def _most(values: Iterable[float | None]) -> float | None:
    """The highest; None where one of them is not known."""
    every = tuple(values)
    return max((value for value in every if value is not None), default=None) if None not in every else None


def _util(fabrics: Sequence[FabricFacts]) -> float:
    """The 99.5th percentile is its bin's upper edge, the highest second is exact: the lower of the two bounds holds.

    `fabrics`: found silent, so the percentile of each is known.
    """
    bounds = ((f.util_p995, f.util_max) for f in fabrics if f.util_p995 is not None)
    return max(p995 if highest is None else min(p995, highest) for p995, highest in bounds)


def _percent(util: float) -> str:
    return f"{(max(util * 100, LEAST_PERCENT) if util > 0 else 0.0):.3g} %"


def _traffic(util: float, highest: float | None) -> str:
    """What the fabric carried: nothing at all, or nothing or little in nearly all seconds."""
    if util > 0:
        return f"used at most {_percent(util)} of its line rate in 99.5 % of seconds"
    return "carried no traffic" if highest == 0 else "carried no traffic in 99.5 % of seconds"


def _line_rate(fabric: FabricFacts) -> str | None:
    if not fabric.line_rate_bytes_per_second:
        return None
    ports = len(fabric.ports_compute)
    return f"{ports} {'port' if ports == 1 else 'ports'}, {fabric.line_rate_bytes_per_second * 8e-9:,.0f} Gb/s per node"


def _last_active(fabrics: Sequence[FabricFacts]) -> str:
    seen = [f.last_active_ts for f in fabrics if f.last_active_ts is not None]
    known = min(max(f.hours_known, f.hours) for f in fabrics)
    if not seen:
        return f"none in {known / 24:.0f} days of history"
    return f"{day(max(seen))}"


def _cost_words(premiums: Sequence[Premium], nodes: Sequence[NodeFacts], cost: float | None, rented: bool) -> str:
    if cost is None or not premiums:
        if rented:
            return "Cost unknown: the catalog has no such node without the fabric, and does not list it as RDMA."
        return "Cost unknown: no price for the node."
    first = premiums[0]
    when = dated((first.price,))
    month = sum(p.usd_per_hour for p in premiums) * HOURS_PER_MONTH
    if not first.assumed and first.usd_per_hour == 0:
        return f"The fabric has no extra cost: the same node without it has the same price ({when})."
    whose = "a node's" if len(nodes) == 1 else "each node's"
    total = f"{usd(month)}/month" if len(nodes) == 1 else f"{usd(month)}/month for {len(nodes)} nodes"
    if first.assumed:
        return (
            f"Assumed cost: {usd(first.usd_per_hour)}/hour ({total}), {first.share * 100:.1f} % of {whose} "
            f"{usd(first.price.usd_per_hour)}/hour, {when}. The share is that of node pairs at other providers."
        )
    assert first.twin is not None
    return (
        f"Cost of the fabric: {usd(first.usd_per_hour)} of {whose} {usd(first.price.usd_per_hour)}/hour ({total}), "
        f"{when}. Same node without it: {first.twin.sku}."
    )


RULE = RuleDescription(
    id="idle-fabric",
    rank=1,
    fact="network fabric unused",
    judge=idle_fabric,
    answered_by={"swap-placement": 1, "move-sku": 1, "reduce-gpus": 2},
    waste="fabric",
    judges_nodes=True,
    line=ReferenceLine("fabric sent", "util_p995_max", "idle fabric up to"),
)
