"""The one gate between a recommendation and its claim: what was not observed is claimed by nobody.

Every recommendation says what it rests on (`Recommendation.needs`): nodes or GPUs, the measures that its reasons are
made of, and whether whole nodes fall free, change hands or are switched off. The gate compares that with the inventory.
Where something is missing it is blocked, each reason by name, and it claims neither cash nor capacity. So ignorance
only ever lowers a claim: what a recommendation needs, its removal blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..classify.bottlenecks.links import PART
from ..classify.types import BareGpu, Verdicts
from ..classify.workloads.inventory import GpuCoverage, NodeInventory
from ..core.advice_types import EvidenceClaim, Recommendation, SavingsBaseline
from ..core.coded_text import CodedText, all_of, coded
from ..core.formatting import listed
from ..core.timestamps import minute

# Share of the time that may be missing: of more than that nobody knows what the GPUs did in it.
GAP_MAX = 0.01
# Work that spans nodes sends something now and then: counters that do not move at all for longer may stand still.
STILL_MAX = 0.05
# Rows are up to an hour long, and nodes write them at moments of their own.
END_TOLERANCE_SECONDS = 2 * 3600.0
# What the words for a measure are, and how each is exported.
NAMES: Mapping[str, str] = {
    "activity": "engine or SM activity",
    "engine_active": "engine activity",
    "sm_active": "SM activity",
    "tensor_active": "tensor activity",
    "dram_active": "memory bandwidth (DRAM activity)",
    "mem_used": "memory in use",
    "power": "power",
    "nvlink": "NVLink traffic",
    "pcie": "PCIe traffic",
}
# What idleness rests on: three signals of different origin, so that no stuck one alone makes a GPU idle.
REST = frozenset({"engine_active", "mem_used", "power"})
# What every statement of use and demand rests on.
WORK = REST | {"tensor_active", "dram_active"}


@dataclass(frozen=True)
class EvidenceGate:
    """The evidence of a window, with which claims are compared. `floor_hours`: least observed hours of a GPU."""

    verdicts: Verdicts
    floor_hours: float

    def _hours(self, node: str) -> float:
        """Hours in which the node can have been observed: those of the window, for one that was first observed late may
        have been there before; its own where the nodes of its pool are replaced."""
        facts, hours = self.verdicts.node(node), self.verdicts.inventory.hours
        return hours if facts is None or not facts.pool_hours else min(hours, facts.span_hours)

    def _enough_hours(self, node: str) -> float:
        """What must have been observed; the sum of many hours is not exact to the last digit."""
        return (1.0 - GAP_MAX) * self._hours(node) - 1e-6

    def missing(self, claim: EvidenceClaim) -> tuple[CodedText, ...]:
        """Every reason why the claim does not stand, as clauses; empty: everything it needs was observed."""
        reasons: list[CodedText] = []
        for name in claim.nodes:
            node = self.verdicts.inventory.nodes.get(name)
            if node is None:
                reasons.append(coded("node-unknown", "no data for {node}", node=name))
                continue
            reasons += self._node(node, claim)
        return tuple(dict.fromkeys(reasons))

    def gap(self, claim: EvidenceClaim | None) -> float:
        """Share of the window of which the claim's least observed GPU tells nothing; 0 of what claims nothing."""
        if claim is None:
            return 0.0
        hours = {name: self._hours(name) for name in claim.nodes}
        seen = [gpu.hours / hours[name] for name in claim.nodes for gpu in self._gpus(name, claim) if hours[name] > 0]
        return max(1.0 - min(seen), 0.0) if seen else 0.0

    def _gpus(self, name: str, claim: EvidenceClaim) -> Sequence[GpuCoverage]:
        node = self.verdicts.inventory.nodes.get(name)
        if node is None:
            return ()
        parents = self.verdicts.inventory.parents
        asked = {parents.get((name, uuid), (name, uuid))[1] for uuid in claim.gpus}
        all_ = claim.whole or not asked
        return [gpu for gpu in node.gpus if gpu.hours > 0 and (all_ or gpu.gpu_uuid in asked)]

    def _node(self, node: NodeInventory, claim: EvidenceClaim) -> list[CodedText]:
        reasons: list[CodedText] = []
        if claim.whole and node.unobserved:
            one = node.unobserved[0]
            told = f"{one.reason[:1].lower()}{one.reason[1:].rstrip('.')}"
            reasons.append(
                CodedText(
                    "gpus-not-observed",
                    f"no data for {node.unobserved_count} of {node.gpu_count} GPUs of {node.node}: {told}",
                    {"node": node.node, "gpus": node.unobserved_count, "of": node.gpu_count, "because": one.code},
                )
            )
        if claim.whole and node.surplus:
            reasons.append(
                coded(
                    "sku-in-doubt", "{node} reports {surplus} more GPUs than its SKU has, so its SKU is doubtful",
                    node=node.node, surplus=node.surplus,
                )
            )  # fmt: skip
        reasons += self._observed(node, claim)
        if claim.whole or claim.unheld:
            reasons += self._pods(node)
        if claim.whole:
            reasons += self._accounted(node)
        if claim.host and node.host_hours < self._enough_hours(node.node):
            reasons.append(
                coded("cores-not-measured", "CPU use of {node} was not measured for the whole window", node=node.node)
            )
        if node.node in claim.fabric:
            reasons += self._fabric(node)
        return reasons

    def _observed(self, node: NodeInventory, claim: EvidenceClaim) -> list[CodedText]:
        own, inventory = self._gpus(node.node, claim), self.verdicts.inventory
        if not own:
            return [coded("no-gpu-observed", "no data for any GPU of {node}", node=node.node)]
        least = min(own, key=lambda gpu: gpu.hours)
        if least.hours < self.floor_hours:
            return [
                coded(
                    "observed-too-short", "only {hours:.1f} h of data for {node}, {needed_hours:g} h needed",
                    node=node.node, hours=least.hours, needed_hours=self.floor_hours,
                )
            ]  # fmt: skip
        last = min(gpu.last_ts for gpu in own)
        if last < inventory.end - END_TOLERANCE_SECONDS:
            return [
                CodedText(
                    "not-observed-since",
                    f"no data for {node.node} after {minute(last)}",
                    {"node": node.node, "ts": last},
                )
            ]
        if least.hours < self._enough_hours(node.node):
            return [
                coded(
                    "observed-in-part",
                    "{node} has data for {hours:.0f} of {window_hours:.0f} h",
                    node=node.node, hours=least.hours, window_hours=self._hours(node.node),
                )
            ]  # fmt: skip
        reasons: list[CodedText] = []
        for measure in sorted(claim.measures):
            lacking = [gpu for gpu in own if gpu.known.get(measure, 0.0) < (1.0 - GAP_MAX) * gpu.hours]
            if lacking:
                which = "" if len(lacking) == len(own) else f"{len(lacking)} of {len(own)} GPUs of "
                reasons.append(
                    CodedText(
                        "measure-missing",
                        f"no {NAMES[measure]} data for {which}{node.node}",
                        {"measure": measure, "node": node.node, "gpus": len(lacking), "of": len(own)},
                    )
                )
        return reasons

    @staticmethod
    def _pods(node: NodeInventory) -> list[CodedText]:
        """Pods that hold GPUs of the node, nobody knows which."""
        if not node.unaccounted_pods:
            return []
        them = "it" if len(node.unaccounted_pods) == 1 else "them"
        text = f"{listed(list(node.unaccounted_pods))} requested GPUs of {node.node}, but no metric names {them}"
        return [CodedText("pods-not-named", text, {"node": node.node, "pods": ", ".join(node.unaccounted_pods)})]

    def _accounted(self, node: NodeInventory) -> list[CodedText]:
        """Whether every GPU of the node is the claim's or nobody's."""
        reasons: list[CodedText] = []
        inventory = self.verdicts.inventory
        bare, most = self._bare.get(node.node, ()), GAP_MAX * inventory.hours
        if any(one.busy_hours > most for one in bare):
            reasons.append(coded("worked-for-nobody", "GPUs of {node} worked without a workload label", node=node.node))
        held = [one for one in bare if one.held_hours > most]
        if held:
            reasons.append(
                coded(
                    "memory-held-by-nobody", "memory of {gpus} GPUs of {node} is in use without a workload label",
                    gpus=len(held), node=node.node,
                )
            )  # fmt: skip
        return reasons

    def _fabric(self, node: NodeInventory) -> list[CodedText]:
        facts = self.verdicts.node(node.node)
        if facts is None or facts.fabric is None:
            return [coded("fabric-not-observed", "no fabric data for {node}", node=node.node)]
        if not facts.fabric.readable:
            return [
                coded(
                    "fabric-unreadable", "fabric data of {node} not usable: {because}",
                    node=node.node, because=(facts.fabric.reason or "not readable").rstrip("."),
                )
            ]  # fmt: skip
        if facts.fabric.still_share > STILL_MAX and node.node in self._spanned:
            return [
                coded(
                    "fabric-counters-still",
                    "fabric counters of {node} did not change in {share:.0%} of the time although work there spans "
                    "nodes; they may be stuck",
                    node=node.node, share=facts.fabric.still_share,
                )
            ]  # fmt: skip
        if facts.fabric.hours < self._enough_hours(node.node):
            return [
                coded(
                    "fabric-observed-in-part",
                    "fabric data of {node} cover {hours:.0f} of {window_hours:.0f} h",
                    node=node.node, hours=facts.fabric.hours, window_hours=self._hours(node.node),
                )
            ]  # fmt: skip
        return []

    @cached_property
    def _spanned(self) -> frozenset[str]:
        """Nodes on which work spans nodes: by its allocation, or as a part of a job of several nodes."""
        spanning = (w for w in self.verdicts.workloads if len(w.nodes) > 1 or PART.search(w.name) is not None)
        return frozenset(node for w in spanning for node in w.nodes)

    @cached_property
    def _bare(self) -> Mapping[str, tuple[BareGpu, ...]]:
        found: dict[str, list[BareGpu]] = {}
        for one in self.verdicts.bare:
            found.setdefault(one.node, []).append(one)
        return {name: tuple(own) for name, own in found.items()}


