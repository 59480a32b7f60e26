"""Labelled series of any folder: `labels.csv`, and a CSV a series in DIR/series or DIR (the format: docs/method.md).

What is wrong with a file is said with its name and line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

LABELS = "labels.csv"
KINDS, BOTTLENECKS = get_args(KindLabel), get_args(BottleneckLabel)
GPU_VALUES, FABRIC_VALUES = tuple(m.name for m in GPU_METRICS), tuple(m.name for m in FABRIC_METRICS)
FACTS, LINE_RATE = ("mem_total_bytes", "power_limit_watts"), "line_rate_bytes_per_second"
# The most that a value may be, by unit. A ratio may pass 1 (DCGM reports up to 1.2 on MIG instances); what is far above
# is a percentage or a blank sentinel.
_MOST: Mapping[str, float] = {
    "ratio": 1.5, "bytes": 1e16, "watts": 1e5, "joules": 1e9, "hertz": 1e11, "celsius": 200.0, "bitmask": 2.0**63,
    "bytes per second": 1e14, "ticks per second": 1e12,
}  # fmt: skip
_UNITS = {metric.name: metric.unit for metric in (*GPU_METRICS, *FABRIC_METRICS)} | {
    "mem_total_bytes": "bytes", "power_limit_watts": "watts", LINE_RATE: "bytes per second",
}  # fmt: skip
NO_FABRIC = pd.DataFrame(columns=["ts", "interval_seconds", "node", "device", *FABRIC_VALUES, LINE_RATE])
_OTHER_NAMES = {"ts_seconds": "ts", "gpu": "gpu_index"}


@dataclass(frozen=True, slots=True)
class Label:
    """One line of labels.csv.

    `kinds`, `bottlenecks`: what counts as right (`kind_accept`, `bottleneck_accept`); `bottleneck` None: not scored.
    `owner`: whose series it is (`group`, else the first word of the source, else the file). `gpu`: as the driver or
    the catalog calls it; None: unknown. `start`, `end`: Unix seconds, None: the first or last row. `is_steady`: it did
    one thing throughout, so that it may be repeated.
    """

    where: str
    file: Path
    kind: str
    kinds: tuple[str, ...]
    bottleneck: str | None
    bottlenecks: tuple[str, ...]
    owner: str
    gpu: str | None
    start: float | None
    end: float | None
    source: str
    licence: str
    work: str
    is_steady: bool

    @property
    def digest(self) -> str:
        """A name for the series that gives nothing of it away."""
        return sha256(f"{self.file.name}/{self.start}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """The rows of one label within its span. `gpu`: ts (Unix seconds, end of the interval), interval_seconds, node,
    gpu_uuid, gpu_index, and GPU_VALUES and FACTS where the file has them; NaN: missing. `fabric`: ts, interval_seconds,
    node, device, FABRIC_VALUES and LINE_RATE; empty where the node has no such file."""

    label: Label
    gpu: pd.DataFrame
    fabric: pd.DataFrame

    @property
    def start(self) -> float:
        """Unix seconds: the beginning of the first interval."""
        return float((self.gpu["ts"] - self.gpu["interval_seconds"]).min())

    @property
    def end(self) -> float:
        return float(self.gpu["ts"].max())

    @property
    def gpus(self) -> int:
        return int(self.gpu["gpu_uuid"].nunique())


def read_labels(folder: Path) -> list[Label]:
    """The labels of a folder; columns that nothing is known of are left alone. Raises UsageError."""
    if not (folder / LABELS).is_file():
        raise UsageError(f"No {LABELS} in {folder}.", "See docs/method.md for the expected files.")
    table = _read(folder / LABELS, {"file", "kind"}).fillna("")
    series = folder / "series" if (folder / "series").is_dir() else folder
    return [_label(series, f"{LABELS}:{n}", dict(row)) for n, (_, row) in enumerate(table.iterrows(), 2)]


def _label(folder: Path, where: str, row: Mapping[str, str]) -> Label:
    def choices(name: str, allowed: Sequence[str], value: str) -> tuple[str, ...]:
        for said in (kinds := tuple(part.strip() for part in value.split("|"))):
            if said not in allowed or said == "unknown":
                raise UsageError(f"{where}: {name} is {said[:40]!r}.", f"Choose one of {', '.join(allowed)}.")
        return kinds

    file = folder / row["file"]
    # A series lies in the folder itself: what leads out of it is refused.
    if not file.name.removesuffix(".gz").endswith(".csv") or file.resolve().parent != folder.resolve():
        raise UsageError(f"{where}: {row['file']!r} is no CSV file of this folder.", "Name one, without a path.")
    bottleneck, source = row.get("bottleneck", ""), row.get("source", "")
    return Label(
        where=where,
        file=file,
        kind=choices("kind", KINDS, row["kind"])[0],
        kinds=choices("kind_accept", KINDS, row.get("kind_accept") or row["kind"]),
        bottleneck=choices("bottleneck", BOTTLENECKS, bottleneck)[0] if bottleneck else None,
        bottlenecks=choices("bottleneck_accept", BOTTLENECKS, row.get("bottleneck_accept") or bottleneck)
        if bottleneck
        else (),
        owner=row.get("group") or source.partition(" ")[0] or file.name,
        gpu=row.get("gpu") or None,
        start=parse_moment(row["start"]) if row.get("start") else None,
        end=parse_moment(row["end"]) if row.get("end") else None,
        source=source,
        licence=row.get("licence", ""),
        work=row.get("workload", ""),
        is_steady=row.get("steady", "yes") != "no",
    )


def read_series(label: Label) -> LabelledSeries:
    """The rows of a label. Raises UsageError with file and line."""
    name = label.file.name
    gpu = _read(label.file, {"ts"})
    if gpu.empty:
        raise UsageError(f"No rows in {name}.", "Add rows, or remove its label.")
    gpu = _numbers(gpu, name, ("ts", "interval_seconds", "gpu_index", *GPU_VALUES, *FACTS))
    index = gpu.get("gpu_index", pd.Series(np.nan, gpu.index))
    uuid = gpu["gpu_uuid"] if "gpu_uuid" in gpu else index.map(lambda at: f"{at:.0f}", na_action="ignore")
    _refuse(name, uuid.isna(), "neither gpu_uuid nor gpu_index is set", "Set one of them in every row.")
    gpu["gpu_uuid"] = "GPU-" + label.digest + "-" + uuid.astype(str).str.removeprefix("GPU-")
    nodes = gpu["node"] if "node" in gpu else pd.Series("0", gpu.index)
    gpu["node"] = f"node-{label.digest}-" + nodes.astype(str)
    if "gpu_index" not in gpu:  # by the order in which a node's GPUs first occur
        gpu["gpu_index"] = gpu.groupby("node")["gpu_uuid"].transform(lambda uuids: pd.factorize(uuids)[0])
    fabric = _read_fabric(label, gpu["node"].iloc[0])
    rises = gpu.groupby(["node", "gpu_uuid"])["ts"].diff().fillna(1.0) > 0
    _refuse(name, ~rises, "ts of a GPU does not increase", "Sort the rows by time.")
    gpu, fabric = _with_intervals(gpu), _with_intervals(fabric)
    first, last = label.start or -np.inf, label.end or np.inf
    gpu = gpu[(gpu["ts"] > first) & (gpu["ts"] <= last)]
    if gpu.empty:
        raise UsageError(f"{label.where}: no data in {name} for that time span.", "Correct start and end.")
    return LabelledSeries(label, gpu, fabric[(fabric["ts"] > first) & (fabric["ts"] <= last)])


def _read_fabric(label: Label, node: str) -> pd.DataFrame:
    """The ports of a node, of the file `NAME.fabric.csv` beside its series."""
    path = label.file.with_name(label.file.name.removesuffix(".gz").removesuffix(".csv") + ".fabric.csv")
    if not path.is_file():
        return NO_FABRIC
    return _numbers(_read(path, {"ts", "device"}), path.name, ("ts", *FABRIC_VALUES, LINE_RATE)).assign(node=node)


def _read(path: Path, required: set[str]) -> pd.DataFrame:
    """A CSV file as text. Empty cells are NaN."""
    try:
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False, na_values=[""])
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError, EOFError, OSError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}.", "Use CSV in UTF-8, packed by gzip or not.") from error
    table = table if path.name == LABELS else table.rename(columns=_OTHER_NAMES)
    if missing := sorted(required - set(table.columns)):
        raise UsageError(f"{path.name}:1: column {missing[0]!r} is missing.", "Correct the header.")
    return table


def _numbers(table: pd.DataFrame, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """The table with these columns as numbers, those of them that it has, each within what its unit allows."""
    limits = {"ts": (1e9, 4e9), "interval_seconds": (0.0, 86400.0), "gpu_index": (0.0, 4094.0)}
    out = table.copy()
    for column in columns:
        if column not in table:
            continue
        unit = _UNITS.get(column, "")
        low, high = limits.get(column) or (-100.0 if unit == "celsius" else 0.0, _MOST[unit])
        values = pd.to_numeric(table[column], errors="coerce")
        wrong = (table[column].notna() | (column == "ts")) & ~values.between(low, high)
        for cell in table[column][wrong].head(1):
            what = f"{column} is {str(cell)[:40]!r}, not a number from {low:g} to {high:g}"
            hint = "Use the units of docs/metrics.md (ratios 0..1, bytes, seconds); leave a missing value empty."
            _refuse(name, wrong, what, hint)
        out[column] = values
    return out


def _refuse(name: str, wrong: pd.Series, what: str, remedy: str) -> None:
    if wrong.any():
        raise UsageError(f"{name}:{int(np.flatnonzero(wrong.to_numpy())[0]) + 2}: {what}.", remedy)


def _with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """With `interval_seconds` in every row: as reported, else the step of its node's clock. A step much longer than the
    rest is a gap in the series, not a long interval."""
    if table.empty:
        return table
    intervals = table.get("interval_seconds", pd.Series(np.nan, table.index))
    parts = []
    for _, rows in table.groupby("node"):
        times = np.unique(rows["ts"])
        steps = np.diff(times, prepend=np.nan)
        usual = np.nanmedian(steps) if len(times) > 1 else np.nan
        steps[~(steps <= 3 * usual)] = usual
        parts.append(pd.Series(steps[np.searchsorted(times, rows["ts"])], rows.index))
    interval = intervals.fillna(pd.concat(parts))
    if interval.isna().any():
        raise UsageError("A series of one row does not tell its interval.", "Add the column interval_seconds.")
    return table.assign(interval_seconds=interval)
