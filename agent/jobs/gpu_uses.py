"""From processes on GPUs to uses: which workload holds which GPU, on what basis, and how much of its memory.

A node may have thousands of processes on its GPUs, and mostly they are the same as ten seconds ago: who they are is
sorted out anew only when the driver's list changes, their memory at every scan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..model import GpuProcess, WorkloadUse

Key = tuple[str, str]  # GPU and workload


class Holdings:
    """Whose processes stand on which GPU, for one list of processes."""

    def __init__(self, processes: Sequence[GpuProcess], workload_of: Mapping[int, str], hidden: frozenset[int]) -> None:
        """`workload_of`: PID -> workload. `hidden`: PIDs of somebody unknown, who shares the GPUs they are on."""
        rows: dict[Key, dict[int, list[int]]] = defaultdict(dict)
        self.strangers: set[str] = set()
        for number, process in enumerate(processes):
            workload = workload_of.get(process.pid)
            if workload is not None:
                rows[process.gpu_uuid, workload].setdefault(process.pid, []).append(number)
            elif process.pid in hidden:
                self.strangers.add(process.gpu_uuid)
        # The driver lists a process once per kind of context (compute, graphics), each time with all its memory.
        self._rows = {
            key: ([p[0] for p in per_pid.values() if len(p) == 1], [p for p in per_pid.values() if len(p) > 1])
            for key, per_pid in rows.items()
        }

    @property
    def keys(self) -> Iterable[Key]:
        """Every GPU with every workload on it."""
        return self._rows.keys()

    def memory(self, processes: Sequence[GpuProcess]) -> dict[Key, int | None]:
        """Bytes in use, of the list given to `__init__`; None where the driver did not tell it for every process."""
        told = [process.mem_used_bytes for process in processes]
        found: dict[Key, int | None] = {}
        for key, (once, several) in self._rows.items():
            parts = [told[number] for number in once]
            parts += [max((t for n in numbers if (t := told[n]) is not None), default=None) for numbers in several]
            found[key] = None if None in parts else sum(part for part in parts if part is not None)
        return found


def _overlap(one: WorkloadUse, other: WorkloadUse) -> bool:
    """Whether both held the GPU at one time. Without a start nothing is known to be over before it."""
    begins_late = other.until is not None and one.since is not None and other.until <= one.since
    ends_early = one.until is not None and other.since is not None and one.until <= other.since
    return one.gpu_uuid == other.gpu_uuid and not (begins_late or ends_early)


def uses(
    memory: Mapping[Key, int | None], named: Mapping[str, str], strangers: Iterable[str], given: Iterable[WorkloadUse]
) -> tuple[WorkloadUse, ...]:
    """All uses, in a fixed order. `named`: what each workload of `memory` is called by now; `given`: allocations, also
    such as ended since the last call."""
    running: dict[Key, int | None] = {}
    for (gpu, first), amount in memory.items():
        key = (gpu, named[first])
        other = running.get(key, 0)
        running[key] = None if amount is None or other is None else amount + other
    allocations = list(given)
    current = {(one.gpu_uuid, one.workload_id): one for one in allocations if one.until is None}
    holders: dict[str, set[str]] = defaultdict(set)
    for gpu in strangers:
        holders[gpu].add("")
    for gpu, workload in running.keys() | current.keys():
        holders[gpu].add(workload)
    found: list[WorkloadUse] = []
    for one in allocations:
        if one.until is not None:
            shared = any(_overlap(one, two) for two in allocations if two.workload_id != one.workload_id)
            found.append(replace(one, shared=shared))
    for gpu, workload in running.keys() | current.keys():
        shared = len(holders[gpu]) > 1
        if (gpu, workload) in current:
            found.append(replace(current[gpu, workload], shared=shared))
        if (gpu, workload) in running:
            found.append(WorkloadUse(workload, gpu, "process", shared, running[gpu, workload]))
    return tuple(sorted(found, key=lambda use: (use.gpu_uuid, use.workload_id, use.basis, use.until or 0.0)))
