"""Small fleets on a server with one thing missing, diagnosed by the real advisor."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.doctor.coverage import Diagnosis
from skuwise.advisor.doctor.diagnose import diagnose
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.rulebook import Rulebook
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

ALL_COLUMNS = frozenset(TRAINING)
EXPORTERS = ("dcgm-exporter", "node_exporter", "kube-state-metrics")


_SKUS = {"NVIDIA H100 80GB HBM3": "H100-SXM5", "NVIDIA L40S": "L40S"}
_FROZEN = {"power_watts_mean": 600.0, "power_watts_p95": 600.0, "power_watts_max": 600.0, "power_watts_n": 60.0}


@dataclass(frozen=True)
class Fleet:
    """A node of 8 GPUs at work of which everything is observed, but for what is changed. `columns`: measures of GPUs;
    `hours`: since when the node is there; `seen_every`: of so many hours one is observed; `seen`: GPUs that series
    name; `dark`: why a second node shows no GPU (``seen``: it does; empty: there is none); `owned`: whether workloads
    have an owner, or a name; `absent`: device and reason."""

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
    still_nvlink: bool = False
    absent: tuple[str, str] | None = None

    def frame(self) -> Frame:
        b = FrameBuilder(hours=48)
        self._node(b, self.name, self.seen)
        if self.dark:
            self._node(b, "dark", 8 if self.dark == "seen" else 0)
        absences: list[tuple[object, ...]] = []
        if self.absent:
            absences.append((self.name, self.absent[0], "*", self.absent[1], "It failed.", "Mend it."))
        if self.dark == "no-driver":
            said = "The NVIDIA driver is not loaded.", "Load it with modprobe nvidia."
            absences.append(("dark", "nvml", "*", self.dark, *said))
        if self.still_nvlink:
            counter = "nvlink_tx_bytes_per_second"
            absences.append((self.name, None, counter, "counter-never-moved", "It read 0.", ""))
        names = ("node", "device", "metric", "reason", "detail", "remedy")
        for absence in absences:
            b.absences.append({"scope": "source", "since": START, **dict(zip(names, absence, strict=True))})
        source = {
            "kind": "prometheus", "url": "http://p:9090", "server": "Prometheus 3", "match": [],
            "exporters": list(self.exporters), "scrape_seconds": self.scrape_seconds,
        }  # fmt: skip
        end = START + 48 * HOUR
        return replace(b.frame(Window(end - self.window_hours * HOUR, end)), source=source)

    def _node(self, b: FrameBuilder, name: str, seen: int) -> None:
        first = 48 - self.hours
        begin = START + first * HOUR
        uuids = b.node(name, 8, sku=_SKUS.get(self.model), name_of_gpu=self.model, first_seen=begin)[:seen]
        del b.gpus[len(b.gpus) - 8 + seen :]
        b.nodes[-1] |= {"node_sku": self.sku, "region": self.region, "provider": (self.sku or "").partition("/")[0]}
        columns = {column for column in self.columns if not (self.still_nvlink and column.startswith("nvlink"))}
        load = {column: value for column, value in TRAINING.items() if column in columns}
        load |= {"tensor_active": 0.0} if self.still_tensor else {}
        spans = [(first, 48)] if self.seen_every == 1 else [(n, n + 1) for n in range(first, 48, self.seen_every)]
        for uuid in uuids:
            for start, end in spans:
                b.use(load, name, uuid, start=start, end=end)
        if self.frozen_power:
            b.gpu_rows = [row | _FROZEN for row in b.gpu_rows]
        for layer in self.layers:
            b.port(0.3, name)
            b.fabric_rows = [row | {"link_layer": layer} for row in b.fabric_rows]
        b.host_rows += [
            {"node": name, "ts": START + (n + 1) * HOUR, "interval_seconds": HOUR, "observed_seconds": HOUR,
             "cpu_util_mean": 0.1} for n in range(48 if self.host else 0)
        ]  # fmt: skip
        about: dict[str, Any] = {"scheduler": self.scheduler, "basis": "allocation" if self.scheduler else "activity"}
        if self.scheduler == "kubernetes":
            about |= {"namespace": "ml", "pod": "w-0", "controller_kind": "StatefulSet" if self.owned else None}
        if self.scheduler == "slurm":
            about |= {"job_id": "31", "user": "ann" if self.owned else None}
        about["name"] = "job 31" if self.scheduler == "slurm" and not self.owned else "train"
        if uuids:
            b.work(f"w-{name}", [(name, uuid) for uuid in uuids], start=first, **about)


@cache
def diagnosed(fleet: Fleet) -> Diagnosis:
    """What `skuwise doctor` says of it at the window's end, by the rules that ship."""
    return diagnosed_frame(fleet.frame(), rulebook())


def diagnosed_frame(frame: Frame, book: Rulebook) -> Diagnosis:
    """What `skuwise doctor` says of a frame at its window's end."""
    reasoned = reason_on(judge(frame, book), book, frame.window.end, 1, source=frame.source)
    return diagnose(frame, reasoned, book.catalog)
