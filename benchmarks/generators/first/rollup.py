"""The demo's rollups, for measures that come by the page too: a dcgm-exporter's means, one in some 30 seconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from skuwise.advisor.demo import rollup
from skuwise.advisor.demo.rollup import Columns, Rows
from skuwise.agent.model import Period


def gpu_columns(values: Mapping[str, Rows], observed: Rows, period: Period, **about: Any) -> Columns:
    """`rollup.gpu_columns`, where a metric that is known at fewer than half of the seconds speaks for the time between
    pages, and shows no rhythm and no correlation by the second."""
    paged = {name: rows for name, rows in values.items() if not _every_second(rows)}
    rest = {name: rows for name, rows in values.items() if name not in paged}
    columns = rollup.gpu_columns(rest, observed, period, **about)
    for name, rows in paged.items():
        seen = rows[:, ~np.isnan(rows).all(axis=0)]  # pages come at the same seconds in every row
        step = rows.shape[1] / seen.shape[1]
        columns |= rollup.statistics(name, seen, observed)
        columns[f"{name}_n"] = np.round(columns[f"{name}_n"] / step)
        if name == "sm_active":
            columns |= rollup.activity(seen, observed)
            run = columns["idle_run_seconds"]
            columns["idle_run_seconds"] = np.where(run < observed, run * step, run)
        if period == "hour" and name in rollup.BINNED:
            columns[f"{name}_bins"] = rollup.bins(seen, observed)
    return columns


def _every_second(rows: Rows) -> bool:
    """Whether a measure comes with the samples, not by the page, in the rows that have it."""
    present = ~np.isnan(rows)
    return bool(2 * present.sum() >= present.any(axis=1).sum() * rows.shape[1])
