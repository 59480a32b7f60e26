"""The catalogue of PromQL: each measure of the frame as an expression whose value at a moment tells of a row.

Rows are as long as the step, so the engine reads each sample once a statistic and answers with one number a row. What
exporters export are gauges, of which a mean is that of the samples (of our agent: `agent_queries`). Where the recording
rules of `deploy/prometheus` have run for the whole window, their five-minute means and maxima stand in for the samples.
"""

from __future__ import annotations

import math
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


@dataclass(frozen=True, slots=True)
class DcgmGauge:
    """A gauge of dcgm-exporter: its names (best first), what its unit is in ours, and the most that is a reading."""

    measure: str
    names: tuple[str, ...]
    scale: float
    most: float
    statistics: tuple[str, ...]


# No maxima of activity: what counts of them is whether they are zero, and then the mean is.
_STATISTICS = {
    "sm_active": ("mean", "p95"),
    "tensor_active": ("mean", "p95"),
    "dram_active": ("mean", "p95"),
    "sm_occupancy": ("mean",),
    "fp64_active": ("mean",),
    "fp32_active": ("mean",),
    "pcie_tx_bytes_per_second": ("mean", "p95"),
    "pcie_rx_bytes_per_second": ("mean", "p95"),
    "nvlink_tx_bytes_per_second": ("mean", "p95"),
    "nvlink_rx_bytes_per_second": ("mean", "p95"),
}
# What the exporter's page says of a GPU beside the profiling fields; what none of them can be is a blank sentinel.
_DEVICE_GAUGES = (
    DcgmGauge("gpu_util", ("DCGM_FI_DEV_GPU_UTIL",), 0.01, 1.001, ("mean", "p95", "max")),
    DcgmGauge(
        "engine", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"), 1.0, 1.001,
        ("mean", "p95", "max"),
    ),
    DcgmGauge("mem_used_bytes", ("DCGM_FI_DEV_FB_USED",), MIB, MOST_MEMORY_BYTES, ("mean", "max")),
    DcgmGauge("power_watts", ("DCGM_FI_DEV_POWER_USAGE",), 1.0, 1e4, ("mean",)),
    DcgmGauge("sm_clock_hertz", ("DCGM_FI_DEV_SM_CLOCK",), 1e6, 1e10, ("mean",)),
    DcgmGauge("mem_clock_hertz", ("DCGM_FI_DEV_MEM_CLOCK",), 1e6, 1e11, ("mean",)),
)  # fmt: skip
DCGM_GAUGES: tuple[DcgmGauge, ...] = (
    *_DEVICE_GAUGES,
    *(
        DcgmGauge(field.metric, field.names, 1.0, field.most, _STATISTICS[field.metric])
        for field in FIELDS
        if field.metric in _STATISTICS
    ),
)
# Millijoules since the driver was loaded.
ENERGY_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ENERGY = "energy_joules_mean"
JOULES_PER_COUNT = 1e-3
# What a sample may speak for at most: five minutes of a board beyond which there is none.
MOST_JOULES_A_SAMPLE = 3000.0 * 300.0
# Their sum is what a GPU has. The driver's reserve is told apart by newer releases only.
_MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
# Samples are counted by the first of these that the server has, and by others for the GPUs that lack it.
ANCHORS: tuple[str, ...] = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_DEV_POWER_USAGE",
    *(name for gauge in DCGM_GAUGES for name in gauge.names if not name.endswith(("GPU_UTIL", "POWER_USAGE", "FB_USED"))
      and "GR_ENGINE" not in name),
)  # fmt: skip
AGENT_ANCHOR = "skuwise_gpu_observed_seconds_total"
AGENT_ABSENCE = "skuwise_absence"
AGENT_SERIES = "skuwise_workload_gpu_seconds_total"
_OVER_TIME = {"mean": "avg_over_time({})", "max": "max_over_time({})", "p95": "quantile_over_time(0.95, {})"}
# Means far below 95th percentiles tell of work and waiting by turns, where samples are shorter than the turns.
_TURNS = frozenset({"sm_active", "tensor_active", "dram_active"})
_TURN_SECONDS = 30.0
# What the recording rules keep. A 95th percentile of means of five minutes is lower than one of samples: rules keep
# none, so it is asked of the samples.
_RULED = ("mean", "max")

