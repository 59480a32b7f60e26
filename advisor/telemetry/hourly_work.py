"""The hours of single workloads, from the tidy frame: engines, power, tokens, requests and queue side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from ...agent.statistics.latency_bins import decode
from ..core.frame import Frame
from ..core.work_hours import WorkHour

HOUR = 3600.0
# A row of a GPU is a workload's where it held the GPU for nearly all of it: what it did in the rest is not its own.
_HELD_MIN = 0.9
# What was counted in an hour is believed where the page was read for nearly all of the observed time: what a counter
# grew by over a gap may be of more than that, or of less.
_COUNTED_MIN = 0.9
# A measure stands for an hour where it was read for at least half of the time in which the workload was observed.
_TOLD_MIN = 0.5
_KEYS = ["workload_id", "hour"]


def hours_of(frame: Frame, ids: frozenset[str]) -> Mapping[str, tuple[WorkHour, ...]]:
    """The hours of these workloads in which something was read of their GPUs. Linear in the rows of their nodes.

    Hours with gaps have rates over the part that was read. Where another workload held the same GPUs, engines and power
    are those of both.
    """
    # Rows of some servers are longer than an hour, and so are the moments of what engines tell.
    step = max(HOUR, float(frame.gpu["interval_seconds"].max())) if not frame.gpu.empty else HOUR
    devices = _devices(frame, ids, step)
    if devices.empty:
        return {}
    observed = devices["seconds"]
    table = devices.join([_engines(frame, ids, step, observed), _requests(frame, ids, step, observed)], how="left")
    found: dict[str, list[WorkHour]] = {}
    for (workload, hour), row in zip(table.index, table.to_dict("records"), strict=True):
        found.setdefault(str(workload), []).append(
            WorkHour(
                end=float(hour) * step,
                seconds=float(row["seconds"]),
                gpus=float(row["gpu_seconds"] / row["seconds"]),
                busy=_told(row["busy"]),
                watts=_told(row["watts"]),
                tokens=_told(row["tokens"]),
                requests=_told(row["requests"]),
                running=_told(row["running"]),
                length_seconds=step,
            )
        )
    return {key: tuple(hours) for key, hours in found.items()}


def queue_told(frame: Frame) -> frozenset[str]:
    """Workloads whose engines tell how many requests are at work."""
    serving = frame.serving
    if serving.empty or "running_seconds" not in serving:
        return frozenset()
    return frozenset(serving.loc[serving["running_seconds"].notna(), "workload_id"].astype(str))


def requests_told(frame: Frame) -> frozenset[str]:
    """Workloads whose engines count the requests that they answer."""
    return frozenset(_counted(frame.serving)["workload_id"].astype(str))


def pods_of(frame: Frame) -> Mapping[str, str]:
    """Workload -> the pod that it is; what is none is left out."""
    about = frame.workloads
    if about.empty or "pod" not in about:
        return {}
    told = about[about["pod"].notna()]
    return dict(zip(told["workload_id"].astype(str), told["pod"].astype(str), strict=True))


def _devices(frame: Frame, ids: frozenset[str], step: float) -> pd.DataFrame:
    """By workload and hour: ``seconds, gpu_seconds, busy, watts``."""
    uses = frame.uses[frame.uses["workload_id"].isin(ids)] if not frame.uses.empty else frame.uses
    if uses.empty or frame.gpu.empty:
        return pd.DataFrame()
    near = frame.gpu[frame.gpu["node"].isin(set(uses["node"])) & frame.gpu["gpu_uuid"].isin(set(uses["gpu_uuid"]))]
    columns = ["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds", "power_watts_mean"]
    near = near[columns].assign(engine=_engine_time(frame, near).clip(0.0, 1.0))
    # A use that was told in several pieces is one where they touch; a row counts by all of them.
    rows = near.merge(uses[["workload_id", "node", "gpu_uuid", "ts_start", "ts_end"]], on=["node", "gpu_uuid"])
    begin = np.maximum(rows["ts"] - rows["interval_seconds"], rows["ts_start"])
    rows = rows.assign(held=np.maximum(np.minimum(rows["ts"], rows["ts_end"]) - begin, 0.0))
    rows = rows[(rows["held"] > 0) & (rows["observed_seconds"] > 0)]
    whose = ["workload_id", "node", "gpu_uuid", "ts"]
    first = dict.fromkeys((*columns[3:], "engine"), "first")
    rows = rows.groupby(whose, as_index=False).agg({**first, "held": "sum"})
    rows = rows[rows["held"] >= _HELD_MIN * rows["interval_seconds"]]
    if rows.empty:
        return pd.DataFrame()
    weight, told = rows["observed_seconds"], {}
    for name, values in (("busy", rows["engine"]), ("watts", rows["power_watts_mean"])):
        seconds = weight.where(values.notna(), 0.0)
        told |= {f"{name}_seconds": seconds, f"{name}_sum": values.fillna(0.0) * seconds}
    rows = rows.assign(hour=np.ceil(rows["ts"].to_numpy(float) / step - 1e-9), gpu_seconds=weight, **told)
    # The GPUs of a moment have as many rows with its end: the longest of them is how long it was.
    clock = rows.groupby([*_KEYS, "ts"])["observed_seconds"].max().groupby(level=_KEYS).sum()
    sums = rows.groupby(_KEYS)[["gpu_seconds", *told]].sum()
    table = pd.DataFrame({"seconds": clock, "gpu_seconds": sums["gpu_seconds"]})
    for name in ("busy", "watts"):
        enough = sums[f"{name}_seconds"] >= _TOLD_MIN * sums["gpu_seconds"]
        table[name] = (sums[f"{name}_sum"] / sums[f"{name}_seconds"]).where(enough)
    return table


def _engine_time(frame: Frame, near: pd.DataFrame) -> pd.Series:
    """Share of the time in which the engine of each row worked, of one kind for all rows: they are compared, and a GPU
    at work is rarely so with all of its SMs. An instance tells of its own SMs alone."""
    instances = frame.gpus.loc[frame.gpus["kind"] == "mig", "gpu_uuid"] if not frame.gpus.empty else ()
    alike = near["gpu_util_mean"].isna().all() and not near["gpu_uuid"].isin(set(instances)).any()
    return near["sm_active_mean"] if alike else near["gpu_util_mean"]


def _engines(frame: Frame, ids: frozenset[str], step: float, observed: pd.Series) -> pd.DataFrame:
    """By workload and hour: ``tokens, running``, the sum over its engines' pages."""
    names = {"tokens": ("generated_tokens", "seconds"), "running": ("running_seconds", "queue_seconds")}
    told = frame.tokens
    if told.empty:
        return pd.DataFrame(index=observed.index, columns=list(names), dtype=float)
    told = told[told["workload_id"].isin(ids)]
    told = told.assign(hour=np.ceil(told["ts"].to_numpy(float) / step - 1e-9))
    pages = told.groupby([*_KEYS, "node", "engine"])
    found = {}
    for name, (amount, seconds) in names.items():
        if amount not in told or seconds not in told:
            found[name] = pd.Series(index=observed.index, dtype=float)
            continue
        page = pd.DataFrame({"amount": pages[amount].sum(min_count=1), "seconds": pages[seconds].sum()})
        # Several servers of one engine are one page here, and their seconds add up: they are still one hour.
        rate = page["amount"] / page["seconds"].where(page["seconds"] > 0).clip(upper=step)
        both = pd.DataFrame({"rate": rate, "seconds": page["seconds"]}).groupby(level=_KEYS)
        least = both["seconds"].min().reindex(observed.index)
        found[name] = both["rate"].sum(min_count=1).reindex(observed.index).where(least >= _TOLD_MIN * observed)
    return pd.DataFrame(found, index=observed.index)


