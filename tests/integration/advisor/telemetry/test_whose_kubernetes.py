"""Whose work it is on Kubernetes clusters drawn at random, through real engines: replicas of one controller are one
series, a gang is one workload, and nobody else is in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.fleets import Fleet, series
from skuwise.tests.fleets.clusters import cluster
from skuwise.tests.fleets.hostile import NAMED, contradicting, cycles, mischievous
from skuwise.tests.fleets.owned import pod_truths
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.owner_cases import Case, cases
from skuwise.tests.support.prometheus_engines import prometheus, victoria

pytestmark = pytest.mark.slow
NEEDED = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "kube_",
    "node_uname_info", "node_dmi_info",
)  # fmt: skip
ENGINES = {"victoria-metrics": victoria, "prometheus": prometheus}


@cache
def made(seed: int) -> tuple[Fleet, tuple[Series, ...]]:
    fleet = cluster(seed, nodes=10, days=0.75)
    found = series(fleet, np.random.default_rng(seed))
    return fleet, tuple(one for one in found if one.name.startswith(NEEDED))


def read(fleet: Fleet, found: Iterable[Series], folder: Path, engine: str = "victoria-metrics") -> Frame:
    with ENGINES[engine](folder, found) as url:
        server = PrometheusServer(url, environ={}, cached=False)
        return server.read(load_catalog(), since=fleet.days * 86400, until=fleet.end, now=fleet.end + 60)


def wrong(found: Sequence[Case], *kinds: str) -> list[Case]:
    some = [case for case in found if case.kind.startswith(kinds)]
    assert len(some) >= 3, f"nothing to ask for of {kinds}"
    return [case for case in some if not case.right]


def used_hours(frame: Frame) -> float:
    """GPU-hours that belong to somebody; what several share counts once."""
    total = 0.0
    for _, rows in frame.uses.groupby("gpu_uuid"):
        last = -np.inf
        for start, end in sorted(zip(rows["ts_start"], rows["ts_end"], strict=True)):
            total += max(0.0, end - max(start, last))
            last = max(last, end)
    return total / 3600


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_replicas_are_one_series_and_gangs_one_workload(seed: int, tmp_path: Path) -> None:
    fleet, found = made(seed)
    told = cases(pod_truths(fleet), read(fleet, found, tmp_path / "engine"))
    assert wrong(told, "series:") == []
    assert wrong(told, "gang:") == []
    assert wrong(told, "apart:") == []
    assert wrong(told, "shared") == []


def test_of_clusters_that_are_drawn_few_controllers_are_told_wrongly(
    tmp_path: Path, seed_of: Callable[[int], int]
) -> None:
    """A row tells how long a pod held a GPU in it and not when, so one that is made anew twice may be taken for another
    (0 of 1,963 controllers of 30 clusters; before times were fitted, 6 of 2,016)."""
    told: list[Case] = []
    for number in (101, 102, 103):
        fleet, found = made(seed_of(number))
        told += cases(pod_truths(fleet), read(fleet, found, tmp_path / f"engine{number}"))
    asked = [case for case in told if case.kind.startswith(("series:", "gang:", "apart:", "shared"))]
    missed = [case for case in asked if not case.right]
    assert len(asked) > 30 and len(missed) <= 0.02 * len(asked), missed


def test_both_engines_give_the_same_workloads(tmp_path: Path) -> None:
    fleet, found = made(101)
    one, other = (read(fleet, found, tmp_path / engine, engine) for engine in ENGINES)
    assert set(one.workloads["workload_id"]) == set(other.workloads["workload_id"])
    assert set(one.workloads["series_id"]) == set(other.workloads["series_id"])


def joined_wrongly(found: Sequence[Case]) -> list[Case]:
    """What is called one with others, or lost: bad input may take a chain apart, no more."""
    return [case for case in found if not case.right and not re.search(r"pods are \d+ (series|workloads)", case.why)]


@pytest.mark.parametrize("change", [cycles, contradicting])
def test_bad_owners_lose_and_invent_nothing(change, tmp_path: Path) -> None:
    fleet, found = made(102)
    good, bad = read(fleet, found, tmp_path / "good"), read(fleet, change(found), tmp_path / "bad")
    assert used_hours(bad) == pytest.approx(used_hours(good), rel=0.01)
    assert set(bad.gpus["gpu_uuid"]) == set(good.gpus["gpu_uuid"])
    told = cases(pod_truths(fleet), bad)
    # Controllers that no ReplicaSet and no Job stands between are untouched.
    assert wrong(told, "gang:PyTorchJob", "gang:RayCluster", "gang:LeaderWorkerSet", "series:StatefulSet") == []
    if change is contradicting:
        assert joined_wrongly(told) == []


def test_hostile_names_are_names(tmp_path: Path, seed_of: Callable[[int], int]) -> None:
    asked, untouched = 0, list[Case]()
    for number in (103, 104, 105):
        fleet, found = made(seed_of(number))
        bad = mischievous(found, 0.2, np.random.default_rng(seed_of(number - 100)))
        before, after = (read(fleet, some, tmp_path / f"{name}{number}") for name, some in (("a", found), ("b", bad)))
        assert used_hours(after) == pytest.approx(used_hours(before), rel=0.01)
        told = cases(pod_truths(fleet), after)
        touched = names_of(found) - names_of(bad)
        asked += len(told)
        assert len(touched) >= 8
        assert [case for case in joined_wrongly(told) if not is_told_by_its_name(case, touched)] == []
        untouched += [case for case in told if not any(derives(case.name.partition("/")[2], name) for name in touched)]
    assert asked >= 3 * 20  # one cluster in 300 alone has fewer than 20
    assert wrong(untouched, "series:", "gang:") == []


def is_told_by_its_name(case: Case, names: set[str]) -> bool:
    """kube-state-metrics is not asked for what is no pod's name. What is made anew under one is told by its name alone,
    and a pod of minutes at the beginning of its row, wherever in it it ran."""
    lost = set(re.findall(r"'([^']+)'", case.why)) if case.why.startswith("no use") else set()
    made_anew = case.kind.startswith("apart:") and case.name.partition("/")[2] in names
    return made_anew or (bool(lost) and lost <= names)


def derives(one: str, other: str) -> bool:
    """Whether one of two names is made from the other: a pod's, its controller's, its gang's."""
    return one.startswith(other) or other.startswith(one)


def names_of(found: Iterable[Series]) -> set[str]:
    return {str(one.labels[key]) for one in found for key in NAMED if one.labels.get(key)}
