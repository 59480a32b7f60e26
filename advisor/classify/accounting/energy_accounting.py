"""Where every joule of the window went, by the same places as every GPU-hour (`gpu_hour_accounting`).

A moment's energy is whose the moment is: a workload's, shared, nobody's, drained; energy of moments at rest is told
apart. An instance has the part of its GPU's energy that its hours have of the GPU's. Hours that were not observed, and
observed ones without power or counter, have no energy: they are counted as hours that were not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ...core.verdict_types import WorkloadVerdict
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from .energy_phases import phases_of_rows
from .gpu_hour_accounting import COLUMNS as PLACE
from .gpu_hour_accounting import placed_by_nodes, summed
from .measured_energy import RowEnergy

HOUR = 3600.0
# `hour`: of the day, UTC. `idle`: whether the GPU stood idle. `phase`: what a workload did then (`energy_phases`).
COLUMNS = (
    *PLACE[:4], "idle", "phase", "hour", "gpu_hours", "measured_hours", "joules", "counted_joules",
)  # fmt: skip
_KEYS = list(COLUMNS[:7])
_SUMS = list(COLUMNS[7:])


def energy_by_place(  # noqa: PLR0917
    frame: Frame,
    inventory: Inventory,
    attribution: Attribution,
    idle: pd.Series,
    parts: npt.NDArray[np.float64],
    energy: RowEnergy,
    workloads: Sequence[WorkloadVerdict],
) -> pd.DataFrame:
    """`COLUMNS`: a row for each GPU, use, workload, phase and hour of the day, with what was observed and measured.

    Hours are those of the observed classes of `occupancy`, scaled as there; `joules` is of `measured_hours`, and of
    them `counted_joules` by a counter.
    """
    known = {w.id: w for w in workloads}
    tables = (
        _with_energy(table, frame, idle, energy, known) for table in placed_by_nodes(frame, attribution, idle, parts)
    )
    sums = summed(tables, _KEYS, _SUMS)
    if sums is None:
        return pd.DataFrame({name: pd.Series(dtype=float if name in _SUMS else object) for name in COLUMNS})
    return _scaled(sums[list(COLUMNS)], inventory)


def sorted_places(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of several tables of `energy_by_place` in the order of one."""
    return table.sort_values(_KEYS, ignore_index=True)


def _with_energy(
    table: pd.DataFrame, frame: Frame, idle: pd.Series, energy: RowEnergy, workloads: Mapping[str, WorkloadVerdict]
) -> pd.DataFrame:
    """A table of `placed_by_nodes` with the rest of `COLUMNS`."""
    at = table["row"].to_numpy(int)
    middle = frame.gpu["ts"].to_numpy(float)[at] - frame.gpu["interval_seconds"].to_numpy(float)[at] / 2
    table["idle"] = idle.to_numpy(bool)[at]
    table["hour"] = (middle // HOUR % 24).astype(int)
    table["phase"] = phases_of_rows(table["workload_id"], middle, table["idle"].to_numpy(bool), workloads)
    table["measured_hours"] = table["gpu_hours"] * energy.measured[at]
    watts = np.where(energy.measured[at] > 0, energy.watts[at], 0.0)
    table["joules"] = watts * table["measured_hours"] * HOUR
    table["counted_joules"] = table["joules"] * energy.counted[at]
    return table


def _scaled(table: pd.DataFrame, inventory: Inventory) -> pd.DataFrame:
    """As hours are: where more was observed than a node's span holds, all of it is scaled down."""
    totals = table.groupby("node")["gpu_hours"].sum()
    scale = {
        node: counted.gpu_count * counted.span_hours / float(totals[node])
        for node, counted in inventory.nodes.items()
        if node in totals.index and float(totals[node]) > counted.gpu_count * counted.span_hours
    }
    if scale:
        factor = table["node"].map(scale).astype(float).where(table["node"].isin(list(scale)), 1.0)
        table[_SUMS] = table[_SUMS].mul(factor, axis=0)
    return table
