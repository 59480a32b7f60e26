"""Links that are paid for and carry nothing: the fabric between nodes, and NVLink within."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ....rules.catalog.loader import Premium
from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.types import NodeFacts
from ...core.advice_types import Finding
from ...core.coded_text import CodedText, coded
from ...core.formatting import counted, dated, usd
from ...core.ids import stable_id
from ...core.timestamps import day
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..fleet import Fleet, Found, Outcome, Unjudged, as_percent
from ..groups import Group
from ..pricing import fabric_premium, has_fabric, nvlink_premium
from ..rule import Rule, Verdict, Why, WorkloadRule, seen_at_work, seen_too_short

# What is left of the doubt where work only reads memory: recommenders train like that too.
_OF_READING = 0.5
_MAY_TRAIN = coded("may-train", "work there may be training")
# Groups with their GPU-hours on a node.
_Occupants = Sequence[tuple[Group, float]]


class IdleFabric(Rule):
    """Workloads on nodes with a training fabric that stays silent."""

    id = "idle-fabric"
    fact = "network fabric unused"
    answered_by = {"swap-placement": 1, "move-sku": 1, "reduce-gpus": 2}
    waste = "fabric"
    judges_nodes = asks_neighbours = True
    contradicted_by = frozenset({"shape-fabric-busy", "fabric-use", "communication-fabric"})
    line = ("fabric sent", "util_p995_max", "idle fabric up to")

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        """One finding for each set of series that sit together on silent fabrics. Free GPUs are another rule's."""
        series_of = {w.id: g.series_id for g in fleet.groups for w in g.workloads}
        hours: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        held_hours = fleet.verdicts.occupancy.groupby(["node", "workload_id"])["gpu_hours"].sum()
        present = (((node, w.id), 0.0) for w in fleet.verdicts.workloads for node in w.nodes)
        for (name, workload), value in (*present, *held_hours.items()):  # type: ignore[misc]
            if workload in series_of:
                hours[name][series_of[workload]] += float(value)
        by_series = {g.series_id: g for g in fleet.groups}
        together: dict[tuple[str, ...], list[NodeFacts]] = {}
        for node in (n for n in fleet.verdicts.nodes if has_fabric(fleet.book, n)):
            there = [(by_series[s], h) for s, h in hours.get(node.node, {}).items()]
            # A replica on standby was never observed at work: it does not count.
            working = [(g, h) for g, h in there if seen_at_work(g, self.limits(fleet, g))]
            # The percentile is the upper edge of its bin, so "at or below" is "below" of what was measured.
            util = node.fabric.util_p995 if node.fabric is not None else None
            least = min((self.limits(fleet, g).value("util_p995_max") for g, _ in working or there), default=-1.0)
            silent = util is not None and util <= least
            if unjudged := self._unjudged(fleet, node, there, working, silent=silent):
                yield unjudged
            elif silent:
                together.setdefault(tuple(sorted(g.series_id for g, _ in working)), []).append(node)
            else:
                yield node
        for series, nodes in together.items():
            held = {s: sum(hours[n.node].get(s, 0.0) for n in nodes) for s in series}
            lead = by_series[max(series, key=lambda s: held[s])]
            yield self._found(fleet, lead, nodes, sum(held.values()), others=len(series) - 1)

    def _unjudged(
        self, fleet: Fleet, node: NodeFacts, there: _Occupants, working: _Occupants, *, silent: bool
    ) -> Unjudged | None:
        fabric = node.fabric
        floor = max((self.limits(fleet, g).value("coverage_hours") for g, _ in there), default=0.0)
        if fabric is None:
            why = coded("fabric-not-observed", "no fabric data")
        elif not there:
            return None
        elif not fabric.readable:
            why = coded("counters-unreadable", "{why}", why=(fabric.reason or "Counters not readable").rstrip("."))
        elif fabric.hours < floor or fabric.util_p995 is None:
            why = seen_too_short(floor)
        elif silent and (doubt := self._doubt(fleet, working)):
            why = replace(doubt, text=f"silent, not judged: {doubt.text}")
        else:
            return None
        premium = fabric_premium(fleet.book, node)
        at_stake = premium.usd_per_hour * HOURS_PER_MONTH if premium is not None else None
        return Unjudged(why, (node,), None, at_stake)

    def _doubt(self, fleet: Fleet, working: _Occupants) -> CodedText | None:
        """Why a silent fabric may be needed all the same; None: no work there needs it. Confidences averaged by hours
        are the share of the node's hours that may have been training."""
        if not working:
            return coded("standby-only", "only replicas on standby are there, whose work was not observed")
        if any(fleet.faulty(g) for g, _ in working):
            return coded("signals-contradict", "metrics of its workloads contradict each other")
        total, in_all, limit = sum(hours for _, hours in working), 0.0, 1.0
        for group, hours in working:
            limits = self.limits(fleet, group)
            if group.kind in TRAINING_KINDS:
                return coded("training-there", "training runs there and may use it another time")
            part = hours / total if total > 0 else 1.0
            chance, trained, unknown = _chance_of_training(group)
            # Work that trained, or may have, for less of a node's hours than this is a trace of them.
            if chance >= limits.value("training_confidence_alone_max") or trained * part >= 0.05:
                return _MAY_TRAIN
            # Work that waits for memory and hardly computes decodes: a training step computes a lot with each weight.
            compute, bound = group.compute_p95, group.busy_share("hbm-bandwidth")
            computes = compute is None or compute >= limits.value("u_c_p95_max")
            reads = bound >= limits.value("hbm_share_min") and not computes
            in_all += part * (unknown + chance * (_OF_READING if reads else 1.0))
            limit = min(limit, limits.value("training_confidence_max"))
        if in_all >= limit:
            return _MAY_TRAIN
        # Night after night, work may be seen for fewer hours than the fabric that it leaves alone.
        floor = min(self.limits(fleet, g).value("coverage_hours") for g, _ in working)
        if total < floor and not any(fleet.waste_ready(g) for g, _ in working):
            return coded("work-seen-too-short", "its workloads were seen for too short a time")
        return None

    def _found(self, fleet: Fleet, lead: Group, nodes: Sequence[NodeFacts], held: float, *, others: int) -> Found:
        """`held`: GPU-hours of all series there; `others`: how many there are beside the lead."""
        fabrics = [n.fabric for n in nodes if n.fabric is not None]
        priced = [p for n in nodes if (p := fabric_premium(fleet.book, n)) is not None]
        premiums = priced if len(priced) == len(nodes) else []
        premium = premiums[0] if premiums else None
        cost = sum(p.usd_per_hour * f.hours for p, f in zip(premiums, fabrics, strict=True)) if premiums else None
        rented = all(fleet.book.of(n) is not None for n in nodes)
        # The 99.5th percentile is its bin's upper edge, the highest second is exact: the lower of the two bounds holds.
        bounds = [[b for b in (f.util_p995, f.util_max) if b is not None] for f in fabrics if f.util_p995 is not None]
        util = max(map(min, bounds))
        peaks = [f.util_max for f in fabrics if f.util_max is not None]
        highest = max(peaks) if len(peaks) == len(fabrics) else None
        percent = f"{(max(util * 100, 0.001) if util > 0 else 0.0):.3g} %"  # below it the digits say nothing
        at_most = f"used at most {percent} of its line rate in" if util > 0 else "carried no traffic in"
        ports, rate = fabrics[0].ports_compute, fabrics[0].line_rate_bytes_per_second
        observed, history = min(f.hours for f in fabrics), min(max(f.hours_known, f.hours) for f in fabrics)
        active = max((f.last_active_ts for f in fabrics if f.last_active_ts is not None), default=None)
        # A fabric that costs nothing extra is idle all the same, but nothing hangs on it.
        free = cost == 0 or (cost is None and rented)
        text = _cost_words(premiums, nodes, rented=rented)
        if others:
            text += f" {counted(others, 'other workload')} ran there too; none needs a fabric."
        evidence = [
            ("fabric_util_p995", util, "util_p995_max", "ratio of line rate"),
            ("fabric_util_max", highest, None, "ratio of line rate"),
            ("fabric_hours", observed, "coverage_hours", "hours"),
            ("fabric_hours_known", min(f.hours_known for f in fabrics), None, "hours"),
            ("compute_ports", float(sum(len(f.ports_compute) for f in fabrics)), None, "ports"),
            *([("fabric_premium", premium.usd_per_hour, None, "USD per node-hour")] if premium else ()),
        ]
        waste = self.found(
            fleet, lead, evidence=evidence, gpu_hours=held, cost=cost, nodes=nodes, after=text,
            severity="low" if free else None,
            sure=lead.lead.kind.confidence * (1 - _training_confidence(lead.lead)),
            values={
                "node_sku": nodes[0].node_sku, "fabric": fabrics[0].link_layer or "network", "util": percent,
                "line_rate": f"{counted(len(ports), 'port')}, {rate * 8e-9:,.0f} Gb/s per node" if rate else None,
                "traffic": "carried no traffic" if highest == util == 0 else f"{at_most} 99.5 % of seconds",
                "hours": f"{observed:.0f}", "span": f"{observed / 24:.0f} days",
                "last_active": f"none in {history / 24:.0f} days of history" if active is None else f"{day(active)}",
            },
        )  # fmt: skip
        id_ = stable_id("f", self.id, lead.series_id, *sorted(n.node for n in nodes) if others else ())
        price = premium.price.id if premium else None
        return replace(waste, finding=replace(waste.finding, id=id_, price=price))


