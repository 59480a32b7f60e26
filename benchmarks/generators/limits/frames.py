"""A case as a frame: as the agent stores it at 1 s, or as exporters tell it once a minute."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.histogram_array import BinsArray
from skuwise.agent.metrics import BIN_EDGES
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.queries import Query

from .cases import Case

Floats = npt.NDArray[np.float64]

HOUR = 3600.0
HOURS = 40
START = 1_788_000_000.0 // HOUR * HOUR
_GIB = 1024.0**3
_METRICS = {"g": "gpu_util", "sm": "sm_active", "o": "sm_occupancy", "c": "tensor_active", "m": "dram_active",
            "v": "fp32_active"}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What of a case is told. `seconds`: between samples; `mean_seconds`: what one is the mean of. `sm` (with
    occupancy), `nvlink`, `host`, `wire`, `reasons` (of throttling): whether they are measured."""

    name: str
    seconds: float = 1.0
    mean_seconds: float = 1.0
    sm: bool = True
    nvlink: bool = True
    host: bool = True
    wire: bool = True
    reasons: bool = True


VIEWS: tuple[View, ...] = (
    View("1 s"),
    View("1 s, no host, no NVLink", nvlink=False, host=False),
    View("60 s, everything on", 60, 30),
    View("60 s, exporter's defaults", 60, 30, sm=False, nvlink=False, reasons=False),
    View("60 s, defaults, no host", 60, 30, sm=False, nvlink=False, reasons=False, host=False),
)
# What no view without NVLink can tell apart, by physics: collectives within a node that has it.
UNTOLD = frozenset({("nvlink", False)})


