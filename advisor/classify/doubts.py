"""Readings that were not believed: one doubt for each GPU and metric, with its hours and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.timestamps import minute, span

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]
Sentence = str | Callable[[Ints], str]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Readings of one metric of one GPU that were not believed.

    `metric`: the frame's name of it, several with commas. `code`: what is wrong with it (constants of `soundness`).
    `hours`: observed hours of the rows concerned, which lie between `start` and `end` (Unix seconds). `text`: a
    sentence that names the signals, the hours and since when.
    """

    node: str
    gpu_uuid: str
    metric: str
    code: str
    hours: float
    start: float
    end: float
    text: str


def doubts_of(gpu: pd.DataFrame, at: Mask, *, metric: str, code: str, sentence: Sentence) -> list[Doubt]:
    """One doubt for each GPU with rows `at`. `sentence`: without the hours, or what gives it of the GPU's rows `at`."""
    where = np.flatnonzero(at)
    rows = gpu.iloc[where]
    seconds = rows["observed_seconds"].fillna(rows["interval_seconds"]).to_numpy(float)
    end = rows["ts"].to_numpy(float)
    begin = end - rows["interval_seconds"].to_numpy(float)
    doubts = []
    for (node, uuid), positions in rows.groupby(["node", "gpu_uuid"], sort=True).indices.items():  # type: ignore[misc]
        hours, start = float(seconds[positions].sum()) / 3600, float(begin[positions].min())
        said = sentence if isinstance(sentence, str) else sentence(where[positions])
        text = f"{said} over {span(hours * 3600)} from {minute(start)}."
        doubts.append(Doubt(str(node), str(uuid), metric, code, hours, start, float(end[positions].max()), text))
    return doubts


def percent(values: Floats) -> str:
    """The mean of what is known, as in ``97 %``."""
    value = values[~np.isnan(values)]
    return f"{value.mean() * 100:.0f} %" if len(value) else "unknown"
