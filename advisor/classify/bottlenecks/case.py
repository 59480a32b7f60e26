"""A workload, or a part of its time, whose bottleneck is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.verdict_types import KindVerdict
from ..kinds.clue import Clue
from ..workloads.work_rows import WorkRows


@dataclass(frozen=True, slots=True)
class Case:
    """`kind`: what it is, or, where nothing is said of that, what it is likelier to be, unless `clues` (what people and
    schedulers say of it) say otherwise. `coverage`: share of its time that was observed."""

    rows: WorkRows
    kind: KindVerdict
    clues: Sequence[Clue]
    coverage: float
