"""Several files that tell of one node: whether they agree, and whose rows of each hour are taken.

Files of one node are a live database and its snapshots, or one that was set aside and the one that followed it. A
snapshot holds what the live file held then: its rows are the same, or cover a part of theirs. So of two rows about the
same moment the one that observed more must contain the other: as much of every measure, and at most as much more as
fits into the rest of the time. Where it does not, one of the files is wrong, and nothing here says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.histogram_array import BinsArray

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

HOUR = 3600.0
# Files that follow one another: the last commit of one and the first tick of the next lie about so far apart.
FOLLOWS_SECONDS = 120.0
_BLUR_SHARE = 0.25
# Two rows observed the same where their seconds differ by no more: sums are kept in steps of 0.1 s.
_SAME_SECONDS = 2.0
# What two ways of summing one hour may differ by: samples, minutes and hours are rounded to steps of their own.
_RELATIVE = 0.02
_STEPS = (
    ("_watts", 3.0), ("_hertz", 2e7), ("mem_used_bytes", 64.0 * 2**20), ("_bytes_per_second", 1e6),
    ("xmit_wait_per_second", 1e3),
)  # fmt: skip
_RATIO_STEP = 0.005
# A percentile of a part of an hour is not one of the hour; of the same samples it is the same but for its rounding.
_SHAPES = ("_p95", "_max")
_SHAPE_RELATIVE = 0.05
_BINS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CopyFamily:
    """Rows of one kind. `keys`: what names a device; `facts`: what each row says of the device itself."""

    keys: tuple[str, ...]
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """What one file holds of one node. `begin`, `end`: of its telemetry, Unix seconds."""

    file: int
    node: str
    begin: float
    end: float


def eras(copies: Iterable[Copy]) -> dict[tuple[int, str], int]:
    """(file, node) -> number of its era. Copies whose times overlap are of one era: they tell of the same moments."""
    found: dict[tuple[int, str], int] = {}
    by_node: dict[str, list[Copy]] = {}
    for copy in copies:
        by_node.setdefault(copy.node, []).append(copy)
    for own in by_node.values():
        number, since, reach = 0, -np.inf, -np.inf
        for copy in sorted(own, key=lambda one: (one.begin, one.end)):
            # What lasts no longer than the blur is no file that follows.
            blur = min(FOLLOWS_SECONDS, _BLUR_SHARE * (copy.end - copy.begin), _BLUR_SHARE * (reach - since))
            if not number or copy.begin >= reach - blur:
                number, since = number + 1, copy.begin
            reach = max(reach, copy.end)
            found[copy.file, copy.node] = number
    return found


def differing(rows: pd.DataFrame, family: CopyFamily) -> set[tuple[str, int, int]]:
    """Node and the two files of rows that contradict one another. `rows`: with the columns ``file`` and ``era``."""
    if rows.empty:
        return set()
    return _of_moments(rows, family) | _of_hours(rows, family)


def fullest(rows: pd.DataFrame, family: CopyFamily, rank: Mapping[int, int]) -> Mask:
    """Which rows are taken: of each device and hour those of one file a era, of the one that observed most; where they
    observed the same, of the one with the highest `rank`. Rows of one file stay together: hours and minutes that tell
    the same hour are never mixed."""
    hour = np.ceil(rows["ts"].to_numpy(float) / HOUR)
    table = rows[[*family.keys, "era", "file"]].assign(hour=hour, seconds=_seconds(rows))
    at = [*family.keys, "era", "hour"]
    sums = table.groupby([*at, "file"], sort=False)["seconds"].sum().reset_index()
    # The hundredths of a second that a copy may have more are no reason to prefer it.
    sums["told"] = np.floor(sums["seconds"] / _SAME_SECONDS + 0.5)
    sums["rank"] = sums["file"].map(rank)
    best = sums.sort_values(["told", "rank"], kind="stable").drop_duplicates(at, keep="last")[[*at, "file"]]
    chosen = pd.MultiIndex.from_frame(best)
    return np.asarray(pd.MultiIndex.from_frame(table[[*at, "file"]]).isin(chosen), dtype=np.bool_)


def _seconds(rows: pd.DataFrame) -> Floats:
    return np.minimum(rows["observed_seconds"].to_numpy(float), rows["interval_seconds"].to_numpy(float))


def _of_moments(rows: pd.DataFrame, family: CopyFamily) -> set[tuple[str, int, int]]:
    """Rows of the same device, moment and length."""
    at = [*family.keys, "era", "ts", "interval_seconds"]
    alone = rows[~rows.duplicated([*at, "file"], keep=False)]
    alone = alone[alone.duplicated(at, keep=False)]
    if alone.empty:
        return set()
    alone = alone.assign(seconds=_seconds(alone)).sort_values([*at, "seconds"], kind="stable")
    names = pd.MultiIndex.from_frame(alone[at])
    code = pd.factorize(names)[0]
    less = np.nonzero(code[1:] == code[:-1])[0]
    more = less + 1
    seconds = alone["seconds"].to_numpy(float)
    same = seconds[more] - seconds[less] <= _SAME_SECONDS
    wrong = np.zeros(len(less), dtype=np.bool_)
    for name in alone.columns:
        if name in at or name in ("file", "seconds", "observed_seconds"):
            continue
        column = alone[name]
        if isinstance(column.array, BinsArray):
            wrong |= _bins_differ(column.array.matrix[less], column.array.matrix[more], same)
        elif name in family.facts:
            cells = column.to_numpy()
            wrong |= same & np.array([_unlike(a, b) for a, b in zip(cells[less], cells[more], strict=True)], dtype=bool)
        elif name.endswith(("_mean", *_SHAPES)):
            wrong |= _differ(name, column.to_numpy(float), less, more, same)
    return _pairs(alone, less[wrong], more[wrong])


def _differ(name: str, values: Floats, less: npt.NDArray[np.intp], more: npt.NDArray[np.intp], same: Mask) -> Mask:
    a, b = values[less], values[more]
    with np.errstate(invalid="ignore"):
        if name.endswith("_mean"):
            # Whether a measure is known is the same in copies.
            return same & ((np.abs(a - b) > _tolerance(name, np.fmax(a, b))) | (np.isnan(a) != np.isnan(b)))
        slack = _step(name) * 4 + _SHAPE_RELATIVE * np.fmax(np.abs(a), np.abs(b))
        if name.endswith("_max"):
            return (a > b + slack) | (same & (np.abs(a - b) > slack))
        return same & (np.abs(a - b) > slack)


def _bins_differ(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], same: Mask) -> Mask:
    """Seconds in bins only grow."""
    known = ~np.isnan(a[:, 0]) & ~np.isnan(b[:, 0])
    short = np.clip(a - b, 0.0, None).sum(axis=1)
    beyond = np.clip(b - a, 0.0, None).sum(axis=1)
    return known & ((short > _BINS_SECONDS) | (same & (beyond > _BINS_SECONDS)))


def _of_hours(rows: pd.DataFrame, family: CopyFamily) -> set[tuple[str, int, int]]:
    """What the rows of each hour sum up to, however long they are: seconds of every measure."""
    measures = [name for name in rows.columns if name.endswith("_mean")]
    at = [*family.keys, "era", "hour"]
    seconds = _seconds(rows)
    table = rows[[*family.keys, "era", "file"]].assign(hour=np.ceil(rows["ts"].to_numpy(float) / HOUR), seconds=seconds)
    parts: dict[str, Floats] = {}
    for name in measures:
        values = rows[name].to_numpy(float)
        parts[f"{name} total"] = np.nan_to_num(values) * seconds
        parts[f"{name} known"] = np.where(np.isnan(values), 0.0, seconds)
        most = name.removesuffix("_mean") + "_max"
        top = rows[most].to_numpy(float) if most in rows else np.full(len(rows), np.inf)
        parts[f"{name} top"] = np.where(np.isnan(top), np.inf, top)
    table = pd.concat([table.reset_index(drop=True), pd.DataFrame(parts)], axis=1)
    how = {name: "max" if name.endswith(" top") else "sum" for name in ("seconds", *parts)}
    every = table.groupby([*at, "file"], sort=False).agg(how).reset_index()
    devices = _devices_differ(every)
    sums = every[every.duplicated(at, keep=False)]
    if sums.empty:
        return devices
    sums = sums.sort_values([*at, "seconds"], kind="stable")
    code = pd.factorize(pd.MultiIndex.from_frame(sums[at]))[0]
    less = np.nonzero(code[1:] == code[:-1])[0]
    more = less + 1
    told = sums["seconds"].to_numpy(float)
    wrong = np.zeros(len(less), dtype=np.bool_)
    for name in measures:
        total, known, top = (sums[f"{name} {what}"].to_numpy(float) for what in ("total", "known", "top"))
        wholly = (known[less] >= 0.95 * told[less]) & (known[more] >= 0.95 * told[more]) & (known[less] > 0)
        rest = known[more] - known[less]
        gained = total[more] - total[less]
        mean = total[more] / np.maximum(known[more], 1.0)
        slack = known[more] * _tolerance(name, np.maximum(mean, total[less] / np.maximum(known[less], 1.0)))
        # What the smaller one has more by rounding, and what fits into the rest of the time at the highest value.
        room = np.maximum(rest, _SAME_SECONDS) * top[more]
        wrong |= wholly & ((gained < -slack - _SAME_SECONDS * np.abs(mean)) | (gained > room + slack))
    return _pairs(sums, less[wrong], more[wrong]) | devices


def _devices_differ(sums: pd.DataFrame) -> set[tuple[str, int, int]]:
    """Files that tell of an hour of a node, and of other devices in it: the one that observed less knows no more."""
    at = ["node", "era", "hour"]
    told = sums.groupby([*at, "file"], sort=False).agg(longest=("seconds", "max"), count=("seconds", "size"))
    told = told.reset_index().sort_values([*at, "longest", "count"], kind="stable")
    code = pd.factorize(pd.MultiIndex.from_frame(told[at]))[0]
    less = np.nonzero(code[1:] == code[:-1])[0]
    more = less + 1
    count, longest = told["count"].to_numpy(), told["longest"].to_numpy(float)
    same = longest[more] - longest[less] <= _SAME_SECONDS
    wrong = (count[less] > count[more]) | (same & (count[less] != count[more]))
    return _pairs(told, less[wrong], more[wrong])


def _pairs(table: pd.DataFrame, less: npt.NDArray[np.intp], more: npt.NDArray[np.intp]) -> set[tuple[str, int, int]]:
    """Node and files of pairs of rows, the lower number first."""
    node, file = table["node"].to_numpy(), table["file"].to_numpy()
    return {
        (str(node[a]), int(min(file[a], file[b])), int(max(file[a], file[b])))
        for a, b in zip(less, more, strict=True) if file[a] != file[b]
    }  # fmt: skip


def _step(name: str) -> float:
    return next((step for part, step in _STEPS if part in name), _RATIO_STEP)


def _tolerance(name: str, values: Floats) -> Floats:
    return _step(name) + _RELATIVE * np.abs(values)


def _unlike(one: object, other: object) -> bool:
    """Whether two files say something else of one thing; what one does not say contradicts nothing."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one != other
    if one is None or other is None:
        return False
    a, b = float(one), float(other)  # type: ignore[arg-type] - numbers, where they are no texts
    return bool(abs(a - b) > 0.01 * max(abs(a), abs(b)))


def unlike_facts(one: Mapping[str, object], other: Mapping[str, object], names: Sequence[str]) -> tuple[str, ...]:
    """Of these facts those that two files tell differently."""
    return tuple(name for name in names if _unlike(one.get(name), other.get(name)))
