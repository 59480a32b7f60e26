"""The GPUs and MIG instances of a reading, from rows of the view ``gpus``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ....rules.catalog.loader import Catalog
from ....rules.catalog.mig import slices_of
from ...core.recent import RecentGpu
from ...core.records import Record, text

Key = tuple[str, str]


def gpus_of(rows: Iterable[Record], catalog: Catalog, last: Mapping[Key, float]) -> tuple[RecentGpu, ...]:
    """GPUs by node and id. Of a GPU that is cut into instances these stand for it. `last`: when each was last heard
    of (node, id)."""
    found: dict[Key, RecentGpu] = {}
    names: dict[Key, str | None] = {}
    cut: list[tuple[Key, str | None, Key]] = []
    for row in rows:
        key = (str(row["node"]), str(row["gpu_uuid"]))
        word = text(row["sku"]) or text(row["name"])
        sku = catalog.gpu(word) if word else None
        names[key] = word
        parent = text(row["parent_uuid"])
        if text(row["kind"]) == "mig" and parent:
            cut.append((key, text(row["mig_profile"]), (key[0], parent)))
        index, limit = _number(row["gpu_index"]), _number(row["power_limit_watts"])
        found[key] = RecentGpu(
            *key, int(index) if index is not None else None, sku.name if sku else word,
            power_limit_watts=limit or (sku.tdp_watts if sku else None), last_seen=last.get(key),
        )  # fmt: skip
    for key, profile, parent in cut:
        word = names.get(parent) or names[key]
        whole = catalog.gpu(word) if word else None
        slices = slices_of(profile, whole)
        own = found[key]
        found[key] = RecentGpu(
            *key, own.index, whole.name if whole else own.sku, slices.share if slices is not None else 1.0, None,
            own.last_seen,
        )  # fmt: skip
    parents = {parent for _, _, parent in cut}
    return tuple(gpu for key, gpu in sorted(found.items()) if key not in parents)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else None
