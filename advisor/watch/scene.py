"""What every check of the watch is given: the reading, its signs, what it is judged by, and how a sighting is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...rules.policy.watch import WatchRules
from ..core.advice_types import Evidence, Severity
from ..core.coded_text import CodedText
from ..core.ids import stable_id
from ..core.incident_types import IncidentKind, Sighting, Subject
from ..core.recent import Hold, HolderKind, Recent, RecentNode
from ..rulebook import Rulebook
from .holds import HoldSigns
from .signs import GpuSigns
from .timeline import Floats, Timeline

MINUTE, HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class Criteria:
    """What a reading is judged by. `limits`: how long each kind of holder may hold GPUs without using them, seconds;
    `rules`: thresholds (rules/watch.yaml); `book`: what rest is."""

    limits: Callable[[HolderKind], float]
    rules: WatchRules
    book: Rulebook


@dataclass(frozen=True)
class Scene:
    """`limits`: as `Criteria`. `fresh`: nodes whose data reach the end of the reading. `rested_before`: of
    each GPU, since when it rested before the reading's first row (NaN: not known)."""

    recent: Recent
    line: Timeline
    gpus: GpuSigns
    holds: HoldSigns
    limits: Callable[[HolderKind], float]
    rules: WatchRules
    fresh: frozenset[str]
    rested_before: Floats

    @property
    def end(self) -> float:
        return self.line.end

    @cached_property
    def nodes(self) -> Mapping[str, RecentNode]:
        return {node.node: node for node in self.recent.nodes}

    @cached_property
    def sharers(self) -> Mapping[int, int]:
        """How many workloads hold each GPU."""
        return Counter(gpu for hold in self.recent.holds for gpu in hold.gpus)

    def is_fresh(self, hold: Hold) -> bool:
        """Whether the data of all nodes of a workload reach the end."""
        return all(self.recent.gpus[gpu].node in self.fresh for gpu in hold.gpus)

    def whole_gpus(self, gpus: Sequence[int]) -> float:
        """How many whole GPUs these are; of a shared one the sharer's part."""
        return sum(self.recent.gpus[n].part / self.sharers.get(n, 1) for n in gpus)

    def usd_per_hour(self, gpus: Sequence[int]) -> tuple[float | None, str | None]:
        """What these GPUs cost an hour, and where the price is from; None where one of them has no price."""
        total, sources = 0.0, set[str]()
        for n in gpus:
            gpu = self.recent.gpus[n]
            node = self.nodes.get(gpu.node)
            if node is None or node.usd_per_gpu_hour is None:
                return None, None
            total += node.usd_per_gpu_hour * gpu.part / self.sharers.get(n, 1)
            if node.price_source:
                sources.add(node.price_source)
        return (total, "; ".join(sorted(sources)) or None) if gpus else (None, None)

    def of_hold(self, hold: Hold, holder: HolderKind | None = None) -> Subject:
        """A workload as the subject of a sighting."""
        gpus = [self.recent.gpus[n] for n in hold.gpus]
        nodes = tuple(dict.fromkeys(gpu.node for gpu in gpus))
        skus = {gpu.sku for gpu in gpus}
        node_skus = {self.nodes[node].sku for node in nodes if node in self.nodes}
        return Subject(
            key=f"workload:{hold.workload_id}", name=hold.name, nodes=nodes, gpus=tuple(gpu.uuid for gpu in gpus),
            gpu_count=self.whole_gpus(hold.gpus), gpu_sku=next(iter(skus)) if len(skus) == 1 else None,
            node_sku=next(iter(node_skus)) if len(node_skus) == 1 else None, workload_id=hold.workload_id,
            series_id=hold.series_id, holder=holder or hold.holder, scheduler=hold.scheduler, job_id=hold.job_id,
            pod=hold.pod, owner=hold.owner,
        )  # fmt: skip

    def of_gpu(self, place: int) -> Subject:
        """One GPU as the subject of a sighting, with whoever holds it alone."""
        gpu = self.recent.gpus[place]
        holder = next((hold for hold in self.recent.holds if place in hold.gpus and not hold.shared), None)
        node = self.nodes.get(gpu.node)
        named = f"GPU {gpu.index}" if gpu.index is not None else gpu.uuid
        return replace(
            self.of_hold(holder) if holder else Subject("", ""), key=f"gpu:{gpu.node}/{gpu.uuid}",
            name=f"{named} of {gpu.node}", nodes=(gpu.node,), gpus=(gpu.uuid,), gpu_count=gpu.part, gpu_sku=gpu.sku,
            node_sku=node.sku if node else None,
        )  # fmt: skip

    def sighting(
        self,
        kind: IncidentKind,
        subject: Subject,
        *,
        code: str,
        severity: Severity,
        since: float,
        last_work: float | None,
        wasted_seconds: float,
        gpus: Sequence[int],
        evidence: tuple[Evidence, ...],
        text: CodedText,
        do_next: CodedText,
    ) -> Sighting:
        """A sighting with its hours and dollars. `wasted_seconds`: for which each of `gpus` did nothing."""
        hours = self.whole_gpus(gpus) * wasted_seconds / HOUR
        rate, source = self.usd_per_hour(gpus)
        return Sighting(
            id=stable_id("s", kind, subject.key), kind=kind, code=code, severity=severity, subject=subject,
            since=since, last_work=last_work, gpu_hours=hours, usd_per_hour=rate,
            cost_usd=rate * wasted_seconds / HOUR if rate is not None else None, price_source=source,
            evidence=evidence, text=text, do_next=do_next,
        )  # fmt: skip
