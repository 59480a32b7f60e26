"""Which catalog entry each GPU is, and the peaks its rows are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import take

from ....rules.catalog.loader import Catalog
from ....rules.catalog.mig import Slices, slices_of
from ....rules.catalog.types import GpuSku
from ...core.frame import Frame
from ...core.records import Record, records, text

PEAKS = ("tensor_reference_hertz", "boost_hertz", "nvlink", "pcie", "power_limit", "tdp", "eta_c", "eta_m", "eta_link")


@dataclass(frozen=True)
class SkuRows:
    """Columns of `table` at some rows, each taken when it is asked for. `at`: its row of the table, -1: none; `index`:
    theirs."""

    table: pd.DataFrame
    at: npt.NDArray[np.intp]
    index: pd.Index

    def __getitem__(self, name: str) -> pd.Series:
        return pd.Series(take(self.table[name].array, self.at, allow_fill=True), index=self.index, copy=False)


@dataclass(frozen=True)
class GpuIndex:
    """The GPUs of a frame: `table` is indexed by (node, gpu_uuid) with ``name`` (SKU, or the driver's name) and peaks.

    `rows`: the same for every row of the frame's `gpu`. `skus`: (node, gpu_uuid) -> catalog entry; `unknown`: driver
    names that the catalog lacks. Of each MIG instance: `profiles`, as drivers write it, and `slices`, None: not known.
    """

    table: pd.DataFrame
    rows: SkuRows
    skus: dict[tuple[str, str], GpuSku | None]
    unknown: tuple[str, ...]
    profiles: Mapping[tuple[str, str], str]
    slices: Mapping[tuple[str, str], Slices | None]

    def sku(self, node: str, gpu_uuid: str) -> GpuSku | None:
        return self.skus.get((node, gpu_uuid))


def index_gpus(frame: Frame, catalog: Catalog) -> GpuIndex:
    """Look every GPU up once: by the SKU the agent found, else by the driver's name."""
    found: dict[str, GpuSku | None] = {}
    skus: dict[tuple[str, str], GpuSku | None] = {}
    unknown: dict[str, None] = {}
    rows = []
    for gpu in records(frame.gpus):
        words = [w for w in (gpu["sku"], gpu["name"]) if isinstance(w, str) and w]
        sku = None
        for word in words:
            if word not in found:
                found[word] = catalog.gpu(word)
            sku = sku or found[word]
        if sku is None and words:
            unknown[words[-1]] = None
        key = (str(gpu["node"]), str(gpu["gpu_uuid"]))
        skus[key] = sku
        rows.append((key, sku.name if sku else words[-1] if words else "unknown", *_peaks(sku, gpu, catalog)))
    table = pd.DataFrame(
        [row[1:] for row in rows],
        columns=["name", *PEAKS],
        index=pd.MultiIndex.from_tuples([row[0] for row in rows], names=["node", "gpu_uuid"]) if rows else None,
    )
    table[list(PEAKS)] = table[list(PEAKS)].astype(float)
    if rows:
        table = table[~table.index.duplicated(keep="last")]
    place = {key: n for n, key in enumerate(table.index)}
    known = np.array([place.get(key, -1) for key in frame.gpu_keys.keys], dtype=np.intp)
    at_rows = SkuRows(table, known[frame.gpu_keys.number], frame.gpu.index)
    cut = [one for one in records(frame.gpus) if one["kind"] == "mig"]
    named = {(str(one["node"]), str(one["gpu_uuid"])): text(one["mig_profile"]) for one in cut}
    profiles = {key: name for key, name in named.items() if name is not None}
    slices = {key: slices_of(profiles.get(key), skus.get(gpu) or skus.get(key)) for key, gpu in frame.parents.items()}
    return GpuIndex(table, at_rows, skus, tuple(unknown), profiles, slices)


def _peaks(sku: GpuSku | None, gpu: Record, catalog: Catalog) -> tuple[float | None, ...]:
    achieved = sku.achieved if sku else None
    board = sku.tdp_watts if sku else catalog.board_watts(text(gpu["name"]) or "")
    limit = _number(gpu["power_limit_watts"]) or board
    return (
        sku.tensor_reference_hertz if sku else None,
        sku.boost_hertz if sku else None,
        # The driver's own count of links is the truth of this node; a bridge may be missing that the SKU could have.
        _number(gpu["nvlink_bytes_per_second"]) or (sku.nvlink_bytes_per_second if sku else None),
        sku.pcie_bytes_per_second if sku else None,
        limit,
        sku.tdp_watts if sku else None,
        achieved.bf16_gemm if achieved else None,
        achieved.mem if achieved else None,
        achieved.link_allreduce if achieved else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
