"""One workload of the window: who it is, which GPUs it held when, and the runs of its series."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.verdict_types import Scheduled

# A run that begins so soon after the last one's end is the same work begun again.
RESTART_GAP_SECONDS = 900.0
# Three runs that begin at one hour may be chance of a shift; fewer show nothing.
STARTS_MIN = 3


@dataclass(frozen=True, slots=True)
class Session:
    """One workload in the window. `start`, `end`: of its uses, cut to the window; `first_seen`, `last_seen`: uncut.
    `held_seconds`: GPU-seconds held within the window. `chain_hours`: from the first start to the last end of the runs
    of this series and name with gaps of at most fifteen minutes. `series_runs`: of its series in the window, one after
    another, with their median length and the circular standard deviation of the hours of the day at which they begin
    (NaN where there are fewer than three)."""

    workload_id: str
    series_id: str
    name: str
    scheduler: str
    namespace: str | None
    pod: str | None
    user: str | None
    account: str | None
    framework: str | None
    command: str | None
    gpus: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    start: float
    end: float
    first_seen: float
    last_seen: float
    basis: str
    shared: bool
    held_seconds: float
    chain_hours: float
    series_runs: int = 1
    series_run_hours: float = 0.0
    series_start_spread_hours: float = math.nan
    team: str | None = None
    scheduled: Scheduled = field(default_factory=Scheduled)


def chain_hours(workloads: pd.DataFrame) -> dict[str, float]:
    """Workload id -> hours of the chain of runs of its series and name that it belongs to."""
    if workloads.empty:
        return {}
    table = _chained(workloads, workloads["series_id"].astype(str) + "\0" + workloads["name"].astype(str))
    chain = table.groupby("chain")
    hours = (chain["last_seen"].transform("max") - chain["first_seen"].transform("min")) / 3600
    return dict(zip(table["workload_id"], hours, strict=True))


def series_runs(workloads: pd.DataFrame) -> dict[str, tuple[int, float, float]]:
    """Workload id -> the runs of its series, their median length and the spread of their starts (`Session`)."""
    if workloads.empty:
        return {}
    table = _chained(workloads, workloads["series_id"].astype(str))
    each = table.groupby(["run", "chain"]).agg(begin=("first_seen", "min"), end=("last_seen", "max")).reset_index()
    each["hours"] = (each["end"] - each["begin"]) / 3600
    counted = each.groupby("run")["hours"].agg(["size", "median"])
    begins, rows = each["begin"].to_numpy(float), each.groupby("run").indices
    runs = counted.itertuples()
    of_series = {run: (int(size), float(hours), _start_spread(begins[rows[run]])) for run, size, hours in runs}
    return {str(key): of_series[run] for key, run in zip(table["workload_id"], table["run"], strict=True)}


def _chained(workloads: pd.DataFrame, run: pd.Series) -> pd.DataFrame:
    table = workloads.assign(run=run).sort_values(["run", "first_seen"])
    reach = table.groupby("run")["last_seen"].cummax()
    gap = table["first_seen"] - reach.groupby(table["run"]).shift()
    return table.assign(chain=(gap.isna() | (gap > RESTART_GAP_SECONDS)).cumsum())


def _start_spread(starts: npt.NDArray[np.float64]) -> float:
    if len(starts) < STARTS_MIN or len(np.unique(starts // 86400)) < STARTS_MIN:
        return math.nan
    angle = 2 * np.pi * (starts % 86400) / 86400
    length = min(float(np.hypot(np.cos(angle).mean(), np.sin(angle).mean())), 1.0)
    return 24 / (2 * np.pi) * math.sqrt(-2 * math.log(max(length, 1e-9)))


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`engines`: their names. `hours`: observed, of all engines summed. Tokens a second, `running` and `waiting`: means
    of one engine over the time observed. `kv_cache`: 95th percentile of the KV cache in use, 0..1. None: unknown.
    `has_counted`: whether a request or a token was ever counted; None: no counter was reported."""

    engines: tuple[str, ...]
    hours: float
    prompt_tokens_per_second: float | None = None
    generated_tokens_per_second: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    has_counted: bool | None = None


def engine_facts(serving: pd.DataFrame) -> Mapping[str, EngineFacts]:
    """Each workload within which an engine reported anything, by its id."""
    if serving.empty:
        return {}
    sampled = serving[(serving["seconds"] > 0) & (serving["samples"] > 0)]
    return {str(key): _facts(rows) for key, rows in sampled.groupby("workload_id", sort=False)}


_COUNTS = ("prompt_tokens", "generated_tokens", "running_seconds", "waiting_seconds")


def _facts(rows: pd.DataFrame) -> EngineFacts:
    def known(name: str) -> npt.NDArray[np.float64]:
        """Values of a column that can be so; a server's table may lack the column."""
        values = rows[name].to_numpy(float) if name in rows else np.empty(0)
        return values[np.isfinite(values) & (values >= 0)]

    seconds = float(rows["seconds"].sum())
    rates = [float(counts.sum()) / seconds if len(counts := known(name)) else None for name in _COUNTS]
    counted = np.concatenate([known(name) for name in (*_COUNTS[:2], "running_max", "waiting_max", "requests")])
    return EngineFacts(
        tuple(sorted(rows["engine"].dropna().astype(str).unique())), seconds / 3600, *rates,
        kv_cache=kv_percentile(rows), has_counted=bool((counted > 0).any()) if len(counted) else None,
    )  # fmt: skip


def kv_percentile(rows: pd.DataFrame) -> float | None:
    """The 95th percentile of the KV cache in use, 0..1, to a percent; None where not reported."""
    # A page that answers may be read twice, a usage above all cannot be: such rows show nothing.
    percent, samples = rows["kv_percent"].to_numpy(float), rows["samples"].to_numpy(float)
    valid = (percent >= 0) & (percent <= 100) & (samples > 0)
    if not valid.any():
        return None
    order = np.argsort(percent[valid])
    passed = np.cumsum(samples[valid][order])
    return float(percent[valid][order][np.searchsorted(passed, 0.95 * passed[-1])]) / 100
