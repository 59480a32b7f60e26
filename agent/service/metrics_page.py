"""The page of metrics of the running agent: which families there are, and how totals become their samples.

Ratios stand as integrals over time (seconds of activity), byte rates as bytes, power as joules; beside each stands the
time in which it was observed. So a mean over any window is exact however rarely the page is read. Gauges are for
looking only. Nothing here names a user or a command.
"""

import resource
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric, ProcessCollector

from ..metrics import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ..model import Gpu
from ..statistics.rollup_stats import PERIOD_LAGS, PERIOD_SAMPLES, autocorrelation_peak, second_grid
from .page_server import Labels, Page, cleaned
from .totals import EDGES, MOMENTS, DeviceTotals, Distribution, GpuTotals, Totals

# nvml.h, nvmlClocksEventReasons: the names of its bits from 0x1 on.
_THROTTLE_BITS = (
    "gpu_idle applications_clocks_setting sw_power_cap hw_slowdown sync_boost sw_thermal_slowdown hw_thermal_slowdown"
    " hw_power_brake_slowdown display_clock_setting"
)
THROTTLE_BITS = {1 << place: name for place, name in enumerate(_THROTTLE_BITS.split())}
_DISTRIBUTIONS = {
    "gpu_util": "gpu_util",
    "sm_active": "sm_active",
    "tensor_active": "tensor_active",
    "dram_active": "dram_active",
    "nvlink": "the larger direction of NVLink traffic over its bandwidth one way",
    "mem_used": "memory used over memory installed",
}
_MOMENTS = (
    "time in which both are known",
    "tensor_active, summed over time",
    "traffic (the larger direction), summed over time",
    "the square of tensor_active, summed over time",
    "the square of the traffic rate, summed over time",
    "tensor_active times the traffic rate, summed over time",
)
# What is summed of a GPU beside its metrics: series, unit, meaning.
_GPU_SUMS = (
    ("gpu_energy", "joules", "Energy by the GPU's own counter."),
    ("gpu_energy_observed", "seconds", "Time that the energy counter covers."),
    ("gpu_busy", "seconds", "Time with sm_active at 5 % or more."),
    ("gpu_sm_active_squared", "seconds", "Square of sm_active, summed over time."),
    ("gpu_throttled", "seconds", "Time with a power, thermal or hardware slowdown reason."),
    ("gpu_throttle_reasons_observed", "seconds", "Time in which the throttle reasons were known."),
    *(
        (series, "", f"Of tensor_active and {other}: {meaning}.")
        for pair, other in (("nvlink", "NVLink"), ("fabric", "the node's compute ports"))
        for series, meaning in zip(MOMENTS[pair], _MOMENTS, strict=True)
    ),
)
_PORT_SUMS = (
    ("fabric_state_observed", "seconds", "Time in which the port's state was known."),
    ("fabric_active", "seconds", "Time in which the port was ACTIVE."),
    ("fabric_util_observed", "seconds", "Time in which traffic and line rate were known."),
    ("fabric_silent", "seconds", "Time with less than 0.1 % of the line rate."),
)


def make_page(totals: Totals, ended: Mapping[str, int]) -> Page:
    """The whole page. `ended`: how connections to it have ended, by outcome."""
    page = Page({"node": totals.node.node})
    with totals.lock:
        _add_gpus(page, totals)
        _add_fabric(page, totals)
        _add_host(page, totals)
        _add_work(page, totals)
        _add_cost(page, totals, ended)
    page.families += ProcessCollector(registry=None).collect()
    return page


def _add_histogram(page: Page, name: str, text: str, samples: Iterable[tuple[Labels, Distribution]]) -> None:
    family = Metric(f"skuwise_{name}", text, "histogram", "ratio")
    bounds = [*(repr(edge) for edge in EDGES), "+Inf"]
    for labels, distribution in samples:
        whole, count = page.base | labels, 0
        for bound, more in zip(bounds, distribution.counts, strict=True):
            count += more
            family.add_sample(f"{family.name}_bucket", {**whole, "le": bound}, count)
        family.add_sample(f"{family.name}_count", whole, count)
        family.add_sample(f"{family.name}_sum", whole, distribution.total)
    if family.samples:
        page.families.append(family)


