"""Examples from real series (benchmarks/data/real), each through several windows.

A series of a day is seen whole and in parts of it, as somebody would see it who began to watch later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.sqlite.reader import read_frame

from ..evaluation.judged_series import read_folder, store_series
from .kind_examples import Example

REAL = Path(__file__).parents[1] / "data/real"
VIEW = "real"
HOUR = 3600.0
LONG_HOURS = 18.0


def real_examples(folder: Path = REAL) -> Iterator[Example]:
    """Every labelled series, in every window. The group is its owner's, so that a split keeps it whole."""
    book = load_rulebook(None, None, 0.0)
    for series in read_folder(folder):
        label = series.label
        with tempfile.TemporaryDirectory() as scratch:
            stored = store_series(series, book.catalog, Path(scratch) / "series.db")
            for window in _windows(stored.window):
                for workload in judge(read_frame([stored.database], window), book).workloads:
                    if workload.features.get("hours", 0.0) > 0:
                        yield Example(f"real/{label.owner}", VIEW, label.kind, "unknown", dict(workload.features))


def _windows(whole: Window) -> Iterator[Window]:
    yield whole
    if whole.hours >= LONG_HOURS:
        yield Window(whole.start, whole.start + 12 * HOUR)
        yield Window(whole.start + 6 * HOUR, whole.end)
        yield Window(whole.end - 8 * HOUR, whole.end)
