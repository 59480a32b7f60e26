"""The page of metrics as a part of the running agent: its totals, its server, and what the process costs.

The page of metrics: which families there are, and how totals become their samples.

Ratios stand as integrals over time (seconds of activity), byte rates as bytes, power as joules; beside each stands the
time in which it was observed. So a mean over any window is exact however rarely the page is read. Gauges are for
looking only. Nothing here names a user or a command.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ..base.address import Address
from ..base.openmetrics import ExpositionFormat, MetricFamily, MetricsText, Sample, label_text
from ..base.safe_text import clean_text
from ..model import Absence, Gpu, Node
from ..statistics.rollup_stats import PERIOD_LAGS, PERIOD_SAMPLES
from ..statistics.signal_stats import autocorrelation_peak, second_grid
from .accumulators import AbsenceKey, Snapshot, Totals
from .device_totals import EDGES, Distribution, GpuTotals, Integrals
from .http_server import MetricsServer
from .metric_families import (
    DISTRIBUTIONS,
    FABRIC_INTEGRALS,
    GPU_COUNTERS,
    GPU_INTEGRALS,
    HOST_INTEGRALS,
    MOMENTS,
    PAIRS,
    PORT_COUNTERS,
    THROTTLE,
    THROTTLE_BITS,
    UNITS,
    Integral,
    make_family,
    seconds_family,
)
from .process_stats import resident_bytes, started_ts


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """What the agent's process has cost since it began."""

    cpu_seconds: float
    children_cpu_seconds: float
    resident_bytes: int
    started_ts: float


def render_metrics(snapshot: Snapshot, cost: ProcessCost, served: Mapping[str, int], form: ExpositionFormat) -> str:
    """The whole page as text. `served`: how connections to the page have ended, by outcome."""
    page = MetricsText(form)
    node = snapshot.node
    _render_gpus(page, snapshot, node.node)
    _render_fabric(page, snapshot, node.node)
    _render_host(page, snapshot, node)
    _render_work(page, snapshot, node.node)
    _render_events(page, snapshot, node.node)
    _render_absences(page, snapshot, node.node)
    _render_cost(page, snapshot, node.node, cost, served)
    return page.text()


def gpu_labels(node: str, uuid: str, gpu: Gpu | None) -> str:
    """What every series of a GPU carries."""
    return _labels(
        node=node,
        gpu_uuid=uuid,
        gpu_index=None if gpu is None else gpu.index,
        sku=gpu.sku if gpu else None,
        kind=gpu.kind if gpu else None,
    )


def _labels(**labels: object) -> str:
    return label_text({k: clean_text(v) if isinstance(v, str) else v for k, v in labels.items()})


def _render_gpus(page: MetricsText, snapshot: Snapshot, node: str) -> None:
    known = {gpu.uuid: gpu for gpu in snapshot.survey.gpus}
    page.add(
        make_family("gpu", "info", "A GPU or MIG instance that is here."),
        [
            (
                _labels(
                    node=node, gpu_uuid=g.uuid, gpu_index=g.index, sku=g.sku, kind=g.kind, name=g.name,
                    parent_uuid=g.parent_uuid, mig_profile=g.mig_profile, pci_bus_id=g.pci_bus_id,
                    driver_version=g.driver_version,
                ),
                1,
            )
            for g in known.values()
        ],
    )  # fmt: skip
    gpus = [(gpu_labels(node, uuid, known.get(uuid)), totals) for uuid, totals in snapshot.gpus.items()]
    for unit, name, field in (
        ("bytes", "gpu_mem_total", "mem_total_bytes"),
        ("watts", "gpu_power_limit", "power_limit_watts"),
        ("bytes_per_second", "gpu_nvlink", "nvlink_bytes_per_second"),
    ):
        page.add(
            make_family(name, "gauge", f"Reported by the driver: {field}.", unit),
            [(gpu_labels(node, g.uuid, g), getattr(g, field)) for g in known.values()],
        )
    for family, get in GPU_COUNTERS:
        page.add(family, [(labels, get(t)) for labels, t in gpus])
    _render_integrals(page, GPU_INTEGRALS, gpus, snapshot.ticks)
    page.add(
        THROTTLE,
        [
            (f'{labels},reason="{THROTTLE_BITS.get(bit, hex(bit))}"', seconds)
            for labels, totals in gpus
            for bit, seconds in sorted(totals.throttled_seconds_by_bit.items())
        ],
    )
    for name, meaning in DISTRIBUTIONS.items():
        held = [(labels, t.distributions[name]) for labels, t in gpus if name in t.distributions]
        _render_distribution(page, f"gpu_{name}", meaning, held)
    for pair, other, moments_of in PAIRS:
        for attribute, ending, text in MOMENTS:
            unit = next((unit for unit in UNITS if ending.endswith(unit)), "")
            name = f"skuwise_gpu_tensor_{pair}_{ending}"
            page.add(
                MetricFamily(name, "counter", unit, f"Of tensor_active and {other}: {text}."),
                [(labels, getattr(moments_of(t), attribute)) for labels, t in gpus if moments_of(t).seconds],
            )
    _render_rhythm(page, [(labels, t) for labels, t in gpus if t.last_tick == snapshot.ticks])