def _add_integrals(
    page: Page, integrals: Iterable[Integral], devices: Sequence[tuple[Labels, DeviceTotals]], now: int
) -> None:
    for integral in integrals:
        total, observed = (
            name.removeprefix("skuwise_").removesuffix("_total") for name in (integral.total, integral.observed)
        )
        sums = [(labels, device.integrals.get(integral.metric)) for labels, device in devices]
        page.add(total, f"Summed over time: {integral.meaning}.", sums, integral.unit, kind="counter")
        seconds = [(labels, device.seconds.get(integral.metric)) for labels, device in devices]
        page.add(observed, f"Time in which {integral.metric} had a value.", seconds, "seconds", kind="counter")
        if integral.gauge:
            last = [(labels, device.last.get(integral.metric)) for labels, device in devices if device.last_tick == now]
            stem = integral.gauge.removeprefix("skuwise_")
            page.add(stem, f"Now: {integral.meaning}.", last, integral.gauge_unit)


def _add_sums(
    page: Page, series: Iterable[tuple[str, str, str]], devices: Sequence[tuple[Labels, DeviceTotals]]
) -> None:
    for name, unit, text in series:
        sums = [(labels, device.sums.get(name)) for labels, device in devices]
        page.add(name, text, sums, unit, kind="counter")


def gpu_labels(uuid: str, gpu: Gpu | None) -> Labels:
    about = {} if gpu is None else {"gpu_index": gpu.index, "sku": gpu.sku, "kind": gpu.kind}
    return cleaned({"gpu_uuid": uuid, **about})


def _add_gpus(page: Page, totals: Totals) -> None:
    known_gpus = totals.gpus_known
    info = ("name", "parent_uuid", "mig_profile", "pci_bus_id", "driver_version")
    here = [(gpu_labels(gpu.uuid, gpu), gpu) for gpu in known_gpus.values()]
    infos = [(labels | cleaned({name: getattr(gpu, name) for name in info}), 1) for labels, gpu in here]
    page.add("gpu", "A GPU or MIG instance that is here.", infos, kind="info")
    for name, unit in (("mem_total", "bytes"), ("power_limit", "watts"), ("nvlink", "bytes_per_second")):
        field = f"{name}_{unit}"
        values = [(labels, getattr(gpu, field)) for labels, gpu in here]
        page.add(f"gpu_{name}", f"Reported by the driver: {field}.", values, unit)
    gpus = [(gpu_labels(uuid, known_gpus.get(uuid)), gpu_totals) for uuid, gpu_totals in totals.gpus.items()]
    seen = [(labels, gpu_totals.observed_seconds) for labels, gpu_totals in gpus]
    page.add("gpu_observed", "Time in which the GPU was observed.", seen, "seconds", kind="counter")
    _add_sums(page, _GPU_SUMS, gpus)
    _add_integrals(page, GPU_INTEGRALS, gpus, totals.ticks)
    reasons = [
        (labels | {"reason": THROTTLE_BITS.get(bit, hex(bit))}, seconds)
        for labels, gpu_totals in gpus
        for bit, seconds in sorted(gpu_totals.throttle_reasons.items())
    ]
    page.add("gpu_throttle_reason", "Time with this reason for the GPU's clocks.", reasons, "seconds", kind="counter")
    for name, meaning in _DISTRIBUTIONS.items():
        held = [(labels, gpu.distributions[name]) for labels, gpu in gpus if name in gpu.distributions]
        _add_histogram(page, f"gpu_{name}_distribution", f"Ticks by {meaning}.", held)
    _add_rhythm(page, [(labels, gpu_totals) for labels, gpu_totals in gpus if gpu_totals.last_tick == totals.ticks])
    _add_events(page, totals)


def _add_rhythm(page: Page, gpus: Sequence[tuple[Labels, GpuTotals]]) -> None:
    least, most = PERIOD_LAGS["minute"]
    peaks: list[tuple[Labels, tuple[float, float]]] = []
    for labels, gpu_totals in gpus:
        grid = second_grid([value for _, value in gpu_totals.recent], [ts for ts, _ in gpu_totals.recent])
        enough = sum(value is not None for value in grid) >= PERIOD_SAMPLES["minute"]
        if enough and (peak := autocorrelation_peak(grid, least, most)) is not None:
            peaks.append((labels, peak))
    periods, strengths = ([(labels, peak[place]) for labels, peak in peaks] for place in (0, 1))
    idle = [(labels, gpu_totals.idle_run_seconds) for labels, gpu_totals in gpus if "sm_active" in gpu_totals.last]
    page.add("gpu_idle_run", "How long sm_active has been below 5 % by now.", idle, "seconds")
    page.add("gpu_period", "Period of the last minute's tensor activity.", periods, "seconds")
    page.add("gpu_period_strength", "Height of its autocorrelation, 0..1.", strengths, "ratio")


