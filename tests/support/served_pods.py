"""The six production pods of tests/data/real_serving as a Prometheus holds them, and what one may tell beside them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from skuwise.tests.server_metrics.prometheus_series import Series

FOLDER = Path(__file__).parents[1] / "data" / "real_serving"
START, EVERY = 1_789_948_800.0, 57.0
END = (START + 1441 * EVERY) // 3600 * 3600 + 3600
PODS = ("361d4ec4", "c602ea5b", "47d94ec8", "83cdea87", "7a9e1de0", "385349d8")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """One pod: when it was read, and what was read. `pod`, `uid`, `node`: made up."""

    number: int
    ts: Floats
    util_percent: Floats
    mem_used_gib: Floats

    @property
    def pod(self) -> str:
        return f"draw-{self.number % 2}-6d4cf56db6-{'bcdfgh'[self.number]}x2k4"

    @property
    def base(self) -> Mapping[str, str]:
        return {"namespace": "studio", "pod": self.pod, "uid": f"0000000{self.number}-0000-4000-8000-000000000000"}

    def gauges(self) -> Iterator[Series]:
        """dcgm-exporter's series: use and memory alone, as the trace has them."""
        labels = {
            "UUID": f"GPU-0000000{self.number}-0000-4000-8000-000000000000", "gpu": "0", "modelName": "NVIDIA L20",
            "Hostname": f"node-{self.number}", "instance": f"10.0.0.{self.number}:9400", "job": "dcgm",
            "container": "main", "namespace": "studio", "pod": self.pod,
        }  # fmt: skip
        mib = 1024 * self.mem_used_gib
        for name, values in (
            ("DCGM_FI_DEV_GPU_UTIL", self.util_percent), ("DCGM_FI_DEV_FB_USED", mib),
            ("DCGM_FI_DEV_FB_FREE", 46068 - mib),
        ):  # fmt: skip
            known = ~np.isnan(values)
            yield Series(name, labels, self.ts[known], values[known])

    def owned_by_deployment(self, image: str = "registry.example/studio/app:1.4") -> Iterator[Series]:
        """kube-state-metrics' series of the pod, which a ReplicaSet owns (`replica_sets` tells whose that is)."""
        set_name, one = self.pod.rpartition("-")[0], np.ones(len(self.ts))
        by = {"owner_kind": "ReplicaSet", "owner_name": set_name, "owner_is_controller": "true"}
        info = {"created_by_kind": "ReplicaSet", "created_by_name": set_name, "pod_ip": f"10.1.0.{self.number}"}
        yield Series("kube_pod_info", {**self.base, **info, "node": f"node-{self.number}"}, self.ts, one)
        yield Series("kube_pod_owner", {**self.base, **by}, self.ts, one)
        yield Series("kube_pod_container_info", {**self.base, "container": "main", "image": image}, self.ts, one)
        yield Series("kube_pod_start_time", self.base, self.ts, self.ts[0] * one)


def replica_sets() -> Iterator[Series]:
    """The two ReplicaSets of the pods and the Deployments that own them, for as long as any pod is there."""
    ts = START + EVERY * np.arange(1442.0)
    for number in (0, 1):
        above = {"owner_kind": "Deployment", "owner_name": f"draw-{number}", "owner_is_controller": "true"}
        own = {"namespace": "studio", "replicaset": f"draw-{number}-6d4cf56db6"}
        yield Series("kube_replicaset_owner", {**own, **above}, ts, np.ones(len(ts)))


def served() -> Sequence[Served]:
    """The six pods. Memory is known every fifth time, and stands until the next."""
    util, memory = _table("gpu_util.csv"), _table("mem_used_gib.csv")
    found = []
    for number, name in enumerate(PODS):
        at = [n for n, row in util.items() if row[name]]
        used = [memory[n - n % 5][name] for n in at]
        found.append(
            Served(
                number, START + EVERY * np.array(at, float), np.array([float(util[n][name]) for n in at]),
                np.array([float(one) if one else np.nan for one in used]),
            )
        )  # fmt: skip
    return found


def _table(name: str) -> dict[int, dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        return {int(row["n"]): row for row in csv.DictReader(file)}