def frame_of(case: Case, view: View, rng: np.random.Generator) -> Frame:
    """Hours of the case: its half hour again and again, with days that swing and levels that wander a little."""
    end = START + HOURS * HOUR
    rows: dict[str, list[dict[str, object]]] = {
        name: [] for name in ("nodes", "gpus", "gpu", "fabric", "host", "workloads", "uses", "absences")
    }
    rank_rows = _statistics(case, case.levels, view)
    late_rows = _statistics(case, case.late, view) if case.late is not None else rank_rows
    phase = rng.uniform(0, 2 * np.pi)
    for n in range(case.nodes):
        node = f"n{n}"
        work = "w" if case.joined else f"w{n}"
        rows["nodes"].append({"node": node, "cluster": "c", "gpu_count": case.gpus + case.free_gpus,
                              "first_seen": START, "last_seen": end})  # fmt: skip
        if n == 0 or not case.joined:
            own: dict[str, object] = dict(case.about)
            own |= {"workload_id": work, "series_id": work, "name": work, "scheduler": "process", "first_seen": START}
            rows["workloads"].append(own | {"last_seen": end})
        for g in range(case.gpus, case.gpus + case.free_gpus):
            rows["gpus"].append({"node": node, "gpu_uuid": f"GPU-{n}-{g}", "name": case.board.name, "sku": None,
                                 "kind": "gpu", "gpu_index": float(g), "mem_total_bytes": case.board.gib * _GIB,
                                 "valid_from": START, "power_limit_watts": case.board.watts})  # fmt: skip
        for g in range(case.gpus):
            uuid = f"GPU-{n}-{g}"
            rows["gpus"].append({"node": node, "gpu_uuid": uuid, "name": case.board.name, "sku": None, "kind": "gpu",
                                 "gpu_index": float(g), "mem_total_bytes": case.board.gib * _GIB, "valid_from": START,
                                 "power_limit_watts": case.board.watts})  # fmt: skip
            rows["uses"].append({"workload_id": work, "node": node, "gpu_uuid": uuid, "basis": "process",
                                 "ts_start": START, "ts_end": end, "shared": 0.0})  # fmt: skip
            late = case.late is not None and g == case.gpus - 1
            told = late_rows if late else rank_rows
            for hour in range(HOURS):
                day = 1 + case.swing * np.sin(2 * np.pi * hour / 24 + phase)
                wander = float(np.exp(rng.normal(0, 0.02)))
                row = {name: _scaled(name, value, min(day * wander, 1.6)) for name, value in told.items()}
                clock = case.board.hertz * case.clock * (case.late_clock if late else 1.0)
                rows["gpu"].append(row | {
                    "node": node, "gpu_uuid": uuid, "gpu_index": float(g), "ts": START + (hour + 1) * HOUR,
                    "interval_seconds": HOUR, "observed_seconds": HOUR, "mem_total_bytes": case.board.gib * _GIB,
                    "mem_used_bytes_mean": case.mem * case.board.gib * _GIB,
                    "mem_used_bytes_max": case.mem * case.board.gib * _GIB,
                    "power_watts_mean": case.power * case.board.watts * wander, "power_watts_n": HOUR / view.seconds,
                    "sm_clock_hertz_mean": clock * float(np.exp(rng.normal(0, 0.003))),
                    "mem_clock_hertz_mean": 2.6e9, "gpu_util_n": HOUR / view.seconds,
                    "throttled_fraction": case.throttled if view.reasons else np.nan,
                })  # fmt: skip
        for hour in range(HOURS):
            ts = START + (hour + 1) * HOUR
            if view.host:
                rows["host"].append({"node": node, "ts": ts, "interval_seconds": HOUR, "observed_seconds": HOUR,
                                     "cpu_util_mean": case.cpu, "io_wait_mean": case.io_wait})  # fmt: skip
            if view.wire:
                rows["fabric"].extend(_ports(case, view, node, ts))
        if case.wire is None or case.wire[0] == "Ethernet":
            rows["absences"].append({"node": node, "reason": "no-fabric", "metric": "fabric"})
    tables = {"nodes": queries.NODES, "gpus": queries.GPUS, "gpu": queries.GPU_HOURS, "fabric": queries.FABRIC_HOURS,
              "host": queries.HOST_HOURS, "workloads": queries.WORKLOADS, "uses": queries.USES,
              "absences": queries.ABSENCES}  # fmt: skip
    made = {name: _table(rows[name], query) for name, query in tables.items()}
    return Frame(
        Window(START, end), made["nodes"], made["gpus"], made["gpu"], made["fabric"], made["host"], made["workloads"],
        made["uses"], made["absences"], {"kind": "hand-made"},
    )  # fmt: skip


def _scaled(name: str, value: object, factor: float) -> object:
    """Shares of time and rates follow the day; percentiles, correlations and periods do not."""
    if isinstance(value, float) and name.endswith("_mean"):
        return min(value * factor, 1.0) if not name.endswith("_second_mean") else value * factor
    return value


def _statistics(case: Case, levels: Mapping[str, Floats], view: View) -> dict[str, object]:
    series = {name: _sampled(values, view) for name, values in levels.items()}
    out: dict[str, object] = {}
    for name, metric in _METRICS.items():
        if name in ("sm", "o", "v") and not view.sm:
            continue
        out |= {f"{metric}_{k}": v for k, v in _three(series[name]).items()}
    links = {"pcie": series["p"] * case.board.pcie}
    if view.nvlink and case.board.nvlink is not None:
        links["nvlink"] = series["n"] * case.board.nvlink
    for link, values in links.items():
        for way in ("tx", "rx"):
            out |= {f"{link}_{way}_bytes_per_second_{k}": v for k, v in _three(values).items()}
    if view.seconds > 1:
        # Of percentiles an hour of samples a minute apart has the exporter's, of which turns are not asked.
        return {k: v for k, v in out.items() if not k.endswith("_p95") or k.startswith(("gpu_util", "pcie", "nvlink"))}
    out["sm_active_cv"] = float(series["sm"].std() / max(series["sm"].mean(), 1e-9))
    out["duty"] = float((series["sm"] >= 0.05).mean())
    out |= _rhythm(series["c"])
    if view.nvlink and case.board.nvlink is not None:
        out["tensor_nvlink_correlation"] = _pearson(series["c"], series["n"])
        out["nvlink_bins"] = _bins(series["n"])
    if case.wire is not None and case.wire[0] == "InfiniBand":
        out["tensor_fabric_correlation"] = _pearson(series["c"], series["i"])
    return out