def _chance_of_training(group: Group) -> tuple[float, float, float]:
    """How likely a series trains, by its runs' verdicts and GPU-hours; and the shares of its hours in which it did, or
    did something of unknown kind in a phase, though most of its time is something else."""
    chance = trained = unknown = total = 0.0
    for w in group.workloads:
        held = max(w.gpu_hours, 1e-6)  # a run that held nothing yet still counts, a little
        total, chance = total + held, chance + held * _training_confidence(w)
        length = sum(p.end - p.start for p in w.phases)
        for phase in w.phases:
            part = held * (phase.end - phase.start) / length
            trained += part if phase.kind in TRAINING_KINDS else 0.0
            # The alternatives of a run of unknown kind say what it may be.
            unknown += part if phase.kind == "unknown" != w.kind.label else 0.0
    return chance / total, trained / total, unknown / total


def _training_confidence(workload: WorkloadVerdict) -> float:
    """How likely it is training, whatever it is called: of unknown work all that no other kind explains."""
    kind = workload.kind
    others = [(alternative.label in TRAINING_KINDS, alternative.confidence) for alternative in kind.alternatives]
    if kind.label == "unknown":
        return max(1.0 - sum(chance for trains, chance in others if not trains), 0.0)
    share = kind.confidence if kind.label in TRAINING_KINDS else 0.0
    return share + sum(chance for trains, chance in others if trains)


