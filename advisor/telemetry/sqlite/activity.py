"""Minutes of GPUs that nobody holds, from the databases of our agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....agent.store.reading import queries
from ....rules.base.errors import SkuwiseError
from ...core.frame import Frame, Window
from ..activity import Device, DeviceSeries, engine_use, with_activity
from ..resolution import MINUTE, concat
from .join import believed_of
from .open import open_database, read_tables

# So many rows are read by the minute at most; of larger fleets one minute of several.
MAX_ROWS = 1_200_000
STEPS = (60.0, 120.0, 300.0, 600.0)


def with_unnamed_work(frame: Frame, paths: Sequence[Path]) -> Frame:
    """The frame with the work that nobody named, whose begin and end are known to the minute."""
    believed = believed_of(frame.source, paths)

    def minutes(devices: Sequence[Device], window: Window) -> list[DeviceSeries]:
        most = len(devices) * window.seconds / MAX_ROWS
        step = next((one for one in STEPS if one >= most), STEPS[-1])
        span, wanted = {"start": window.start, "end": window.end, "every": step / MINUTE}, set(devices)
        found: dict[Device, DeviceSeries] = {}
        for path, nodes in believed.items():
            try:
                with open_database(path) as reader:
                    table = concat(read_tables(reader, queries.ACTIVITY, span), queries.ACTIVITY.columns)
            except SkuwiseError:
                continue  # the frame was read from what can be read, and says so
            table = table.assign(use=engine_use(table)).sort_values("ts")
            for (node, uuid), rows in table.groupby(["node", "gpu_uuid"]):
                device = (str(node), str(uuid))
                is_believed = device in wanted and (nodes is None or node in nodes)
                if is_believed and (device not in found or len(rows) > len(found[device].ts)):
                    ts, use, mem = (rows[name].to_numpy(float) for name in ("ts", "use", "mem_used_bytes_mean"))
                    found[device] = DeviceSeries(*device, ts, step, use, mem)
        return [*found.values()]

    return with_activity(frame, minutes)
