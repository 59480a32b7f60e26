"""The queries of exporters as data: each measure of the frame as an expression whose value at a moment is of a row.

Rows are as long as the step, so the engine reads each sample once a statistic and answers with one number a row. What
exporters export are gauges, of which a mean is that of the samples (of our agent: `agent_queries`). Where the recording
rules of `deploy/prometheus` have run for the whole window, their five-minute means and maxima stand in for the samples.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .....agent.sources.scrape.dcgm import FIELDS
from ..client.range_planner import Ask
from .labels import DCGM_LABELS, HOST_LABELS, PORT_LABELS, WORKLOAD_LABELS

MIB = 1024.0**2
MOST_MEMORY_BYTES = 1e13  # beyond lie blank sentinels
# Rates within a row are looked at over so long: four scrapes of a minute, and one more.
WITHIN = "5m"
RULE_SECONDS = 300.0
AGENT_ANCHOR = "skuwise_gpu_observed_seconds_total"
AGENT_ABSENCE = "skuwise_absence"
AGENT_SERIES = "skuwise_workload_gpu_seconds_total"
_ENERGY_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # millijoules since the driver was loaded
ENERGY = "energy_joules_mean"
# What a sample may speak for at most: five minutes of a board beyond which there is none.
MOST_JOULES_A_SAMPLE = 3000.0 * 300.0


@dataclass(frozen=True, slots=True)
class DcgmGauge:
    """A gauge of dcgm-exporter: its names (best first), what its unit is in ours, and the most that is a reading."""

    measure: str
    names: tuple[str, ...]
    scale: float
    most: float
    statistics: tuple[str, ...]

    @property
    def is_ratio(self) -> bool:
        return self.most < 2

    @property
    def limit(self) -> str:
        """The most that is a reading, in the exporter's unit."""
        return f"{self.most / self.scale:.10g}"

    def known(self, present: Collection[str]) -> list[str]:
        """Its names that a server has."""
        return [name for name in self.names if name in present]


_EACH = ("mean", "p95", "max")
_ENGINE_NAMES = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO")
# No maxima of activity: what counts of them is whether they are zero, and then the mean is.
_MEAN_ALONE = ("sm_occupancy", "fp64_active", "fp32_active")
DCGM_GAUGES: tuple[DcgmGauge, ...] = (
    DcgmGauge("gpu_util", ("DCGM_FI_DEV_GPU_UTIL",), 0.01, 1.001, _EACH),
    DcgmGauge("mem_used_bytes", ("DCGM_FI_DEV_FB_USED",), MIB, MOST_MEMORY_BYTES, ("mean", "max")),
    DcgmGauge("engine", _ENGINE_NAMES, 1.0, 1.001, _EACH),
    DcgmGauge("power_watts", ("DCGM_FI_DEV_POWER_USAGE",), 1.0, 3e3, ("mean",)),
    DcgmGauge("sm_clock_hertz", ("DCGM_FI_DEV_SM_CLOCK",), 1e6, 1e10, ("mean",)),
    DcgmGauge("mem_clock_hertz", ("DCGM_FI_DEV_MEM_CLOCK",), 1e6, 1e11, ("mean",)),
    *(
        DcgmGauge(one.metric, one.names, 1.0, one.most, ("mean",) if one.metric in _MEAN_ALONE else ("mean", "p95"))
        for one in FIELDS
        if one.metric != "fp16_active"
    ),
)
GAUGES = {gauge.measure: gauge for gauge in DCGM_GAUGES}
# Their sum is what a GPU has. The driver's reserve is told apart by newer releases only.
_MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
_OVER_TIME = {"mean": "avg_over_time({})", "max": "max_over_time({})", "p95": "quantile_over_time(0.95, {})"}
# Means far below 95th percentiles tell of work and waiting by turns, where samples are shorter than the turns.
_TURNS = frozenset({"sm_active", "tensor_active", "dram_active"})
_TURN_SECONDS = 30.0
# Beside ratios, what DCGM and drivers fill with sentinels or noise now and then.
_WITH_SENTINELS = frozenset({"power_watts", "mem_used_bytes"})
_NAMING_LABELS = tuple(name for name in DCGM_LABELS if name not in WORKLOAD_LABELS)
_PLAIN_ID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
# So many ids of GPUs make one query, more are asked for all.
_MOST_NAMED = 200


def selector(matches: Sequence[str], *own: str) -> str:
    """``{...}`` of the matchers that a user gave and our own; empty for none."""
    inside = ",".join((*own, *matches))
    return f"{{{inside}}}" if inside else ""


def row_range(step: float) -> str:
    """The range of a row: half-open, as the rows are.

    Prometheus before 3.0 counts a sample at the very start of a range as well, so that it would stand in two rows.
    """
    return f"[{step - 1:.0f}s999ms]"


