"""Readings of the last hours, minute by minute, for tests of the watch: one node or several, and who holds what."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.core.incident_types import Hold, Measures, Recent, RecentGpu, RecentNode, Spans, WatchPass
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.watch.fleet import Criteria
from skuwise.advisor.watch.rules import evaluate
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.rules.policy.thresholds import load_levels
from skuwise.tests.support.rulebooks import rulebook

END = 1_790_000_400.0
MINUTES = 810  # 13.5 h
SKU = "H100-SXM5"
CRITERIA = Criteria(WatchSettings().limit_seconds, load_levels("watch.yaml"), rulebook())

# One minute of a GPU: training, at rest with a context, free, spinning in a collective.
TRAINING = {
    "observed": 1.0, "engine": 0.97, "engine_max": 1.0, "util": 0.97, "sm": 0.8, "tensor": 0.45, "dram": 0.5,
    "power_watts": 620.0, "mem_used_ratio": 0.8, "links_bytes_per_second": 4e10, "sm_clock_hertz": 1.755e9,
    "throttled": 0.0,
}  # fmt: skip
REST = {
    **TRAINING, "engine": 0.0, "engine_max": 0.0, "util": 0.0, "sm": 0.0, "tensor": 0.0, "dram": 0.0,
    "power_watts": 115.0, "links_bytes_per_second": 1e5,
}  # fmt: skip
FREE = {**REST, "power_watts": 70.0, "mem_used_ratio": 0.001}
SPIN = {
    **TRAINING, "engine": 1.0, "util": 1.0, "sm": 0.06, "tensor": 0.0, "dram": 0.01, "power_watts": 180.0,
    "links_bytes_per_second": 1e5,
}  # fmt: skip
MISSING = dict.fromkeys(TRAINING, math.nan)
QUIET_HOST = {
    "cpu_util": 0.03, "disk_bytes_per_second": 2e5, "network_bytes_per_second": 1e5, "fabric_bytes_per_second": 0.0,
    "fabric_line_bytes_per_second": 4e11, "fabric_up": 1.0,
}  # fmt: skip

Course = Sequence[tuple[int, Mapping[str, float]]]  # (minutes, what each of them shows), the last one ends at the end


def laid(course: Course, names: Sequence[str]) -> dict[str, np.ndarray]:
    """A course as arrays over the whole span; before it nothing was observed."""
    out = {name: np.full(MINUTES, np.nan, dtype=np.float32) for name in names}
    at = MINUTES
    for minutes, values in reversed(course):
        begin = max(at - minutes, 0)
        for name in names:
            out[name][begin:at] = values.get(name, np.nan)
        at = begin
    return out


SPANS = Spans(
    np.array([END - 60.0 * minute for minute in (*range(MINUTES - 5, 115, -5), *range(119, -1, -1))]),
    np.repeat([300.0, 60.0], [(MINUTES - 120) // 5, 120]),
)


def _spans(values: np.ndarray, name: str) -> np.ndarray:
    """Minutes in rows of five up to the last two hours."""
    rows = values[:, :-120].reshape(len(values), (MINUTES - 120) // 5, 5)
    if name == "engine_max":
        coarse = np.fmax.reduce(rows, axis=2)
    else:
        count = np.isfinite(rows).sum(axis=2)
        observed = 5 if name == "observed" else np.where(count > 0, count, np.nan)
        coarse = np.nan_to_num(rows).sum(axis=2) / observed
    return np.concatenate([coarse.astype(np.float32), values[:, -120:]], axis=1)


def measures(courses: Sequence[Course], names: Sequence[str]) -> Measures:
    """Several subjects over `SPANS`."""
    lines = [laid(course, names) for course in courses]
    return {name: _spans(np.array([line[name] for line in lines]).reshape(len(lines), MINUTES), name) for name in names}


@dataclass(frozen=True)
class Work:
    """A workload of a reading: its GPUs by (node, index), what each shows, what its engine shows (None: it has none).
    `started`: minutes before the end."""

    name: str
    gpus: Sequence[tuple[str, int]]
    course: Course
    holder: str = "job"
    started: int = MINUTES + 60
    engine: Course | None = None
    basis: str = "process"
    courses: Mapping[int, Course] = field(default_factory=dict)  # of single GPUs, by place


def reading(
    works: Sequence[Work], *, hosts: Mapping[str, Course] | None = None, now: float = END + 60.0,
    free: Sequence[tuple[str, int]] = (),
) -> Recent:  # fmt: skip
    """A reading. `hosts`: by node, what differs from a quiet host; `free`: GPUs without a holder."""
    places: dict[tuple[str, int], int] = {}
    courses: list[Course] = []
    for work in works:
        for n, gpu in enumerate(work.gpus):
            if gpu not in places:
                places[gpu] = len(courses)
                courses.append(work.courses.get(n, work.course))
    for gpu in free:
        places[gpu] = len(courses)
        courses.append(((MINUTES, FREE),))
    names = sorted({node for node, _ in places})
    gpus = tuple(
        RecentGpu(node, f"GPU-{node}-{n}", n, SKU, power_limit_watts=700.0, last_seen=_last(courses[place]))
        for (node, n), place in places.items()
    )
    last = {name: max((g.last_seen or 0.0 for g in gpus if g.node == name), default=0.0) for name in names}
    about = "aws/p5.48xlarge", 6.88, "list price, 2026-11-01", 8
    recent_nodes = tuple(RecentNode(name, *about, last_seen=last[name]) for name in names)
    holders = Counter(gpu for work in works for gpu in work.gpus)
    holds = tuple(
        Hold(
            f"w-{work.name}", f"s-{work.name}", work.name, work.holder, Owner(user="ann"),  # type: ignore[arg-type]
            tuple(places[gpu] for gpu in work.gpus), END - work.started * 60.0, work.basis,
            shared=any(holders[gpu] > 1 for gpu in work.gpus), engine=work.engine is not None,
            scheduler="slurm" if work.holder == "job" else "kubernetes", job_id=work.name,
        )
        for work in works
    )  # fmt: skip
    host = [tuple((hosts or {}).get(name, ((MINUTES, QUIET_HOST),))) for name in names]
    service = [work.engine or () for work in works]
    gpu_names = (*TRAINING, "engine_p95")
    return Recent(
        now, gpus, recent_nodes, holds, SPANS, measures(courses, gpu_names), measures(host, tuple(QUIET_HOST)),
        measures(service, ("requests_running", "requests_waiting", "tokens_per_second")),
        Fleet(
            ", ".join(names), False, (), frozenset(), {gpu.uuid: gpu.node for gpu in gpus}, frozenset(names),
            frozenset({"nodes"}), "", {}, END - MINUTES * 60.0, END,
        ),
    )  # fmt: skip


def _last(course: Course) -> float | None:
    """The end of the newest minute with data."""
    observed = np.flatnonzero(np.isfinite(laid(course, ["observed"])["observed"]))
    return END - 60.0 * (MINUTES - 1 - observed[-1]) if len(observed) else None


def eight(node: str = "n1") -> list[tuple[str, int]]:
    """The GPUs of a node."""
    return [(node, n) for n in range(8)]


def watch(recent: Recent) -> WatchPass:
    """What the watch says of a reading, by the limits and thresholds that ship."""
    return evaluate(recent, CRITERIA)


def found(recent: Recent) -> list[tuple[str, str, str]]:
    """(kind, code, subject) of all sightings."""
    return sorted((sighting.kind, sighting.code, sighting.subject.name) for sighting in watch(recent).sightings)
