"""Labelled series of any folder, held against their labels.

    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR

The format of DIR stands in docs/method.md; `advisor/labelled` reads it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.labelled.judged import Judged, judged_folder

from ..scoring import Score


def judged(folder: Path, rules: Path | None = None) -> list[Judged]:
    """Everything that a folder labels, with the verdicts of the rules that ship, and of a site's own over them. Raises
    UsageError."""
    with tempfile.TemporaryDirectory() as scratch:
        return list(judged_folder(folder, Path(scratch), load_rulebook(rules, None, 0.0)))


def score_of(found: Iterable[Judged]) -> Score:
    """Verdicts counted against their labels."""
    out = Score()
    for one in found:
        out.count(one.label.kind, one.label.bottleneck, one.verdict, one.about)
    return out
