"""The labels of rows as numbers, and which of them count for work of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.labels import KindLabel
from ...core.column_rows import Columns
from ...core.verdict_types import KindVerdict
from ..features.piece_rows import PieceRows
from ..kinds.clue import Clue
from .case import Case

Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# Work that waits for nobody's requests: where its engine rests, it is the host or the input that it waits for.
_JOBS: tuple[KindLabel, ...] = ("training", "fine-tuning", "batch-inference")
# Work that waits for somebody's requests: where its engine rests, it lacks those, however busy the node's cores are.
_ON_DEMAND: tuple[KindLabel, ...] = ("online-inference", "interactive")
# What an engine that rests looks like while it works: the host shows in none of these.
MASKS_HOST = ("compute", "hbm-bandwidth", "mixed", "latency", "unknown")
_ALWAYS = ("host-input", "idle", "latency", "unknown")


@dataclass(frozen=True)
class RowLabels:
    """`names` in order; `own`, `hostless`: which of them each row of the frame's `gpu` carries, with and without regard
    to the host."""

    names: tuple[str, ...]
    own: Ints
    hostless: Ints

    @classmethod
    def of(cls, measures: Columns) -> RowLabels:
        own, hostless = measures["label"], measures["hostless"]
        codes, names = pd.factorize(np.concatenate([np.array(_ALWAYS, dtype=object), own, hostless]), sort=True)
        codes = codes[len(_ALWAYS) :].astype(np.intp)
        return cls(tuple(str(name) for name in names), codes[: len(own)], codes[len(own) :])

    def code(self, name: str) -> int:
        return self.names.index(name)


def labels_by_kind(labels: RowLabels, rows: PieceRows, cases: Sequence[Case]) -> Ints:
    """The label of each row of the cases, as work of their kinds has it."""
    whole = np.concatenate([np.empty(0, dtype=np.bool_), *(case.rows.whole for case in cases)])
    found, hostless = labels.own[rows.at], labels.hostless[rows.at]
    job = [_likely(case.kind, case.clues, _JOBS) for case in cases]
    asked = [not own and _likely(case.kind, case.clues, _ON_DEMAND) for own, case in zip(job, cases, strict=True)]
    known = [own and case.kind.label != "unknown" for own, case in zip(asked, cases, strict=True)]

    def at(told: Sequence[bool]) -> Mask:
        return rows.segments.spread(np.array(told, dtype=np.bool_))

    host, latency, unknown = (labels.code(name) for name in ("host-input", "latency", "unknown"))
    masked = np.isin(found, [n for n, name in enumerate(labels.names) if name in MASKS_HOST])
    # In a row that it began or ended in, the engine also rested because it was not there.
    found = np.where(at(job) & whole & rows.flags("starved") & masked, host, found)
    found = np.where(at(known) & (found == host), hostless, found)
    # Only its busy time counts: how seldom it is asked says nothing of what limits it then.
    found = np.where(at(asked) & (found == unknown) & rows.flags("thin"), latency, found)
    return np.where((found == host) & ~whole, hostless, found)


def _likely(kind: KindVerdict, clues: Sequence[Clue], kinds: tuple[KindLabel, ...]) -> bool:
    """Whether it is of one of these kinds, or likelier to be than not where its kind is open."""
    if kind.label != "unknown":
        return kind.label in kinds
    said = {one: sum(clue.weights.get(one, 0.0) for clue in clues) for one in (*_JOBS, *_ON_DEMAND)}
    if max(said.values()) > max(said[one] for one in kinds):
        return False
    return sum(other.confidence for other in kind.alternatives if other.label in kinds) > 0.5
