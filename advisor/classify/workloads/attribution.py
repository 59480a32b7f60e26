"""From uses to sessions: which workload held which GPUs when, and which rows of telemetry are whose.

A session is one workload on all its GPUs and nodes (a multi-node job is one). Restarts of the same series stay
sessions of their own; `chain_hours` joins those that follow one another: a job that is requeued is still the same job.
Where two workloads hold a GPU at the same time, its figures belong to neither and are counted as shared; its hours are
split between them by their shares of its use where those are known, else in equal parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame, Window
from ...core.records import records, text
from ...core.verdict_types import Scheduled
from .series_runs import SeriesRuns, chain_hours, series_runs
from .session import Session

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

# Two workloads on a GPU for less than this are one after the other: the second's start and the first's end blur.
HANDOVER_SECONDS = 120.0
_NOBODY, _SHARED, _DRAINED = -1, -2, -3


@dataclass(frozen=True)
class Attribution:
    """Whose each moment of each GPU was.

    `workload_rows`: columns ``row`` (position in the frame's `gpu`), ``workload_id, seconds`` (observed), ``whole``
    (the row lies within the use, so its shape is the workload's), ``shared`` and ``share`` (of the GPU's time in the
    use, 1 where nobody else held it). A row of a shared GPU stands once a workload.
    `places`: each observed moment once: ``row, workload_id`` (None: nobody or shared), ``shared, drained`` (the node
    was out of service and nobody worked on it), ``seconds``.
    """

    sessions: tuple[Session, ...]
    workload_rows: pd.DataFrame
    places: pd.DataFrame


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans of one GPU and whose they are: parallel arrays; `code` is a workload's position, or nobody, or shared;
    `share`: of workloads' spans, as in `_Uses`."""

    start: Floats
    end: Floats
    code: Ints
    share: Floats | None = None


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses of one GPU, uncut, in parallel arrays; `code` is a workload's position, `shared` as it was reported;
    `share`: of what its holders use of the GPU, NaN: unknown."""

    start: Floats
    end: Floats
    code: Ints
    shared: npt.NDArray[np.bool_]
    share: Floats


def attribute(frame: Frame) -> Attribution:
    """Sessions of the window and the rows that belong to them."""
    uses = _physical_uses(frame)
    ids = sorted(uses["workload_id"].unique()) if not uses.empty else []
    begin, stop, observed = _row_bounds(frame)
    by_gpu = _by_gpu(uses, ids)
    workload_rows: list[tuple[npt.NDArray, ...]] = []  # as the columns of `workload_rows`
    places: list[tuple[npt.NDArray, ...]] = []  # row, code, seconds
    held: dict[str, float] = dict.fromkeys(ids, 0.0)
    shared_ids: set[str] = set()
    drained = _drained_by_gpu(frame)
    parent_of = frame.parents
    rows_of: dict[object, Ints] = dict(frame.gpu_keys.rows())
    nothing = _Uses(_none(), _none(), _no_ints(), np.empty(0, dtype=np.bool_), _none())
    for key in dict.fromkeys([*rows_of, *by_gpu]):
        used = by_gpu.get(key, nothing)
        own = _union(used, frame.window)
        sweep = _sweep(own, used, frame.window)
        above = parent_of.get(key) if isinstance(key, tuple) else None  # type: ignore[arg-type]
        if above is not None and above in by_gpu:
            # Whoever was given the whole GPU holds its instances.
            for code, spans in _held_spans(_union(by_gpu[above], frame.window)):
                sweep = _over_nobody(sweep, spans, code)
        sweep = _over_nobody(sweep, drained.get(key, ()), _DRAINED)
        for n in np.unique(own.code):
            held[ids[n]] += float((own.end - own.start)[own.code == n].sum())
        rows = rows_of.get(key, _no_ints())
        bounds = begin[rows], stop[rows], observed[rows]
        row, span, seconds, whole = overlaps(*bounds, own.start, own.end)
        on_shared = _shared_spans(own, sweep)
        shared_ids |= {ids[n] for n in np.unique(own.code[on_shared])}
        workload_rows.append((rows[row], own.code[span], seconds, whole, on_shared[span], _shares(own)[span]))
        row, span, seconds, _ = overlaps(*bounds, sweep.start, sweep.end)
        places.append((rows[row], sweep.code[span], seconds))
    sessions = _sessions(frame, uses, held, shared_ids)
    return Attribution(sessions, _workload_rows(workload_rows, ids), _places(places, ids))


def _workload_rows(parts: list[tuple[npt.NDArray, ...]], ids: Sequence[str]) -> pd.DataFrame:
    row, code, seconds, whole, shared, share = _stack(parts, (np.intp, np.intp, float, np.bool_, np.bool_, float))
    columns = {"row": row, "workload_id": _named(code, ids), "seconds": seconds, "whole": whole, "shared": shared}
    return pd.DataFrame({**columns, "share": share})


def _places(parts: list[tuple[npt.NDArray, ...]], ids: Sequence[str]) -> pd.DataFrame:
    row, code, seconds = _stack(parts, (np.intp, np.intp, float))
    return pd.DataFrame(
        {
            "row": row,
            "workload_id": _named(code, ids),
            "shared": code == _SHARED,
            "drained": code == _DRAINED,
            "seconds": seconds,
        }
    )


def _stack(parts: list[tuple[npt.NDArray, ...]], types: Sequence[type]) -> list[npt.NDArray]:
    if not parts:
        return [np.empty(0, dtype=kind) for kind in types]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _named(codes: Ints, ids: Sequence[str]) -> pd.Series:
    """The workload of each code, None for nobody."""
    return pd.Series(np.array([*ids, None], dtype=object)[np.where(codes >= 0, codes, len(ids))], dtype=object)


def overlaps(
    begin: Floats, stop: Floats, observed: Floats, span_start: Floats, span_end: Floats
) -> tuple[Ints, Ints, Floats, npt.NDArray[np.bool_]]:
    """Pairs of rows (begin, stop] and spans that overlap: row, span, observed seconds in common, row wholly inside.

    Rows are sorted and do not overlap one another; spans may be anything. Linear in rows, spans and pairs.
    """
    low = np.searchsorted(stop, span_start, side="right")
    high = np.searchsorted(begin, span_end, side="left")
    counts = np.maximum(high - low, 0)
    span = np.repeat(np.arange(len(span_start)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    row = (np.repeat(low, counts) + offset).astype(np.intp)
    length = np.maximum(stop[row] - begin[row], 1e-9)
    common = np.minimum(stop[row], span_end[span]) - np.maximum(begin[row], span_start[span])
    share = np.clip(common / length, 0.0, 1.0)
    return row, span, share * observed[row], share >= 0.98


def _by_gpu(uses: pd.DataFrame, ids: Sequence[str]) -> dict[object, _Uses]:
    if uses.empty:
        return {}
    start, end = uses["ts_start"].to_numpy(float), uses["ts_end"].to_numpy(float)
    code = np.asarray(uses["workload_id"].map({workload_id: n for n, workload_id in enumerate(ids)}), dtype=np.intp)
    shared = (uses["shared"] == 1).to_numpy(np.bool_)
    share = uses["share"].to_numpy(float) if "share" in uses else np.full(len(uses), np.nan)
    grouped = uses.groupby(["node", "gpu_uuid"], sort=False).indices
    return {key: _Uses(start[at], end[at], code[at], shared[at], share[at]) for key, at in grouped.items()}


def _physical_uses(frame: Frame) -> pd.DataFrame:
    """Uses with MIG instances kept as they are (their rows carry their own uuid) and impossible spans left out."""
    uses = frame.uses
    return uses[uses["ts_end"] > uses["ts_start"]] if not uses.empty else uses


def _row_bounds(frame: Frame) -> tuple[Floats, Floats, Floats]:
    """Begin, end and observed seconds of every row; the first and last of a node begin and end with the node."""
    gpu = frame.gpu
    if gpu.empty:
        return _none(), _none(), _none()
    first = dict(zip(frame.nodes["node"], frame.nodes["first_seen"], strict=True))
    last = dict(zip(frame.nodes["node"], frame.nodes["last_seen"], strict=True))
    stop = gpu["ts"].to_numpy(float)
    begin = stop - gpu["interval_seconds"].to_numpy(float)
    node_first = gpu["node"].map(first).to_numpy(float)
    node_last = gpu["node"].map(last).to_numpy(float)
    observed = gpu["observed_seconds"].to_numpy(float)
    begin = np.where((node_first > begin) & (node_first < stop), node_first, begin)
    stop = np.where((node_last < stop) & (node_last > begin), node_last, stop)
    # A clock that is off must not make a row that was observed vanish.
    short = stop - begin < 0.5 * observed
    begin = np.where(short, gpu["ts"].to_numpy(float) - gpu["interval_seconds"].to_numpy(float), begin)
    stop = np.where(short, gpu["ts"].to_numpy(float), stop)
    return begin, stop, np.minimum(np.nan_to_num(observed), stop - begin)


def _union(uses: _Uses, window: Window) -> _Spans:
    """Each workload's spans on one GPU, joined where they touch or overlap, cut to the window."""
    begin, stop = np.clip(uses.start, window.start, window.end), np.clip(uses.end, window.start, window.end)
    codes, first = np.unique(uses.code, return_index=True)
    rank = first[np.searchsorted(codes, uses.code)]  # the workloads in the order in which they come first
    order = np.lexsort((begin, rank))
    begin, stop, rank = begin[order], stop[order], rank[order]
    new = np.ones(len(order), dtype=np.bool_)
    reach = -math.inf
    for n, (start, end, same) in enumerate(
        zip(begin.tolist(), stop.tolist(), np.diff(rank, prepend=-1) == 0, strict=True)
    ):
        new[n] = not same or start > reach
        reach = max(reach, end) if same else end
    starts = np.nonzero(new)[0]
    if not len(starts):
        return _Spans(_none(), _none(), _no_ints())
    start, end = begin[starts], np.maximum.reduceat(stop, starts)
    keep = end > start
    # Of uses one after another the mean by time, of uses at once (pods of one workload) the sum.
    share = np.add.reduceat(uses.share[order] * (stop - begin), starts)[keep] / (end - start)[keep]
    return _Spans(start[keep], end[keep], uses.code[order][starts][keep], share)


def _sweep(own: _Spans, uses: _Uses, window: Window) -> _Spans:
    """The window cut into spans with nobody, one workload, or several (or one that is marked as shared)."""
    if not len(own.start):
        return _Spans(np.array([window.start]), np.array([window.end]), np.array([_NOBODY], dtype=np.intp))
    marks = np.unique(np.concatenate((own.start, own.end, [window.start, window.end])))
    low, high = np.searchsorted(marks, own.start), np.searchsorted(marks, own.end)
    holders = np.zeros(len(marks), dtype=np.intp)
    codes = np.zeros(len(marks), dtype=np.intp)
    np.add.at(holders, low, 1)
    np.add.at(holders, high, -1)
    np.add.at(codes, low, own.code)
    np.add.at(codes, high, -own.code)
    holders, codes = np.cumsum(holders)[:-1], np.cumsum(codes)[:-1]
    start, end = marks[:-1], marks[1:]
    several = (holders > 1) & (end - start > HANDOVER_SECONDS)
    # A handover: the moment goes to whoever of the two began last, which is the larger code only by chance; either will
    # do for two minutes, so it stays with the span before it.
    code = np.where(holders == 0, _NOBODY, np.where(holders == 1, codes, _SHARED))
    brief = (holders > 1) & ~several
    for n in np.nonzero(brief)[0]:
        code[n] = code[n - 1] if n else _NOBODY
    for a, b in zip(uses.start[uses.shared], uses.end[uses.shared], strict=True):
        code[(start >= a) & (end <= b) & (code != _NOBODY)] = _SHARED
    return _Spans(start, end, code)


def _shares(own: _Spans) -> Floats:
    """Of each span its part of the GPU's time, where several workloads hold it at once: by their shares of its use,
    in equal parts where one's is unknown or none uses any."""
    if len(own.start) < 2 or own.share is None:
        return np.ones(len(own.start))
    marks = np.unique(np.concatenate((own.start, own.end)))
    low, high = np.searchsorted(marks, own.start), np.searchsorted(marks, own.end)

    def held(weights: Floats) -> Floats:
        changes = np.bincount(low, weights, len(marks)) - np.bincount(high, weights, len(marks))
        return np.cumsum(changes.astype(float))[:-1]

    share = np.nan_to_num(own.share)
    holders, unknown, used = held(np.ones(len(share))), held(np.isnan(own.share).astype(float)), held(share)
    seconds = np.diff(marks)
    by_use = (seconds > HANDOVER_SECONDS) & (holders > 1) & (unknown < 0.5) & (used > 1e-9)
    equal = seconds / np.where(seconds > HANDOVER_SECONDS, np.maximum(holders, 1), 1)
    passed = np.concatenate(([0.0], np.cumsum(np.where(by_use, 0.0, equal))))
    passed_by_use = np.concatenate(([0.0], np.cumsum(np.where(by_use, seconds / np.where(by_use, used, 1.0), 0.0))))
    parts = passed[high] - passed[low] + share * (passed_by_use[high] - passed_by_use[low])
    return parts / (own.end - own.start)


def drained_spans(frame: Frame) -> dict[str, tuple[tuple[float, float], ...]]:
    """Per node, when it was out of service: the absences ``drained``, cut to the window and joined where they touch.

    An absence that never ended lasts to the end of the node's records: what came after nobody saw.
    """
    absences = frame.absences
    if absences.empty or not (absences["reason"] == "drained").any():
        return {}
    last = dict(zip(frame.nodes["node"].astype(str), frame.nodes["last_seen"], strict=True))
    found: dict[str, list[tuple[float, float]]] = {}
    for row in records(absences[absences["reason"] == "drained"].sort_values("since")):
        node = str(row["node"])
        until = float(row["until"])
        end = float(last.get(node, frame.window.end)) if np.isnan(until) else until
        start, end = max(float(row["since"]), frame.window.start), min(end, frame.window.end)
        spans = found.setdefault(node, [])
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        elif end > start:
            spans.append((start, end))
    return {node: tuple(spans) for node, spans in found.items()}


def _drained_by_gpu(frame: Frame) -> dict[object, tuple[tuple[float, float], ...]]:
    spans = drained_spans(frame)
    if not spans:
        return {}
    return {key: spans.get(str(key[0]), ()) for key in frame.gpu_keys.keys}


def _over_nobody(sweep: _Spans, spans: Sequence[tuple[float, float]], code_there: int) -> _Spans:
    """The sweep with nobody's moments in these spans given a code; what somebody held stays theirs."""
    if not spans:
        return sweep
    edges = np.array([edge for span in spans for edge in span])
    marks = np.unique(np.concatenate((sweep.start, sweep.end, edges)))
    marks = marks[(marks >= sweep.start[0]) & (marks <= sweep.end[-1])]
    start, end = marks[:-1], marks[1:]
    code = sweep.code[np.searchsorted(sweep.end, start, side="right")]
    for a, b in spans:
        code[(start >= a) & (end <= b) & (code == _NOBODY)] = code_there
    return _Spans(start, end, code)


def _held_spans(own: _Spans) -> list[tuple[int, list[tuple[float, float]]]]:
    """Each workload's spans, by its code."""
    return [
        (int(n), [(float(a), float(b)) for a, b in zip(own.start[own.code == n], own.end[own.code == n], strict=True)])
        for n in np.unique(own.code)
    ]


def _shared_spans(own: _Spans, sweep: _Spans) -> npt.NDArray[np.bool_]:
    """Which of the workloads' spans meet a moment that several held."""
    shared = sweep.code == _SHARED
    if not shared.any():
        return np.zeros(len(own.start), dtype=np.bool_)
    a, b = sweep.start[shared], sweep.end[shared]
    return np.searchsorted(b, own.start, side="right") < np.searchsorted(a, own.end, side="left")


def _sessions(frame: Frame, uses: pd.DataFrame, held: Mapping[str, float], shared_ids: set[str]) -> tuple[Session, ...]:
    if uses.empty:
        return ()
    known = {str(row["workload_id"]): row for row in records(frame.workloads)}
    chains, runs = chain_hours(frame.workloads), series_runs(frame.workloads)
    sessions = []
    node, uuid, basis = (uses[name].to_numpy(object) for name in ("node", "gpu_uuid", "basis"))
    start, end = uses["ts_start"].to_numpy(float), uses["ts_end"].to_numpy(float)
    grouped = uses.groupby("workload_id", sort=False).indices
    for key in sorted(map(str, grouped)):
        at = grouped[key]
        if held.get(key, 0.0) <= 0:
            continue
        about = known.get(key, {})
        gpus = tuple(sorted(set(zip(node[at], uuid[at], strict=True))))
        bases = set(basis[at])
        first, last = float(start[at].min()), float(end[at].max())
        sessions.append(
            Session(
                workload_id=key,
                series_id=text(about.get("series_id")) or key,
                name=text(about.get("name")) or key,
                scheduler=text(about.get("scheduler")) or "process",
                namespace=text(about.get("namespace")),
                pod=text(about.get("pod")),
                user=text(about.get("user")),
                account=text(about.get("account")),
                framework=text(about.get("framework")),
                command=text(about.get("command")),
                gpus=gpus,
                nodes=tuple(sorted({node for node, _ in gpus})),
                start=max(first, frame.window.start),
                end=min(last, frame.window.end),
                first_seen=min(first, float(about.get("first_seen", first))),
                last_seen=max(last, float(about.get("last_seen", last))),
                basis=next((b for b in ("allocation", "process", "activity") if b in bases), "process"),
                shared=key in shared_ids,
                held_seconds=held[key],
                chain_hours=chains.get(key, (last - first) / 3600),
                series=runs.get(key, SeriesRuns(1, (last - first) / 3600, math.nan)),
                team=text(about.get("team")),
                scheduled=_scheduled(about),
            )
        )
    return tuple(sessions)


def _scheduled(about: Mapping[str, object]) -> Scheduled:
    def told(name: str) -> str | None:
        return text(about.get(name))

    restarts = about.get("restarts")
    return Scheduled(
        told("scheduler") or "process", told("job_id"), told("array_job_id"), told("array_task_id"), told("partition"),
        told("qos"), told("state"), int(restarts) if isinstance(restarts, float) and restarts >= 0 else None,
        told("controller_kind"), told("image"),
    )  # fmt: skip


def _none() -> Floats:
    return np.empty(0, dtype=float)


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.intp)
