"""Which pods wait for GPUs, by series in the forms that kube-state-metrics documents, behind real engines.

Forms: docs/metrics/workload/pod-metrics.md, docs/metrics/storage/{persistentvolumeclaim,storageclass}-metrics.md. Two
replicas report everything twice; of one the newest scrape is older.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skuwise.tests.server_metrics.exposition import gpu, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.prometheus_engines import ENGINES, read_series

END = 1_790_000_000.0 // 86400 * 86400
HOURS = 13
DAY = moments(END - HOURS * 3600, END)
GPU, MIG = "nvidia_com_gpu", "nvidia_com_mig_1g_10gb"


@dataclass(frozen=True)
class PodCase:
    """A pod. `gpus`: of each container by resource; `init`: of init containers; `claims`: storage class (empty: bound,
    ``gone``: no such claim) of each; `when`: moments at which it is listed; `node`: it was bound in the last scrape."""

    name: str
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"main": {GPU: 1}})
    init: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    owner: tuple[str, str] = ("", "")
    claims: tuple[str, ...] = ()
    phase: str = "Pending"
    node: str = ""
    when: tuple[float, float] = (HOURS - 5, HOURS)
    labels: Mapping[str, str] = field(default_factory=dict)
    is_gated: bool = False


def one(count: float, resource: str = GPU) -> dict[str, Mapping[str, float]]:
    return {"main": {resource: count}}


GROUP = "label_kueue_x_k8s_io_pod_group_name"
PODS = (
    PodCase("alone", one(4)),
    PodCase("two-containers", {"a": {GPU: 1}, "b": {GPU: 2}, "sidecar": {"cpu": 1}}),
    PodCase("large-init", one(1), init={"warm": {GPU: 2}, "check": {GPU: 1}}),
    PodCase("part", one(2, MIG)),
    PodCase("cpu-only", one(8, "cpu")),
    PodCase("pulling", one(8), node="n-1"),
    PodCase("running", one(8), phase="Running", node="n-2"),
    PodCase("over", one(8), when=(1, 3)),
    PodCase("no-volume", one(8), claims=("", "immediate")),
    PodCase("lost-volume", one(8), claims=("gone",)),
    PodCase("unknown-class", one(8), claims=("other",)),
    PodCase("volume-later", one(2), claims=("", "later")),
    PodCase("gated", one(1), is_gated=True),
    *(PodCase(f"llama-worker-{n}", one(8), owner=("PyTorchJob", "llama")) for n in range(2)),
    PodCase("llama-master-0", one(8), owner=("PyTorchJob", "llama"), phase="Running", node="n-3"),
    *(PodCase(f"sweep-{n}-{tail}", one(1), owner=("Job", "sweep")) for n, tail in enumerate(("bcdfg", "hjklm"))),
    *(PodCase(f"group-{n}", one(2), labels={GROUP: "duo"}) for n in range(2)),
)
# Name, GPUs, nodes, type, hours since it was made, what it waits for.
EXPECTED = {
    "ml/alone": ("alone", 4.0, 1, None, None),
    "ml/two-containers": ("two-containers", 3.0, 1, None, None),
    "ml/large-init": ("large-init", 2.0, 1, None, None),
    "ml/part": ("part", 2 / 7, 1, "1g.10gb", None),
    "ml/no-volume": ("no-volume", 8.0, 1, None, "storage"),
    "ml/lost-volume": ("lost-volume", 8.0, 1, None, "storage"),
    "ml/unknown-class": ("unknown-class", 8.0, 1, None, "storage"),
    "ml/volume-later": ("volume-later", 2.0, 1, None, None),
    "ml/gated": ("gated", 1.0, 1, None, "held"),
    "ml/llama-worker-0": ("llama", 16.0, 2, None, None),
    "ml/sweep-0-bcdfg": ("sweep", 1.0, 1, None, None),
    "ml/sweep-1-hjklm": ("sweep", 1.0, 1, None, None),
    "ml/group-0": ("duo", 4.0, 2, None, None),
}


def series(exported: bool) -> Iterator[Series]:
    """`exported`: the target has such labels too, so that those of the pods are ``exported_NAME``."""
    yield from gpu("n-1", "GPU-1", DAY, {"DCGM_FI_DEV_GPU_UTIL": 90, "DCGM_FI_DEV_FB_USED": 6e4})

    def tell(name: str, value: Any, when: np.ndarray, **labels: str) -> Iterator[Series]:
        spelled = {f"exported_{k}" if exported and k in {"namespace", "pod", "container", "node"} else k: v
                   for k, v in labels.items()}  # fmt: skip
        target = {"namespace": "monitoring", "pod": "ksm", "container": "ksm", "node": "n-9"} if exported else {}
        for replica, late in (("10.0.0.1:8080", 0), ("10.0.0.2:8080", 1)):
            values: Any = value[: len(when) - late] if isinstance(value, np.ndarray) else value
            yield kube(name, values, when[: len(when) - late], replica, **target, **spelled)

    for storage_class, mode in (("immediate", "Immediate"), ("later", "WaitForFirstConsumer")):
        yield from tell("kube_storageclass_info", 1, DAY, storageclass=storage_class, volume_binding_mode=mode)
    for pod in PODS:
        when = DAY[(END - (HOURS - pod.when[0]) * 3600 < DAY) & (END - (HOURS - pod.when[1]) * 3600 >= DAY)]
        base = {"namespace": "ml", "pod": pod.name, "uid": f"u-{pod.name}"}
        yield from tell("kube_pod_created", when[0] - 30, when, **base)
        yield from tell("kube_pod_owner", 1, when, **base, owner_kind=pod.owner[0], owner_name=pod.owner[1],
                        owner_is_controller="true" if pod.owner[0] else "")  # fmt: skip
        for phase in ("Pending", "Running"):
            yield from tell("kube_pod_status_phase", float(pod.phase == phase), when, **base, phase=phase)
        # The late replica does not have it yet.
        bound = np.where(when > END - 60, 1.0, 0.0) if pod.node else 0.0
        yield from tell("kube_pod_status_scheduled", bound, when, **base, condition="true")
        yield from tell("kube_pod_status_reason", float(pod.is_gated), when, **base, reason="SchedulingGated")
        if pod.labels:
            yield from tell("kube_pod_labels", 1, when, **base, **pod.labels)
        for kind, containers in (("container", pod.gpus), ("init_container", pod.init)):
            for container, wanted in containers.items():
                for resource, count in wanted.items():
                    asked = {"container": container, "resource": resource, "node": pod.node}
                    yield from tell(f"kube_pod_{kind}_resource_requests", count, when, **base, **asked)
        for n, storage_class in enumerate(pod.claims):
            claim = {"namespace": "ml", "persistentvolumeclaim": f"{pod.name}-{n}"}
            about = {**base, "persistentvolumeclaim": f"{pod.name}-{n}", "volume": f"v{n}"}
            yield from tell("kube_pod_spec_volumes_persistentvolumeclaims_info", 1, when, **about)
            if storage_class != "gone":
                yield from tell("kube_persistentvolumeclaim_info", 1, when, **claim, storageclass=storage_class or "x")
                for phase in ("Bound", "Pending"):
                    value = float((phase == "Bound") == (not storage_class))
                    yield from tell("kube_persistentvolumeclaim_status_phase", value, when, **claim, phase=phase)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("exported", [False, True])
def test_each_pod_that_waits_for_gpus_is_there_once(engine: str, exported: bool, tmp_path: Path) -> None:
    frame = read_series(engine, tmp_path / engine, merged(series(exported)), END, HOURS * 3600.0)
    columns = ["id", "name", "gpus", "nodes", "gpu_type", "blocked"]
    rows = {row[0]: row[1:] for row in frame.waiting[columns].itertuples(index=False, name=None)}
    assert rows == EXPECTED
    assert frame.waiting_at == END and len(frame.waiting) == len(EXPECTED)
    assert set(frame.waiting["jobs"]) == {1} and set(frame.waiting["scheduler"]) == {"kubernetes"}
    assert ((END - frame.waiting["since"]) / 3600).round(1).tolist() == [5.0] * len(EXPECTED)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_what_tells_of_nodes_no_queue_is_known(engine: str, tmp_path: Path) -> None:
    kept = merged(entry for entry in series(False) if entry.name != "kube_pod_status_scheduled")
    frame = read_series(engine, tmp_path / engine, kept, END, HOURS * 3600.0)
    assert frame.waiting_at is None and frame.waiting.empty