def _requests(frame: Frame, ids: frozenset[str], step: float, observed: pd.Series) -> pd.DataFrame:
    """By workload and hour: ``requests`` whose first token was counted, per second in which it was observed."""
    nothing = pd.DataFrame({"requests": pd.Series(dtype=float)}, index=pd.MultiIndex.from_arrays([[], []], names=_KEYS))
    counted = _counted(frame.serving)
    counted = counted[counted["workload_id"].isin(ids)]
    if counted.empty:
        return nothing
    counted = counted.assign(hour=np.ceil(counted["latency_ts"].to_numpy(float) / step - 1e-9))
    rate = counted.groupby(_KEYS)["requests"].sum().reindex(observed.index) / observed
    told = frame.tokens
    if not told.empty:
        told = told[told["workload_id"].isin(ids)]
        told = told.assign(hour=np.ceil(told["ts"].to_numpy(float) / step - 1e-9))
        told = told.reindex(columns=[*_KEYS, "node", "engine", "seconds", "queue_seconds"])
        pages = told.groupby([*_KEYS, "node", "engine"])[["seconds", "queue_seconds"]].sum().max(axis=1)
        least = pages.groupby(level=_KEYS).min().reindex(observed.index)
        rate = rate.where(~(least < _COUNTED_MIN * observed))
    return rate.to_frame("requests")


def _counted(serving: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``workload_id, latency_ts, requests``: whose first tokens were counted in an hour, and how many."""
    if serving.empty or "latency_ts" not in serving:
        return pd.DataFrame(columns=["workload_id", "latency_ts", "requests"])
    rows = serving[serving["latency_ts"].notna()]
    counts = [sum(decode(text) or ()) for text in rows["first_token_bins"]]
    return rows[["workload_id", "latency_ts"]].assign(requests=counts).query("requests > 0")


def _told(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
