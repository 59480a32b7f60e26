"""Slurm's job table in a node's database: written beside the agent, in transactions of some milliseconds."""

import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from itertools import islice
from pathlib import Path

from ..model import SlurmJob
from .database import opened_beside, transaction

_ROWS_AT_ONCE = 200
_REST_SECONDS = 0.020
_COLUMNS = [field.name for field in fields(SlurmJob)]
_OTHERS = [name for name in _COLUMNS if name not in ("cluster", "job_id", "started_at")]
# What does not change is not written again, and a table that does not know the end yet takes no end away.
_UPSERT = (
    f"INSERT INTO slurm_job ({', '.join(_COLUMNS)}, imported_at) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))}) "  # noqa: S608 - names of this file
    "ON CONFLICT (cluster, job_id, started_at) DO UPDATE SET "
    + ", ".join(f"{name} = coalesce(excluded.{name}, {name})" for name in _OTHERS)
    + ", imported_at = excluded.imported_at WHERE (slurm_job.ended_at IS NULL OR excluded.ended_at IS NOT NULL) AND ("
    + " OR ".join(f"coalesce(excluded.{name}, slurm_job.{name}) IS NOT slurm_job.{name}" for name in _OTHERS)
    + ")"
)


@dataclass(frozen=True, slots=True)
class KnownJobs:
    """A database's node and jobs, by which a table's jobs are taken or not. `nodes`: its names, in lower case up to the
    first dot; `clusters`: their clusters, where reported; `runs`: job id -> spans of time in which workloads of this id
    were observed; `imported_at`: Unix seconds of the last change, None: never."""

    nodes: frozenset[str]
    clusters: frozenset[str]
    runs: dict[str, list[tuple[float, float]]]
    imported_at: float | None


def known_jobs(path: Path) -> KnownJobs:
    runs: dict[str, list[tuple[float, float]]] = {}
    sql = "SELECT job_id, first_seen, last_seen FROM workloads WHERE scheduler = 'slurm' AND job_id IS NOT NULL"
    with opened_beside(path) as connection:
        nodes = connection.execute("SELECT node, cluster FROM nodes").fetchall()
        for job_id, first, last in connection.execute(sql):
            runs.setdefault(str(job_id), []).append((float(first), float(last)))
        (imported,) = connection.execute("SELECT max(imported_at) FROM slurm_job").fetchone()
    clusters = frozenset(str(cluster) for _, cluster in nodes if cluster)
    return KnownJobs(frozenset(short_name(str(node)) for node, _ in nodes), clusters, runs, imported)


def short_name(node: str) -> str:
    """A node's name as Slurm mostly has it: up to the first dot, in lower case."""
    return node.split(".", 1)[0].lower()


def write_jobs(path: Path, jobs: Iterable[SlurmJob], now: float) -> tuple[int, int]:
    """Write runs beside the agent. Gives how many were new, and how many changed. Raises StoreError."""
    count = "SELECT count(*) FROM slurm_job"
    new = changed = 0
    rows = ((*astuple(replace(job, cluster=job.cluster or "")), now) for job in jobs)
    with opened_beside(path) as connection:
        while part := list(islice(rows, _ROWS_AT_ONCE)):
            with transaction(connection):
                changes, (before,) = connection.total_changes, connection.execute(count).fetchone()
                connection.executemany(_UPSERT, part)
                (after,) = connection.execute(count).fetchone()
            new += after - before
            changed += connection.total_changes - changes - (after - before)
            time.sleep(_REST_SECONDS)  # the agent's commit may have waited
    return new, changed
