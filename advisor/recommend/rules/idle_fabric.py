"""The founding waste: an expensive fabric under work that never speaks over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....rules.catalog.fabric_premium import Premium
from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.types import FabricFacts, NodeFacts
from ...core.advice_types import Evidence
from ...core.coded_text import CodedText, coded
from ...core.formatting import dated, listed, usd
from ...core.ids import stable_id
from ...core.timestamps import day, span
from ...core.verdict_types import WorkloadVerdict
from ..finding import Clean, Found, Outcome, Unjudged, node_words, when_possible
from ..fleet import Fleet
from ..groups import HOURS_PER_MONTH, Group
from ..pricing import FABRIC_REMEDY, fabric_premium, fabric_unobserved, lacks_fabric
from ..rule import (
    ReferenceLine,
    Rule,
    busy_share,
    finding_of,
    measured_percentile,
    seen_at_work,
    seen_too_short,
)

# Work that trained, or may have, for less of a node's hours than this is a trace of them.
TRACE_SHARE = 0.05
# What is left of the doubt where work only reads memory: recommenders train like that too.
_OF_READING = 0.5
# A bound in a sentence: below it the digits say nothing.
LEAST_PERCENT = 0.001


class IdleFabric(Rule):
    """Workloads on nodes with a training fabric that stays silent."""

    id = "idle-fabric"
    fact = "network fabric unused"
    answered_by = {"swap-placement": 1, "move-sku": 1, "reduce-gpus": 2}
    waste = "fabric"
    judges_nodes = True
    line = ReferenceLine("fabric sent", "util_p995_max", "idle fabric up to")

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        """One finding for each set of series that sit together on silent fabrics. Nobody works on a node without
        occupants: its GPUs are another rule's."""
        hours = hours_by_node(fleet)
        by_series = {g.series_id: g for g in fleet.groups}
        together: dict[tuple[str, ...], list[NodeFacts]] = {}
        open_: list[Unjudged] = []
        for node in fleet.verdicts.nodes:
            if lacks_fabric(fleet.book, node) or (node.fabric is None and not fabric_unobserved(fleet.book, node)):
                continue
            there = [(by_series[s], h) for s, h in hours.get(node.node, {}).items()]
            # A replica on standby was never seen at its work: it neither makes the fabric waste nor hides that it is.
            working = [(g, h) for g, h in there if seen_at_work(g, self.limits(fleet, g))]
            reason = self._not_judged(fleet, node, [g for g, _ in there], working)
            if reason is not None:
                open_.append(reason)
            elif working and all(self._silent(fleet, node, g) for g, _ in working):
                together.setdefault(tuple(sorted(g.series_id for g, _ in working)), []).append(node)
            else:
                yield Clean(node)
        yield from _with_notes(open_)
        for series, nodes in together.items():
            groups = [by_series[s] for s in series]
            lead = max(groups, key=lambda g: sum(hours[n.node].get(g.series_id, 0.0) for n in nodes))
            held = sum(hours[n.node].get(s, 0.0) for n in nodes for s in series)
            yield self._finding(fleet, lead, nodes, held, others=len(series) - 1)

    def _silent(self, fleet: Fleet, node: NodeFacts, group: Group) -> bool:
        # The percentile is the upper edge of its bin, so "at or below" is "below" of what was measured.
        util = node.fabric.util_p995 if node.fabric is not None else None
        return util is not None and util <= self.limits(fleet, group).value("util_p995_max")

    def _not_judged(
        self, fleet: Fleet, node: NodeFacts, there: Sequence[Group], working: Sequence[tuple[Group, float]]
    ) -> Unjudged | None:
        """Why there is no verdict on a node's fabric; None: there is one. The strictest of those who work there
        decides. `there`: whoever works or stands by, `working` with GPU-hours."""
        premium, fabric = fabric_premium(fleet.book, node), node.fabric
        at_stake = premium.usd_per_hour * HOURS_PER_MONTH if premium is not None else None
        if fabric is None:
            dark = CodedText("fabrics-not-observed", f"so idle fabrics cannot be found there. {FABRIC_REMEDY}")
            return Unjudged(coded("fabric-not-observed", "no fabric data"), (node,), None, at_stake, dark)
        if not there:
            return None
        floor = max(self.limits(fleet, g).value("coverage_hours") for g in there)
        if not fabric.readable:
            why = coded("counters-unreadable", "{why}", why=(fabric.reason or "Counters not readable").rstrip("."))
            note = CodedText("fabric-not-judged", f"{why.text}.", {"because": why.code})
        elif fabric.hours < floor or fabric.util_p995 is None:
            why = seen_too_short(floor)
            then = when_possible(fabric.hours, floor, fleet.verdicts.window, fleet.at, node)
            told = f"{span(fabric.hours * 3600)} of data, {floor:g} h needed. {then}"
            fields = {"because": "fabric-seen-too-short", "hours": fabric.hours, "needed_hours": floor}
            # That the whole node was observed for too short a time its own note says.
            note = CodedText("fabric-not-judged", told, fields) if node.hours_observed >= floor else None
        elif all(self._silent(fleet, node, g) for g in [g for g, _ in working] or there):
            open_ = self._why_open(fleet, working)
            if open_ is None:
                return None
            why = replace(open_, text=f"silent, not judged: {open_.text}")
            note = CodedText("fabric-silent-not-judged", f"{open_.text}.", {"because": open_.code})
        else:
            return None
        return Unjudged(why, (node,), None, at_stake, note)

    def _why_open(self, fleet: Fleet, working: Sequence[tuple[Group, float]]) -> CodedText | None:
        """Why a silent fabric may be needed all the same; None: by nobody who works there.

        Confidences keep what they promise, so weighed by hours they are the share of the node's hours that may have
        been training. Of several replicas the series is asked: one that is unsure does not silence the others.
        """
        if not working:
            return coded("standby-only", "only replicas on standby are there, whose work was not observed")
        if any(fleet.faulty(g) for g, _ in working):
            return coded("signals-contradict", "metrics of its workloads contradict each other")
        total = sum(hours for _, hours in working)
        in_all, limit = 0.0, 1.0
        for group, hours in working:
            limits = self.limits(fleet, group)
            if group.kind in TRAINING_KINDS:
                return coded("training-there", "training runs there and may use it another time")
            part = hours / total if total > 0 else 1.0
            chance, trained, unknown = training_chance(group)
            if chance >= limits.value("training_confidence_alone_max") or trained * part >= TRACE_SHARE:
                return coded("may-train", "work there may be training")
            in_all += part * (unknown + chance * (_OF_READING if _only_reads(group, limits) else 1.0))
            limit = min(limit, limits.value("training_confidence_max"))
        if in_all >= limit:
            return coded("may-train", "work there may be training")
        # Night after night, work may be seen for fewer hours than the fabric that it leaves alone.
        floor = min(self.limits(fleet, g).value("coverage_hours") for g, _ in working)
        if total < floor and not any(fleet.waste_ready(g) for g, _ in working):
            return coded("work-seen-too-short", "its workloads were seen for too short a time")
        return None

    def _finding(self, fleet: Fleet, lead: Group, nodes: Sequence[NodeFacts], held: float, *, others: int) -> Found:
        """`held`: GPU-hours of all series there; `others`: how many there are beside the lead."""
        limits = self.limits(fleet, lead)
        fabrics = [n.fabric for n in nodes if n.fabric is not None]
        known = [p for p in (fabric_premium(fleet.book, n) for n in nodes) if p is not None]
        priced = len(known) == len(nodes)
        cost = sum(p.usd_per_hour * f.hours for p, f in zip(known, fabrics, strict=True)) if priced else None
        rented = all(fleet.book.of(n) is not None for n in nodes)
        # The 99.5th percentile is its bin's upper edge, the highest second is exact: the lower of the two bounds holds.
        util = max(
            f.util_p995 if f.util_max is None else min(f.util_p995, f.util_max)
            for f in fabrics
            if f.util_p995 is not None
        )
        peaks = [f.util_max for f in fabrics]
        highest = max((p for p in peaks if p is not None), default=None) if None not in peaks else None
        observed = min(f.hours for f in fabrics)
        premium = known[0] if priced else None
        values = {
            "nodes": node_words(nodes),
            "node": nodes[0].node,
            "node_count": len(nodes),
            "node_sku": nodes[0].node_sku,
            "fabric": fabrics[0].link_layer or "network",
            "line_rate": _line_rate(fabrics[0]),
            "util": _percent(util),
            "traffic": _traffic(util, highest),
            "hours": f"{observed:.0f}",
            "span": f"{observed / 24:.0f} days",
            "last_active": _last_active(fabrics),
        }
        evidence = [
            Evidence("fabric_util_p995", util, limits.value("util_p995_max"), "ratio of line rate"),
            Evidence("fabric_util_max", highest, None, "ratio of line rate"),
            Evidence("fabric_hours", observed, limits.value("coverage_hours"), "hours"),
            Evidence("fabric_hours_known", min(f.hours_known for f in fabrics), None, "hours"),
            Evidence("compute_ports", float(sum(len(f.ports_compute) for f in fabrics)), None, "ports"),
        ]
        if premium is not None:
            evidence.append(Evidence("fabric_premium", premium.usd_per_hour, None, "USD per node-hour"))
        told = _cost_words(known if priced else [], nodes, rented)
        if others:
            who = "workload" if others == 1 else "workloads"
            told += f" {others} other {who} ran there too; none needs a fabric."
        # A fabric that costs nothing extra is idle all the same, but nothing hangs on it.
        free = cost == 0 or (cost is None and rented)
        about = finding_of(
            fleet, limits, lead, evidence=evidence, gpu_hours=held, cost=cost, values=values, after=told,
            severity="low" if free else None,
            sure=lead.lead.kind.confidence * (1 - _training_confidence(lead.lead)),
        )  # fmt: skip
        finding = replace(
            about,
            id=stable_id("f", self.id, lead.series_id, *sorted(n.node for n in nodes) if others else ()),
            node=nodes[0].node if len(nodes) == 1 else None,
            nodes=tuple(n.node for n in nodes),
            price=premium.price.id if premium else None,
        )
        return self.found(finding, lead, nodes, premium=premium)


