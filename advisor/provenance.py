"""Each number of a finding or recommendation with the plain query that reads the series behind it: as a script whose
comments are the numbers (``skuwise explain --query``). What came from outside stays a value, whatever it holds."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ..rules.base.errors import UsageError
from ..rules.base.sanitize import clean
from .core.advice_types import Advice, Finding, Recommendation
from .core.formatting import NONE
from .core.waiting_types import WAITING_METRIC

_KEYS = {
    "gpu_hours": "ts interval_seconds node gpu_uuid", "fabric_hours": "ts interval_seconds node device port",
    "host_hours": "ts interval_seconds node", "serving_samples": "ts node", "workload_gpus": "node gpu_uuid",
}  # fmt: skip
_PARTS = {
    "ENGINE": "gpu_util_mean sm_active_mean", "TENSOR": "tensor_active_mean sm_clock_hertz_mean",
    "HBM": "dram_active_mean mem_clock_hertz_mean", "POWER": "power_watts_mean",
    "NVLINK": "nvlink_tx_bytes_per_second_mean nvlink_rx_bytes_per_second_mean",
    "PCIE": "pcie_tx_bytes_per_second_mean pcie_rx_bytes_per_second_mean",
}  # fmt: skip
# View, columns (and parts of them), and the numbers that are made of them.
_TABLE = """\
gpu_hours: observed_seconds: hours hours_observed hours_without_workload resolution_seconds
gpu_hours: ENGINE: engine_active idle_hours idle_share gpu_hours held_idle last_worked sm_active
  active_share active_engine active_fill active_swing rest_hours_max rests_per_day between_share working_hours_share
  day_before diurnal_share diurnal_amplitude swing
gpu_hours: gpu_util_max sm_active_max: engine_active_max
gpu_hours: sm_active_bins: sm_active_p99
gpu_hours: sm_active_mean sm_active_cv: sm_active_cv sync
gpu_hours: sm_occupancy_mean: sm_occupancy
gpu_hours: TENSOR: tensor_active tensor_utilization tensor_of_sustained tensor_of_sustained_busy_p95
gpu_hours: tensor_active_bins: compute_use_p95 tensor_of_sustained_p95 tensor_of_sustained_p99
gpu_hours: fp64_active_mean fp32_active_mean sm_clock_hertz_mean: vector_utilization
gpu_hours: HBM: dram_active hbm_utilization hbm_of_sustained hbm_of_sustained_busy_p95
gpu_hours: dram_active_bins: hbm_of_sustained_p95 hbm_of_sustained_p99
gpu_hours: TENSOR HBM: memory_over_compute
gpu_hours: ENGINE TENSOR: tensor_per_engine
gpu_hours: ENGINE HBM: hbm_per_engine
gpu_hours: NVLINK: nvlink_util_mean nvlink_utilization nvlink_of_sustained nvlink_symmetry
gpu_hours: nvlink_bins: nvlink_util_p995 nvlink_utilization_p995
gpu_hours: PCIE: pcie_utilization
gpu_hours: mem_used_bytes_mean mem_used_bytes_max mem_total_bytes: mem_used mem_used_max mem_flat mem_cv mem_level
  mem_max mem_hourly_cv mem_kept_at_rest
gpu_hours: POWER: power_watts power_at_work power_over_idle power_of_limit rest_watts
gpu_hours: POWER TENSOR HBM: power_after energy_saved energy_saved_per_month energy_saving_kwh_per_month
  slowdown_expected
gpu_hours: sm_clock_hertz_mean: clock_ratio
gpu_hours: throttled_fraction: throttled
gpu_hours: duty: duty
gpu_hours: idle_run_seconds: idle_run_hours
gpu_hours: period_seconds period_strength: period_share period_seconds period_strength
gpu_hours: tensor_nvlink_correlation: tensor_nvlink_correlation
gpu_hours: tensor_fabric_correlation: tensor_fabric_correlation
gpu_hours: ENGINE TENSOR HBM NVLINK PCIE throttled_fraction: bound_by_memory bound_by_link link_use_p50 use_p99
  demand_p95 held_back lost_at_most bottleneck time_ratio freed_gpu_hours_per_month