def _add_events(page: Page, totals: Totals) -> None:
    """XIDs by number, and events by kind; XID and double-bit ECC from 0 on, so that the first one is an increase."""
    gpus = totals.gpus_known
    whole = [uuid for uuid, gpu in gpus.items() if gpu.kind == "gpu"]
    by_kind = {(uuid, kind): 0 for uuid in whole for kind in ("xid", "ecc-double-bit")}
    xids: list[tuple[Labels, float]] = []
    for (uuid, kind, code), count in totals.events.items():
        by_kind[uuid, kind] = by_kind.get((uuid, kind), 0) + count
        if kind == "xid":
            xids.append((gpu_labels(uuid, gpus.get(uuid)) | {"xid": code}, count))
    kinds = [(gpu_labels(uuid, gpus.get(uuid)) | {"event": kind}, count) for (uuid, kind), count in by_kind.items()]
    page.add("gpu_events", "Events that the driver reported, by kind.", kinds, kind="counter")
    page.add("gpu_xid_events", "XID errors that the driver reported, by number.", xids, kind="counter")


def _add_fabric(page: Page, totals: Totals) -> None:
    labels: dict[str, Labels] = {}
    for key in (*totals.ports_known, *totals.ports):
        device, _, port = key.rpartition("/")
        labels[key] = cleaned({"device": device, "port": port})
    here = [(labels[key], port) for key, port in totals.ports_known.items()]
    infos = [(base | cleaned({"role": port.role, "link_layer": port.link_layer}), 1) for base, port in here]
    page.add("fabric_port", "A port of a NIC, and whom it serves.", infos, kind="info")
    rates = [(base, port.line_rate_bytes_per_second) for base, port in here]
    page.add("fabric_line_rate", "The port's line rate, one way.", rates, "bytes_per_second")
    ports = [(labels[key], device_totals) for key, device_totals in totals.ports.items()]
    _add_sums(page, _PORT_SUMS, ports)
    _add_integrals(page, FABRIC_INTEGRALS, ports, totals.ticks)
    held = [(base, device_totals.distributions["util"]) for base, device_totals in ports if device_totals.distributions]
    _add_histogram(page, "fabric_util_distribution", "Ticks by traffic over the line rate.", held)


def _add_host(page: Page, totals: Totals) -> None:
    node, host = totals.node, totals.host
    names = ("cluster", "node_sku", "node_sku_source", "provider", "region", "instance_type", "agent_version")
    labels = cleaned({name: getattr(node, name) for name in names})
    page.add("node", "The node that this page is about.", [(labels, 1)], kind="info")
    page.add("node_gpus", "GPUs that the node should have.", node.gpu_count)
    seen = host.observed_seconds or None
    page.add("host_observed", "Time in which the host was observed.", seen, "seconds", kind="counter")
    _add_integrals(page, HOST_INTEGRALS, [({}, host)], totals.ticks)


def _add_work(page: Page, totals: Totals) -> None:
    now = totals.observed_seconds
    uses = [(cleaned(dict(key)), seconds) for key, seconds in totals.uses.all(now).items()]
    absences = [(cleaned(dict(key)), seconds) for key, seconds in totals.absences.all(now).items()]
    page.add("workload_gpu", "Time in which the workload was on the GPU.", uses, "seconds", kind="counter")
    current = [(cleaned(dict(key)), 1) for key in totals.absences.since]
    page.add("absence", "1 while a value is missing; metric * is all of the subject's.", current)
    page.add("absence", "How long a value was missing for this reason.", absences, "seconds", kind="counter")


def _add_cost(page: Page, totals: Totals, ended: Mapping[str, int]) -> None:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = children.ru_utime + children.ru_stime
    page.add("agent_children_cpu", "CPU time of the agent's ended child processes.", used, "seconds", kind="counter")
    page.add("agent_ticks", "Ticks kept.", totals.ticks, kind="counter")
    page.add("agent_observed", "Time that the kept ticks cover.", totals.observed_seconds, "seconds", kind="counter")
    page.add("agent_missed_ticks", "Ticks that could not be taken.", totals.missed_ticks, kind="counter")
    last = totals.last_ts if totals.ticks else None
    page.add("agent_last_tick_timestamp", "When the last tick ended, Unix time.", last, "seconds")
    outcomes = [({"outcome": outcome}, count) for outcome, count in sorted(ended.items())]
    page.add("exporter_connections", "Connections to this page by how they ended.", outcomes, kind="counter")
