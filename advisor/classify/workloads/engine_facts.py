"""What inference engines reported (`Frame.serving`), summed by the workload they are part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """`engines`: their names. `hours`: observed, of all engines summed. Tokens and requests are those of one engine:
    tokens a second, `running` and `waiting` as means over the time observed. `kv_cache`: 95th percentile of the KV
    cache in use, 0..1. None: unknown.

    `has_counted`: whether a request or a token was ever counted; None: no counter was reported.
    """

    engines: tuple[str, ...]
    hours: float
    prompt_tokens_per_second: float | None = None
    generated_tokens_per_second: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    has_counted: bool | None = None


def engine_facts(serving: pd.DataFrame) -> Mapping[str, EngineFacts]:
    """Each workload within which an engine reported anything, by its id."""
    if serving.empty:
        return {}
    sampled = serving[(serving["seconds"] > 0) & (serving["samples"] > 0)]
    return {str(key): _facts(rows) for key, rows in sampled.groupby("workload_id", sort=False)}


_COUNTS = ("prompt_tokens", "generated_tokens", "running_seconds", "waiting_seconds")


def _facts(rows: pd.DataFrame) -> EngineFacts:
    def known(name: str) -> npt.NDArray[np.float64]:
        """Values of a column that can be so; a server's table may lack the column."""
        values = rows[name].to_numpy(float) if name in rows else np.empty(0)
        return values[np.isfinite(values) & (values >= 0)]

    seconds = float(rows["seconds"].sum())
    rates = [float(counts.sum()) / seconds if len(counts := known(name)) else None for name in _COUNTS]
    counted = np.concatenate([known(name) for name in (*_COUNTS[:2], "running_max", "waiting_max", "requests")])
    return EngineFacts(
        tuple(sorted(rows["engine"].dropna().astype(str).unique())), seconds / 3600, *rates,
        kv_cache=kv_percentile(rows), has_counted=bool((counted > 0).any()) if len(counted) else None,
    )  # fmt: skip


def kv_percentile(rows: pd.DataFrame) -> float | None:
    """The 95th percentile of the KV cache in use, 0..1, to a percent; None where not reported."""
    # A page that answers may be read twice, a usage above all cannot be: such rows show nothing.
    percent, samples = rows["kv_percent"].to_numpy(float), rows["samples"].to_numpy(float)
    valid = (percent >= 0) & (percent <= 100) & (samples > 0)
    if not valid.any():
        return None
    order = np.argsort(percent[valid])
    passed = np.cumsum(samples[valid][order])
    return float(percent[valid][order][np.searchsorted(passed, 0.95 * passed[-1])]) / 100