def _cost_words(premiums: Sequence[Premium], nodes: Sequence[NodeFacts], *, rented: bool) -> str:
    if not premiums:
        lacking = "the catalog has no such node without the fabric, and does not list it as RDMA"
        return f"Cost unknown: {lacking if rented else 'no price for the node'}."
    first, when = premiums[0], dated((premiums[0].price,))
    if first.twin is not None and first.usd_per_hour == 0:
        return f"The fabric has no extra cost: the same node without it has the same price ({when})."
    each, price = usd(first.usd_per_hour), f"{usd(first.price.usd_per_hour)}/hour"
    total = f"{usd(sum(p.usd_per_hour for p in premiums) * HOURS_PER_MONTH)}/month"
    total, whose = (f"{total} for {len(nodes)} nodes", "each node's") if len(nodes) > 1 else (total, "a node's")
    if first.twin is None:
        text = f"Assumed cost: {each}/hour ({total}), {first.share * 100:.1f} % of {whose} {price}, {when}."
        return f"{text} The share is that of node pairs at other providers."
    return f"Cost of the fabric: {each} of {whose} {price} ({total}), {when}. Same node without it: {first.twin.sku}."


# At a mean so small a share of the limit, a link is above the limit for half a per cent of the seconds at most.
_REST = 0.005