_NAMING_LABELS = tuple(name for name in DCGM_LABELS if name not in WORKLOAD_LABELS)
_IB = "node_infiniband"
# Ids of GPUs, as a pattern that needs no escaping.
_PLAIN_ID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)


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


def dcgm_asks(
    present: Collection[str],
    matches: Sequence[str],
    step: float,
    ruled: Collection[str] = (),
    *,
    scrape_seconds: float | None = None,
) -> list[Ask]:
    """What is asked of all of dcgm-exporter's series by row, first the counts of samples.

    The engine's activity is asked of those that have no utilization (`engine_asks`). `scrape_seconds`: how far samples
    lie apart (None: not known): what only short ones tell is not asked of long ones.
    """
    counted = next((name for name in ANCHORS if name in present), None)
    assert counted is not None, "asked of a server without such series"
    asks = [count_ask(counted, matches, step)]
    is_needed = DCGM_GAUGES[0].names[0] not in present
    short = scrape_seconds is None or scrape_seconds < _TURN_SECONDS
    gauges = [gauge for gauge in DCGM_GAUGES if gauge.measure != "engine" or is_needed]
    return [*asks, *gauge_asks(gauges, present, selector(matches), step, ruled, short=short)]


def energy_ask(present: Collection[str], matches: Sequence[str], step: float) -> Ask | None:
    """Millijoules a sample by the GPU's own counter; None where the exporter does not tell.

    A counter that goes back (the driver was loaded again, an exporter mixed up two GPUs) has grown by nobody knows how
    much: such a row has none. By the sample, because a GPU's series may change its pod within a row.
    """
    if ENERGY_COUNTER not in present:
        return None
    rows = f"{ENERGY_COUNTER}{selector(matches)}{row_range(step)}"
    query = f"(increase({rows}) / count_over_time({rows})) unless (resets({rows}) > 0)"
    return Ask(ENERGY, query, DCGM_LABELS)


def count_ask(name: str, matches: Sequence[str], step: float, uuids: Sequence[str] = ()) -> Ask:
    """How many samples a row has of a metric, of some GPUs (none: of all)."""
    return Ask("n", f"count_over_time({name}{selector(matches, *of_gpus(uuids))}{row_range(step)})", DCGM_LABELS)


def of_gpus(uuids: Sequence[str]) -> tuple[str, ...]:
    """The matcher of some GPUs; none for all."""
    return (f'UUID=~"{"|".join(uuids)}"',) if uuids else ()


def is_plain_id(uuid: str) -> bool:
    """Whether an id needs no escaping in a pattern."""
    return _PLAIN_ID.fullmatch(uuid) is not None


def gauge_asks(
    gauges: Iterable[DcgmGauge],
    present: Collection[str],
    chosen: str,
    step: float,
    ruled: Collection[str],
    *,
    short: bool,
) -> list[Ask]:
    """Statistics of some gauges, of the series that `chosen` selects."""
    asks, window = [], row_range(step)
    for gauge in gauges:
        names = [name for name in gauge.names if name in present]
        for statistic in gauge.statistics:
            if statistic == "p95" and gauge.measure in _TURNS and not short:
                continue
            rule = rule_name(gauge.measure, statistic)
            if statistic in _RULED and rule in ruled:
                query = _OVER_TIME[statistic].format(f"{rule}{chosen}{window}")
            elif names:
                # Percentiles of links as of our agent's page: of the values at every fifth minute.
                is_thinned = statistic == "p95" and gauge.measure.endswith("_per_second") and step >= 12 * RULE_SECONDS
                each = f"[{step:g}s:{WITHIN}]" if is_thinned else window
                query = " or ".join(_OVER_TIME[statistic].format(f"{name}{chosen}{each}") for name in names)
            else:
                continue
            asks.append(Ask(f"{gauge.measure}_{statistic}", query, DCGM_LABELS))
    return asks


def engine_asks(
    present: Collection[str], matches: Sequence[str], step: float, ruled: Collection[str], uuids: Sequence[str] = ()
) -> list[Ask]:
    """The engine's activity, which says of some GPUs (none: of all) what utilization says of others. Nothing where it
    is asked of all already."""
    if DCGM_GAUGES[0].names[0] not in present:
        return []
    gauges = [gauge for gauge in DCGM_GAUGES if gauge.measure == "engine"]
    return gauge_asks(gauges, present, selector(matches, *of_gpus(uuids)), step, ruled, short=True)


