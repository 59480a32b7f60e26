"""MIG in the frame: GPUs are bought whole, instances are parts of them.

Sums over a fleet count whole GPUs only. A GPU whose instances somebody holds is in use, but by how much of its price is
nobody's guess to make: those hours are shared, and the work on an instance is moved or priced by no rule that speaks of
whole GPUs.
"""

from __future__ import annotations

import pandas as pd

from ..frame import Frame

Key = tuple[str, str]  # node, gpu_uuid


def whole_gpus(frame: Frame) -> pd.DataFrame:
    """Columns ``node, gpu_uuid`` of all GPUs that are no instances."""
    return frame.gpus.loc[frame.gpus["kind"] == "gpu", ["node", "gpu_uuid"]].drop_duplicates()


def parents(frame: Frame) -> dict[Key, Key]:
    """Each instance and the GPU it is a part of."""
    instances = frame.gpus[(frame.gpus["kind"] == "mig") & frame.gpus["parent_uuid"].notna()]
    return {
        (str(node), str(uuid)): (str(node), str(parent))
        for node, uuid, parent in zip(instances["node"], instances["gpu_uuid"], instances["parent_uuid"], strict=True)
    }


def held_parts(uses: pd.DataFrame, parent_of: dict[Key, Key]) -> dict[object, tuple[tuple[float, float], ...]]:
    """When any instance of a GPU was held, by the GPU: spans that may overlap one another."""
    spans: dict[object, list[tuple[float, float]]] = {}
    if not parent_of or uses.empty:
        return {}
    rows = zip(uses["node"], uses["gpu_uuid"], uses["ts_start"], uses["ts_end"], strict=True)
    for node, uuid, start, end in rows:
        parent = parent_of.get((str(node), str(uuid)))
        if parent is not None:
            spans.setdefault(parent, []).append((float(start), float(end)))
    return {key: tuple(found) for key, found in spans.items()}
