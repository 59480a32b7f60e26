"""Where every GPU-hour of the window went, so that money can be held to account.

A node is accounted for from max(window start, first seen) to the window's end: hours before a node existed are no money
spent. What the agent did not see in that span is unobserved, also the hours of a GPU that a node should have and nobody
ever saw. An hour that a workload held without using it is allocated idle, and still carries the workload's id. An hour
that nobody held while the node was marked as out of service is drained: it was nobody's to use, so it is no waste.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.advice_types import Reconciliation
from ...core.frame import Frame
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from ..workloads.mig import whole_gpus

COLUMNS = ["node", "gpu_uuid", "class", "workload_id", "gpu_hours"]
BLOCK_ROWS = 25_000


def occupancy(
    frame: Frame,
    inventory: Inventory,
    attribution: Attribution,
    idle: pd.Series,
    parts: npt.NDArray[np.float64] | None = None,
) -> pd.DataFrame:
    """Columns ``node, gpu_uuid, class, workload_id, gpu_hours``; a node's rows sum to GPU count x span hours.

    `idle`: for every row of the frame's `gpu`, whether the GPU stood idle in it; `parts`: the part of a GPU whose hours
    it stands for (`mig.row_parts`; None: all are whole): an instance's hours count as that part, under its GPU. Where
    more was observed than the span holds (a clock that is off, a GPU that was replaced) the observed hours are scaled
    down to it.
    """
    physical = whole_gpus(frame)
    parts = np.ones(len(frame.gpu)) if parts is None else parts
    observed = _observed(frame, attribution, idle, parts=parts)
    tables = [observed]
    totals = observed.groupby("node")["gpu_hours"].sum() if not observed.empty else pd.Series(dtype=float)
    per_gpu = (
        observed.groupby(["node", "gpu_uuid"])["gpu_hours"].sum() if not observed.empty else pd.Series(dtype=float)
    )
    seen = per_gpu.to_dict()
    own: dict[str, list[str]] = {}
    for node, uuid in physical.itertuples(index=False, name=None):
        own.setdefault(node, []).append(uuid)
    rest: list[dict[str, object]] = []
    scale: dict[str, float] = {}
    for node, counted in inventory.nodes.items():
        expected = counted.gpu_count * counted.span_hours
        total = float(totals.get(node, 0.0))
        if total > expected:
            scale[node] = expected / total
            continue
        missing = expected - total
        for uuid in own.get(node, ()):
            gap = min(max(counted.span_hours - float(seen.get((node, uuid), 0.0)), 0.0), missing)
            if gap > 0:
                rest.append(_unobserved(node, uuid, gap))
                missing -= gap
        if missing > 1e-9:
            rest.append(_unobserved(node, "", missing))
    if scale and not observed.empty:
        observed["gpu_hours"] *= observed["node"].map(scale).fillna(1.0)
    if rest:
        tables.append(pd.DataFrame(rest, columns=COLUMNS))
    filled = [part for part in tables if not part.empty]
    return pd.concat(filled, ignore_index=True)[COLUMNS] if filled else pd.DataFrame(columns=COLUMNS)


def hours_by_use(occupancy: pd.DataFrame) -> Reconciliation:
    """Where the GPU-hours of all nodes went; the parts sum to the total."""
    hours = occupancy.groupby("class")["gpu_hours"].sum()
    uses = ("workload", "shared", "allocated_idle", "unallocated", "drained", "unobserved")
    return Reconciliation(*(float(hours.get(use, 0.0)) for use in uses), total=float(hours.sum()))


def _unobserved(node: str, gpu_uuid: str, hours: float) -> dict[str, object]:
    return {"node": node, "gpu_uuid": gpu_uuid, "class": "unobserved", "workload_id": None, "gpu_hours": hours}


def _observed(
    frame: Frame, attribution: Attribution, idle: pd.Series, *, parts: npt.NDArray[np.float64]
) -> pd.DataFrame:
    found = summed(placed_by_nodes(frame, attribution, idle, parts), COLUMNS[:4], COLUMNS[4:])
    return found[COLUMNS] if found is not None else pd.DataFrame(columns=COLUMNS)


def summed(tables: Iterable[pd.DataFrame], keys: list[str], sums: list[str]) -> pd.DataFrame | None:
    """Sums by keys, in their order, where no two tables have a key in common; None: there is nothing."""
    found = [
        table.groupby(keys, dropna=False, sort=True)[sums].sum().reset_index() for table in tables if not table.empty
    ]
    if len(found) < 2:
        return found[0] if found else None
    # A table in which nobody holds anything has no text among its workloads.
    return pd.concat(found, ignore_index=True).infer_objects().sort_values(keys, ignore_index=True)


def placed_by_nodes(
    frame: Frame,
    attribution: Attribution,
    idle: pd.Series,
    parts: npt.NDArray[np.float64],
    block_rows: int = BLOCK_ROWS,
) -> Iterator[pd.DataFrame]:
    """Every observed moment once: `COLUMNS` and its ``row`` in the frame's `gpu`. Instances stand under their GPU.

    Nodes of so many rows come at a time: what is made of the tables needs little memory, however large the fleet is.
    """
    places = attribution.places
    if places.empty or frame.gpu.empty:
        return
    keys = frame.gpu_keys
    nodes, names = keys.nodes()
    node = nodes[places["row"].to_numpy(int)]
    rows = np.bincount(node, minlength=len(names))
    block = ((np.cumsum(rows) - rows) // block_rows)[node]
    physical = set(whole_gpus(frame).itertuples(index=False, name=None))
    under = [frame.parents.get(key, key) for key in keys.keys]
    known = np.array([one in physical for one in under], dtype=np.bool_)
    gpus = np.array([uuid for _, uuid in under], dtype=object)
    for number in np.unique(block):
        some = places[block == number]
        at = some["row"].to_numpy(int)
        hours = some["seconds"].to_numpy(float) * parts[at] / 3600
        counted = known[keys.number[at]] & (hours > 0)
        some, at = some[counted], at[counted]
        yield pd.DataFrame(
            {
                "node": names[nodes[at]],
                "gpu_uuid": gpus[keys.number[at]],
                "class": _uses(some, idle.to_numpy(bool)[at]),
                "workload_id": some["workload_id"].to_numpy(),
                "gpu_hours": hours[counted],
                "row": at,
            }
        )


def _uses(places: pd.DataFrame, still: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    """Whose each moment was; `still`: whether the GPU stood idle in it."""
    owned = places["workload_id"].notna().to_numpy()
    uses = np.array(["shared", "drained", "allocated_idle", "workload", "unallocated"], dtype=object)
    shared, drained = places["shared"].to_numpy(bool), places["drained"].to_numpy(bool)
    return uses[np.select([shared, drained, owned & still, owned], [0, 1, 2, 3], default=4)]
