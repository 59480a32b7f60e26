"""Which catalog entry each GPU is, the peaks its rows are compared with, and the part of a GPU that a row covers. Sums
over a fleet count whole GPUs: an hour of an instance is the hour of its part of the GPU; the rest is unallocated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import take

from ....rules.catalog.gpu_files import normalise
from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku, Slices, slices_of
from ...core.frame import Frame, Key
from ...core.scalars import Record, records, text

PEAKS = (
    "tensor_reference_hertz", "boost_hertz", "tensor_active_at_peak", "nvlink", "pcie", "power_limit", "tdp", "eta_c",
    "eta_m", "eta_link",
)  # fmt: skip


@dataclass(frozen=True)
class GpuIndex:
    """The GPUs of a frame: `table`: by (node, gpu_uuid), with ``name`` (SKU, or the driver's name) and peaks. `place`:
    the row of `table` for each of the frame's `gpu`; -1: none. `skus`: (node, gpu_uuid) -> catalog entry; `unknown`:
    driver names that the catalog lacks. Of each MIG instance: `profiles` and `slices` (None: unknown)."""

    table: pd.DataFrame
    place: npt.NDArray[np.intp]
    rows: pd.Index
    skus: Mapping[Key, GpuSku | None]
    unknown: tuple[str, ...]
    profiles: Mapping[Key, str]
    slices: Mapping[Key, Slices | None]

    def __getitem__(self, name: str) -> pd.Series:
        """A column of `table` for every row of the frame's `gpu`, taken when it is asked for."""
        return pd.Series(take(self.table[name].array, self.place, allow_fill=True), index=self.rows, copy=False)

    def sku(self, node: str, gpu_uuid: str) -> GpuSku | None:
        return self.skus.get((node, gpu_uuid))


def index_gpus(frame: Frame, catalog: Catalog) -> GpuIndex:
    """Look every GPU up once: by the SKU the agent found, else by the driver's name."""
    by_word: dict[str, GpuSku | None] = {}
    table: dict[Key, tuple[object, ...]] = {}
    skus: dict[Key, GpuSku | None] = {}
    profiles: dict[Key, str] = {}
    unknown: dict[str, None] = {}
    for gpu in records(frame.gpus):
        words = [w for w in (gpu["sku"], gpu["name"]) if isinstance(w, str) and w]
        by_word |= {word: catalog.gpu(word) for word in words if word not in by_word}
        sku = next((by_word[word] for word in words if by_word[word] is not None), None)
        if sku is None and words:
            unknown[words[-1]] = None
        key = str(gpu["node"]), str(gpu["gpu_uuid"])
        skus[key] = sku
        table[key] = (sku.name if sku else words[-1] if words else "unknown", *_peaks(sku, gpu, catalog))
        if gpu["kind"] == "mig" and (profile := text(gpu["mig_profile"])) is not None:
            profiles[key] = profile
    index = pd.MultiIndex.from_tuples(table, names=["node", "gpu_uuid"]) if table else None
    peaks = pd.DataFrame(list(table.values()), columns=["name", *PEAKS], index=index)
    peaks[list(PEAKS)] = peaks[list(PEAKS)].astype(float)
    place = {key: n for n, key in enumerate(table)}
    key_places = np.array([place.get(key, -1) for key in frame.gpu_keys.keys], dtype=np.intp)
    slices = {key: slices_of(profiles.get(key), skus.get(gpu) or skus.get(key)) for key, gpu in frame.parents.items()}
    return GpuIndex(peaks, key_places[frame.gpu_keys.number], frame.gpu.index, skus, tuple(unknown), profiles, slices)


def _peaks(sku: GpuSku | None, gpu: Record, catalog: Catalog) -> tuple[float | None, ...]:
    """`PEAKS` of a GPU; None: not known."""
    numbers = (gpu["power_limit_watts"], gpu["nvlink_bytes_per_second"])
    limit, links = (float(n) if isinstance(n, (int, float)) and n > 0 else None for n in numbers)
    if sku is None:  # its limit is the best that is known of its power
        limit = limit or catalog.boards.get(normalise(text(gpu["name"]) or ""))
        return None, None, None, links, None, limit, limit, None, None, None
    return (
        sku.tensor_reference_hertz, sku.boost_hertz, sku.tensor_active_at_peak,
        # The driver's own count of links is the truth of this node; a bridge may be missing that the SKU could have.
        links or sku.nvlink_bytes_per_second, sku.pcie_bytes_per_second, limit or sku.tdp_watts, sku.tdp_watts,
        sku.achieved.bf16_gemm, sku.achieved.mem, sku.achieved.link_allreduce,
    )  # fmt: skip


def whole_gpus(frame: Frame) -> dict[Key, None]:
    """All GPUs that are no instances, in the order of the frame."""
    gpus = frame.gpus[frame.gpus["kind"] == "gpu"]
    return dict.fromkeys(zip(gpus["node"], gpus["gpu_uuid"], strict=True))


def row_parts(frame: Frame, index: GpuIndex) -> npt.NDArray[np.float64]:
    """Of every row of the frame's `gpu` the part of a GPU whose hours it stands for: 1 for a whole GPU, an instance's
    part by time (instances one after the other within a row share it), what its instances leave for the GPU itself."""
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
    moment = pd.Series(seconds).groupby(moments, sort=False).ngroup().to_numpy()  # once: keys of three take long

    def at_once(values: npt.NDArray, how: Literal["sum", "max", "any"]) -> npt.NDArray:
        """The sum or the like over the rows of a GPU and its instances at one moment."""
        return pd.Series(values).groupby(moment, sort=False).transform(how).to_numpy()

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
