"""The queue: jobs that wait for GPUs in groups that are alike, which GPUs they could use, and the findings that these
would serve."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import COMPUTE_SLICES
from ..classify.types import Verdicts
from ..core.advice_types import Evidence, Finding
from ..core.coded_text import coded
from ..core.frame import Frame
from ..core.ids import stable_id
from ..core.scalars import known, records, text
from ..core.verdict_types import Owner
from ..core.waiting_types import WAITING_METRIC, Waiting, WaitingJobs
from .fleet import HOUR_SECONDS

_ALIKE = ["scheduler", "cluster", "namespace", "user", "account", "partition", "gpus", "nodes", "gpu_type", "blocked"]
# Groups of an advice at most, those that wait longest: a queue of 50,000 jobs of 300 users may have more.
GROUPS_MAX = 1000
_IDS = 5
# What a job waits for that no free GPU starts (the codes of `telemetry/waiting.py`).
_BLOCKED = {
    "dependency": "other jobs", "held": "its release", "begin-time": "its begin time", "limit": "a limit to rise",
    "nodes": "certain nodes", "partition": "its partition", "licenses": "licenses", "storage": "storage",
}  # fmt: skip
_PROFILE = re.compile(r"[1-7]g\.[0-9]+gb")
_UNUSED = ("idle", "held-idle")


@dataclass(frozen=True)
class Queue:
    """Jobs that want GPUs and have not begun. `total`: of all of them. `groups`: at most `GROUPS_MAX`, those that wait
    for GPUs first, then by how long the first of them waits. `turns`: group and jobs of those that wait for GPUs, in
    the order in which they began to wait."""

    total: Waiting
    groups: tuple[WaitingJobs, ...] = ()
    turns: tuple[tuple[WaitingJobs, int], ...] = ()


def queue_of(frame: Frame) -> Queue | None:
    """The queue of a frame; None: none is known."""
    if frame.waiting_at is None:
        return None
    table = frame.waiting.astype({"jobs": int, "gpus": float, "nodes": float, "since": float})
    rows = table.assign(other=table["blocked"].notna())
    rows = rows.sort_values(["other", "since", "id"], kind="stable", ignore_index=True)
    ready = rows[~rows["other"]]
    total = Waiting(
        as_of=frame.waiting_at, jobs=int(ready["jobs"].sum()), gpus=float((ready["jobs"] * ready["gpus"]).sum()),
        since=known(ready["since"].min()), other_jobs=int(rows.loc[rows["other"], "jobs"].sum()),
    )  # fmt: skip
    rows["group"] = rows.groupby(_ALIKE, sort=False, dropna=False).ngroup()
    rows = rows[rows["group"] < GROUPS_MAX]
    groups = [_group(records(same)) for _, same in rows.groupby("group", sort=True)]
    by_turn = rows.loc[~rows["other"], ["group", "jobs"]].itertuples(index=False, name=None)
    turns = ((groups[n], sum(jobs for _, jobs in run)) for n, run in groupby(by_turn, key=itemgetter(0)))
    return Queue(total, tuple(groups), tuple(turns))


def _group(rows: Sequence[Mapping[str, Any]]) -> WaitingJobs:
    first, words = rows[0], {name: text(value) for name, value in rows[0].items()}
    nodes, code = known(first["nodes"]), words["blocked"]
    blocked = coded(code, "waits for {what}", what=_BLOCKED.get(code, "something else")) if code else None
    return WaitingJobs(
        id=stable_id("q", *(first[name] for name in _ALIKE)), scheduler=first["scheduler"], cluster=words["cluster"],
        name=words["name"] or first["id"], owner=Owner(None, words["user"], words["account"], words["namespace"]),
        partition=words["partition"], jobs=sum(row["jobs"] for row in rows), gpus_each=first["gpus"],
        nodes_each=None if nodes is None else int(nodes), gpu_type=words["gpu_type"],
        ids=tuple(row["id"] for row in rows[:_IDS]), since=known(first["since"]), reason=words["reason"],
        blocked_by=blocked,
    )  # fmt: skip


def idle_gpus(verdicts: Verdicts) -> float | None:
    """GPUs at rest in the newest hour, MIG instances by their part; None: no GPU was observed then."""
    begin = verdicts.window.end - HOUR_SECONDS
    seen = any(gpu.last_ts > begin for node in verdicts.inventory.nodes.values() for gpu in node.gpus)
    return round(sum(gpu.part for gpu in verdicts.resting), 3) if seen else None


class Places:
    """Where waiting jobs could run: nodes with GPUs of the type asked for, at the place and under the scheduler that is
    asked. The work that ran on a node shows its scheduler and partitions; a node without any counts for all."""

    def __init__(self, verdicts: Verdicts, catalog: Catalog) -> None:
        self._nodes, self._catalog, self._known = verdicts.nodes, catalog, dict[object, Mapping[str, int]]()
        self._clusters = {node.cluster for node in verdicts.nodes}
        self._ran: dict[str, set[tuple[str, str | None]]] = defaultdict(set)
        for w in verdicts.workloads:
            for node in w.nodes if w.scheduled.name in ("slurm", "kubernetes") else ():
                self._ran[node].add((w.scheduled.name, w.scheduled.partition))

    def of(self, group: WaitingJobs) -> Mapping[str, int]:
        """The nodes that could take jobs of a group if nothing else were there, with their GPUs."""
        key = group.scheduler, group.cluster, group.partition, group.gpu_type
        if key not in self._known:
            words = _type_patterns(group.gpu_type)
            asked = {*(group.partition or "").split(",")} - {""}  # one of several (man sbatch, --partition)

            def takes(scheduler: str, partition: str | None) -> bool:
                return scheduler == group.scheduler and (not asked or partition is None or partition in asked)

            self._known[key] = {
                n.node: n.gpu_count for n in self._nodes
                if (group.cluster not in self._clusters or n.cluster == group.cluster)
                and (n.node not in self._ran or any(takes(*line) for line in self._ran[n.node]))
                and all(word.search(self._names(n.gpu_sku, n.gpu_name)) for word in words)
            }  # fmt: skip
        return self._known[key]

    def _names(self, sku: str | None, name: str | None) -> str:
        gpu = self._catalog.gpu(sku or "")
        return " ".join(filter(None, (sku, name, *(gpu.aliases if gpu is not None else ())))).lower()


def profile_of(group: WaitingJobs) -> str | None:
    """The MIG profile that a group asks for (``1g.10gb``); None: whole GPUs."""
    match = _PROFILE.search((group.gpu_type or "").lower())
    return match[0] if match else None


def _type_patterns(gpu_type: str | None) -> list[re.Pattern[str]]:
    """What the names of a GPU that was asked for as ``a100_80gb`` or ``rtx2080ti`` contain: each word whole, with any
    separators within it. A type of Slurm is a part of the driver's name (man gres.conf, Type)."""
    words = re.split(r"[^a-z0-9]+", _PROFILE.sub("", (gpu_type or "").lower()))
    runs = ([*re.findall(r"[a-z]+|[0-9]+", word)] for word in words if word not in ("", "nvidia", "gpu"))
    return [re.compile(rf"(?<![a-z0-9]){'[^a-z0-9]*'.join(run)}(?![a-z0-9])") for run in runs]