def all_seen(verdicts: Verdicts, nodes: Iterable[str]) -> bool:
    """Whether every GPU of these nodes was observed: what is switched off is a node, with all of them."""
    known = [verdicts.inventory.nodes.get(name) for name in nodes]
    return all(one is not None and not one.unobserved and not one.surplus for one in known)


def without_claim(r: Recommendation, subject: str, reasons: Iterable[CodedText]) -> Recommendation:
    """The recommendation without what it claims, and why. What was not observed leaves the risk open: it is high.
    `subject`: what it is called in a sentence."""
    why = tuple(reasons)
    return replace(
        r,
        draws=None,
        time_ratio=None,
        saving_usd_per_month=None,
        freed_gpu_hours_per_month=0.0,
        energy_saving_kwh_per_month=None,
        realisation="capacity-freed",
        risk="high",
        blocked_by=(*r.blocked_by, *why),
        prices=(),
        break_even=None,
        available_from=None,
        yardstick=SavingsBaseline(nodes=r.yardstick.nodes, site_factor=r.yardstick.site_factor),
        text=f"{subject} is not recommended: {all_of(why).text}.",
    )


def with_gap(r: Recommendation, gap: float) -> Recommendation:
    """The recommendation with the part of the window that nobody observed, where there is one."""
    percent = math.ceil(gap * 1000 - 1e-9) / 10
    return r if percent < 0.1 else replace(r, text=f"{r.text} {percent:g} % of the window has no data.")