def named_ask(names: Sequence[str], matches: Sequence[str]) -> Ask:
    """Which GPUs some series of dcgm-exporter name at a moment."""
    own = selector(matches, f'__name__=~"{"|".join(names)}"', 'UUID!=""')
    return Ask("GPUs named", f"count by ({', '.join(_NAMING_LABELS)}) ({own})", _NAMING_LABELS)


def dcgm_memory_ask(present: Collection[str], matches: Sequence[str]) -> Ask | None:
    """How much memory a GPU has, by the series that sum up to it; None where the exporter does not tell.

    It does not change, so a few moments of the window are enough. Where a GPU has no reserve, the rest counts.
    """
    parts = [name for name in _MEMORY if name in present]
    if parts[:2] != list(_MEMORY[:2]):
        return None
    chosen = selector(matches)
    sums = [" + ".join(f"{name}{chosen}" for name in parts[:count]) for count in range(len(parts), 1, -1)]
    return Ask("mem_total_bytes", " or ".join(sums), DCGM_LABELS)


def anchors_of(present: Collection[str]) -> tuple[str, ...]:
    """The series of dcgm-exporter by which GPUs are looked for, the usual ones first; empty without any."""
    return tuple(name for name in ANCHORS if name in present)


def exporter_fabric_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What node_exporter says of InfiniBand ports."""
    chosen, kept, asks = selector(matches), (*HOST_LABELS, *PORT_LABELS), []
    names = {
        "tx": f"{_IB}_port_data_transmitted_bytes_total",
        "rx": f"{_IB}_port_data_received_bytes_total",
        "xmit_wait": f"{_IB}_port_transmit_wait_total",
    }
    for name, counter in names.items():
        if counter not in present:
            continue
        asks.append(Ask(f"fabric {name}_mean", f"rate({counter}{chosen}{row_range(step)})", kept))
        if name != "xmit_wait":
            within = f"rate({counter}{chosen}[{WITHIN}])[{step:g}s:{WITHIN}]"
            asks.append(Ask(f"fabric {name}_p95", f"quantile_over_time(0.95, {within})", kept))
            asks.append(Ask(f"fabric {name}_max", f"max_over_time({within})", kept))
    if names["tx"] in present:
        asks.append(Ask("fabric n", f"count_over_time({names['tx']}{chosen}{row_range(step)})", kept))
    if f"{_IB}_state_id" in present:
        asks.append(
            Ask("fabric active", f"avg_over_time(({_IB}_state_id{chosen} == bool 4)[{step:g}s:{WITHIN}])", kept)
        )
    return asks


def exporter_host_asks(present: Collection[str], matches: Sequence[str], step: float, *, cores: bool) -> list[Ask]:
    """What node_exporter says of hosts. `cores`: whether the time of each core may be read."""
    window, asks = row_range(step), []
    by = f"by ({', '.join(HOST_LABELS)})"
    if cores:
        for name, mode in (("idle", "idle"), ("io_wait", "iowait")):
            chosen = selector(matches, f'mode="{mode}"')
            query = f"avg {by} (rate(node_cpu_seconds_total{chosen}{window}))"
            asks.append(Ask(f"host {name}_mean", query, HOST_LABELS))
    chosen = selector(matches, 'device!~"dm-.*|loop.*|md.*|ram.*|sr.*"')
    for way, counter in (("read", "node_disk_read_bytes_total"), ("write", "node_disk_written_bytes_total")):
        if counter in present:
            name = f"host disk_{way}_bytes_per_second"
            asks.append(Ask(f"{name}_mean", f"sum {by} (rate({counter}{chosen}{window}))", HOST_LABELS))
            within = f"sum {by} (rate({counter}{chosen}[{WITHIN}]))[{step:g}s:{WITHIN}]"
            asks.append(Ask(f"{name}_max", f"max_over_time({within})", HOST_LABELS))
    return asks


def most_of(column: str) -> float:
    """The most that a mean or maximum in one of the frame's columns can be; beyond lie blanks and faults."""
    for gauge in DCGM_GAUGES:
        if column.startswith(f"{gauge.measure}_"):
            return gauge.most
    return math.inf


def scale_of(column: str) -> float:
    """What a value of dcgm-exporter is multiplied by to be in the frame's unit."""
    for gauge in DCGM_GAUGES:
        if column.startswith(f"{gauge.measure}_"):
            return gauge.scale
    return 1.0
