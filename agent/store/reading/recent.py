"""What the running agent wrote of a scheduler's allocations in its last minute, for doctor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ....rules.base.errors import SkuwiseError
from ...model import Absence
from .reader import open_reader


@dataclass(frozen=True, slots=True)
class Recorded:
    """`jobs`: Slurm jobs seen; `allocated`: those of them with an allocation. `absences` of scope allocation."""

    jobs: int
    allocated: int
    absences: tuple[Absence, ...]


def recent_allocations(db: Path, now: Callable[[], float] = time.time) -> Recorded | None:
    """What stands in the database about the last minute; None: there is none, or nothing was written lately."""
    since = now() - 60.0
    try:
        with open_reader(db) as reader:
            if not reader.fetch("SELECT 1 FROM nodes WHERE last_seen > :since LIMIT 1", {"since": since}):
                return None
            rows = reader.fetch(
                "SELECT w.workload_id, max(u.basis = 'allocation') FROM workload_gpus u"
                " JOIN workloads w USING (workload_id) WHERE w.scheduler = 'slurm' AND u.ts_end > :since GROUP BY 1",
                {"since": since},
            )
            said = reader.fetch(
                "SELECT reason, detail, remedy FROM absences WHERE scope = 'source' AND device = 'allocation'"
                " AND metric = 'slurm' AND (until IS NULL OR until > :since) GROUP BY reason",
                {"since": since},
            )
    except SkuwiseError:
        return None
    found = tuple(
        Absence("source", "allocation", "slurm", str(reason), str(detail or ""), str(remedy or ""))
        for reason, detail, remedy in said
    )
    return Recorded(len(rows), sum(bool(given) for _, given in rows), found)