gpu_hours: ENGINE TENSOR HBM POWER: contradiction contradiction_hours contradiction_since fault_share
fabric_hours: util_mean util_max util_p95 util_bins: fabric_util_p995 fabric_util_max
fabric_hours: observed_seconds: fabric_hours fabric_hours_known compute_ports
fabric_hours: tx_bytes_per_second_mean rx_bytes_per_second_mean line_rate_bytes_per_second: fabric_utilization
fabric_hours: xmit_wait_per_second_mean: fabric_wait_ticks_per_second
host_hours: cpu_util_mean io_wait_mean: cpu io_wait
host_hours: disk_write_bytes_per_second_mean disk_write_bytes_per_second_max: write_bursts
serving_samples: workload_id kv_cache_usage: kv_cache_used_p95
serving_samples: workload_id generation_tokens_per_second: generated_tokens
workload_gpus: workload_id ts_start ts_end shared: gpus_held gpus nodes elapsed_hours span_hours chain_hours
  series_runs series_run_hours series_start_spread_hours ended"""
SERIES: dict[str, tuple[str, tuple[str, ...]]] = {}  # number -> view of the node database (docs/metrics.md), columns
for _line in _TABLE.replace("\n  ", " ").splitlines():
    _view, _columns, _numbers = _line.split(": ")
    _all = " ".join(_PARTS.get(part, part) for part in _columns.split())
    SERIES |= dict.fromkeys(_numbers.split(), (_view, tuple(_all.split())))

# Columns that are asked of a server under other names than their own.
_ASKED = {
    "observed_seconds": ("observed", "n"), "cpu_util_mean": ("cpu_util_mean", "idle_mean"),
    "shared": ("workloads", "gpu_util_mean"),
    **dict.fromkeys(("util_mean", "util_max", "util_p95", "util_bins"), ("util", "tx_mean", "rx_mean")),
}  # fmt: skip
# The name of a series in an expression: what a selector or a range follows.
_NAME = re.compile(r"([A-Za-z_:][\w:]*)(?=[{\[])")
# What a pattern of RE2 would not take as it is.
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def render_queries(advice: Advice, subjects: Iterable[Finding | Recommendation], *, width: int = 100) -> str:
    """The script: the evidence and sums of findings, the predictions of recommendations (of an interval the median).

    Raises UsageError for a source that no query can read."""
    kind, url = advice.source.get("kind"), advice.source.get("url")
    if kind == "sqlite":
        mark, query = "--", _select
        lines = [f"-- {clean('Each SELECT runs with sqlite3 -readonly on ' + ', '.join(_texts(advice, 'databases')))}"]
    elif kind == "prometheus":
        mark, query = "#", _selector
        lines = [f"# {clean(f'Each query runs on {url}/api/v1/query')}"]
    else:
        raise UsageError(f"A source of kind {str(kind)!r} has no series to query.", "Use --db or --prometheus.")

    def note(sentence: str) -> None:
        wrapped = textwrap.wrap(clean(sentence), width - len(mark) - 1, break_long_words=False, break_on_hyphens=False)
        lines.extend(f"{mark} {line}" for line in wrapped)

    for subject in subjects:
        lines.append("")
        if isinstance(subject, Finding):
            note(f"Finding {subject.id}, {subject.rule}: {subject.text}")
            places, measured = [subject], {e.metric for e in subject.evidence}
            sums = (("gpu_hours", subject.gpu_hours, "GPU-hours"), ("cost_usd", subject.cost_usd, "USD"))
            numbers = [(e.metric, NONE if e.value is None else e.value, e.unit) for e in subject.evidence]
            numbers += [number for number in sums if number[0] not in measured and number[1] is not None]
        else:
            note(f"Recommendation {subject.id}, {subject.action}: {subject.text}")
            places = [w for w in advice.workloads if w.id == subject.workload]
            places = places or [f for f in advice.findings if f.id in subject.findings]
            numbers = [("freed_gpu_hours_per_month", subject.freed_gpu_hours_per_month, "GPU-hours")]
            units = {"time_ratio": "ratio", "saving_usd_per_month": "USD", "energy_saving_kwh_per_month": "kWh"}
            numbers += [(name, i.p50, unit) for name, unit in units.items() if (i := getattr(subject, name))]
        nodes, gpus = (tuple(dict.fromkeys(n for p in places for n in getattr(p, of))) for of in ("nodes", "gpus"))
        for name, value, unit in numbers:
            number = f"{name} = {value} {unit}".rstrip()
            if name not in SERIES:
                queue = name == WAITING_METRIC
                note(f"{number}: from {'the queue' if queue else 'the catalog and the prices of the nodes'}")
                continue
            text = query(*SERIES[name], nodes, gpus, advice)
            note(number if text else f"{number}: this server has no series of it")
            lines += filter(None, [text])
    if len(lines) == 1:
        note("No finding: no number depends on telemetry alone.")
    return "\n".join(lines) + "\n"


def _texts(advice: Advice, name: str) -> list[str]:
    values = advice.source.get(name)
    return [str(value) for value in values] if isinstance(values, list | tuple) else []


def _select(view: str, columns: Sequence[str], nodes: Sequence[str], gpus: Sequence[str], advice: Advice) -> str:
    start, end = (repr(float(at)) for at in (advice.start, advice.end))
    where = [f"node IN ({', '.join(map(sql_text, nodes)) or 'NULL'})"]  # no value equals NULL
    if gpus and view in ("gpu_hours", "workload_gpus"):
        where.append(f"gpu_uuid IN ({', '.join(map(sql_text, gpus))})")
    if view == "fabric_hours":
        where.append("role = 'compute'")
    if view == "workload_gpus":
        where += [f"(ts_end IS NULL OR ts_end > {start})", f"ts_start < {end}"]
    else:
        where += [f"ts > {start}", f"ts <= {end}"]
    names = ", ".join((*_KEYS[view].split(), *columns))
    return f"SELECT {names} FROM {view} WHERE {' AND '.join(where)};"


def _selector(view: str, columns: Sequence[str], nodes: Sequence[str], gpus: Sequence[str], advice: Advice) -> str:
    """The samples of the series that the columns were read from; empty: this server has none of them."""
    sent = advice.source.get("asked")
    queries: Mapping[str, Iterable[str]] = sent if isinstance(sent, Mapping) else {}
    prefix = {"fabric_hours": "fabric ", "host_hours": "host "}.get(view, "")
    names: dict[str, None] = {}
    for column in columns:
        stem = column.removesuffix("_bins")
        keys = (stem, stem.replace("gpu_util", "engine"), stem.replace("_bytes_per_second", ""), f"{stem}_mean")
        for key in _ASKED.get(column, keys):
            names |= dict.fromkeys(name for sent in queries.get(prefix + key, ()) for name in _NAME.findall(sent))
    agents, selectors = [name for name in names if name.startswith("skuwise_")], []
    nodes = [node.rpartition("/")[2] for node in nodes]  # cluster/node where clusters share names
    for part in filter(None, (agents, [name for name in names if name not in agents])):
        name, ending = part[0], ""
        # Series without a GPU label are those of the nodes.
        if name.startswith("node_"):
            label, values, ending = "instance", nodes, "([.:].*)?"
        elif name.startswith(("skuwise_fabric_", "skuwise_host_")):
            label, values = "node", nodes
        elif name.startswith("skuwise_"):
            label, values = "gpu_uuid", gpus
        else:
            label, values = "UUID", dict.fromkeys(gpu.partition("/gi")[0] for gpu in gpus)
        matchers = [f"__name__=~{_pattern(part)}"] if len(part) > 1 else []
        matchers += [f"{label}=~{_pattern(values, ending)}"] if values else []
        labels = ",".join((*matchers, *_texts(advice, "match")))
        head = "" if len(part) > 1 else name
        selectors.append(f"{head}{{{labels}}}[{advice.end - advice.start:.0f}s] @ {advice.end:.0f}")
    return "\n".join(selectors)


def sql_text(value: str) -> str:
    """A text literal, in hexadecimal where it could fool a terminal. A surrogate (a byte that is not UTF-8) becomes
    ?."""
    if value.isascii() and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return f"CAST(x'{value.encode('utf-8', 'replace').hex()}' AS TEXT)"


def _pattern(values: Iterable[str], ending: str = "") -> str:
    """A double-quoted pattern that matches each of these values whole, followed by the pattern `ending`."""
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)
    return promql_text(f"({pattern}){ending}" if ending else pattern)


def promql_text(value: str) -> str:
    """A double-quoted string, with Go's escapes."""
    text = value.encode("utf-8", "replace").decode()
    return '"' + "".join(f"\\{c}" if c in '"\\' else c if " " <= c <= "~" else f"\\U{ord(c):08x}" for c in text) + '"'
