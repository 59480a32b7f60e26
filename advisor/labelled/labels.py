"""``labels.csv``: what each labelled series or workload of a folder was, checked to the last cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ...rules.policy.labels import BottleneckLabel, KindLabel
from ..core.timestamps import parse_moment
from .csv_rows import PACKED, Row, rows_of

Part = Literal["fit", "judge"]

LABELS = "labels.csv"
_ABSTAINED = "unknown"
_PARTS = get_args(Part)
_COLUMNS = frozenset({"workload", "file", "kind", "bottleneck", "start", "end", "gpu", "source", "part", "group"})
_KINDS = tuple(name for name in get_args(KindLabel) if name != _ABSTAINED)
_BOTTLENECKS = tuple(name for name in get_args(BottleneckLabel) if name != _ABSTAINED)


@dataclass(frozen=True, slots=True)
class Label:
    """One line of labels.csv. One of `workload` (id or name in the node databases) and `file` (a series) is given.

    `start`, `end`: Unix seconds, None: from the first, to the last. `bottleneck` None: not scored. `gpu`: the GPU of a
    series, as the driver or the catalog calls it. `where`: file and line, for errors. `part`: whether something may be
    fitted on it or it is for judging alone; None: nothing was said. `group`: labels of one are left out together;
    empty: it is one with those of its file or its workload alone.
    """

    where: str
    workload: str | None
    file: Path | None
    kind: str
    bottleneck: str | None
    start: float | None
    end: float | None
    gpu: str | None
    source: str
    part: Part | None
    group: str


def read_labels(folder: Path) -> tuple[Label, ...]:
    """The labels of a folder, checked to the last cell. Raises UsageError; none where there is no labels.csv."""
    path = folder / LABELS
    if not path.exists():
        return ()
    labels = []
    spans: dict[Path, list[tuple[float, float]]] = {}
    for row in rows_of(path, _COLUMNS, frozenset({"kind"})):
        label = _label(folder, row)
        if label.file is not None:
            begin, stop = label.start or 0.0, label.end or float("inf")
            if any(begin < later and earlier < stop for earlier, later in spans.get(label.file, [])):
                raise row.error(
                    f"another label of {label.file.name} covers the same time",
                    "Change the labels so that they do not overlap.",
                )
            spans.setdefault(label.file, []).append((begin, stop))
        labels.append(label)
    return tuple(labels)


def _label(folder: Path, row: Row) -> Label:
    workload, name = row.text("workload"), row.text("file")
    if bool(workload) == bool(name):
        raise row.error("a label needs either a workload or a file", "Set one of the two.")
    bottleneck = row.text("bottleneck")
    start, end = _moment(row, "start"), _moment(row, "end")
    if start is not None and end is not None and end <= start:
        raise row.error("end is not after start", "Set start and end of the time span.")
    return Label(
        where=f"{LABELS}:{row.line}",
        workload=workload or None,
        file=_file(folder, row, name) if name else None,
        kind=row.choice("kind", _KINDS, ""),
        bottleneck=row.choice("bottleneck", _BOTTLENECKS, bottleneck) if bottleneck else None,
        start=start,
        end=end,
        gpu=row.text("gpu") or None,
        source=row.text("source"),
        part=row.choice("part", _PARTS, "fit") if row.text("part") else None,  # type: ignore[arg-type]
        group=row.text("group"),
    )


def _moment(row: Row, name: str) -> float | None:
    told = row.text(name)
    if not told:
        return None
    try:
        return parse_moment(told)
    except UsageError as error:
        raise row.error(f"invalid {name}: {clean(told)[:40]!r} is not a time", error.remedy) from error


def _file(folder: Path, row: Row, name: str) -> Path:
    """A series in the folder itself: what leads out of it is refused."""
    path = folder / name
    series = name.endswith((".csv", f".csv{PACKED}")) and name.removesuffix(PACKED) != LABELS
    plain = Path(name).name == name and series and "\0" not in name
    if not plain or not path.is_file() or path.resolve().parent != folder.resolve():
        raise row.error(
            f"invalid file {clean(name)[:80]!r}: expected a CSV file in this folder",
            "Use the name of a file in this folder, without a path.",
        )
    return path
