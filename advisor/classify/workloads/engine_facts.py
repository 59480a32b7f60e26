"""What inference engines told of themselves (`Frame.serving`), summed by the workload they are part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`engines`: their names. `hours`: observed, of all engines summed. Tokens and requests are those of one engine:
    tokens a second, `running` and `waiting` as means over the time observed and the most at once. `kv_cache`: 95th
    percentile of the KV cache in use, 0..1. None: not told.

    `has_counted`: whether a request or a token was ever counted; None: no counter was told.
    """

    engines: tuple[str, ...]
    hours: float
    prompt_tokens_per_second: float | None = None
    generated_tokens_per_second: float | None = None
    running: float | None = None
    running_max: float | None = None
    waiting: float | None = None
    waiting_max: float | None = None
    kv_cache: float | None = None
    has_counted: bool | None = None


def engine_facts(serving: pd.DataFrame) -> Mapping[str, EngineFacts]:
    """Each workload within which an engine told anything, by its id."""
    if serving.empty:
        return {}
    known = serving[(serving["seconds"] > 0) & (serving["samples"] > 0)]
    return {str(key): _facts(rows) for key, rows in known.groupby("workload_id", sort=False)}


def _facts(rows: pd.DataFrame) -> EngineFacts:
    seconds = float(rows["seconds"].sum())
    prompt, generated = (_sum(rows, name) for name in ("prompt_tokens", "generated_tokens"))
    running, waiting = (_sum(rows, name) for name in ("running_seconds", "waiting_seconds"))
    running_max, waiting_max = (_max(rows, name) for name in ("running_max", "waiting_max"))
    counts = [one for one in (prompt, generated, running_max, waiting_max, _sum(rows, "requests")) if one is not None]
    return EngineFacts(
        tuple(sorted(rows["engine"].dropna().astype(str).unique())),
        seconds / 3600,
        None if prompt is None else prompt / seconds,
        None if generated is None else generated / seconds,
        None if running is None else running / seconds,
        running_max,
        None if waiting is None else waiting / seconds,
        waiting_max,
        kv_percentile(rows),
        any(one > 0 for one in counts) if counts else None,
    )


def kv_percentile(rows: pd.DataFrame) -> float | None:
    """The 95th percentile of the KV cache in use, 0..1, to a percent; None where no server told."""
    # A page that answers may be read twice, a usage above all cannot be: such rows tell nothing.
    known = rows[(rows["kv_percent"] >= 0) & (rows["kv_percent"] <= 100) & (rows["samples"] > 0)]
    if known.empty:
        return None
    known = known.sort_values("kv_percent")
    passed = known["samples"].cumsum().to_numpy(float)
    return float(known["kv_percent"].to_numpy(float)[np.searchsorted(passed, 0.95 * passed[-1])]) / 100


def _sum(rows: pd.DataFrame, name: str) -> float | None:
    told = _told(rows, name)
    return float(told.sum()) if len(told) else None


def _max(rows: pd.DataFrame, name: str) -> float | None:
    told = _told(rows, name)
    return float(told.max()) if len(told) else None


def _told(rows: pd.DataFrame, name: str) -> pd.Series:
    """Values of a column that can be so; a server's table may lack the column."""
    if name not in rows:
        return pd.Series(dtype=float)
    values = rows[name].astype(float)
    return values[np.isfinite(values) & (values >= 0)]
