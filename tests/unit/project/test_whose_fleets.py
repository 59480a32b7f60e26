"""The generators behind the figures of whose work it is: what they make is what they say, and the scoring counts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.tests.fleets import Fleet, series
from skuwise.tests.fleets.clusters import cluster
from skuwise.tests.fleets.database import write_databases
from skuwise.tests.fleets.description import Hold, Node, Workload
from skuwise.tests.fleets.hardware import DGX_H100
from skuwise.tests.fleets.jobs import GPUS, work
from skuwise.tests.fleets.owned import pod_truths
from skuwise.tests.fleets.retold import WAYS, told, work_to_tell
from skuwise.tests.fleets.sacct import COLUMNS, compressed, job_table
from skuwise.tests.fleets.unlabelled import BareFleet, Lived, bare_fleet, live, scraped, truths
from skuwise.tests.support.gang_fixtures import Detected, score, score_spans

HOLDS = tuple(Hold(name, 0) for name in ("a", "b", "c"))
NODES = tuple(Node(name, DGX_H100) for name in ("a", "b", "c"))


@cache
def bare() -> tuple[BareFleet, Lived]:
    fleet = bare_fleet(31, nodes=5, hours=4)
    return fleet, live(fleet)


def chain(owner: str, **more: object) -> dict[str, tuple[str, str]]:
    """Pod -> what kube_pod_owner says."""
    one = Workload("name", "train_compute", HOLDS, "team", owner, "image:1", **more)  # type: ignore[arg-type]
    found = series(Fleet("f", NODES, (one,), 0.1, 600), np.random.default_rng(1))
    return {
        str(s.labels["pod"]): (str(s.labels["owner_kind"]), str(s.labels["owner_name"]))
        for s in found
        if s.name == "kube_pod_owner" and s.labels["namespace"] == "team"
    }


def test_chains_are_those_of_the_operators() -> None:
    assert chain("PyTorchJob") == {
        "name-master-0": ("PyTorchJob", "name"), "name-worker-0": ("PyTorchJob", "name"),
        "name-worker-1": ("PyTorchJob", "name"),
    }  # fmt: skip
    assert chain("LeaderWorkerSet", group=2) == {
        "name-2": ("StatefulSet", "name"), "name-2-1": ("StatefulSet", "name-2"),
        "name-2-2": ("StatefulSet", "name-2"),
    }  # fmt: skip
    launcher = {pod: above for pod, above in chain("MPIJob").items() if "launcher" in pod}
    assert list(launcher.values()) == [("Job", "name-launcher")]
    assert set(chain("KnativeService", revision=1).values()) == {
        ("ReplicaSet", next(iter(chain("KnativeService", revision=1).values()))[1])
    }
    assert all(
        name.startswith("name-predictor-00002-deployment-") for _, name in chain("KnativeService", revision=1).values()
    )
    assert set(chain("Pod")) == {"name", "name-1", "name-2"}


def test_long_names_are_cut_before_the_generated_part() -> None:
    one = Workload("x" * 60, "light", HOLDS[:1], "team", "Deployment", "image:1")
    assert len(one.pods[0]) == 63 and one.pods[0][:58] == "x" * 58


def test_series_of_a_cluster_are_what_a_server_can_hold() -> None:
    fleet = cluster(3, nodes=6, days=0.5, interval_s=600)
    found = series(fleet, np.random.default_rng(3))
    assert len({(one.name, frozenset(one.labels.items())) for one in found}) == len(found)
    assert all((np.diff(one.ts) > 0).all() for one in found)
    told_pods = {(one.labels.get("exported_pod") or one.labels["pod"], one.labels["uid"]) for one in found
                 if one.name == "kube_pod_owner"}  # fmt: skip
    assert {(one.pod, one.uid) for one in pod_truths(fleet)} <= told_pods


def test_nobody_holds_a_gpu_of_another(seed_of: Callable[[int], int]) -> None:
    for seed in range(4):
        pods = [one for one in pod_truths(cluster(seed_of(seed), nodes=8)) if not one.shared]
        spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for one in pods:
            for device in one.devices:
                spans.setdefault(device, []).append((one.begin, one.end))
        assert all(b[0] > a[1] for own in map(sorted, spans.values()) for a, b in itertools.pairwise(own))
        assert len({(one.pod, one.namespace, one.uid) for one in pods}) == len(pods)


def test_jobs_do_not_overlap_and_gangs_have_whole_nodes(seed_of: Callable[[int], int]) -> None:
    for seed in range(4):
        jobs = work(seed_of(seed), 10, 86400)
        spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for one in jobs:
            for device in one.devices:
                spans.setdefault(device, []).append((one.start, one.end))
            assert len(one.devices) <= GPUS or len(one.devices) == GPUS * len(one.nodes)
        assert all(b[0] > a[1] for own in map(sorted, spans.values()) for a, b in itertools.pairwise(own))


def test_scrapes_and_seconds_tell_the_same() -> None:
    fleet, lived = bare()
    used = [one for one in scraped(fleet, lived) if one.name == "DCGM_FI_DEV_FB_USED"]
    assert len(used) == 5 * GPUS
    assert not any("pod" in one.labels or "hpc_job" in one.labels for one in used)
    held = np.concatenate([one.values for one in used]) > 100
    assert held.mean() == pytest.approx(lived.context.mean(), abs=0.02)


def test_databases_hold_minutes_without_workloads(tmp_path: Path) -> None:
    fleet = replace(bare()[0], nodes=bare()[0].nodes[:1])
    lived = bare()[1]
    write_databases(fleet, lived, tmp_path, samples_seconds=60)
    frame = read_frame([tmp_path], since_seconds=fleet.seconds, until=fleet.end)
    assert set(frame.uses["basis"]) == {"activity"} and len(frame.gpus) == GPUS
    mean = np.average(frame.gpu["gpu_util_mean"], weights=frame.gpu["observed_seconds"])
    assert mean == pytest.approx(lived.util[:GPUS].mean(), abs=0.02)


def test_the_truth_scores_full_and_a_mistake_less() -> None:
    fleet, lived = bare()
    known = truths(fleet)
    perfect = [Detected(one.gpus, one.start, one.end) for one in known]
    told_all = score_spans(fleet, lived, known, perfect)
    assert told_all.f1 == 1.0 and told_all.coverage > 0.99
    assert score(known, []).f1 == 0.0
    merged = [Detected(frozenset().union(*(one.gpus for one in known)), fleet.start, fleet.end)]
    assert score(known, merged).missed["all", "merged with other GPUs"] == told_all.asked["all"]
    # Each is counted once, and what is nobody's counts against.
    assert score(known, perfect * 2).precision < 0.6


def test_the_same_work_is_told_three_times() -> None:
    readings: list[dict[str, np.ndarray]] = []
    for way in WAYS:
        found = series(told(work_to_tell(days=0.5, interval_s=600), way), np.random.default_rng(1))
        values: dict[str, np.ndarray] = {}
        for one in sorted((s for s in found if s.name == "DCGM_FI_DEV_GPU_UTIL"), key=lambda s: s.ts[0]):
            uuid = str(one.labels["UUID"])
            values[uuid] = np.concatenate([values.get(uuid, np.empty(0)), one.values])
        readings.append(values)
    assert readings[0].keys() == readings[1].keys() == readings[2].keys()
    for uuid, first in readings[0].items():
        assert all(np.array_equal(first, other[uuid]) for other in readings[1:])


def test_job_table_is_as_sacct_prints_it() -> None:
    fleet = told(work_to_tell(), "slurm")
    lines = job_table(fleet).splitlines()
    assert lines[0].split("|") == [*COLUMNS]
    assert all(line.count("|") == len(COLUMNS) - 1 for line in lines)
    jobs = [line.split("|") for line in lines[1:] if "." not in line.split("|")[0]]
    assert {row[0] for row in jobs} >= {one.hpc_job for one in fleet.workloads}
    assert compressed(["gpu-001", "gpu-002", "gpu-005", "x"]) == "gpu-[001-002,005],x"
    assert compressed(["gpu-7"]) == "gpu-7"
