"""Series of telemetry as CSV: rows of the view `gpu_samples`, as ticks of nodes.

A file holds one row a GPU and moment, with a header. A column that the view does not have, a value that is no
number or cannot be one of its unit, and time that does not go forward are refused with file and line. An empty cell is
missing. The units are those of docs/metrics.md: ratios are 0..1, not percent.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TextIO, cast

from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.model import Tick
from skuwise.rules.base.errors import UsageError

PACKED = ".gz"
# The most that a value may be. A ratio may pass 1 (DCGM tells up to some 1.2 on MIG instances); what is far above is a
# percentage or a blank sentinel.
_MOST: Mapping[str, float] = {
    "ratio": 1.5, "bytes": 1e16, "watts": 1e5, "joules": 1e9, "hertz": 1e11, "celsius": 200.0, "bitmask": 2.0**63,
    "bytes per second": 1e14, "ticks per second": 1e12,
}  # fmt: skip
_FIRST_TS, _LAST_TS = 1e9, 4e9  # what lies outside is not in seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file, read by column; every error names file and line."""

    where: str
    cells: Mapping[str, str]

    def text(self, name: str) -> str:
        """The cell without surrounding blanks; empty where it is empty or the column is not there."""
        return self.cells.get(name, "").strip()

    def number(self, name: str, most: float, least: float = 0.0) -> float | None:
        """A number from `least` to `most`; None where the cell is empty."""
        told = self.text(name)
        if not told:
            return None
        try:
            value = float(told)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise UsageError(
                f"{self.where}: {name} is {told[:40]!r}, not a number from {least:g} to {most:g}.",
                "Use the units of docs/metrics.md (ratios 0..1, bytes, seconds); leave a missing value empty.",
            )
        return value


@dataclass(slots=True)
class NodeSeries:
    """One node's values by time. `gpus`: uuid -> (index, bytes of memory or None)."""

    gpus: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    values: dict[float, dict[str, dict[str, float]]] = field(default_factory=dict)  # ts -> GPU -> metric
    intervals: dict[float, float] = field(default_factory=dict)  # those that rows tell
    last: dict[str, float] = field(default_factory=dict)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Oldest first. A step much longer than the rest is a gap in the series, not a long interval."""
        times = sorted(self.values)
        steps = [later - earlier for earlier, later in pairwise(times)]
        usual = median(steps) if steps else 0.0
        out = []
        for ts, step in zip(times, [usual, *steps], strict=True):
            interval = self.intervals.get(ts) or (usual if step > 3 * usual else step)
            if not interval:
                raise UsageError("A series of one row does not tell its interval.", "Add the column interval_seconds.")
            out.append(Tick(ts, interval, self.values[ts]))
        return tuple(out)


def rows_of(path: Path, allowed: set[str], required: set[str]) -> Iterator[Row]:
    """The rows of a CSV file whose header holds all of `required` and nothing outside `allowed`. Raises UsageError."""
    try:
        with cast(
            "TextIO", (gzip.open if path.name.endswith(PACKED) else open)(path, "rt", encoding="utf-8-sig")
        ) as file:
            reader = csv.DictReader(file, strict=True)
            header = set(reader.fieldnames or ())
            if wrong := sorted(header - allowed) or sorted(required - header):
                raise UsageError(f"{path.name}:1: column {wrong[0]!r} is unknown or missing.", "Correct the header.")
            for cells in reader:
                if None in cells or None in cells.values():
                    raise UsageError(f"{path.name}:{reader.line_num}: cells do not fit the columns.", "Quote commas.")
                yield Row(f"{path.name}:{reader.line_num}", cells)
    except (UnicodeDecodeError, csv.Error, EOFError, OSError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}.", "Use CSV in UTF-8, packed by gzip or not.") from error


def read_series(path: Path) -> dict[str, NodeSeries]:
    """The series of a file by node. Raises UsageError with file and line."""
    nodes: dict[str, NodeSeries] = {}
    metrics = {metric.name: metric for metric in GPU_METRICS}
    names = {"ts", "interval_seconds", "node", "gpu_uuid", "gpu_index", "mem_total_bytes", *metrics}
    for row in rows_of(path, names, {"ts", "node"}):
        index = row.number("gpu_index", 4094)
        uuid = row.text("gpu_uuid") or (f"GPU-{index:.0f}" if index is not None else "")
        if not uuid:
            raise UsageError(f"{row.where}: neither gpu_uuid nor gpu_index is set.", "Set one of them in every row.")
        node = nodes.setdefault(row.text("node"), NodeSeries())
        ts = row.number("ts", _LAST_TS, _FIRST_TS)
        if ts is None or ts <= node.last.get(uuid, 0.0):
            raise UsageError(f"{row.where}: ts of {uuid} does not increase.", "Sort the rows by time.")
        node.last[uuid] = ts
        if interval := row.number("interval_seconds", 86400.0):
            node.intervals[ts] = interval
        total = row.number("mem_total_bytes", _MOST["bytes"])
        known = node.gpus.get(uuid, (len(node.gpus) if index is None else int(index), None))
        node.gpus[uuid] = (known[0], int(total) if total is not None else known[1])
        node.values.setdefault(ts, {})[uuid] = {
            name: value
            for name, metric in metrics.items()
            if (value := row.number(name, _MOST[metric.unit], -100.0 if metric.unit == "celsius" else 0.0)) is not None
        }
    if not nodes:
        raise UsageError(f"No rows in {path.name}.", "Add rows, or remove its label.")
    return nodes
