"""The one gate between a recommendation and its claim: what it rests on (`Recommendation.needs`) and was not observed
blocks it, each reason by name, and then it claims no cash and no capacity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..classify.bottlenecks.links import PART
from ..classify.types import BareGpu, Verdicts
from ..classify.workloads.inventory import GpuCoverage
from ..core.advice_types import EvidenceClaim, Recommendation, SavingsBaseline
from ..core.coded_text import CodedText, all_of, coded
from ..core.formatting import listed
from ..core.timestamps import minute

# Share of the time that may be missing: beyond it, what the GPUs did is unknown.
GAP_MAX = 0.01
# Work that spans nodes sends something now and then: counters that do not move at all for longer may stand still.
STILL_MAX = 0.05
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
    """The evidence of a window, for claims. `free`: node -> GPUs without a workload; `floor_hours`: of a GPU."""

    verdicts: Verdicts
    free: Mapping[str, Sequence[BareGpu]]
    floor_hours: float

    def missing(self, claim: EvidenceClaim) -> tuple[CodedText, ...]:
        """Every reason why the claim does not stand, as clauses; empty: everything it needs was observed."""
        return tuple(dict.fromkeys(reason for name in claim.nodes for reason in self._of(name, claim)))

    def gap(self, claim: EvidenceClaim | None) -> float:
        """Share of the window in which the claim's least observed GPU has no data; 0 of what claims nothing."""
        names = claim.nodes if claim is not None else ()
        hours = {name: self._hours(name) for name in names}
        seen = [gpu.hours / hours[name] for name in names for gpu in self._gpus(name, claim) if hours[name] > 0]
        return max(1.0 - min(seen), 0.0) if seen else 0.0

    def _hours(self, node: str) -> float:
        """Hours in which the node can have been observed: those of the window, for one that was first observed late may
        have been there before; its own where the nodes of its pool are replaced."""
        facts, hours = self.verdicts.node(node), self.verdicts.inventory.hours
        return hours if facts is None or not facts.pool_hours else min(hours, facts.span_hours)

    def _gpus(self, name: str, claim: EvidenceClaim | None) -> Sequence[GpuCoverage]:
        node, parents = self.verdicts.inventory.nodes.get(name), self.verdicts.inventory.parents
        if node is None or claim is None:
            return ()
        asked = {parents.get((name, uuid), (name, uuid))[1] for uuid in claim.gpus}
        return [gpu for gpu in node.gpus if gpu.hours > 0 and (claim.whole or not asked or gpu.gpu_uuid in asked)]

    def _of(self, name: str, claim: EvidenceClaim) -> Iterator[CodedText]:
        if (node := self.verdicts.inventory.nodes.get(name)) is None:
            yield coded("node-unknown", "no data for {node}", node=name)
            return
        for unobserved in node.unobserved[:1] if claim.whole else ():
            why = f"{unobserved.reason[:1].lower()}{unobserved.reason[1:].rstrip('.')}"
            text = f"no data for {node.unobserved_count} of {node.gpu_count} GPUs of {name}: {why}"
            fields = {"node": name, "gpus": node.unobserved_count, "of": node.gpu_count, "because": unobserved.code}
            yield CodedText("gpus-not-observed", text, fields)
        if claim.whole and node.surplus:
            text = "{node} reports {surplus} more GPUs than its SKU has, so its SKU is doubtful"
            yield coded("sku-in-doubt", text, node=name, surplus=node.surplus)
        yield from self._observed(name, claim)
        pods = node.unaccounted_pods
        if pods and (claim.whole or claim.unheld):
            them = "it" if len(pods) == 1 else "them"
            text = f"{listed(list(pods))} requested GPUs of {name}, but no metric names {them}"
            yield CodedText("pods-not-named", text, {"node": name, "pods": ", ".join(pods)})
        # Every GPU of a whole node is part of the claim, or none is.
        bare, most = self.free.get(name, ()) if claim.whole else (), GAP_MAX * self.verdicts.inventory.hours
        if any(bare_gpu.busy_hours > most for bare_gpu in bare):
            yield coded("worked-for-nobody", "GPUs of {node} worked without a workload label", node=name)
        if held := sum(bare_gpu.held_hours > most for bare_gpu in bare):
            text = "memory of {gpus} GPUs of {node} is in use without a workload label"
            yield coded("memory-held-by-nobody", text, gpus=held, node=name)
        if claim.host and node.host_hours < self._enough(name):
            yield coded("cores-not-measured", "CPU use of {node} was not measured for the whole window", node=name)
        if name in claim.fabric and (why := self._fabric(name)) is not None:
            yield why

    def _enough(self, node: str) -> float:
        """Hours that must have been observed; the sum of many is not exact to the last digit."""
        return (1.0 - GAP_MAX) * self._hours(node) - 1e-6

    def _observed(self, name: str, claim: EvidenceClaim) -> Iterator[CodedText]:
        if not (gpu_coverages := self._gpus(name, claim)):
            yield coded("no-gpu-observed", "no data for any GPU of {node}", node=name)
            return
        least, last = min(gpu.hours for gpu in gpu_coverages), min(gpu.last_ts for gpu in gpu_coverages)
        if least < self.floor_hours:
            text = "only {hours:.1f} h of data for {node}, {needed_hours:g} h needed"
            yield coded("observed-too-short", text, node=name, hours=least, needed_hours=self.floor_hours)
        # Rows are up to an hour long, and nodes write them at moments of their own.
        elif last < self.verdicts.inventory.end - 7200.0:
            text = f"no data for {name} after {minute(last)}"
            yield CodedText("not-observed-since", text, {"node": name, "ts": last})
        elif least < self._enough(name):
            text = "{node} has data for {hours:.0f} of {window_hours:.0f} h"
            yield coded("observed-in-part", text, node=name, hours=least, window_hours=self._hours(name))
        else:
            for measure in sorted(claim.measures):
                if lacking := sum(
                    gpu.measured.get(measure, 0.0) < (1.0 - GAP_MAX) * gpu.hours for gpu in gpu_coverages
                ):
                    which = "" if lacking == len(gpu_coverages) else f"{lacking} of {len(gpu_coverages)} GPUs of "
                    fields = {"measure": measure, "node": name, "gpus": lacking, "of": len(gpu_coverages)}
                    yield CodedText("measure-missing", f"no {NAMES[measure]} data for {which}{name}", fields)

    def _fabric(self, name: str) -> CodedText | None:
        facts = self.verdicts.node(name)
        fabric = facts.fabric if facts is not None else None
        if fabric is None:
            return coded("fabric-not-observed", "no fabric data for {node}", node=name)
        if not fabric.readable:
            why = (fabric.reason or "not readable").rstrip(".")
            return coded("fabric-unreadable", "fabric data of {node} not usable: {because}", node=name, because=why)
        if fabric.still_share > STILL_MAX and name in self._spanned:
            text = "fabric counters of {node} did not change in {share:.0%} of the time although work there spans nodes"
            return coded("fabric-counters-still", f"{text}; they may be stuck", node=name, share=fabric.still_share)
        if fabric.hours < self._enough(name):
            text, hours = "fabric data of {node} cover {hours:.0f} of {window_hours:.0f} h", self._hours(name)
            return coded("fabric-observed-in-part", text, node=name, hours=fabric.hours, window_hours=hours)
        return None

    @cached_property
    def _spanned(self) -> frozenset[str]:
        """Nodes on which work spans nodes: by its allocation, or as a part of a job of several nodes."""
        spanning = (w for w in self.verdicts.workloads if len(w.nodes) > 1 or PART.search(w.name) is not None)
        return frozenset(node for w in spanning for node in w.nodes)


def all_seen(verdicts: Verdicts, nodes: Iterable[str]) -> bool:
    """Whether every GPU of these nodes was observed: what is switched off is a node, with all of them."""
    counted = [verdicts.inventory.nodes.get(name) for name in nodes]
    return all(node is not None and not node.unobserved and not node.surplus for node in counted)


def without_claim(r: Recommendation, subject: str, reasons: Iterable[CodedText]) -> Recommendation:
    """The recommendation without what it claims; the risk is high. `subject`: what it is called in a sentence."""
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
    """The recommendation with the unobserved part of the window, where there is one."""
    percent = math.ceil(gap * 1000 - 1e-9) / 10
    return r if percent < 0.1 else replace(r, text=f"{r.text} {percent:g} % of the window has no data.")
