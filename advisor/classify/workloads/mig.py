"""MIG in the frame: GPUs are bought whole, instances are parts of them.

Sums over a fleet count whole GPUs. An hour of an instance is the hour of the part of its GPU that nobody else can have
(`rules.mig`), so the instances of a GPU that is divided wholly cost what the GPU costs; what no instance covers is
nobody's. Rules that speak of whole GPUs say nothing of work on instances.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from .sku_lookup import GpuIndex

Floats = npt.NDArray[np.float64]


def whole_gpus(frame: Frame) -> pd.DataFrame:
    """Columns ``node, gpu_uuid`` of all GPUs that are no instances."""
    return frame.gpus.loc[frame.gpus["kind"] == "gpu", ["node", "gpu_uuid"]].drop_duplicates()


def row_parts(frame: Frame, index: GpuIndex) -> Floats:
    """Of every row of the frame's `gpu` the part of a GPU whose hours it stands for.

    A whole GPU is 1. An instance is its part of the GPU, by time: instances that were there one after the other within
    a row share it. The GPU itself is what its instances leave.
    """
    out = np.ones(len(frame.gpu))
    parent_of = frame.parents
    if frame.gpu.empty or not parent_of:
        return out
    gpu = frame.gpu
    keys = list(zip(gpu["node"].astype(str), gpu["gpu_uuid"].astype(str), strict=True))
    cut = np.array([key in parent_of for key in keys], dtype=np.bool_)
    if not cut.any():
        return out
    whole = [parent_of.get(key, key) for key in keys]
    sizes = {key: slices.share for key, slices in index.slices.items() if slices is not None}
    table = pd.DataFrame(
        {
            "group": pd.factorize(pd.MultiIndex.from_arrays(
                [[one[0] for one in whole], [one[1] for one in whole], gpu["ts"], gpu["interval_seconds"]]
            ))[0],
            "cut": cut,
            "seconds": np.nan_to_num(gpu["observed_seconds"].to_numpy(float)),  # a row without any was not observed
            "size": [sizes.get(key, np.nan) if is_cut else 0.0 for key, is_cut in zip(keys, cut, strict=True)],
        }
    )  # fmt: skip
    groups = table.groupby("group", sort=False)
    length = groups["seconds"].transform("max").to_numpy(float)
    size, seconds = table["size"].to_numpy(float), table["seconds"].to_numpy(float)
    unknown = cut & np.isnan(size)
    known = np.where(unknown, 0.0, size) * seconds
    taken = pd.Series(known).groupby(table["group"]).transform("sum").to_numpy(float)
    # An instance of which nothing is known has an equal share of what the others leave.
    left = np.clip(length - taken, 0.0, None)
    open_ = pd.Series(np.where(unknown, seconds, 0.0)).groupby(table["group"]).transform("sum").to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(unknown, np.where(open_ > 0, np.minimum(left / open_, 1.0), 0.0), size)
        used = pd.Series(np.where(cut, part * seconds, 0.0)).groupby(table["group"]).transform("sum").to_numpy(float)
        part = part * np.where(used > length, length / used, 1.0)
        rest = np.where(seconds > 0, np.clip(length - np.minimum(used, length), 0.0, None) / seconds, 0.0)
    divided = groups["cut"].transform("any").to_numpy(bool)
    return np.where(cut, part, np.where(divided, np.minimum(rest, 1.0), 1.0))