def hours_by_node(fleet: Fleet) -> dict[str, dict[str, float]]:
    """GPU-hours of every series on every node, shared hours included by presence."""
    series = {w.id: g.series_id for g in fleet.groups for w in g.workloads}
    hours: dict[str, dict[str, float]] = {}
    for w in fleet.verdicts.workloads:
        for node in w.nodes:
            hours.setdefault(node, {}).setdefault(series[w.id], 0.0)
    rows = fleet.verdicts.occupancy[fleet.verdicts.occupancy["workload_id"].notna()]
    for workload, node, value in zip(rows["workload_id"], rows["node"], rows["gpu_hours"], strict=True):
        if str(workload) in series:
            on_node, key = hours.setdefault(str(node), {}), series[str(workload)]
            on_node[key] = on_node.get(key, 0.0) + float(value)
    return hours


def training_chance(group: Group) -> tuple[float, float, float]:
    """How likely a series trains, by its runs' verdicts and GPU-hours; and the shares of its hours in which it did, or
    did something of unknown kind, as its phases tell, though most of its time is something else."""
    chance = trained = unknown = total = 0.0
    for w in group.workloads:
        held = max(w.gpu_hours, 1e-6)  # a run that held nothing yet still counts, a little
        total, chance = total + held, chance + held * _training_confidence(w)
        length = sum(p.end - p.start for p in w.phases)
        for phase in w.phases:
            part = held * (phase.end - phase.start) / length
            trained += part if phase.kind in TRAINING_KINDS else 0.0
            # What a run of unknown kind may be, its alternatives tell.
            unknown += part if phase.kind == "unknown" != w.kind.label else 0.0
    return chance / total, trained / total, unknown / total


