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

Floats = npt.NDArray[np.float64]

PLACE = ["node", "gpu_uuid", "class", "workload_id"]
COLUMNS = [*PLACE, "gpu_hours"]
BLOCK_ROWS = 25_000


def occupancy(places: pd.DataFrame, frame: Frame, inventory: Inventory) -> pd.DataFrame:
    """`COLUMNS`: a node's rows sum to GPU count x span hours. `places`: what was observed (`energy_by_place`)."""
    observed = places.groupby(PLACE, dropna=False, sort=True)["gpu_hours"].sum().reset_index()
    seen = observed.groupby(["node", "gpu_uuid"])["gpu_hours"].sum().to_dict()
    totals = observed.groupby("node")["gpu_hours"].sum().to_dict()
    gpus: dict[str, list[str]] = {}
    for node, uuid in whole_gpus(frame):
        gpus.setdefault(node, []).append(uuid)
    rest: list[tuple[str, str, str, None, float]] = []
    for node, counted in inventory.nodes.items():
        missing = counted.gpu_count * counted.span_hours - totals.get(node, 0.0)
        for uuid in (*gpus.get(node, ()), ""):  # what no known GPU lacks is of GPUs that nobody names
            gap = min(max(counted.span_hours - seen.get((node, uuid), 0.0), 0.0), missing) if uuid else missing
            if gap > 1e-9:
                rest.append((node, uuid, "unobserved", None, gap))
                missing -= gap
    tables = [table for table in (observed, pd.DataFrame(rest, columns=COLUMNS)) if not table.empty]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else pd.DataFrame(columns=COLUMNS)


def hours_by_use(occupancy: pd.DataFrame) -> Reconciliation:
    """Where the GPU-hours of all nodes went; the parts sum to the total."""
    hours = occupancy.groupby("class")["gpu_hours"].sum()
    uses = ("workload", "shared", "allocated_idle", "unallocated", "drained", "unobserved")
    return Reconciliation(*(float(hours.get(use, 0.0)) for use in uses), total=float(hours.sum()))


def summed(tables: Iterable[pd.DataFrame], keys: list[str], sums: list[str]) -> pd.DataFrame:
    """Sums by keys, in their order, where no two tables have a key in common."""
    found = [
        table.groupby(keys, dropna=False, sort=True)[sums].sum().reset_index() for table in tables if not table.empty
    ]
    if not found:
        return pd.DataFrame({name: pd.Series(dtype=float if name in sums else object) for name in (*keys, *sums)})
    # A table in which nobody holds anything has no text among its workloads.
    return pd.concat(found, ignore_index=True).infer_objects().sort_values(keys, ignore_index=True)


def placed_by_nodes(
    frame: Frame, attribution: Attribution, idle: pd.Series, parts: Floats, block_rows: int = BLOCK_ROWS
) -> Iterator[pd.DataFrame]:
    """Every observed moment once: `COLUMNS`, whether it stood ``idle``, and its ``row`` in the frame's `gpu`. Instances
    stand under their GPU.

    `idle`, `parts`: of every row of the frame's `gpu`, whether the GPU stood idle in it, and the part of a GPU whose
    hours it stands for (`mig.row_parts`). Nodes of so many rows come at a time: what is made of the tables needs little
    memory, however large the fleet is.
    """
    places = attribution.places
    keys = frame.gpu_keys
    nodes, names = keys.nodes()
    node = nodes[places["row"].to_numpy(int)]
    rows = np.bincount(node, minlength=len(names))
    block = ((np.cumsum(rows) - rows) // block_rows)[node]
    under, physical = [frame.parents.get(key, key) for key in keys.keys], whole_gpus(frame)
    known = np.array([one in physical for one in under], dtype=np.bool_)
    gpus = np.array([uuid for _, uuid in under], dtype=object)
    uses = np.array(["shared", "drained", "allocated_idle", "workload", "unallocated"], dtype=object)
    for number in np.unique(block):
        some = places[block == number]
        at = some["row"].to_numpy(int)
        hours = some["seconds"].to_numpy(float) * parts[at] / 3600
        counted = known[keys.number[at]] & (hours > 0)
        some, at = some[counted], at[counted]
        owned, still = some["workload_id"].notna().to_numpy(), idle.to_numpy(bool)[at]
        states = [some["shared"].to_numpy(bool), some["drained"].to_numpy(bool), owned & still, owned]
        yield pd.DataFrame(
            {
                "node": names[nodes[at]], "gpu_uuid": gpus[keys.number[at]],
                "class": uses[np.select(states, [0, 1, 2, 3], default=4)],
                "workload_id": some["workload_id"].to_numpy(), "gpu_hours": hours[counted], "idle": still, "row": at,
            }
        )  # fmt: skip