def _render_distribution(page: MetricsText, name: str, meaning: str, held: Iterable[tuple[str, Distribution]]) -> None:
    family = make_family(f"{name}_distribution", "histogram", f"Ticks by {meaning}.", "ratio")
    page.add_histogram(family, EDGES, [(labels, one.counts, one.total) for labels, one in held])


def _render_integrals(
    page: MetricsText, integrals: Iterable[Integral], devices: Sequence[tuple[str, Integrals]], ticks: int
) -> None:
    known = [(labels, device.cells()) for labels, device in devices]
    for one in integrals:
        cells = [(labels, found[one.metric]) for labels, found in known if one.metric in found]
        page.add(one.total, [(labels, cell[0]) for labels, cell in cells])
        page.add(one.observed, [(labels, cell[1]) for labels, cell in cells])
        if one.gauge is not None:
            page.add(one.gauge, [(labels, d.last.get(one.metric)) for labels, d in devices if d.last_tick == ticks])


def _render_rhythm(page: MetricsText, gpus: Sequence[tuple[str, GpuTotals]]) -> None:
    least, most = PERIOD_LAGS["minute"]
    periods: list[Sample] = []
    strengths: list[Sample] = []
    for labels, totals in gpus:
        grid = second_grid([value for _, value in totals.recent], [ts for ts, _ in totals.recent])
        if sum(value is not None for value in grid) < PERIOD_SAMPLES["minute"]:
            continue
        peak = autocorrelation_peak(grid, least, most)
        if peak is not None:
            periods.append((labels, peak[0]))
            strengths.append((labels, peak[1]))
    idle = [(labels, t.idle_run_seconds) for labels, t in gpus if "sm_active" in t.last]
    page.add(make_family("gpu_idle_run", "gauge", "How long sm_active has been below 5 % by now.", "seconds"), idle)
    page.add(make_family("gpu_period", "gauge", "Period of the last minute's tensor activity.", "seconds"), periods)
    page.add(make_family("gpu_period_strength", "gauge", "Height of its autocorrelation, 0..1.", "ratio"), strengths)


def _render_fabric(page: MetricsText, snapshot: Snapshot, node: str) -> None:
    known = {port.key: port for port in snapshot.survey.ports}
    base: dict[str, str] = {}
    for key in (*known, *(key for key in snapshot.ports if key not in known)):
        device, _, port = key.rpartition("/")
        base[key] = _labels(node=node, device=device, port=port)
    page.add(
        make_family("fabric_port", "info", "A port of a NIC, and whom it serves."),
        [(f"{base[k]},{_labels(role=p.role, link_layer=p.link_layer)}", 1) for k, p in known.items()],
    )
    page.add(
        make_family("fabric_line_rate", "gauge", "The port's line rate, one way.", "bytes_per_second"),
        [(base[k], p.line_rate_bytes_per_second) for k, p in known.items()],
    )
    ports = [(base[key], totals) for key, totals in snapshot.ports.items()]
    for family, get in PORT_COUNTERS:
        page.add(family, [(labels, get(t)) for labels, t in ports])
    _render_integrals(page, FABRIC_INTEGRALS, ports, snapshot.ticks)
    held = [(labels, t.util) for labels, t in ports if t.util_seconds]
    _render_distribution(page, "fabric_util", "traffic over the line rate", held)


def _render_host(page: MetricsText, snapshot: Snapshot, node: Node) -> None:
    labels = _labels(
        node=node.node, cluster=node.cluster, node_sku=node.node_sku, node_sku_source=node.node_sku_source,
        provider=node.provider, region=node.region, instance_type=node.instance_type, agent_version=node.agent_version,
    )  # fmt: skip
    here = _labels(node=node.node)
    page.add(make_family("node", "info", "The node that this page is about."), [(labels, 1)])
    page.add(make_family("node_gpus", "gauge", "GPUs that the node should have."), [(here, node.gpu_count)])
    seen = snapshot.host.observed_seconds
    page.add(seconds_family("host_observed", "Time in which the host was observed."), [(here, seen or None)])
    _render_integrals(page, HOST_INTEGRALS, [(here, snapshot.host)], snapshot.ticks)


def _render_work(page: MetricsText, snapshot: Snapshot, node: str) -> None:
    page.add(
        seconds_family("workload_gpu", "Time in which the workload was on the GPU."),
        [
            (_labels(node=node, **(asdict(key) | {"shared": int(key.shared)})), seconds)
            for key, seconds in snapshot.use_seconds.items()
        ],
    )