def _ports(case: Case, view: View, node: str, ts: float) -> list[dict[str, object]]:
    layer, line = case.wire or ("Ethernet", 3.125e9)
    out = []
    for n in range(case.all_ports if case.wire else 1):
        used = case.wire is not None and n < case.ports
        level = _sampled(case.levels["i"], view) if used else np.full(60, 1e-4)
        row: dict[str, object] = {
            "node": node, "device": f"mlx5_{n}" if layer == "InfiniBand" else f"eth{n}", "port": 1.0,
            "role": "compute" if layer == "InfiniBand" else "unknown", "link_layer": layer, "ts": ts,
            "interval_seconds": HOUR, "observed_seconds": HOUR, "active_fraction": 1.0,
            "line_rate_bytes_per_second": line, "util_n": HOUR / view.seconds,
        }  # fmt: skip
        # Counters lose nothing between scrapes: the mean is the whole hour's.
        mean = float(case.levels["i"].mean()) if used else 1e-4
        row |= {"util_mean": mean, "tx_bytes_per_second_mean": mean * line, "rx_bytes_per_second_mean": mean * line}
        if view.seconds == 1:
            row |= {
                "util_p95": float(np.quantile(level, 0.95)),
                "util_max": float(level.max()),
                "util_bins": _bins(level),
            }
        elif layer == "InfiniBand":
            row |= {"util_p95": mean * 1.05, "util_max": mean * 1.1}
        out.append(row)
    return out


def _sampled(values: Floats, view: View) -> Floats:
    """Means over `mean_seconds`, seen every `seconds`."""
    mean = round(view.mean_seconds)
    whole = values[: len(values) // mean * mean].reshape(-1, mean).mean(axis=1)
    return whole[:: max(1, round(view.seconds / view.mean_seconds))]


def _three(values: Floats) -> dict[str, float]:
    return {"mean": float(values.mean()), "p95": float(np.quantile(values, 0.95)), "max": float(values.max())}


def _bins(values: Floats) -> Floats:
    at = np.searchsorted(np.array(BIN_EDGES), values, side="right") - 1
    return np.asarray(np.bincount(np.clip(at, 0, None), minlength=len(BIN_EDGES)) * (HOUR / len(values)), dtype=float)


def _pearson(a: Floats, b: Floats) -> float:
    if a.std() < 1e-6 or b.std() < 1e-6:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def _rhythm(values: Floats) -> dict[str, object]:
    """The highest peak of the autocorrelation at lags of 2 to 120 s."""
    centred = values - values.mean()
    power = float((centred**2).sum())
    if power <= 1e-9:
        return {}
    full = np.correlate(centred, centred, "full")[len(values) - 1 :][:121] / power
    peaks = [n for n in range(2, 120) if full[n] > full[n - 1] and full[n] >= full[n + 1] and full[n] > 0.1]
    best = max(peaks, key=lambda n: full[n], default=None)
    return {} if best is None else {"period_seconds": float(best), "period_strength": float(full[best])}


def _table(rows: Sequence[Mapping[str, object]], query: Query) -> pd.DataFrame:
    made = pd.DataFrame(list(rows), columns=list(query.columns))
    for name in query.columns:
        made[name] = (
            made[name].astype(float)
            if name in query.numbers
            else made[name].astype(object).where(made[name].notna(), None)
        )
    return made.assign(**{name: BinsArray.of(made[name]) for name in query.columns if name.endswith("_bins")})
