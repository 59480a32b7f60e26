"""Examples from real series (benchmarks/data/real), of the part that may be fitted on, each through several windows.

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

from ..evaluation.labelled import Part, read_labels, store_series
from ..evaluation.real import REAL
from .kind_examples import Example

VIEW = "real"
HOUR = 3600.0
LONG_HOURS = 18.0


def real_examples(part: Part = "fit", folder: Path = REAL) -> Iterator[Example]:
    """Every labelled series of a part, in every window. The group is its own, so that a split keeps it whole."""
    book = load_rulebook(None, None, 0.0)
    for label in read_labels(folder):
        if label.part != part:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            stored = store_series(label, book.catalog, Path(scratch) / "series.db")
            for window in _windows(stored.window):
                for workload in judge(read_frame([stored.database], window), book).workloads:
                    if workload.id == stored.workload_id and workload.features.get("hours", 0.0) > 0:
                        yield Example(f"real/{label.group}", VIEW, label.kind, "unknown", dict(workload.features))


def _windows(whole: Window) -> Iterator[Window]:
    yield whole
    if whole.hours >= LONG_HOURS:
        yield Window(whole.start, whole.start + 12 * HOUR)
        yield Window(whole.start + 6 * HOUR, whole.end)
        yield Window(whole.end - 8 * HOUR, whole.end)
