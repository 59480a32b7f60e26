"""Generated tokens against the GPU-hours of the same hours, by day and node: what a token costs once there is a price.

An hour counts as for energy (`token_energy`): its engines told their tokens, and its GPUs were the workload's alone,
for nine tenths of it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...core.frame import Frame
from ..workloads.attribution import Attribution
from .daily_hours import DAY
from .token_energy import BOTH_MIN, HOUR, Floats, held_hours

COLUMNS = ("workload_id", "node", "day", "generated_tokens", "gpu_hours")
_WORK = ["workload_id", "hour"]


def token_hours(frame: Frame, attribution: Attribution, parts: Floats) -> pd.DataFrame:
    """`COLUMNS`: of each workload whose engines told tokens, by node and day (its beginning, Unix seconds).

    A node on which a replica's engine does not report has GPU-hours and no tokens of its own. Workloads of which no
    hour counts are left out.
    """
    told = frame.tokens
    nothing = pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
    if told.empty or attribution.workload_rows.empty or frame.gpu.empty:
        return nothing
    step = max(HOUR, float(frame.gpu["interval_seconds"].max()))
    ends = frame.gpu["ts"].to_numpy(float)
    hours = np.ceil(ends / step - 1e-9)
    told = told.assign(workload_id=told["workload_id"].astype(str), node=told["node"].astype(str))
    told["hour"] = np.ceil(told["ts"].to_numpy(float) / step - 1e-9)
    held = held_hours(attribution, parts, ends, hours, set(told["workload_id"]))
    own = _own(frame, attribution, parts, hours, set(told["workload_id"]))
    engines = told.groupby("workload_id")[["node", "engine"]].apply(lambda rows: len(rows.drop_duplicates()))
    table = told.groupby(_WORK)[["seconds"]].sum().join(held, how="inner")
    table = table.join(own.groupby(_WORK)[["seconds"]].sum().rename(columns={"seconds": "own"}), how="inner")
    if table.empty:
        return nothing
    count = engines.reindex(table.index.get_level_values(0)).to_numpy(float)
    good = table["seconds"].to_numpy(float) >= BOTH_MIN * count * table["wall"].to_numpy(float)
    good &= table["own"].to_numpy(float) >= BOTH_MIN * table["held"].to_numpy(float)
    counted = table.index[good]
    tokens = told[pd.MultiIndex.from_frame(told[_WORK]).isin(counted)]
    own = own[pd.MultiIndex.from_frame(own[_WORK]).isin(counted)]
    both = pd.concat([tokens.assign(gpu_hours=0.0), own.assign(generated_tokens=0.0, gpu_hours=own["seconds"] / HOUR)])
    if both.empty:
        return nothing
    # The hour's middle, so that one which ends at midnight is of the day before.
    both["day"] = np.floor((both["hour"].to_numpy(float) - 0.5) * step / DAY) * DAY
    sums = both.groupby(list(COLUMNS[:3]), sort=True)[list(COLUMNS[3:])].sum()
    return sums.reset_index()


def _own(frame: Frame, attribution: Attribution, parts: Floats, hours: Floats, wanted: set[str]) -> pd.DataFrame:
    """By workload, hour and node: GPU-seconds that were the workload's alone; an instance is its part of a GPU."""
    places = attribution.places
    places = places[places["workload_id"].isin(wanted)]
    at = places["row"].to_numpy(int)
    table = pd.DataFrame(
        {
            "workload_id": places["workload_id"].astype(str).to_numpy(), "hour": hours[at],
            "node": frame.gpu["node"].astype(str).to_numpy()[at],
            "seconds": places["seconds"].to_numpy(float) * parts[at],
        }
    )  # fmt: skip
    return table.groupby([*_WORK, "node"])[["seconds"]].sum().reset_index()
