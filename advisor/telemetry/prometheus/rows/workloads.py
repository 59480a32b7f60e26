"""Which workload held which GPU when: from the labels of dcgm-exporter, or the seconds that our agent's page counts.

Where a target's own label has the same name, Prometheus moves the exporter's to ``exported_NAME`` (honor_labels false):
that one names the workload, the bare one the exporter's own pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from .....agent.inventory.identity.ids import series_id, slurm_parts, workload_id
from .....agent.inventory.kubernetes.pod_names import controller_of
from .....agent.inventory.kubernetes.pods import RESERVATION_NAMESPACES, RESERVED
from .....agent.store.reading import queries as store
from ....core.frame import Window
from ...resolution import concat
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql.labels import agent_node, cluster_of
from .gpus import About
from .homes import reporter

# A row that is this full was held from end to end: samples at its edges may be missing.
_FULL = 0.97
# The DaemonSets and containers that dcgm-exporter's chart and the GPU operator create (the chart's is "exporter").
_EXPORTER_POD = re.compile(r"(?:.+-)?dcgm-exporter-[a-z0-9]{5}")
_EXPORTER_CONTAINERS = frozenset({"nvidia-dcgm-exporter", "dcgm-exporter"})
_HOST_LABELS = ("Hostname", "hostname", "exported_Hostname", "exported_hostname")


class LabelledWork(NamedTuple):
    """A workload as a series names it."""

    workload_id: str
    series_id: str | None
    name: str
    scheduler: str
    job_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    framework: str | None = None
    basis: str = "allocation"
    shared: bool = False
    cluster: str = ""


def work_of(labels: Labels, *, exported: bool) -> LabelledWork | None:
    """The workload that a series of dcgm-exporter names; None for none. `exported`: the labels ``exported_NAME`` name
    it."""

    def label(name: str) -> str:
        return labels.get(f"exported_{name}" if exported else name, "")

    cluster = cluster_of(labels)
    # No target has a label of this name, so it may keep it.
    job = labels.get("exported_hpc_job") or labels.get("hpc_job")
    if job and job != "0":
        parts = slurm_parts(job, None, None)
        # Only its number is known: without a name each job is a series of its own.
        return LabelledWork(workload_id(cluster, "slurm", *parts), None, f"job {job}", "slurm", job_id=job)
    pod, namespace, uid = label("pod"), label("namespace"), label("pod_uid")
    if not pod:
        return None
    is_reserved = namespace in RESERVATION_NAMESPACES
    name = RESERVED if is_reserved else controller_of(pod)
    return LabelledWork(
        workload_id(cluster, "kubernetes", *((uid,) if uid else ("pod", namespace, pod))),
        series_id(cluster, namespace or None, None, name),
        name, "kubernetes", namespace=namespace or None, pod=pod, shared=is_reserved, cluster=cluster,
    )  # fmt: skip


def agent_work(labels: Labels) -> LabelledWork | None:
    """The workload of a series ``skuwise_workload_gpu_seconds_total``; its ids are the agent's own."""
    key = labels.get("workload_id")
    if not key:
        return None
    prefix = "exported_" if "exported_pod" in labels or "exported_namespace" in labels else ""
    pod, job = labels.get(f"{prefix}pod"), labels.get("job_id")
    return LabelledWork(
        key, labels.get("series_id"), controller_of(pod) if pod else f"job {job}" if job else key,
        labels.get("scheduler", "process"), job, labels.get(f"{prefix}namespace"), pod, labels.get("framework"),
        labels.get("basis", "process"), labels.get("shared") == "1",
    )  # fmt: skip


def agent_uses(answer: SeriesAnswer, grid: Grid, about: Mapping[str, About]) -> pd.DataFrame:
    """Uses from ``skuwise_workload_gpu_seconds_total`` at the end of each row, with the columns of `LabelledWork`."""
    rows: list[dict[str, object]] = []
    for labels, counted in zip(answer.labels, answer.values, strict=True):
        work, uuid = agent_work(labels), labels.get("gpu_uuid")
        own = next((key for key in (f"{uuid}@{agent_node(labels)}", uuid) if key in about), None)
        if work is not None and uuid is not None and own is not None:
            rows += [_row(work, about[own].node, uuid, *span) for span in _counted_spans(counted, grid)]
    return pd.DataFrame(rows)


