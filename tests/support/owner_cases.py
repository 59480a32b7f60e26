"""How well workloads are told apart: a frame's uses against what is true of simulated fleets.

A use belongs to a pod where most of it, and a good part of the pod's time, is common to both. Of a GPU that several
pods have at once, each has a use, and the advice counts its time once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from skuwise.advisor.core.frame import Frame
from skuwise.tests.fleets.owned import PodTruth

LEAST_SECONDS = 1200.0
"""Pods that ran for less are not asked for: rows of an hour tell little of them."""


@dataclass(frozen=True)
class Case:
    """One question about a fleet, and whether the frame answers it rightly. `why`: what is wrong, for people."""

    kind: str
    name: str
    right: bool
    why: str = ""


def uses_by_gpu(frame: Frame) -> dict[str, list[dict[str, object]]]:
    """UUID -> rows of `uses`, with the series of each."""
    series = dict(zip(frame.workloads["workload_id"], frame.workloads["series_id"], strict=True))
    found: dict[str, list[dict[str, object]]] = {}
    for row in frame.uses.to_dict("records"):
        use = {str(name): value for name, value in row.items()}
        found.setdefault(str(row["gpu_uuid"]), []).append({**use, "series_id": series.get(row["workload_id"])})
    return found


def _of(pod: PodTruth, uses: Mapping[str, Sequence[Mapping[str, object]]]) -> dict[str, list[Mapping[str, object]]]:
    """The uses that lie in a pod's time on its GPUs, by UUID."""
    found: dict[str, list[Mapping[str, object]]] = {}
    for _, uuid in pod.devices:
        for use in uses.get(uuid, ()):
            start, end = float(str(use["ts_start"])), float(str(use["ts_end"]))
            common = min(end, pod.end) - max(start, pod.begin)
            if common > 0.5 * (end - start) and common >= min(LEAST_SECONDS, 0.4 * (pod.end - pod.begin)):
                found.setdefault(uuid, []).append(use)
    return found


def cases(pods: Iterable[PodTruth], frame: Frame) -> list[Case]:
    """Of every controller with replicas: one series, and its own. Of every gang: one workload, and its own. Of shared
    GPUs: each Deployment has its own series there, all of the time."""
    pods = [one for one in pods if one.end - one.begin >= LEAST_SECONDS]
    uses = uses_by_gpu(frame)
    held = {one: _of(one, uses) for one in pods if not one.shared}
    return [*_series(held), *_gangs(held), *_kept_apart(held), *_shared([one for one in pods if one.shared], uses)]


def _ids(found: Iterable[Mapping[str, object]], name: str) -> set[str]:
    return {str(use[name]) for use in found}


def _all(held: Mapping[PodTruth, Mapping[str, list[Mapping[str, object]]]], pods: Iterable[PodTruth]) -> list:
    return [use for pod in pods for uses in held[pod].values() for use in uses]


def _lost(held: Mapping[PodTruth, Mapping[str, list]], pods: Iterable[PodTruth]) -> list[str]:
    return [pod.pod for pod in pods if len(held[pod]) < len({uuid for _, uuid in pod.devices})]


def _series(held: Mapping[PodTruth, Mapping[str, list]]) -> Iterable[Case]:
    by_series: dict[str, list[PodTruth]] = {}
    for pod in held:
        by_series.setdefault(pod.series, []).append(pod)
    own = {series: _ids(_all(held, pods), "series_id") for series, pods in by_series.items()}
    for series, pods in by_series.items():
        if len(pods) < 2:
            continue
        kind = f"series:{pods[0].owner}"
        others = {one for one, ids in own.items() if one != series and ids & own[series]}
        if lost := _lost(held, pods):
            yield Case(kind, series, False, f"no use on GPUs of {lost[:3]}")
        elif len(own[series]) != 1:
            yield Case(kind, series, False, f"{len(pods)} pods are {len(own[series])} series")
        elif others:
            yield Case(kind, series, False, f"the same series as {sorted(others)[:3]}")
        else:
            yield Case(kind, series, True)