def rule_name(measure: str, statistic: str) -> str:
    """The recording rule of a gauge of dcgm-exporter: its mean or maximum over five minutes."""
    return f"skuwise:{measure}:{statistic}5m"


def is_plain_id(uuid: str) -> bool:
    """Whether an id needs no escaping in a pattern."""
    return _PLAIN_ID.fullmatch(uuid) is not None


def of_gpus(devices: Iterable[str], label: str = "UUID") -> tuple[str, ...]:
    """The matcher of the whole GPUs of some devices; none, for all, where they are too many or too odd to be named."""
    uuids = sorted({device.partition("/gi")[0] for device in devices})
    named = 0 < len(uuids) <= _MOST_NAMED and all(map(is_plain_id, uuids))
    return (f'{label}=~"{"|".join(uuids)}"',) if named else ()


def anchors_of(present: Collection[str]) -> tuple[str, ...]:
    """The series of dcgm-exporter by which GPUs are looked for, the usual ones first; empty without any."""
    return tuple(name for gauge in DCGM_GAUGES for name in gauge.known(present))


@dataclass(frozen=True)
class DcgmQueries:
    """What is asked of dcgm-exporter's series in rows of `step` seconds. `present`: the metrics of the server; `ruled`:
    its recording rules; `scrape_seconds`: how far samples lie apart (None: not known)."""

    present: Collection[str]
    matches: Sequence[str]
    step: float
    ruled: Collection[str] = ()
    scrape_seconds: float | None = None

    def of_all(self) -> list[Ask]:
        """Of all GPUs. The engine's activity stands in where no GPU has a utilization."""
        own = [one for one in DCGM_GAUGES if one.measure != "engine" or not GAUGES["gpu_util"].known(self.present)]
        asks = [self._count(), *(ask for one in own for ask in self.statistics(one)), *self._beyond()]
        return [*asks, *self._energy()]

    def statistics(self, gauge: DcgmGauge, *own: str, possible: bool = False) -> list[Ask]:
        """Statistics of a gauge, of the series that `own` matchers select. `possible`: of the samples that can be
        readings, looked at one by one."""
        asks, chosen = [], selector(self.matches, *own)
        is_long = self.scrape_seconds is not None and self.scrape_seconds >= _TURN_SECONDS
        for statistic in gauge.statistics:
            if statistic == "p95" and gauge.measure in _TURNS and is_long:
                continue
            rule = rule_name(gauge.measure, statistic)
            # A 95th percentile of means of five minutes is lower than one of samples: rules keep none.
            is_ruled = rule in self.ruled and statistic != "p95" and not possible
            form = f"({{}}{chosen} <= {gauge.limit}){self._each}" if possible else f"{{}}{chosen}{self._row}"
            if names := [rule] if is_ruled else gauge.known(self.present):
                query = " or ".join(_OVER_TIME[statistic].format(form.replace("{}", name, 1)) for name in names)
                asks.append(Ask(f"{gauge.measure}_{statistic}", query, DCGM_LABELS))
        return asks

    def impossible(self, gauge: DcgmGauge, *own: str) -> Ask:
        """How many samples of a row are no readings."""
        each = f"{selector(self.matches, *own)} > {gauge.limit}){self._each}"
        query = " or ".join(f"count_over_time(({name}{each})" for name in gauge.known(self.present))
        return Ask("impossible", query, DCGM_LABELS)

    def memory(self) -> list[Ask]:
        """How much memory a GPU has, by the series that sum up to it.

        It does not change, so a few moments of the window are enough. Where a GPU has no reserve, the rest counts.
        """
        parts, chosen = [name for name in _MEMORY if name in self.present], selector(self.matches)
        sums = [" + ".join(f"{name}{chosen}" for name in parts[:count]) for count in range(len(parts), 1, -1)]
        return [Ask("mem_total_bytes", " or ".join(sums), DCGM_LABELS)] if parts[:2] == list(_MEMORY[:2]) else []

    def _count(self) -> Ask:
        """How many samples a row has, by two metrics: MIG instances lack the first, utilization."""
        chosen = selector(self.matches) + self._row
        query = " or ".join(f"count_over_time({name}{chosen})" for name in anchors_of(self.present)[:2])
        return Ask("n", query, DCGM_LABELS)

    def _beyond(self) -> list[Ask]:
        """The largest samples that are no readings, with their measure: a mean would not show them. Ratios of MIG
        instances may exceed 1 (NVIDIA/DCGM#152); behind a rule for a mean no sample is known."""
        parts = []
        for gauge in DCGM_GAUGES:
            chosen = selector(self.matches, *(['GPU_I_ID=""'] if gauge.is_ratio else [])) + self._row
            rules = [rule_name(gauge.measure, one) for one in ("max", "mean")]
            ruled = [rule for rule in rules if rule in self.ruled]
            names = [rule for rule in ruled if rule == rules[0]] if ruled else gauge.known(self.present)
            for name in names if gauge.is_ratio or gauge.measure in _WITH_SENTINELS else ():
                largest = f"max_over_time({name}{chosen}) > {gauge.limit}"
                parts.append(f'label_replace({largest}, "measure", "{gauge.measure}", "", "")')
        return [Ask("beyond", " or ".join(parts), (*DCGM_LABELS, "measure"))] if parts else []

    def _energy(self) -> list[Ask]:
        """Joules a sample by the GPU's own counter.

        A counter that goes back (the driver was loaded again, an exporter mixed up two GPUs) has grown by nobody knows
        how much: such a row has none, as one that stands still. By the sample, because a GPU's series may change its
        pod within a row.
        """
        rows = f"{_ENERGY_COUNTER}{selector(self.matches)}{self._row}"
        query = f"(increase({rows}) / count_over_time({rows}) / 1000 > 0) unless (resets({rows}) > 0)"
        return [Ask(ENERGY, query, DCGM_LABELS)] if _ENERGY_COUNTER in self.present else []

    @property
    def _row(self) -> str:
        return row_range(self.step)

    @property
    def _each(self) -> str:
        """The samples of a row one by one: intervals of scraping are whole multiples of five seconds or short."""
        seconds = self.scrape_seconds or 60.0
        return f"{self._row[:-1]}:{round(seconds / 5) * 5 or max(1, round(seconds))}s]"


