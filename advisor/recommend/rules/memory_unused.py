"""Memory that is paid and never needed: smaller cards or slices of one would do."""

from __future__ import annotations

from collections.abc import Iterable

from ....rules.policy.thresholds import WasteRule
from ..finding import as_percent
from ..fleet import WEAK, Fleet
from ..groups import Group
from ..rule import AT_CAPACITY, Verdict, Why, WorkloadRule, is_job, seen_at_work, seen_too_short

# Memory that was never taken means the same for all kinds of work but an engine's pool, which its level shows.
_SURE_OF_ANY = 0.8


class MemoryUnused(WorkloadRule):
    """Work that never took half of its GPUs' memory: what it took bounds what it needs from above. An engine that fills
    whatever it finds says nothing of its need, and is out of its scope."""

    id = "memory-unused"
    fact = "GPU memory mostly unused"
    answered_by = {"mig-slice": 2, "move-sku": WEAK}
    contradicted_by = AT_CAPACITY | {"shape-memory-pool"}
    line = ("memory used", "mem_max", "memory unused up to")

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if not group.preallocates)

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        if (most := group.mem_needed_max) is None:
            return Why.MEMORY_NOT_MEASURED
        if most >= limits.value("mem_max"):
            return None
        # Somebody's session works in short spells, which is no probing.
        if group.kind != "interactive" and not seen_at_work(group, limits):
            return Why.ON_STANDBY
        # A service may be asked for more on another day; a job has shown in its own hours what it takes.
        floor = limits.value("job_hours" if is_job(group) else "coverage_hours")
        if group.observed_hours < floor:
            return seen_too_short(floor)
        sku = fleet.gpu_of(group)
        size = None if sku is None else sku.mem_bytes
        return self.found(
            fleet, group,
            evidence=(
                ("mem_used_max", most, "mem_max", "ratio of the GPU's memory"),
                ("mem_total", None if size is None else float(size), None, "bytes"),
                ("hours_observed", group.observed_hours, floor, "hours"),
            ),
            gpu_hours=group.gpu_hours,
            values={"mem_used": as_percent(most), "mem_gb": None if size is None else f"{most * size / 1e9:.0f}"},
            sure=max(group.lead.kind.confidence, _SURE_OF_ANY),
            after="Memory has no separate price; see the recommendations for the savings of a smaller GPU or a slice.",
        )  # fmt: skip