class IdleNvlink(WorkloadRule):
    """Work on nodes whose NVLink was silent in all but a few seconds, or between whose own GPUs it
    was. Training on several GPUs is out of its scope: another bottleneck may keep its NVLink silent."""

    id = "idle-nvlink"
    fact = "NVLink unused"
    answered_by = {"move-sku": 2}
    waste = "nvlink"
    asks_neighbours, contradicting_limit = True, "nvlink"
    contradicted_by = frozenset({
        "shape-collectives", "shape-links-with-compute", "shape-links-against-compute", "nvlink-use",
        "limited-by-nvlink", "communication-nvlink",
    })  # fmt: skip
    line = ("NVLink sent", "util_p995_max", "idle NVLink up to")

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        joined = (group for group in super().scope(fleet) if all(fleet.nvlink(n) for n in group.nodes))
        return (g for g in joined if g.kind not in TRAINING_KINDS or g.gpus_per_replica == 1)

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:  # noqa: ARG002
        return "nvlink-carries-its-work" if group.exchanges else None

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        limit, floor = limits.value("util_p995_max"), limits.value("coverage_hours")
        peaks = [n.nvlink_util_p995 for n in group.nodes]
        measured = [p for p in peaks if p is not None]
        # Where the node's NVLink is another's, its own GPUs may be silent still, if that was measured all along.
        use, average_use = group.use, None
        held = use.seconds > 0
        if group.gpus_per_replica > 1 and held.any() and np.isfinite(use.u_n[held]).all():
            average_use = float(np.average(use.u_n[held], weights=use.seconds[held]))
        silent = bool(measured) and max(measured) <= limit
        alone = average_use is not None and average_use <= limit * _REST
        # Some hundred MB/s are below a hundredth of it, and all that experts or a small model's shards exchange.
        if group.exchanges or (len(measured) == len(peaks) and not silent and not alone):
            return None
        if len(measured) < len(peaks):
            return Why.NVLINK_NOT_MEASURED
        if group.kind == "unknown" and group.gpus_per_replica > 1:  # it may be training
            return Why.KIND_UNKNOWN
        if not seen_at_work(group, limits):
            return Why.ON_STANDBY
        observed = min(n.hours_observed for n in group.nodes)
        if not fleet.waste_ready(group) or min(n.evidence_hours for n in group.nodes) < floor:
            return seen_too_short(floor)
        util = max(measured) if silent else limit
        share, cost, text, premium = None, None, "Price share of NVLink: unknown.", None
        premiums = [p for n in group.nodes if (p := nvlink_premium(fleet.book, n)) is not None]
        if len(premiums) == len(group.nodes):
            premium, share = premiums[0], sum(p.share for p in premiums) / len(premiums)
            whole = fleet.cost(group.gpu_hours, group.nodes)
            cost = None if whole is None else whole * share
        if premium is not None and cost is not None:
            paid = f"{usd(cost)} in the window, {dated((premium.price,))}"
            of = f"{premium.share * 100:.0f} % of the node's price, {paid}"
            text = f"NVLink adds an assumed {of} (from node pairs at other providers)."
            if premium.twin is not None:
                text = f"NVLink adds {of}, compared with {premium.twin.sku} (PCIe card, a slower GPU as well)."
        most = "less than 0.1 %" if util < 0.001 else f"at most {as_percent(util)}"
        carried = f"used {most} of one direction" if util > 0 else "carried no traffic"
        return self.found(
            fleet, group,
            evidence=(
                ("nvlink_util_p995", util, "util_p995_max", "ratio of one-way NVLink") if silent
                else ("nvlink_util_mean", average_use, limit * _REST, "ratio of what NVLink sustains"),
                ("hours_observed", observed, "coverage_hours", "hours"),
                *([("nvlink_premium", share, None, "ratio of the node's price")] if premium is not None else ()),
            ),
            gpu_hours=group.gpu_hours, cost=cost,
            values={
                "util": as_percent(util), "traffic": f"{carried} in 99.5 % of seconds",
                "whose": "whatever ran there" if silent else "between its GPUs",
            },
            sure=1.0 if group.gpus_per_replica == 1 else group.lead.kind.confidence,
            after=text,
        )  # fmt: skip
