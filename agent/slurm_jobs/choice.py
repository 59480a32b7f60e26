"""Which jobs of a table are those of a node: by cluster, by its name in their node lists, else by what was observed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ..base.slurm_job import SlurmJob
from ..jobs.hostlist import expand
from ..store.slurm_rows import short_name

# A scan is 10 s, and the first look at a process may be a few scans late.
SLACK_SECONDS = 60.0
# No cluster has more nodes; a list of more is refused before it is written out.
MAX_NODES = 65_536
_LIST = re.compile(r"[A-Za-z0-9._\-\[\],]{1,4096}", re.ASCII)
# Written out, a list of the largest cluster takes megabytes: only short ones are kept, and few others.
_SHORT = 512


def is_of_cluster(job: SlurmJob, clusters: Collection[str], own: str | None) -> bool:
    """Whether a job may be of this cluster. `clusters`: as the nodes name theirs; `own`: Slurm's name of it, if set."""
    if job.cluster is None:
        return True
    return job.cluster == own if own is not None else not clusters or job.cluster in clusters


def job_nodes(job: SlurmJob) -> frozenset[str] | None:
    """The nodes it ran on, by `short_name`; None: not told."""
    names = expand_node_list(job.node_list) if job.node_list else None
    return None if names is None else frozenset(map(short_name, names))


def expand_node_list(node_list: str) -> frozenset[str] | None:
    """The nodes of a list; None for what is none, or names more than `MAX_NODES`."""
    short = _short(node_list)
    return short if short is not None else _long(node_list)


@lru_cache(maxsize=4096)
def _short(node_list: str) -> frozenset[str] | None:
    return _expanded(node_list, _SHORT)


@lru_cache(maxsize=16)
def _long(node_list: str) -> frozenset[str] | None:
    return _expanded(node_list, MAX_NODES)


def _expanded(node_list: str, limit: int) -> frozenset[str] | None:
    if not _LIST.fullmatch(node_list):
        return None
    found = expand(node_list, limit)
    return frozenset(found) if found and all(found) else None


@dataclass
class JobsOfNode:
    """Keeps the jobs that ran on these nodes, and counts why others did not. A `Keep`.

    `runs`: job id -> spans in which workloads of this id were observed, for jobs whose nodes are not told.
    """

    nodes: frozenset[str]
    clusters: Collection[str]
    runs: Mapping[str, Sequence[tuple[float, float]]]
    own_cluster: str | None = None
    other_clusters: Counter[str] = field(default_factory=Counter)
    elsewhere: int = 0

    def __call__(self, job: SlurmJob) -> bool:
        if not is_of_cluster(job, self.clusters, self.own_cluster):
            self.other_clusters[job.cluster or ""] += 1
            return False
        nodes = job_nodes(job)
        if nodes is not None:
            here = not nodes.isdisjoint(self.nodes)
        else:
            here = any(
                job.started < last + SLACK_SECONDS and (job.ended is None or job.ended > first - SLACK_SECONDS)
                for first, last in self.runs.get(job.job_id, ())
            )
        self.elsewhere += not here
        return here

    def warnings(self) -> list[str]:
        """What was not taken, and why."""
        said = []
        if self.other_clusters:
            names = ", ".join(repr(name) for name, _ in self.other_clusters.most_common(3))
            said.append(
                f"{self.other_clusters.total()} jobs are of another cluster ({names}) and were not taken. Set "
                "slurm.cluster where that is this cluster's name in Slurm."
            )
        if self.elsewhere:
            said.append(f"{self.elsewhere} jobs ran on other nodes and were not taken.")
        return said
