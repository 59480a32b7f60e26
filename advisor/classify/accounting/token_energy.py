"""Energy against generated tokens, over the hours in which both were measured and over no other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..types import TokenEnergy
from ..workloads.attribution import Attribution
from .measured_energy import RowEnergy

Floats = npt.NDArray[np.float64]

HOUR = 3600.0
# An hour counts where the engine told its tokens, and the workload's own energy was measured, for so much of it.
BOTH_MIN = 0.9
_WORK = ["workload_id", "hour"]


def token_energy(frame: Frame, attribution: Attribution, parts: Floats, energy: RowEnergy) -> Mapping[str, TokenEnergy]:
    """Workload -> what it generated and drew. Those whose engines told nothing, or in no hour enough, are left out.

    Where another workload held the same GPUs, an hour's energy is not the workload's alone, and the hour is left out.
    """
    told = frame.tokens
    told = told[told["generated_tokens"].notna()] if not told.empty else told
    if told.empty or attribution.workload_rows.empty or frame.gpu.empty:
        return {}
    # Rows of some servers are longer than an hour, and so are the moments of their tokens.
    step = max(HOUR, float(frame.gpu["interval_seconds"].max()))
    hours = np.ceil(frame.gpu["ts"].to_numpy(float) / step - 1e-9)
    wanted = set(told["workload_id"].astype(str))
    held = held_hours(attribution, parts, frame.gpu["ts"].to_numpy(float), hours, wanted)
    own = _own(attribution, parts, energy, hours, wanted)
    engines = told.groupby("workload_id")[["node", "engine"]].apply(lambda rows: len(rows.drop_duplicates()))
    tokens = told.assign(hour=np.ceil(told["ts"].to_numpy(float) / step - 1e-9))
    tokens = tokens.groupby(_WORK)[["seconds", "generated_tokens"]].sum()
    table = tokens.join(held, how="inner").join(own, how="inner")
    if table.empty:
        return {}
    count = engines.reindex(table.index.get_level_values(0)).to_numpy(float)
    good = table["seconds"].to_numpy(float) >= BOTH_MIN * count * table["wall"].to_numpy(float)
    good &= table["measured"].to_numpy(float) >= BOTH_MIN * table["held"].to_numpy(float)
    sums = table[good].groupby(level=0)[["generated_tokens", "joules", "wall"]].sum()
    return {
        str(key): TokenEnergy(float(tokens), float(joules), float(wall) / HOUR)
        for key, tokens, joules, wall in sums.itertuples()
        if tokens > 0 and joules > 0
    }


def held_hours(
    attribution: Attribution, parts: Floats, ends: Floats, hours: Floats, wanted: set[str]
) -> pd.DataFrame:  # fmt: skip
    """By workload and hour: `held` GPU-seconds (an instance is its part), and `wall` seconds of the clock."""
    rows = attribution.workload_rows
    rows = rows[rows["workload_id"].isin(wanted)]
    at, seconds = rows["row"].to_numpy(int), rows["seconds"].to_numpy(float)
    table = pd.DataFrame(
        {
            "workload_id": rows["workload_id"].astype(str).to_numpy(), "hour": hours[at],
            "held": seconds * parts[at], "ts": ends[at], "seconds": seconds,
        }
    )  # fmt: skip
    # The GPUs of a moment have as many rows with its end: the longest of them is how long it was.
    moments = table.groupby([*_WORK, "ts"]).agg(held=("held", "sum"), wall=("seconds", "max"))
    return moments.groupby(level=_WORK).sum()


def _own(
    attribution: Attribution, parts: Floats, energy: RowEnergy, hours: Floats, wanted: set[str]
) -> pd.DataFrame:  # fmt: skip
    """By workload and hour: `measured` GPU-seconds that were its alone, and the `joules` drawn in them."""
    places = attribution.places
    places = places[places["workload_id"].isin(wanted)]
    at = places["row"].to_numpy(int)
    measured = places["seconds"].to_numpy(float) * parts[at] * energy.measured[at]
    table = pd.DataFrame(
        {
            "workload_id": places["workload_id"].astype(str).to_numpy(), "hour": hours[at],
            "measured": measured, "joules": np.where(measured > 0, energy.watts[at], 0.0) * measured,
        }
    )  # fmt: skip
    return table.groupby(_WORK)[["measured", "joules"]].sum()
