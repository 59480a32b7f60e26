"""Minutes of GPUs that nobody holds, from the databases of our agent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ....agent.store.reading.queries import Query
from ....rules.base.errors import SkuwiseError
from ...core.coded_text import CodedText
from ...core.frame import Frame, Window
from .. import resolution as resolve
from ..activity import Device, DeviceSeries, activity_uses, column, engine_use, with_activity
from ..only import Only
from ..stacking import stacked
from ..trust.trust import Believed, believed_of
from .opening import DatabaseReader, open_database

# So many rows are read by the minute at most; of larger fleets one minute of several.
MAX_ROWS = 1_200_000
STEPS = (60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True)
class Minutes:
    """Reads the minutes of devices. `believed`: the databases of the window, each with the nodes about which it is
    believed (None: all of its own)."""

    believed: Believed

    def __call__(self, devices: Sequence[Device], window: Window) -> list[DeviceSeries]:
        rows = len(devices) * window.seconds / 60.0
        step = next((one for one in STEPS if rows / (one / 60.0) <= MAX_ROWS), STEPS[-1])
        wanted = set(devices)
        found: dict[Device, DeviceSeries] = {}
        for path, nodes in self.believed.items():
            own = wanted if nodes is None else {device for device in wanted if device[0] in nodes}
            if not own:
                continue
            try:
                with open_database(path) as reader:
                    for one in _read(reader, own, window, step):
                        key = (one.node, one.gpu_uuid)
                        known = found.get(key)
                        if known is None or len(one.ts) > len(known.ts):
                            found[key] = one
            except SkuwiseError:
                continue  # the frame was read from what can be read, and says so
        return [found[device] for device in devices if device in found]


def _read(reader: DatabaseReader, wanted: set[Device], window: Window, step: float) -> list[DeviceSeries]:
    is_whole = step <= resolve.MINUTE
    query = queries.ACTIVITY if is_whole else queries.ACTIVITY_THINNED
    more = {} if is_whole else {"every": step / resolve.MINUTE}
    rows = reader.table(query, {"start": window.start, "end": window.end, **more})
    if rows.empty:
        return []
    out: list[DeviceSeries] = []
    ts, use = column(rows, "ts"), engine_use(rows)
    mem = column(rows, "mem_used_bytes_mean")
    for key, own in rows.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        device = (str(key[0]), str(key[1]))  # type: ignore[index]
        if device in wanted:
            at = own[np.argsort(ts[own], kind="stable")]
            out.append(DeviceSeries(*device, ts[at], step, use[at], mem[at]))
    return out


def with_unnamed_work(frame: Frame, paths: Sequence[Path]) -> Frame:
    """The frame with the work that nobody named, and minutes in place of the hours that its edges cut."""
    before = len(frame.uses)
    believed = believed_of(frame.source, paths)
    frame = with_activity(frame, Minutes(believed))
    if len(frame.uses) == before:
        return frame
    uses, notes = activity_uses(frame), list(frame.notes)
    found: list[resolve.Refinement] = []
    most = resolve.MAX_REFINED_HOURS_IN_ALL // max(len(paths), 1)
    for path, nodes in believed.items():
        try:
            with open_database(path) as reader:
                own, note = _refined(reader, frame.gpu, uses, frame.window, most, nodes)
        except SkuwiseError:
            continue
        if own is not None:
            found.append(own)
        if note and note not in notes:
            notes.append(note)
    gpu = frame.gpu
    if found:
        parts = [(0, rows) for rows in resolve.with_minutes([gpu], found)]
        gpu = stacked(parts, queries.GPU_HOURS, (*resolve.GPU.keys, "ts")).drop(columns="file")
    return replace(frame, gpu=gpu, notes=tuple(notes))


def _refined(  # noqa: PLR0917
    reader: DatabaseReader,
    gpu: pd.DataFrame,
    uses: pd.DataFrame,
    window: Window,
    most: int,
    nodes: Collection[str] | None,
) -> tuple[resolve.Refinement | None, CodedText | None]:
    names = {str(row[0]) for row in reader.fetch(queries.NODES_SEEN)}
    names = names if nodes is None else names.intersection(nodes)
    begin = reader.fetch(queries.MINUTES_BEGIN, {})[0][0]
    minutes_from = float(begin) if isinstance(begin, (int, float)) else None

    def fetch(query: Query, start: float, end: float, *, only: Only | None = None) -> Sequence[pd.DataFrame]:
        rows = reader.tables(query, {"start": start, "end": end}, only=only)
        return rows if nodes is None else [part[part["node"].isin(names)] for part in rows if not part.empty]

    own = uses[uses["node"].isin(names)]
    most = min(most, resolve.MAX_REFINED_HOURS * len(names))
    return resolve.refinement(fetch, [gpu], own, window, minutes_from, most=most)