def dcgm_uses(
    counts: SeriesAnswer, grid: Grid, about: Mapping[str, About], *, intervals: Mapping[str, float], taken: set[str],
    key_of: Callable[[Labels], str | None], requesting: Collection[tuple[str, str]] = (),
) -> pd.DataFrame:  # fmt: skip
    """Uses from the labels of dcgm-exporter's series. `key_of`: the key of a series' rows in `about`; `taken`: GPUs
    that our agent reports; `requesting`: namespace and name of the pods that request GPUs, as far as that is known."""
    exported = targets_with_exported(counts.labels)
    own_pods = _exporter_pods(counts.labels, exported, frozenset(requesting))
    samples: dict[tuple[str, LabelledWork], Floats] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        target = reporter(labels)
        if target not in exported and (target, labels.get("pod", "")) in own_pods and not labels.get("hpc_job"):
            continue
        own, work = key_of(labels), work_of(labels, exported=target in exported)
        if own is None or work is None or own not in about or about[own].uuid in taken:
            continue
        counted = np.nan_to_num(values)
        samples[own, work] = np.maximum(samples[own, work], counted) if (own, work) in samples else counted
    rows: list[dict[str, object]] = []
    for (own, work), values in samples.items():
        held, gpu = np.minimum(values * intervals.get(own, 0.0), grid.step), about[own]
        rows += [_row(work, gpu.node, gpu.uuid or own, start, end) for start, end in held_spans(held, grid)]
    return pd.DataFrame(rows)


def targets_with_exported(series: Iterable[Labels]) -> set[str]:
    """Targets on which the labels ``exported_NAME`` name workloads."""
    return {reporter(labels) for labels in series if "exported_pod" in labels or "exported_hpc_job" in labels}


def _exporter_pods(
    series: Sequence[Labels], exported: Collection[str], requesting: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Targets without ``exported_NAME`` and the pod there that is the exporter's own.

    It requests no GPU, and its hostname, its DaemonSet or its container is dcgm-exporter's; or it stands on every GPU
    of the target and on other targets of the same scrape job bare labels are the exporter's.
    """
    jobs = {target.partition("|")[0] for target in exported}
    pods: dict[str, set[str]] = {}
    for labels in series:
        pods.setdefault(reporter(labels), set()).add(labels.get("pod", ""))
    found: set[tuple[str, str]] = set()
    for labels in series:
        target, pod = reporter(labels), labels.get("pod", "")
        if not pod or target in exported or (labels.get("namespace", ""), pod) in requesting:
            continue
        by_name = labels.get("container") in _EXPORTER_CONTAINERS or (
            _EXPORTER_POD.fullmatch(pod) is not None and labels.get("container", "exporter") == "exporter"
        )
        by_host = any(labels.get(name) == pod for name in _HOST_LABELS)
        if by_name or by_host or (len(pods[target]) == 1 and target.partition("|")[0] in jobs):
            found.add((target, pod))
    return found


def held_spans(held: Floats, grid: Grid) -> list[tuple[float, float]]:
    """Spans of time from seconds held in each row: rows that follow one another, the first and last cut to their part.

    In a row that is held in part, what began in it holds its end and what ended in it its beginning.
    """
    edges = np.diff(np.concatenate(([0], (held > 0).astype(np.int8), [0])))
    first, last = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0] - 1
    missing = np.where(held < _FULL * grid.step, grid.step - held, 0.0)
    several = first != last
    begin = grid.start + (first - 1) * grid.step + np.where(several, missing[first], 0.0)
    end = grid.start + last * grid.step - missing[last]
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def _counted_spans(counted: Floats, grid: Grid) -> list[tuple[float, float]]:
    """Spans from a counter of seconds held: its first value says how long before it the first span began."""
    at = np.nonzero(~np.isnan(counted))[0]
    if not len(at):
        return []
    values = counted[at]
    more = np.diff(values, prepend=0.0)
    held = np.zeros(grid.count)
    # A counter that fell began anew with the agent; what it shows since was held.
    held[at] = np.minimum(np.where(more < 0, values, more), grid.step)
    spans = held_spans(held, grid)
    if spans and values[0] > 0:
        start, end = spans[0]
        spans[0] = (min(start, grid.start + at[0] * grid.step - float(values[0])), end)
    return spans


def workloads_of(uses: pd.DataFrame, window: Window) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame's tables `uses` and `workloads` of rows of uses."""
    if uses.empty:
        return concat([], store.USES.columns), concat([], store.WORKLOADS.columns)
    inside = uses[(uses["ts_start"] < window.end) & (uses["ts_end"] > window.start)].reset_index(drop=True)
    # Pods have a start, which may lie before the window.
    inside = inside.assign(first_seen=inside.reindex(columns=["ts_start", "began"]).astype(float).min(axis=1))
    by_id = inside.groupby("workload_id", sort=True)
    table = by_id.first().assign(first_seen=by_id["first_seen"].min(), last_seen=by_id["ts_end"].max()).reset_index()
    table["series_id"] = table["series_id"].where(table["series_id"].notna(), table["workload_id"])
    return inside.reindex(columns=[*store.USES.columns]), table.reindex(columns=[*store.WORKLOADS.columns])


def _row(work: LabelledWork, node: str, uuid: str, start: float, end: float) -> dict[str, object]:
    return {
        **work._asdict(), "shared": float(work.shared), "node": node, "gpu_uuid": uuid, "ts_start": start,
        "ts_end": end, "mem_used_bytes": np.nan, "user": None, "account": None, "command": None,
    }  # fmt: skip
