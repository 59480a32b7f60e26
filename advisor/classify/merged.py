"""One fleet's verdicts from those of groups of its nodes.

A fleet is judged group by group, so that the memory which telemetry takes does not grow with it. A group holds whole
series of workloads (`core/frame_groups.py`), so that every verdict is the one that the fleet at once would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.column_rows import ColumnRows
from ..core.frame import Frame
from ..rulebook import Rulebook
from .accounting.energy_accounting import sorted_places
from .judge import judge
from .types import Verdicts
from .workloads.inventory import merged_inventory


def judge_groups(frames: Iterable[Frame], book: Rulebook, between: Callable[[], None] = lambda: None) -> Verdicts:
    """The verdicts on a fleet that is given group by group; `between`: as for `judge`."""
    found: list[Verdicts] = []
    for frame in frames:
        verdicts = judge(frame, book, between)
        # Of a part of a fleet the rows in use are copied, so that the telemetry behind them is released.
        found.append(verdicts if frame.telemetry_span is None else _compact(verdicts))
        del frame, verdicts  # not held while the next group is read
        between()
    return merged(found)


def _compact(verdicts: Verdicts) -> Verdicts:
    """The verdicts with their usage in seven digits, half the memory."""
    usage = verdicts.usage
    columns = {name: usage[name] for name in (*usage.table, *usage.behind)}
    own = {}
    nothing = np.broadcast_to(np.float32(np.nan), (len(usage),))  # stands for every number that is missing throughout
    for name, column in columns.items():
        is_reading = column.dtype == np.float64 and name not in ("ts", "seconds")
        own[name] = column if not is_reading else nothing if np.isnan(column).all() else column.astype(np.float32)
    return replace(verdicts, usage=ColumnRows(own, np.arange(len(usage))))


def merged(groups: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of all nodes. `groups`: of disjoint sets of nodes, over the same window; at least one."""
    if len(groups) == 1:
        return groups[0]
    energy = [one.energy for one in groups if not one.energy.empty]
    occupancy = [one.occupancy for one in groups if not one.occupancy.empty]
    return Verdicts(
        window=groups[0].window,
        workloads=tuple(sorted((w for one in groups for w in one.workloads), key=lambda w: (-w.gpu_hours, w.id))),
        nodes=tuple(sorted((node for one in groups for node in one.nodes), key=lambda node: node.node)),
        bare=tuple(sorted((gpu for one in groups for gpu in one.bare), key=lambda gpu: gpu.node)),
        occupancy=pd.concat(occupancy, ignore_index=True) if occupancy else groups[0].occupancy,
        usage=_usage([one.usage for one in groups]),
        waste_ready={key: ready for one in groups for key, ready in one.waste_ready.items()},
        notes=tuple(dict.fromkeys(note for one in groups for note in one.notes)),
        energy=sorted_places(pd.concat(energy, ignore_index=True)) if energy else groups[0].energy,
        tokens={key: told for one in groups for key, told in one.tokens.items()},
        power={node: told for one in groups for node, told in one.power.items()},
        inventory=merged_inventory([one.inventory for one in groups]),
        doubts=tuple(sorted((d for one in groups for d in one.doubts), key=lambda d: (d.node, d.gpu_uuid))),
        instances=tuple(
            sorted((i for one in groups for i in one.instances), key=lambda i: (i.node, i.parent_uuid, i.gpu_uuid))
        ),
        rest_levels=tuple(sorted((r for one in groups for r in one.rest_levels), key=lambda r: (r.node, r.gpu_uuid))),
    )


def _usage(parts: list[ColumnRows]) -> ColumnRows:
    """All rows under one another, a column at a time; the parts' own columns are released on the way."""
    tables = [dict(one.table) for one in parts]
    count = sum(map(len, parts))
    parts.clear()
    joined: dict[str, npt.NDArray] = {}
    nothing = np.full(count, np.nan, dtype=np.float32)
    nothing.flags.writeable = False
    for name in list(tables[0]):
        column = np.concatenate([table.pop(name) for table in tables])
        # One column stands for every number that is missing throughout.
        missing = column.dtype == np.float32 and bool(np.isnan(column).all())
        joined[name] = nothing if missing else column
    return ColumnRows(joined, np.arange(count))