def _gangs(held: Mapping[PodTruth, Mapping[str, list]]) -> Iterable[Case]:
    by_gang: dict[str, list[PodTruth]] = {}
    for pod in held:
        if pod.gang:
            by_gang.setdefault(f"{pod.namespace}/{pod.gang}", []).append(pod)
    own = {gang: _ids(_all(held, pods), "workload_id") for gang, pods in by_gang.items()}
    rest = _ids(_all(held, (pod for pod in held if not pod.gang)), "workload_id")
    for gang, pods in by_gang.items():
        kind = f"gang:{pods[0].owner}"
        others = {one for one, ids in own.items() if one != gang and ids & own[gang]}
        if lost := _lost(held, pods):
            yield Case(kind, gang, False, f"no use on GPUs of {lost[:3]}")
        elif len(own[gang]) != 1:
            yield Case(kind, gang, False, f"{len(pods)} pods are {len(own[gang])} workloads")
        elif others or own[gang] & rest:
            yield Case(kind, gang, False, f"the same workload as {sorted(others)[:3] or 'a pod of others'}")
        else:
            yield Case(kind, gang, True)


def _kept_apart(held: Mapping[PodTruth, Mapping[str, list]]) -> Iterable[Case]:
    """Pods that were made anew under their name, and replicas side by side, are workloads of their own."""
    for pod in held:
        if pod.gang or not pod.replicated:
            continue
        mine = _ids(_all(held, [pod]), "workload_id")
        others = [one for one in held if one is not pod and one.series == pod.series]
        theirs = _ids(_all(held, others), "workload_id")
        yield Case(f"apart:{pod.owner}", f"{pod.namespace}/{pod.pod}", not mine & theirs, "one workload with another")


def _shared(pods: Sequence[PodTruth], uses: Mapping[str, Sequence[Mapping[str, object]]]) -> Iterable[Case]:
    by_gpu: dict[str, list[PodTruth]] = {}
    for pod in pods:
        for _, uuid in pod.devices:
            by_gpu.setdefault(uuid, []).append(pod)
    for uuid, several in by_gpu.items():
        found = uses.get(uuid, ())
        ids, wanted = _ids(found, "series_id"), len({pod.series for pod in several})
        known = sum(_length(use) for use in found)
        all_of_it = known > 0.9 * sum(pod.end - pod.begin for pod in several)
        yield Case("shared", uuid, len(ids) == wanted and all_of_it, f"{wanted} Deployments are {len(ids)} series")


def _length(use: Mapping[str, object]) -> float:
    return float(str(use["ts_end"])) - float(str(use["ts_start"]))


def twice(pods: Iterable[PodTruth], frame: Frame) -> float:
    """The share of the held time of GPUs that are not shared in which two workloads hold one at once: who passes a GPU
    on holds it no longer."""
    shared = {uuid for pod in pods if pod.shared for _, uuid in pod.devices}
    both = total = 0.0
    for uuid, uses in uses_by_gpu(frame).items():
        last = 0.0
        for use in sorted(uses, key=lambda one: float(str(one["ts_start"]))) if uuid not in shared else ():
            start, end = float(str(use["ts_start"])), float(str(use["ts_end"]))
            both += max(0.0, min(last, end) - start)
            total += end - start
            last = max(last, end)
    return both / max(total, 1.0)


def tally(found: Iterable[Case]) -> pd.DataFrame:
    """Rows by kind: how many cases, how many right, and the share of them."""
    table = pd.DataFrame([(one.kind, one.right) for one in found], columns=["kind", "right"])
    out = table.groupby("kind")["right"].agg(["size", "sum"]).rename(columns={"size": "cases", "sum": "right"})
    return out.assign(share=out["right"] / out["cases"])