def _render_events(page: MetricsText, snapshot: Snapshot, node: str) -> None:
    """XIDs by number, and events by kind; XID and double-bit ECC from 0 on, so that the first one is an increase."""
    known = {gpu.uuid: gpu for gpu in snapshot.survey.gpus if gpu.kind == "gpu"}
    by_kind = {(uuid, kind): 0 for uuid in known for kind in ("xid", "ecc-double-bit")}
    xids: list[Sample] = []
    for (uuid, kind, code), count in snapshot.events.items():
        by_kind[uuid, kind] = by_kind.get((uuid, kind), 0) + count
        if kind == "xid":
            xids.append((f'{gpu_labels(node, uuid, known.get(uuid))},xid="{code}"', count))
    page.add(
        make_family("gpu_events", "counter", "Events that the driver reported, by kind."),
        [(f'{gpu_labels(node, u, known.get(u))},event="{kind}"', count) for (u, kind), count in by_kind.items()],
    )
    page.add(make_family("gpu_xid_events", "counter", "XID errors that the driver reported, by number."), xids)


def _render_absences(page: MetricsText, snapshot: Snapshot, node: str) -> None:
    def labels(key: AbsenceKey) -> str:
        return _labels(node=node, **dict(zip(("scope", "subject", "metric", "reason"), key, strict=True)))

    page.add(
        make_family("absence", "gauge", "1 while a value is missing; metric * is all of the subject's."),
        [(labels(key), 1) for key in snapshot.absent_now],
    )
    page.add(
        seconds_family("absence", "How long a value was missing for this reason."),
        [(labels(key), seconds) for key, seconds in snapshot.absent_seconds.items()],
    )


def _render_cost(
    page: MetricsText, snapshot: Snapshot, node: str, cost: ProcessCost, served: Mapping[str, int]
) -> None:
    here = _labels(node=node)
    stats = snapshot.stats
    own: tuple[tuple[MetricFamily, float | None], ...] = (
        (
            MetricFamily("process_cpu_seconds", "counter", "seconds", "CPU time of the agent's process."),
            cost.cpu_seconds,
        ),
        (
            MetricFamily("process_resident_memory_bytes", "gauge", "bytes", "Memory that the agent's process holds."),
            cost.resident_bytes,
        ),
        (
            MetricFamily(
                "process_start_time_seconds", "gauge", "seconds", "When the agent's process began, Unix time."
            ),
            cost.started_ts,
        ),
        (
            seconds_family("agent_children_cpu", "CPU time of the agent's ended child processes."),
            cost.children_cpu_seconds,
        ),
        (make_family("agent_ticks", "counter", "Ticks kept."), snapshot.ticks),
        (seconds_family("agent_observed", "Time that the kept ticks cover."), snapshot.observed_seconds),
        (make_family("agent_missed_ticks", "counter", "Ticks that could not be taken."), snapshot.missed_ticks),
        (
            make_family("agent_last_tick_timestamp", "gauge", "When the last tick ended, Unix time.", "seconds"),
            snapshot.last_ts if snapshot.ticks else None,
        ),
        (
            make_family("agent_longest_tick", "gauge", "Longest tick of the last reported minute.", "seconds"),
            stats and stats.tick_seconds,
        ),
        (
            make_family("agent_latest_tick", "gauge", "How late ticks were at most in that minute.", "seconds"),
            stats and stats.late_seconds,
        ),
        (make_family("exporter_left_out", "gauge", "Absences and uses for which there is no room."), snapshot.left_out),
    )
    for family, value in own:
        page.add(family, [(here, value)])
    page.add(
        make_family("exporter_connections", "counter", "Connections to this page by how they ended."),
        [(f'{here},outcome="{outcome}"', count) for outcome, count in sorted(served.items())],
    )


_NOTHING: frozenset[Absence] = frozenset()


class MetricsPage:
    """`totals` is fed by the recorder; between `start` and `stop` the page is served.

    They outlive the page: one that is served with other settings goes on with them. The agent counts as healthy while
    its last tick is at most `max_gap_seconds` old.
    """

    def __init__(self, address: Address, totals: Totals, max_gap_seconds: float) -> None:
        self.totals = totals
        self._max_gap = max_gap_seconds
        self._started_ts = started_ts()
        self._exporter = MetricsServer(
            address, page=self._text, version=lambda: totals.version, is_healthy=self._is_healthy
        )
        self._absences = _NOTHING

    @property
    def absences(self) -> frozenset[Absence]:
        """Why there is no page, while there is none; the same object while nothing changes."""
        fault = self._exporter.fault
        if (fault is None) != (not self._absences) or (fault is not None and fault not in self._absences):
            self._absences = _NOTHING if fault is None else frozenset((fault,))
        return self._absences

    def start(self, say: Callable[[str], None]) -> None:
        """Serve in a thread of its own, and say where, or why not."""
        self._exporter.start()
        fault = self._exporter.fault
        say(f"{fault.detail} {fault.remedy}" if fault else f"metrics at http://{self._exporter.address}/metrics")

    def stop(self) -> None:
        """Serve no longer."""
        self._exporter.stop()

    def _is_healthy(self) -> bool:
        return self.totals.seconds_since_tick() <= self._max_gap

    def _text(self, form: ExpositionFormat, served: Mapping[str, int]) -> str:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        cost = ProcessCost(
            cpu_seconds=own.ru_utime + own.ru_stime,
            children_cpu_seconds=children.ru_utime + children.ru_stime,
            resident_bytes=resident_bytes(),
            started_ts=self._started_ts,
        )
        return render_metrics(self.totals.read(), cost, served, form)
