"""From uses to sessions: which workload held which GPUs when, and which rows of telemetry are whose.

A session is one workload on all its GPUs and nodes. Restarts of a series stay sessions; `chain_hours` joins those that
follow one another. Where two workloads hold a GPU at once, its figures count as shared; its hours are split by their
shares of its use, else in equal parts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame, Window
from ...core.scalars import records, text
from ...core.segments import Floats, Ints, Mask
from ...core.verdict_types import Scheduled
from .session import Session, chain_hours, series_runs

# Two workloads on a GPU for less than this are one after the other: the second's start and the first's end blur.
HANDOVER_SECONDS = 120.0
_NOBODY, _SHARED, _DRAINED = -1, -2, -3


@dataclass(frozen=True)
class Attribution:
    """Whose each moment of each GPU was. `workload_rows`: ``row`` (position in the frame's `gpu`), ``workload_id,
    seconds`` (observed), ``whole`` (the row lies within the use), ``shared`` and ``share`` (of the GPU's time in the
    use, 1 for the only holder); a row of a shared GPU is there once a workload. `places`: each observed moment once:
    ``row, workload_id`` (None: free or shared), ``shared, drained`` (the node was out of service and without work),
    ``seconds``."""

    sessions: tuple[Session, ...]
    workload_rows: pd.DataFrame
    places: pd.DataFrame


class _Spans(NamedTuple):
    """Spans of one GPU and their holders: parallel arrays. `code`: a workload's position, free, or shared."""

    start: Floats
    end: Floats
    code: Ints


def attribute(frame: Frame) -> Attribution:
    uses, window = frame.uses, frame.window
    uses = uses[uses["ts_end"] > uses["ts_start"]]
    ids = sorted(uses["workload_id"].unique())
    begin, stop, observed = _row_bounds(frame)
    used = _uses_by_gpu(uses, ids, window)
    rows_of: dict[object, Ints] = dict(frame.gpu_keys.rows())
    floats, ints, flags = np.empty(0), np.empty(0, dtype=np.intp), np.empty(0, dtype=np.bool_)  # of nothing
    nothing = _Spans(floats, floats, ints), floats, ()
    workload_rows = [(ints, ints, floats, flags, flags, floats)]
    places = [(ints, ints, floats)]
    held, shared_ids = dict.fromkeys(ids, 0.0), set[str]()
    drained = drained_spans(frame)
    for key in dict.fromkeys([*rows_of, *used]):
        spans, share, marked = used.get(key, nothing)
        sweep, parts = _sweep(spans, share, marked, window)
        above = frame.parents.get(key)  # type: ignore[call-overload]
        if above in used:
            # The holder of the whole GPU holds its instances.
            whole = used[above][0]
            for n in np.unique(whole.code):
                at = whole.code == n
                sweep = _over_nobody(sweep, list(zip(whole.start[at], whole.end[at], strict=True)), int(n))
        if key in rows_of:
            sweep = _over_nobody(sweep, drained.get(key[0], ()), _DRAINED)  # type: ignore[index]
        for n in set(spans.code.tolist()):
            held[ids[n]] += float((spans.end - spans.start)[spans.code == n].sum())
        rows = rows_of.get(key, ints)
        bounds = begin[rows], stop[rows], observed[rows]
        of_both = (np.concatenate((spans.start, sweep.start)), np.concatenate((spans.end, sweep.end)))
        row, span, seconds, inside = overlaps(*bounds, *of_both)
        row, count = rows[row], np.searchsorted(span, len(spans.start))
        a, b = sweep.start[sweep.code == _SHARED], sweep.end[sweep.code == _SHARED]
        on_shared = np.searchsorted(b, spans.start, side="right") < np.searchsorted(a, spans.end, side="left")
        shared_ids |= {ids[n] for n in spans.code[on_shared].tolist()}
        places.append((row[count:], sweep.code[span[count:] - len(spans.start)], seconds[count:]))
        span, of_it = span[:count], (seconds[:count], inside[:count])
        workload_rows.append((row[:count], spans.code[span], *of_it, on_shared[span], parts[span]))
    return Attribution(
        _sessions(frame, uses, held, shared_ids),
        _table(workload_rows, ("row", "workload_id", "seconds", "whole", "shared", "share"), ids),
        _table(places, ("row", "workload_id", "seconds"), ids),
    )


def _table(parts: Sequence[tuple[npt.NDArray, ...]], names: Sequence[str], ids: Sequence[str]) -> pd.DataFrame:
    """The parts under one another, with ids for codes of workloads (None for free). The codes of moments that are no
    workload's stay as ``shared`` and ``drained``, unless the parts have the former."""
    columns = {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
    code = columns["workload_id"]
    workload = np.array([*ids, None], dtype=object)[np.where(code >= 0, code, len(ids))]
    state = {"shared": code == _SHARED, "drained": code == _DRAINED} if "shared" not in columns else {}
    return pd.DataFrame({**columns, "workload_id": pd.Series(workload, dtype=object), **state})


def overlaps(
    begin: Floats, stop: Floats, observed: Floats, span_start: Floats, span_end: Floats
) -> tuple[Ints, Ints, Floats, Mask]:
    """Pairs of rows (begin, stop] and spans that overlap: row, span, observed seconds in common, row wholly inside.
    Rows are sorted and do not overlap one another; spans may be anything. Linear in rows, spans and pairs."""
    low = np.searchsorted(stop, span_start, side="right")
    counts = np.maximum(np.searchsorted(begin, span_end, side="left") - low, 0)
    span = np.repeat(np.arange(len(span_start)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    row = (np.repeat(low, counts) + offset).astype(np.intp)
    length = np.maximum(stop[row] - begin[row], 1e-9)
    common = np.minimum(stop[row], span_end[span]) - np.maximum(begin[row], span_start[span])
    share = np.clip(common / length, 0.0, 1.0)
    return row, span, share * observed[row], share >= 0.98


def _row_bounds(frame: Frame) -> tuple[Floats, Floats, Floats]:
    """Begin, end and observed seconds of every row; the first and last of a node begin and end with the node."""
    gpu = frame.gpu
    first, last = (
        gpu["node"].map(dict(zip(frame.nodes["node"], frame.nodes[name], strict=True))).to_numpy(float)
        for name in ("first_seen", "last_seen")
    )
    ts, length, observed = (gpu[name].to_numpy(float) for name in ("ts", "interval_seconds", "observed_seconds"))
    begin = np.where((first > ts - length) & (first < ts), first, ts - length)
    stop = np.where((last < ts) & (last > begin), last, ts)
    # A clock that is off must not make a row that was observed vanish.
    short = stop - begin < 0.5 * observed
    begin, stop = np.where(short, ts - length, begin), np.where(short, ts, stop)
    return begin, stop, np.minimum(np.nan_to_num(observed), stop - begin)


def _uses_by_gpu(
    uses: pd.DataFrame, ids: Sequence[str], window: Window
) -> dict[object, tuple[_Spans, Floats, Sequence[tuple[float, float]]]]:
    """Of each GPU the workloads' spans, cut to the window and joined where they touch; their shares of what holders use
    of the GPU (NaN: unknown); starts and ends of the uses that were reported as shared."""
    start, end = uses["ts_start"].to_numpy(float), uses["ts_end"].to_numpy(float)
    code = uses["workload_id"].map({workload_id: n for n, workload_id in enumerate(ids)}).to_numpy(int)
    shared = (uses["shared"] == 1).to_numpy(np.bool_)
    share = uses["share"].to_numpy(float) if "share" in uses else np.full(len(uses), np.nan)
    out = {}
    for key, places in uses.groupby(["node", "gpu_uuid"], sort=False).indices.items():
        at = np.asarray(places, dtype=np.intp)
        begin, stop = (np.clip(times[at], window.start, window.end) for times in (start, end))
        # Of uses one after another the mean share by time, of uses at once (pods of one workload) the sum.
        rows = zip(code[at].tolist(), begin.tolist(), stop.tolist(), (share[at] * (stop - begin)).tolist(), strict=True)
        marked = at[shared[at]]
        out[key] = *_joined(list(rows)), list(zip(start[marked], end[marked], strict=True))
    return out


def _joined(uses: Sequence[tuple[int, float, float, float]]) -> tuple[_Spans, Floats]:
    rank = {code: n for n, code in enumerate(dict.fromkeys(code for code, *_ in uses))}
    spans: list[list[float]] = []
    for code, start, end, used in sorted(uses, key=lambda use: (rank[use[0]], use[1])):
        if spans and spans[-1][0] == code and start <= spans[-1][2]:
            spans[-1][2:] = max(spans[-1][2], end), spans[-1][3] + used
        else:
            spans.append([code, start, end, used])
    code, start, end, used = np.array([span for span in spans if span[2] > span[1]]).reshape(-1, 4).T
    return _Spans(start, end, code.astype(np.intp)), used / (end - start)


def _sweep(
    spans: _Spans, share: Floats, marked: Sequence[tuple[float, float]], window: Window
) -> tuple[_Spans, Floats]:
    """The window cut into spans with no workload, one workload, or several (or one that is marked as shared); and of
    each of the workloads' spans its part of the GPU's time: where several hold it at once, by their shares of its use,
    in equal parts where one's is unknown or none uses any."""
    marks = np.unique(np.concatenate((spans.start, spans.end, [window.start, window.end])))
    low, high = np.searchsorted(marks, spans.start), np.searchsorted(marks, spans.end)

    def held(weights: npt.NDArray) -> Floats:
        changes = np.bincount(low, weights, len(marks)) - np.bincount(high, weights, len(marks))
        return np.cumsum(changes.astype(float))[:-1]

    holders, codes = (held(counts).round().astype(np.intp) for counts in (np.ones(len(low)), spans.code))
    start, end, seconds = marks[:-1], marks[1:], np.diff(marks)
    code = np.where(holders == 0, _NOBODY, np.where(holders == 1, codes, _SHARED))
    # A handover: the moment goes to the one that began last, which is the larger code only by chance; either will
    # do for two minutes, so it stays with the span before it.
    brief = seconds <= HANDOVER_SECONDS
    for n in np.nonzero((holders > 1) & brief)[0]:
        code[n] = code[n - 1] if n else _NOBODY
    for a, b in marked:
        code[(start >= a) & (end <= b) & (code != _NOBODY)] = _SHARED
    if not (holders > 1).any():  # as nearly all GPUs are
        passed = np.concatenate(([0.0], np.cumsum(seconds)))
        return _Spans(start, end, code), (passed[high] - passed[low]) / (spans.end - spans.start)
    used, unknown = held(np.nan_to_num(share)), held(np.isnan(share).astype(float))
    by_use = ~brief & (holders > 1) & (unknown < 0.5) & (used > 1e-9)
    equal = np.where(by_use, 0.0, seconds / np.where(brief, 1, np.maximum(holders, 1)))
    passed = np.concatenate(([0.0], np.cumsum(equal)))
    passed_by_use = np.concatenate(([0.0], np.cumsum(np.where(by_use, seconds / np.where(by_use, used, 1.0), 0.0))))
    parts = passed[high] - passed[low] + np.nan_to_num(share) * (passed_by_use[high] - passed_by_use[low])
    return _Spans(start, end, code), parts / (spans.end - spans.start)


def drained_spans(frame: Frame) -> dict[str, list[tuple[float, float]]]:
    """Per node, when it was out of service: the absences ``drained``, cut to the window; one that never ended lasts to
    the end of the node's records."""
    last = dict(zip(frame.nodes["node"].astype(str), frame.nodes["last_seen"].astype(float), strict=True))
    drained: dict[str, list[tuple[float, float]]] = {}
    for row in records(frame.absences[frame.absences["reason"] == "drained"]):
        node, until = str(row["node"]), float(row["until"])
        start = max(float(row["since"]), frame.window.start)
        end = min(last.get(node, frame.window.end) if math.isnan(until) else until, frame.window.end)
        if end > start:
            drained.setdefault(node, []).append((start, end))
    return drained


def _over_nobody(sweep: _Spans, spans: Sequence[tuple[float, float]], code_there: int) -> _Spans:
    """The sweep with free moments in these spans given a code; held moments stay."""
    if not len(spans):
        return sweep
    marks = np.unique(np.concatenate((sweep.start, sweep.end, np.array(spans).ravel())))
    marks = marks[(marks >= sweep.start[0]) & (marks <= sweep.end[-1])]
    start, end = marks[:-1], marks[1:]
    code = sweep.code[np.searchsorted(sweep.end, start, side="right")]
    for a, b in spans:
        code[(start >= a) & (end <= b) & (code == _NOBODY)] = code_there
    return _Spans(start, end, code)


def _sessions(frame: Frame, uses: pd.DataFrame, held: Mapping[str, float], shared_ids: set[str]) -> tuple[Session, ...]:
    about_of = {str(row["workload_id"]): row for row in records(frame.workloads)}
    chains, runs = chain_hours(frame.workloads), series_runs(frame.workloads)
    sessions = []
    node, uuid, basis = (uses[name].to_numpy(object) for name in ("node", "gpu_uuid", "basis"))
    start, end = uses["ts_start"].to_numpy(float), uses["ts_end"].to_numpy(float)
    for key, at in sorted((str(key), at) for key, at in uses.groupby("workload_id", sort=False).indices.items()):
        if held.get(key, 0.0) <= 0:
            continue
        about = about_of.get(key, {})
        gpus = tuple(sorted(set(zip(node[at], uuid[at], strict=True))))
        bases = set(basis[at])
        first, last = float(start[at].min()), float(end[at].max())
        restarts = about.get("restarts")
        count, length, spread = runs.get(key, (1, (last - first) / 3600, math.nan))
        sessions.append(Session(
            workload_id=key, series_id=text(about.get("series_id")) or key, name=text(about.get("name")) or key,
            scheduler=text(about.get("scheduler")) or "process", gpus=gpus, nodes=tuple(sorted({n for n, _ in gpus})),
            start=max(first, frame.window.start), end=min(last, frame.window.end),
            first_seen=min(first, float(about.get("first_seen", first))),
            last_seen=max(last, float(about.get("last_seen", last))),
            basis=next((b for b in ("allocation", "process", "activity") if b in bases), "process"),
            shared=key in shared_ids, held_seconds=held[key], chain_hours=chains.get(key, (last - first) / 3600),
            series_runs=count, series_run_hours=length, series_start_spread_hours=spread,
            scheduled=Scheduled(
                name=text(about.get("scheduler")) or "process",
                restarts=int(restarts) if isinstance(restarts, float) and restarts >= 0 else None,
                **{name: text(about.get(name)) for name in _SCHEDULED},
            ),
            **{name: text(about.get(name)) for name in _ABOUT},
        ))  # fmt: skip
    return tuple(sessions)


_ABOUT = ("namespace", "pod", "user", "account", "framework", "command", "team")
_SCHEDULED = (
    "job_id", "array_job_id", "array_task_id", "partition", "qos", "state", "controller_kind", "image", "container",
)  # fmt: skip
