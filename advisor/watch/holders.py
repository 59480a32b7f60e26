"""Who holds which GPUs now, and what kind of holder each is: a job, a notebook, a service, or a process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from ...rules.policy.kind_priors import KindPriors
from ..classify.kinds.clues import DEPLOYMENT_LIKE, image_name
from ..core.frame import Frame
from ..core.incident_types import Hold, HolderKind, RecentGpu, RecentNode
from ..core.scalars import Record, known, records, text
from ..core.verdict_types import Owner

# A hold counts as one of now up to so long before its node was last observed: a pod's ends with its last sample. Uses
# of one workload this close together are one: a scan or a scrape lies between.
_HELD_SECONDS = _APART_SECONDS = 300.0
_HOLDER: Mapping[str, HolderKind] = {
    "interactive": "notebook", "online-inference": "service", "training": "job", "fine-tuning": "job",
    "batch-inference": "job",
}  # fmt: skip
_TEXTS = ("team", "user", "account", "namespace", "job_id", "pod", "name", "series_id", "scheduler")
# What names and owners say must weigh so much more for one kind of holder than for the next (natural logarithm; twice
# as likely).
_LEAD_MIN = 0.7


def current_holds(
    frames: Iterable[Frame], gpus: Sequence[RecentGpu], nodes: Sequence[RecentNode], priors: KindPriors, *,
    start: float, end: float,
) -> tuple[Hold, ...]:  # fmt: skip
    """The workloads that held GPUs when their nodes were last observed, by id. `start`, `end`: where the uses are cut
    (what begins at `start` began at an unknown time before)."""
    frames = [*frames]
    workloads = pd.concat([frame.workloads for frame in frames]).drop_duplicates("workload_id")
    engines = {str(id_) for frame in frames for id_ in frame.tokens.get("workload_id", ())}
    places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    last_seen = {node.node: node.last_seen or end for node in nodes}
    held: dict[str, dict[int, set[str]]] = {}  # of each workload its GPUs, and by what each is known
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in records(pd.concat([frame.uses for frame in frames])):
        key, node, last = str(row["workload_id"]), str(row["node"]), float(row["ts_end"])
        spans.setdefault(key, []).append((float(row["ts_start"]), last))
        place = places.get((node, str(row["gpu_uuid"])))
        if place is not None and last >= last_seen.get(node, end) - _HELD_SECONDS:
            held.setdefault(key, {}).setdefault(place, set()).add(str(row["basis"]))
    sharers = Counter(place for by_place in held.values() for place in by_place)
    holds = []
    for row in records(workloads.sort_values("workload_id")):
        key, has_engine = str(row["workload_id"]), row["workload_id"] in engines
        if key not in held:
            continue
        bases, since = set[str]().union(*held[key].values()), _since(row, spans[key], start)
        team, user, account, namespace, job_id, pod, name, series, scheduler = (text(row.get(of)) for of in _TEXTS)
        holds.append(Hold(
            workload_id=key, series_id=series or key, name=name or key,
            holder=holder_of(row, priors, has_engine=has_engine),
            owner=Owner(team=team, user=user, account=account, namespace=namespace), gpus=tuple(sorted(held[key])),
            since=since, basis=next((basis for basis in ("allocation", "process") if basis in bases), "activity"),
            shared=any(sharers[place] > 1 for place in held[key]), engine=has_engine, scheduler=scheduler or "process",
            job_id=job_id, pod=pod,
        ))  # fmt: skip
    return tuple(holds)


def _since(workload: Record, spans: Sequence[tuple[float, float]], start: float) -> float:
    """Since when a workload holds what it holds now: a job that was requeued began again."""
    begin = math.inf
    for first, last in sorted(spans, key=lambda span: -span[1]):
        if last < begin - _APART_SECONDS < math.inf:
            break
        begin = min(begin, first)
    return min(known(workload["first_seen"]) or begin, begin) if begin <= start + _APART_SECONDS else begin


def holder_of(workload: Record, priors: KindPriors, *, has_engine: bool) -> HolderKind:
    """The kind of holder: by what names, images, commands and owners say together, by its inference engine, by its
    scheduler. `workload`: a row of the frame's table `workloads`."""
    is_slurm, name = workload["scheduler"] == "slurm", text(workload["name"])
    owner = text(workload.get("controller_kind"))
    program = " ".join(filter(None, (text(workload["command"]), name)))
    about = {
        "framework": text(workload["framework"]), "image": image_name(text(workload.get("image"))), "program": program,
        "task": program, "owner": DEPLOYMENT_LIKE if owner == "ReplicaSet" else owner,
        "partition": text(workload.get("partition")), "namespace": text(workload["namespace"]),
        "job-name": name if is_slurm else None,
    }  # fmt: skip
    weights: dict[HolderKind, float] = {"job": 0.0, "notebook": 0.0, "service": 0.0}
    for of, words in about.items():
        # What Kubernetes keeps for a purpose is for that from its first minute on.
        line = priors.first(of, words, math.inf if of == "owner" else 0.0)
        best: dict[HolderKind, float] = {}
        for kind, value in line[0].log_odds.items() if line is not None else ():
            best[_HOLDER[kind]] = max(value, best.get(_HOLDER[kind], value))
        for holder, value in best.items():
            weights[holder] += value
    ranked: list[tuple[float, HolderKind]] = sorted(((w, holder) for holder, w in weights.items()), reverse=True)
    (most, first), (next_most, _), _ = ranked
    named = first if most > 0 and most - next_most > _LEAD_MIN else None
    if named == "notebook":
        return named
    if has_engine and named != "job":
        return "service"
    # Slurm's jobs end at their time limit, whatever they serve.
    return "job" if is_slurm else named or "process"
