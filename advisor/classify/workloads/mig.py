"""MIG in the frame: GPUs are bought whole, instances are parts of them.

Sums over a fleet count whole GPUs. An hour of an instance is the hour of the part of its GPU that nobody else can have
(`rules.mig`), so the instances of a GPU that is divided wholly cost what the GPU costs; what no instance covers is
nobody's. Rules that speak of whole GPUs say nothing of work on instances.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame, Key
from .sku_lookup import GpuIndex


def whole_gpus(frame: Frame) -> dict[Key, None]:
    """All GPUs that are no instances, in the order of the frame."""
    gpus = frame.gpus[frame.gpus["kind"] == "gpu"]
    return dict.fromkeys(zip(gpus["node"], gpus["gpu_uuid"], strict=True))


def row_parts(frame: Frame, index: GpuIndex) -> npt.NDArray[np.float64]:
    """Of every row of the frame's `gpu` the part of a GPU whose hours it stands for.

    A whole GPU is 1. An instance is its part of the GPU, by time: instances that were there one after the other within
    a row share it. The GPU itself is what its instances leave.
    """
    keys, gpu = frame.gpu_keys, frame.gpu
    cut = keys.among(frame.parents)
    if not cut.any():
        return np.ones(len(gpu))
    wholes = [frame.parents.get(key, key) for key in keys.keys]
    whole = pd.factorize(pd.Series(wholes, dtype=object))[0][keys.number]
    sizes = [slices.share if (slices := index.slices.get(key)) is not None else np.nan for key in keys.keys]
    size = np.where(cut, np.array(sizes)[keys.number], 0.0)
    seconds = np.nan_to_num(gpu["observed_seconds"].to_numpy(float))  # a row without any was not observed
    moments = [whole, gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)]

    def at_once(values: npt.NDArray, how: Literal["sum", "max", "any"]) -> npt.NDArray:
        """The sum or the like over the rows of a GPU and its instances at one moment."""
        return pd.Series(values).groupby(moments, sort=False).transform(how).to_numpy()

    unknown, length = cut & np.isnan(size), at_once(seconds, "max")
    # An instance of which nothing is known has an equal share of what the others leave.
    left = np.clip(length - at_once(np.where(unknown, 0.0, size) * seconds, "sum"), 0.0, None)
    open_ = at_once(np.where(unknown, seconds, 0.0), "sum")
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(unknown, np.where(open_ > 0, np.minimum(left / open_, 1.0), 0.0), size)
        used = at_once(np.where(cut, part * seconds, 0.0), "sum")
        part = part * np.where(used > length, length / used, 1.0)
        rest = np.where(seconds > 0, np.clip(length - np.minimum(used, length), 0.0, None) / seconds, 0.0)
    return np.where(cut, part, np.where(at_once(cut, "any"), np.minimum(rest, 1.0), 1.0))
