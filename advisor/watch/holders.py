"""Who holds which GPUs now, and what kind of holder each is: a job, a notebook, a service, or a process."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from ...rules.policy.kind_priors import KindPriors
from ..core.recent import Hold, HolderKind
from ..core.scalars import Record, records, text
from ..core.verdict_types import Owner

# A hold counts as one of now up to so long before its node was last observed: a pod's ends with its last sample.
_HELD_SECONDS = 300.0
# Uses of one workload this close together are one: a scan or a scrape lies between.
_APART_SECONDS = 300.0
_HOLDER: Mapping[str, HolderKind] = {
    "interactive": "notebook", "online-inference": "service", "training": "job", "fine-tuning": "job",
    "batch-inference": "job",
}  # fmt: skip
# What names say must weigh so much more for one kind of holder than for the next (natural logarithm; twice as likely).
_LEAD_MIN = 0.7
# Kinds of Kubernetes objects: those that end by themselves, and those that do not.
_OF_CONTROLLER: Mapping[str, HolderKind] = {
    **dict.fromkeys(("notebook", "jupyternotebook"), "notebook"),
    **dict.fromkeys(
        ("job", "cronjob", "jobset", "pytorchjob", "mpijob", "tfjob", "xgboostjob", "paddlejob", "trainjob", "rayjob",
         "volcanojob", "vcjob", "workflow", "taskrun"),
        "job",
    ),
    **dict.fromkeys(
        ("deployment", "replicaset", "statefulset", "inferenceservice", "leaderworkerset", "daemonset", "rayservice",
         "seldondeployment", "revision", "rollout"),
        "service",
    ),
}  # fmt: skip


def current_holds(
    uses: pd.DataFrame,
    workloads: pd.DataFrame,
    gpus: Mapping[tuple[str, str], int],
    last_seen: Mapping[str, float | None],
    priors: KindPriors,
    *,
    start: float,
    end: float,
    engines: Collection[str],
) -> tuple[Hold, ...]:
    """The workloads that held GPUs when their nodes were last observed, by id.

    `gpus`: places of GPUs by node and id; `last_seen`: of each node, Unix seconds; `start`, `end`: where `uses` are
    cut (what begins at `start` began at an unknown time before); `engines`: workloads whose inference engine is read.
    """
    about = {str(row["workload_id"]): row for row in records(workloads)}
    held: dict[str, list[Record]] = {}
    spans: dict[str, list[tuple[float, float]]] = {}
    sharers: dict[tuple[str, str], set[str]] = {}
    for row in records(uses):
        key, device = str(row["workload_id"]), (str(row["node"]), str(row["gpu_uuid"]))
        seen = last_seen.get(device[0]) or end
        spans.setdefault(key, []).append((float(row["ts_start"]), float(row["ts_end"])))
        if key in about and device in gpus and float(row["ts_end"]) >= seen - _HELD_SECONDS:
            held.setdefault(key, []).append(row)
            sharers.setdefault(device, set()).add(key)
    found = []
    for key, rows in sorted(held.items()):
        devices = {(str(row["node"]), str(row["gpu_uuid"])) for row in rows}
        bases = {str(row["basis"]) for row in rows}
        row, has_engine = about[key], key in engines
        found.append(
            Hold(
                workload_id=key, series_id=text(row["series_id"]) or key, name=text(row["name"]) or key,
                holder=holder_of(row, priors, has_engine=has_engine),
                owner=Owner(
                    team=text(row.get("team")), user=text(row["user"]), account=text(row["account"]),
                    namespace=text(row["namespace"]),
                ),
                gpus=tuple(sorted(gpus[device] for device in devices)), since=_since(row, spans[key], start),
                basis=next((basis for basis in ("allocation", "process") if basis in bases), "activity"),
                shared=any(len(sharers[device]) > 1 for device in devices), engine=has_engine,
                scheduler=text(row["scheduler"]) or "process", job_id=text(row["job_id"]),
                namespace=text(row["namespace"]), pod=text(row["pod"]),
            )
        )  # fmt: skip
    return tuple(found)


def _since(workload: Record, spans: Sequence[tuple[float, float]], start: float) -> float:
    """Since when a workload holds what it holds now: a job that was requeued began again."""
    begin = math.inf
    for first, last in sorted(spans, key=lambda span: -span[1]):
        if last < begin - _APART_SECONDS < math.inf:
            break
        begin = min(begin, first)
    seen = float(workload["first_seen"]) if pd.notna(workload["first_seen"]) else begin
    return min(seen, begin) if begin <= start + _APART_SECONDS else begin


def holder_of(workload: Record, priors: KindPriors, *, has_engine: bool) -> HolderKind:
    """The kind of holder: by its inference engine, by the kind of its controller, by what names and images say, by its
    scheduler. `workload`: a row of the frame's table `workloads`."""
    is_slurm = workload["scheduler"] == "slurm"
    controller = _OF_CONTROLLER.get((text(workload.get("controller_kind")) or "").lower())
    if controller in ("notebook", "job"):
        return controller
    named = _named(workload, priors, is_slurm=is_slurm)
    if named == "notebook":
        return "notebook"
    if controller is not None or (has_engine and named != "job"):
        return "service"
    # Slurm's jobs end at their time limit, whatever they serve.
    return "job" if is_slurm else named or "process"


def _named(workload: Record, priors: KindPriors, *, is_slurm: bool) -> HolderKind | None:
    """What names, images and commands say together; None: nothing, or not clearly."""
    name = text(workload["name"])
    program = " ".join(part for part in (text(workload["command"]), name) if part)
    about = {
        "framework": text(workload["framework"]), "image": text(workload.get("image")), "program": program,
        "task": program, "partition": text(workload.get("partition")), "namespace": text(workload["namespace"]),
        "job-name": name if is_slurm else None,
    }  # fmt: skip
    weights: dict[HolderKind, float] = {"job": 0.0, "notebook": 0.0, "service": 0.0}
    for of, words in about.items():
        line = priors.first(of, words, 0.0)
        best: dict[HolderKind, float] = {}
        for kind, value in line[0].log_odds.items() if line is not None else ():
            best[_HOLDER[kind]] = max(value, best.get(_HOLDER[kind], value))
        for holder, value in best.items():
            weights[holder] += value
    ranked: list[tuple[float, HolderKind]] = sorted(((w, holder) for holder, w in weights.items()), reverse=True)
    (most, first), (next_most, _), _ = ranked
    return first if most > 0 and most - next_most >= _LEAD_MIN else None