def shares(group: WaitingJobs, node_gpus: int) -> list[int]:
    """GPUs, or instances of its MIG profile, that a job takes of each of its nodes, the most first: of as many nodes
    as it asks for, else of as few as hold it. Empty: nodes of so many GPUs do not hold it."""
    profile = profile_of(group)
    slices = int(profile[0]) if profile else COMPUTE_SLICES
    gpus, most = math.ceil(group.gpus_each * COMPUTE_SLICES / slices - 1e-3), node_gpus * (COMPUTE_SLICES // slices)
    # Of a job on more nodes than GPUs, some have none.
    count = min(group.nodes_each or math.ceil(gpus / max(most, 1)), gpus)
    fits = count > 0 and math.ceil(gpus / count) <= most
    return [gpus // count + (k < gpus % count) for k in range(count)] if fits else []


def with_waiting(findings: Sequence[Finding], verdicts: Verdicts, queue: Queue, catalog: Catalog) -> list[Finding]:
    """The findings with how many GPUs waiting jobs want that those at rest could serve (`WAITING_METRIC`), those that
    serve some first. To serve a job, what is free of a node and what the finding holds there are enough for its share,
    on as many nodes as it asks for."""
    resting = {(gpu.node, gpu.gpu_uuid): gpu for gpu in verdicts.resting}
    kinds = {key: (gpu.node, gpu.profile if gpu.parent_uuid else None) for key, gpu in resting.items()}
    free = Counter(kinds[key] for key, gpu in resting.items() if not gpu.held)
    # Node and MIG profile -> finding -> GPUs or instances that would be free there.
    offers: dict[tuple[str, str | None], dict[str, int]] = defaultdict(dict)
    for f in (f for f in findings if f.rule in _UNUSED):
        keys = [key for node in f.nodes for uuid in f.gpus if (key := (node, uuid)) in resting]
        held = Counter(kinds[key] for key in keys if resting[key].held)
        for kind in {kinds[key] for key in keys}:
            offers[kind][f.id] = free[kind] + held[kind]
    places, served = Places(verdicts, catalog), dict[str, float]()
    for group in queue.groups if offers else ():
        nodes, profile, able = places.of(group), profile_of(group), dict[str, tuple[int, set[str]]]()
        for (node, kind), gpus in offers.items() if group.blocked_by is None else ():
            parts = shares(group, nodes[node]) if node in nodes and kind == profile else []
            if parts and (ids := {id_ for id_, count in gpus.items() if count >= parts[0]}):
                able[node] = len(parts), ids
        for id_ in set[str]().union(*(ids for count, ids in able.values() if len(able) >= count)):
            served[id_] = served.get(id_, 0.0) + group.jobs * group.gpus_each
    wanted = {id_: Evidence(WAITING_METRIC, round(gpus, 3), None, "GPUs") for id_, gpus in served.items()}
    out = [replace(f, evidence=(*f.evidence, wanted[f.id])) if f.id in wanted else f for f in findings]
    return sorted(out, key=lambda f: f.id not in wanted)