def named_ask(names: Sequence[str], matches: Sequence[str]) -> Ask:
    """Which GPUs some series of dcgm-exporter name at a moment. Google Managed Prometheus takes exact names only."""
    chosen = selector(matches, 'UUID!=""')
    own = " or ".join(f"{name}{chosen}" for name in names)
    return Ask("GPUs named", f"count by ({', '.join(_NAMING_LABELS)}) ({own})", _NAMING_LABELS)


def exporter_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What node_exporter says of InfiniBand ports."""
    chosen, row = selector(matches), row_range(step)
    port, rates, moments = "node_infiniband_port_data", f"{chosen}[{WITHIN}])", f"[{step:g}s:{WITHIN}]"
    queries = [
        ("n", f"{port}_transmitted_bytes_total", f"count_over_time({{}}{chosen}{row})"),
        ("active", "node_infiniband_state_id", f"avg_over_time(({{}}{chosen} == bool 4){moments})"),
        ("xmit_wait_mean", "node_infiniband_port_transmit_wait_total", f"rate({{}}{chosen}{row})"),
    ]
    for way, total in (("tx", f"{port}_transmitted_bytes_total"), ("rx", f"{port}_received_bytes_total")):
        queries += [
            (f"{way}_mean", total, f"rate({{}}{chosen}{row})"),
            (f"{way}_p95", total, f"quantile_over_time(0.95, rate({{}}{rates}{moments})"),
            (f"{way}_max", total, f"max_over_time(rate({{}}{rates}{moments})"),
        ]
    kept = (*HOST_LABELS, *PORT_LABELS)
    return [Ask(f"fabric {name}", form.replace("{}", of, 1), kept) for name, of, form in queries if of in present]


def exporter_host_asks(present: Collection[str], matches: Sequence[str], step: float, *, cores: bool) -> list[Ask]:
    """What node_exporter says of hosts. `cores`: whether the time of each core may be read."""
    row, by = row_range(step), f"by ({', '.join(HOST_LABELS)})"
    disks = selector(matches, 'device!~"dm-.*|loop.*|md.*|ram.*|sr.*"')
    asks = []
    for name, mode in (("idle", "idle"), ("io_wait", "iowait")) if cores else ():
        chosen = selector(matches, f'mode="{mode}"')
        asks.append((f"{name}_mean", f"avg {by} (rate(node_cpu_seconds_total{chosen}{row}))"))
    for way, counter in (("read", "node_disk_read_bytes_total"), ("write", "node_disk_written_bytes_total")):
        if counter in present:
            rates = f"sum {by} (rate({counter}{disks}[{WITHIN}]))[{step:g}s:{WITHIN}]"
            asks.append((f"disk_{way}_bytes_per_second_mean", f"sum {by} (rate({counter}{disks}{row}))"))
            asks.append((f"disk_{way}_bytes_per_second_max", f"max_over_time({rates})"))
    return [Ask(f"host {name}", query, HOST_LABELS) for name, query in asks]


def gauge_of(column: str) -> DcgmGauge | None:
    """The gauge of which a column of the frame is a mean, percentile or maximum."""
    return GAUGES.get(column.rpartition("_")[0])