def _training_confidence(workload: WorkloadVerdict) -> float:
    """How likely it is training, whatever it is called: of unknown work all that no other kind explains."""
    told = {one.label: one.confidence for one in workload.kind.alternatives}
    if workload.kind.label == "unknown":
        return max(1.0 - sum(chance for label, chance in told.items() if label not in TRAINING_KINDS), 0.0)
    own = workload.kind.confidence if workload.kind.label in TRAINING_KINDS else 0.0
    return own + sum(told.get(label, 0.0) for label in TRAINING_KINDS)


def _only_reads(group: Group, limits: WasteRule) -> bool:
    """Whether it waits for memory and hardly computes, as decoding does: a training step computes with each weight that
    it reads for a whole batch."""
    compute = group.feature("tensor_of_sustained_p95") or measured_percentile(group.use.u_c, 95)
    bound = busy_share(group, "hbm-bandwidth") >= limits.value("hbm_share_min")
    return bound and compute is not None and compute < limits.value("u_c_p95_max")


def _with_notes(open_: Sequence[Unjudged]) -> Iterator[Unjudged]:
    """One note for all nodes of one reason, with what is at stake where their fabrics were silent."""
    alike: dict[CodedText | None, list[Unjudged]] = {}
    for one in open_:
        alike.setdefault(one.note, []).append(one)
    for note, own in alike.items():
        if note is not None:
            names = [n.node for one in own for n in one.nodes]
            usd_known = [one.usd_per_month for one in own if one.usd_per_month]
            what = {
                "fabrics-not-observed": f"No fabric data for {node_words([n for one in own for n in one.nodes])}, ",
                "fabric-silent-not-judged": f"The fabric of {listed(names)} was silent, and is not judged: ",
            }.get(note.code, f"No verdict on the fabric of {listed(names)}: ")
            silent = note.code == "fabric-silent-not-judged" and usd_known
            price = f" At stake: {usd(sum(usd_known))}/month." if silent else ""
            own[0] = replace(own[0], note=CodedText(
                note.code, f"{what}{note.text}{price}", {"nodes": ", ".join(names), **note.fields}
            ))  # fmt: skip
        yield own[0]
        yield from (replace(one, note=None) for one in own[1:])


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
    return f"{day(max(seen))}" if seen else f"none in {known / 24:.0f} days of history"


def _cost_words(premiums: Sequence[Premium], nodes: Sequence[NodeFacts], rented: bool) -> str:
    """`premiums`: of all the nodes, or empty where one is not known."""
    if not premiums:
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
