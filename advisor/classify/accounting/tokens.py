"""Generated tokens against the energy and the GPU-hours of the same hours, and of no other.

An hour counts where a workload's engines told their tokens, and its GPUs were its alone (and measured, where energy is
asked for), for nine tenths of it: where another workload held the same GPUs, an hour is not the workload's alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..types import TokenEnergy
from ..workloads.attribution import Attribution
from .hours import DAY

Floats = npt.NDArray[np.float64]

HOUR = 3600.0
BOTH_MIN = 0.9
COLUMNS = ("workload_id", "node", "day", "generated_tokens", "gpu_hours")
_WORK = ["workload_id", "hour"]


def token_energy(
    frame: Frame, attribution: Attribution, parts: Floats, energy: pd.DataFrame
) -> Mapping[str, TokenEnergy]:  # fmt: skip
    """Workload -> what it generated and drew. Those whose engines told nothing, or in no hour enough, are left out."""
    rows = _counted_rows(frame, attribution, parts, energy["measured"].to_numpy(), np.nan_to_num(energy["watts"]))
    hours = rows.groupby(_WORK).agg({"generated_tokens": "sum", "joules": "sum", "wall": "max"})
    sums = hours.groupby(level=0).sum()
    return {
        str(key): TokenEnergy(float(tokens), float(joules), float(wall) / HOUR)
        for key, tokens, joules, wall in sums.itertuples()
        if tokens > 0 and joules > 0
    }


def token_hours(frame: Frame, attribution: Attribution, parts: Floats) -> pd.DataFrame:
    """`COLUMNS`: of each workload whose engines told tokens, by node and day (its beginning, Unix seconds).

    A node on which a replica's engine does not report has GPU-hours and no tokens of its own. Workloads of which no
    hour counts are left out.
    """
    rows = _counted_rows(frame, attribution, parts, np.ones(len(frame.gpu)), np.zeros(len(frame.gpu)))
    rows["gpu_hours"] = rows["measured"] / HOUR
    return rows.groupby(list(COLUMNS[:3]), sort=True)[list(COLUMNS[3:])].sum().reset_index()


def _counted_rows(
    frame: Frame, attribution: Attribution, parts: Floats, measured: Floats, watts: Floats
) -> pd.DataFrame:  # fmt: skip
    """Of the hours that count, ``workload_id, hour, node, day``: what engines told (``generated_tokens``), and what was
    the workload's alone (``measured`` GPU-seconds, and the ``joules`` drawn in them); ``wall``: seconds of the clock in
    which it was there. `parts`, `measured`, `watts`: of every row of the frame's `gpu`, the part of a GPU that it is,
    the share of it that was measured, and what it drew then."""
    gpu, told = frame.gpu, frame.tokens
    told = told[told["generated_tokens"].notna()] if not told.empty else told
    if told.empty:
        names = [*_WORK, "node", "day", "generated_tokens", "measured", "joules", "wall"]
        return pd.DataFrame({name: pd.Series(dtype=float) for name in names})
    ids = set(told["workload_id"].astype(str))
    # Rows of some servers are longer than an hour, and so are the moments of their tokens.
    step = np.fmax(HOUR, gpu["interval_seconds"].max())

    def hour_of(ts: pd.Series) -> Floats:
        return np.ceil(ts.to_numpy(float) / step - 1e-9)

    def rows_of(table: pd.DataFrame) -> tuple[pd.DataFrame, npt.NDArray[np.intp]]:
        chosen = table[table["workload_id"].isin(ids)]
        at = chosen["row"].to_numpy(np.intp)
        rows = {"workload_id": chosen["workload_id"].astype(str), "ts": gpu["ts"].to_numpy(float)[at]}
        rows |= {"node": gpu["node"].astype(str).to_numpy()[at], "seconds": chosen["seconds"].to_numpy(float)}
        return pd.DataFrame({**rows, "hour": hour_of(gpu["ts"])[at]}), at

    held, at = rows_of(attribution.workload_rows)
    # The GPUs of a moment have as many rows with its end: the longest of them is how long it was.
    moments = held.assign(held=held["seconds"] * parts[at]).groupby([*_WORK, "ts"])
    hours = moments.agg(held=("held", "sum"), wall=("seconds", "max")).groupby(level=_WORK).sum()
    own, at = rows_of(attribution.places)
    own["measured"] = own["seconds"] * parts[at] * measured[at]
    own["joules"] = own["measured"] * watts[at]
    told = told.assign(workload_id=told["workload_id"].astype(str), node=told["node"].astype(str))
    told["hour"] = hour_of(told["ts"])
    engines = told[["workload_id", "node", "engine"]].drop_duplicates().groupby("workload_id").size()
    hours["engines"] = engines.reindex(hours.index.get_level_values(0)).to_numpy(float)
    hours["told"] = told.groupby(_WORK)["seconds"].sum()
    hours["alone"] = own.groupby(_WORK)["measured"].sum()
    good = hours["told"] >= BOTH_MIN * hours["engines"] * hours["wall"]
    good &= hours["alone"] >= BOTH_MIN * hours["held"]
    rows = pd.concat([told.reindex(columns=[*_WORK, "node", "generated_tokens"]), own])
    rows = rows.join(hours.loc[good, ["wall"]], on=_WORK, how="inner")
    # The hour's middle, so that one which ends at midnight is of the day before.
    day = np.floor((rows["hour"].to_numpy(float) - 0.5) * step / DAY) * DAY
    return rows.assign(day=day).fillna({"generated_tokens": 0.0, "measured": 0.0, "joules": 0.0})
