"""Minutes of GPUs that nobody holds, from the databases of our agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
from ..resolution import Only, stacked
from .database import minutes_from
from .join import Believed, believed_of
from .open import DatabaseReader, open_database, read_table, read_tables

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
        found: dict[Device, DeviceSeries] = {}
        for path, nodes in self.believed.items():
            own = {device for device in devices if nodes is None or device[0] in nodes}
            if not own:
                continue
            try:
                with open_database(path) as reader:
                    series = list(_series(reader, own, window, step))
            except SkuwiseError:
                continue  # the frame was read from what can be read, and says so
            for one in series:
                key = (one.node, one.gpu_uuid)
                if key not in found or len(one.ts) > len(found[key].ts):
                    found[key] = one
        return [found[device] for device in devices if device in found]


def _series(reader: DatabaseReader, wanted: set[Device], window: Window, step: float) -> Iterator[DeviceSeries]:
    span = {"start": window.start, "end": window.end, "every": step / resolve.MINUTE}
    rows = read_table(reader, queries.ACTIVITY, span)
    if rows.empty:
        return
    ts, use, mem = column(rows, "ts"), engine_use(rows), column(rows, "mem_used_bytes_mean")
    for key, own in rows.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        device = (str(key[0]), str(key[1]))  # type: ignore[index]
        if device in wanted:
            at = own[np.argsort(ts[own], kind="stable")]
            yield DeviceSeries(*device, ts[at], step, use[at], mem[at])


def with_unnamed_work(frame: Frame, paths: Sequence[Path]) -> Frame:
    """The frame with the work that nobody named, and minutes in place of the hours that its edges cut."""
    before = len(frame.uses)
    believed = believed_of(frame.source, paths)
    frame = with_activity(frame, Minutes(believed))
    if len(frame.uses) == before:
        return frame
    uses, notes = activity_uses(frame), list(frame.notes)
    found: list[resolve.Refinement] = []
    left = set(map(str, uses["node"]))
    most = resolve.MAX_REFINED_HOURS_IN_ALL // max(len(paths), 1)
    for path, nodes in believed.items():
        try:
            with open_database(path) as reader:
                own = left.intersection(str(row[0]) for row in reader.fetch(queries.NODES_SEEN))
                own = own if nodes is None else own.intersection(nodes)
                if not own:
                    continue
                refined, note = _refined(reader, frame, uses[uses["node"].isin(own)], own, most)
        except SkuwiseError:
            continue
        if refined is not None:
            found.append(refined)
            left -= own
        if note and note not in notes:
            notes.append(note)
    if not found:
        return frame
    together = resolve.Refinement(
        pd.concat([one.minutes for one in found], ignore_index=True),
        pd.concat([one.hours for one in found], ignore_index=True),
    )
    parts = [(0, rows) for rows in resolve.with_minutes([frame.gpu], together)]
    gpu = stacked(parts, queries.GPU_HOURS, (*resolve.GPU.keys, "ts")).drop(columns="file")
    return replace(frame, gpu=gpu, notes=tuple(notes))


def _refined(
    reader: DatabaseReader, frame: Frame, uses: pd.DataFrame, nodes: Collection[str], most: int
) -> tuple[resolve.Refinement | None, CodedText | None]:
    def fetch(query: Query, start: float, end: float, only: Only | None = None) -> list[pd.DataFrame]:
        rows = read_tables(reader, query, {"start": start, "end": end}, only=only)
        return [part[part["node"].isin(nodes)] for part in rows]

    most = min(most, resolve.MAX_REFINED_HOURS * len(nodes))
    return resolve.refinement(fetch, [frame.gpu], uses, frame.window, minutes_from(reader), most=most)
