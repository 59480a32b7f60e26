"""Which workload held which GPU when: from the labels of dcgm-exporter, or the seconds that our agent's page counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from .....agent.store.reading import queries as store
from ....core.frame import Window
from ...resolution import concat
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql.labels import LabelledWork, agent_node, agent_work, has_exported, work_of
from .gpus import About
from .homes import reporter

# A row that is this full was held from end to end: samples at its edges may be missing.
_FULL = 0.97


def agent_uses(answer: SeriesAnswer, grid: Grid, about: Mapping[str, About]) -> pd.DataFrame:
    """Uses from ``skuwise_workload_gpu_seconds_total`` at the end of each row, with the columns of `LabelledWork`."""
    rows: list[dict[str, object]] = []
    for labels, counted in zip(answer.labels, answer.values, strict=True):
        work, uuid = agent_work(labels), labels.get("gpu_uuid")
        own = next((key for key in (f"{uuid}@{agent_node(labels)}", uuid) if key in about), None)
        if work is None or uuid is None or own is None:
            continue
        for start, end in _counted_spans(counted, grid):
            rows.append(_row(work, about[own].node, uuid, start, end))
    return pd.DataFrame(rows)


def dcgm_uses(
    counts: SeriesAnswer,
    grid: Grid,
    about: Mapping[str, About],
    *,
    intervals: Mapping[str, float],
    taken: set[str],
    key_of: Callable[[Labels], str | None],
) -> pd.DataFrame:
    """Uses from the labels of dcgm-exporter's series. `key_of`: the key of a series' rows in `about`; `taken`: GPUs of
    which our agent tells."""
    # Whether a target's own labels stand before the exporter's differs from one scrape configuration to the next.
    by_target: dict[str, list[Labels]] = {}
    for labels in counts.labels:
        by_target.setdefault(reporter(labels), []).append(labels)
    exported = {target: has_exported(own) for target, own in by_target.items()}
    samples: dict[tuple[str, LabelledWork], Floats] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        own, work = key_of(labels), work_of(labels, exported=exported[reporter(labels)])
        if own is None or work is None or own not in about or about[own].uuid in taken:
            continue
        key = (own, work)
        known = samples.get(key)
        filled = np.nan_to_num(values)
        samples[key] = filled if known is None else np.maximum(known, filled)
    rows: list[dict[str, object]] = []
    for (own, work), values in samples.items():
        held, one = np.minimum(values * intervals.get(own, 0.0), grid.step), about[own]
        rows += [_row(work, one.node, one.uuid or own, start, end) for start, end in held_spans(held, grid)]
    return pd.DataFrame(rows)


def held_spans(held: Floats, grid: Grid) -> list[tuple[float, float]]:
    """Spans of time from seconds held in each row: rows that follow one another, the first and last cut to their part.

    In a row that is held in part, what began in it holds its end and what ended in it its beginning.
    """
    spans = []
    for first, last in _runs(held > 0):
        begin, end = grid.start + (first - 1) * grid.step, grid.start + last * grid.step
        if first == last:
            end = begin + (grid.step if held[first] >= _FULL * grid.step else held[first])
        else:
            if held[first] < _FULL * grid.step:
                begin += grid.step - held[first]
            if held[last] < _FULL * grid.step:
                end += held[last] - grid.step
        spans.append((float(begin), float(end)))
    return spans


def _counted_spans(counted: Floats, grid: Grid) -> list[tuple[float, float]]:
    """Spans from a counter of seconds held: its first value tells how long before it the first span began."""
    known = ~np.isnan(counted)
    if not known.any():
        return []
    at = np.nonzero(known)[0]
    values = counted[at]
    more = np.diff(values, prepend=0.0)
    # A counter that fell began anew with the agent; what it shows since was held.
    more = np.where(more < 0, values, more)
    held = np.zeros(grid.count)
    held[at] = np.minimum(more, grid.step)
    spans = held_spans(held, grid)
    if spans and values[0] > 0 and held[at[0]] > 0:
        start, end = spans[0]
        spans[0] = (min(start, grid.start + at[0] * grid.step - float(values[0])), end)
    return spans


def workloads_of(uses: pd.DataFrame, window: Window) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frame's tables `uses` and `workloads` of rows of uses."""
    columns = store.USES.columns
    if uses.empty:
        return concat([], columns), concat([], store.WORKLOADS.columns)
    inside = uses[(uses["ts_start"] < window.end) & (uses["ts_end"] > window.start)]
    own = inside.reindex(columns=[*columns])
    by_id = inside.groupby("workload_id", sort=True)
    table = by_id.first().reset_index()
    table["first_seen"] = table["workload_id"].map(by_id["ts_start"].min())
    if "began" in inside:
        # Pods tell their start, which may lie before the window.
        began = table["workload_id"].map(by_id["began"].min())
        table["first_seen"] = table["first_seen"].where(~(began < table["first_seen"]), began)
    table["last_seen"] = table["workload_id"].map(by_id["ts_end"].max())
    table["series_id"] = table["series_id"].where(table["series_id"].notna(), table["workload_id"])
    return own.reset_index(drop=True), table.reindex(columns=[*store.WORKLOADS.columns])


def _row(work: LabelledWork, node: str, uuid: str, start: float, end: float) -> dict[str, object]:
    return {
        "workload_id": work.workload_id, "node": node, "gpu_uuid": uuid, "basis": work.basis, "ts_start": start,
        "ts_end": end, "shared": float(work.shared), "mem_used_bytes": np.nan, "series_id": work.series_id,
        "name": work.name, "scheduler": work.scheduler, "job_id": work.job_id, "namespace": work.namespace,
        "pod": work.pod, "user": None, "account": None, "framework": work.framework, "command": None,
        "cluster": work.cluster,
    }  # fmt: skip


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last position of each run of true values."""
    edges = np.diff(np.concatenate(([0], mask.astype(np.int8), [0])))
    return list(zip(np.nonzero(edges == 1)[0].tolist(), (np.nonzero(edges == -1)[0] - 1).tolist(), strict=True))
