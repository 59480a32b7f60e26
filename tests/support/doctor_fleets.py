"""Small fleets on a server with one thing missing, diagnosed by the real advisor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.doctor.diagnose import diagnose
from skuwise.advisor.doctor.types import Diagnosis
from skuwise.advisor.pipeline import AdviseOptions, reason_on
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.verdicts.judge import judge
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

ALL_COLUMNS = frozenset(TRAINING)
EXPORTERS = ("dcgm-exporter", "node_exporter", "kube-state-metrics")


@dataclass(frozen=True)
class Fleet:
    """A node of 8 GPUs at work that is told whole, but for what is changed. `columns`: measures of GPUs; `hours`: since
    when the node is there; `seen_every`: of so many hours one is observed; `seen`: GPUs that series name; `dark`: why
    a second node shows no GPU (``seen``: it does; empty: there is none); `owned`: whether workloads have
    an owner, or a name; `absent`: device and reason."""

    name: str = "n1"
    model: str = "NVIDIA H100 80GB HBM3"
    sku: str | None = "azure/Standard_ND96isr_H100_v5"
    region: str | None = "eastus"
    columns: frozenset[str] = ALL_COLUMNS
    hours: int = 48
    window_hours: int = 48
    seen_every: int = 1
    seen: int = 8
    dark: str = ""
    layers: tuple[str, ...] = ("InfiniBand",)
    host: bool = True
    scheduler: str = "kubernetes"
    owned: bool = True
    exporters: tuple[str, ...] = EXPORTERS
    scrape_seconds: float = 30.0
    frozen_power: bool = False
    still_tensor: bool = False
    absent: tuple[str, str] | None = None

    def frame(self) -> Frame:
        b = FrameBuilder(hours=48)
        first = 48 - self.hours
        known = rulebook_sku(self.model)
        uuids = b.node(self.name, 8, sku=known, name_of_gpu=self.model, first_seen=START + first * HOUR)[: self.seen]
        del b.gpus[self.seen :]
        b.nodes[-1] |= {"node_sku": self.sku, "region": self.region, "provider": (self.sku or "").partition("/")[0]}
        load = {name: value for name, value in TRAINING.items() if name in self.columns}
        if self.still_tensor:
            load |= {"tensor_active": 0.0}
        for uuid in uuids:
            for start in range(first, 48, self.seen_every):
                b.use(load, self.name, uuid, start=start, end=start + 1 if self.seen_every > 1 else 48)
                if self.seen_every == 1:
                    break
        if self.frozen_power:
            b.gpu_rows = [
                row
                | {"power_watts_mean": 600.0, "power_watts_p95": 600.0, "power_watts_max": 600.0, "power_watts_n": 60.0}
                for row in b.gpu_rows
            ]
        for n, layer in enumerate(self.layers):
            b.port(0.3, self.name, f"dev{n}")
            b.fabric_rows = [
                row | {"link_layer": layer} if row["device"] == f"dev{n}" else row for row in b.fabric_rows
            ]
        if self.host:
            b.host_rows += [
                {"node": self.name, "ts": START + (n + 1) * HOUR, "interval_seconds": HOUR, "observed_seconds": HOUR,
                 "cpu_util_mean": 0.1} for n in range(48)
            ]  # fmt: skip
        self._work(b, uuids)
        self._dark(b)
        if self.absent:
            b.absences.append({"node": self.name, "device": self.absent[0], "scope": "source", "metric": "*",
                               "reason": self.absent[1], "detail": "It failed.", "remedy": "Mend it.",
                               "since": START})  # fmt: skip
        source = {
            "kind": "prometheus", "url": "http://p:9090", "server": "Prometheus 3", "match": [],
            "exporters": list(self.exporters), "scrape_seconds": self.scrape_seconds,
        }  # fmt: skip
        end = START + 48 * HOUR
        return replace(b.frame(Window(end - self.window_hours * HOUR, end)), source=source)

    def _work(self, b: FrameBuilder, uuids: list[str]) -> None:
        about: dict[str, Any] = {"scheduler": self.scheduler}
        if self.scheduler == "kubernetes":
            about |= {"namespace": "ml", "pod": "w-0", "controller_kind": "StatefulSet" if self.owned else None}
        if self.scheduler == "slurm":
            about |= {"job_id": "31", "user": "ann" if self.owned else None}
        name = "job 31" if self.scheduler == "slurm" and not self.owned else "train"
        basis = "allocation" if self.scheduler else "activity"
        b.work("w", [(self.name, uuid) for uuid in uuids], start=48 - self.hours, name=name, basis=basis, **about)

    def _dark(self, b: FrameBuilder) -> None:
        if not self.dark:
            return
        b.node("dark", 8)
        b.nodes[-1] |= {"region": "eastus", "provider": "azure"}
        del b.gpus[-8:]
        if self.dark == "seen":
            self._observe(b)
        b.port(0.3, "dark")
        b.host_rows += [row | {"node": "dark"} for row in b.host_rows]
        if self.dark == "no-driver":
            b.absences.append({"node": "dark", "device": "nvml", "scope": "source", "metric": "*", "reason": self.dark,
                               "detail": "The NVIDIA driver is not loaded.", "remedy": "Load it with modprobe nvidia.",
                               "since": START})  # fmt: skip

    @staticmethod
    def _observe(b: FrameBuilder) -> None:
        uuids = [f"GPU-dark-{n}" for n in range(8)]
        b.gpus += [b.gpus[n] | {"node": "dark", "gpu_uuid": uuid} for n, uuid in enumerate(uuids)]
        for uuid in uuids:
            b.use(TRAINING, "dark", uuid)
        b.work("w-dark", [("dark", uuid) for uuid in uuids], scheduler="kubernetes", namespace="ml", pod="d-0",
               controller_kind="StatefulSet")  # fmt: skip


def rulebook_sku(model: str) -> str | None:
    return {"NVIDIA H100 80GB HBM3": "H100-SXM5", "NVIDIA L40S": "L40S"}.get(model)


@cache
def diagnosed(fleet: Fleet) -> Diagnosis:
    """What `skuwise doctor` says of it at the window's end, by the rules that ship."""
    return diagnosed_frame(fleet.frame(), rulebook())


def diagnosed_frame(frame: Frame, book: Rulebook) -> Diagnosis:
    """What `skuwise doctor` says of a frame at its window's end."""
    options = AdviseOptions(frame.window.end)
    found = reason_on(judge(frame, book), book, options, np.random.default_rng(1), source=frame.source)
    return diagnose(frame, found, book.catalog)
