"""From the labels of workloads' rows to their verdicts: shares of their time, how sure, and why, in words with figures.

Figures are formed for all cases at once (`core.segments`), sentences only for what is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ....rules.policy.labels import KindLabel
from ...core.coded_text import CodedText, Scalar, coded
from ...core.column_rows import ColumnRows
from ...core.dominant_label import leading, ruling
from ...core.formatting import clause, percent
from ...core.verdict_types import BottleneckVerdict, KindVerdict
from ..features.piece_rows import PieceRows, RowTables
from .case import Case
from .figures_behind import figures_behind
from .row_labels import RowLabels, labels_by_kind
from .signatures import signatures
from .suspects import suspect
from .verdict_doubts import Grounds, doubts, unsettled

Ints = npt.NDArray[np.intp]

# Whose hosts write checkpoints.
_TRAINING: tuple[KindLabel, ...] = ("training", "fine-tuning")
# What a person works in rests while they think: from half of its time on that is what it mostly does.
_PERSON_RESTS = 0.5
# A second label is worth naming from this share of the busy time on.
_WORTH_NAMING = 0.1


@dataclass(frozen=True, slots=True)
class _Ruled:
    """What rules a case that was at work: the label of its verdict, the one that most of its busy time carries
    (`lead`), seconds of each label but idle, and the rounded shares of all."""

    label: str
    lead: str
    busy: Mapping[str, float]
    shares: Mapping[str, float]

    @property
    def worked(self) -> float:
        return sum(self.busy.values())

    @property
    def share(self) -> float:
        """The lead's share of the busy time."""
        return self.busy[self.lead] / self.worked


def judge_bottlenecks(
    cases: Sequence[Case], tables: RowTables, labels: RowLabels, dominant: float
) -> list[BottleneckVerdict]:
    """The verdict on each case. `dominant`: share of the busy time that a label needs to rule."""
    rows = PieceRows.of(tables, [case.rows for case in cases])
    codes = labels_by_kind(labels, rows, cases)
    seconds = _by_label(codes, rows, labels.names)
    totals = rows.segments.total(rows.seconds).tolist()
    first = [_ruled(case, held, total, dominant) for case, held, total in zip(cases, seconds, totals, strict=True)]
    leads = [labels.code(one.lead) if isinstance(one, _Ruled) else -1 for one in first]
    chosen = codes == rows.segments.spread(np.array(leads, dtype=np.intp))
    ruling_rows = rows.where(chosen)
    grounds = Grounds.of(ruling_rows)
    worked = rows.segments.spread(np.array(leads, dtype=np.intp) >= 0)
    trains = np.array([case.kind.label in _TRAINING for case in cases], dtype=np.bool_)
    signs = signatures(rows.where(worked & (codes != labels.code("idle"))), trains)

    @cache
    def means(name: str) -> list[float]:
        return ruling_rows.mean(name).tolist()

    out: list[BottleneckVerdict] = []
    for n, (case, one) in enumerate(zip(cases, first, strict=True)):
        if isinstance(one, BottleneckVerdict):
            out.append(one)
            continue
        evidence = [*_shares_told(one, dominant), *figures_behind(one.label, lambda name, n=n: means(name)[n])]
        if one.label == "straggler":
            own = slice(rows.segments.bounds[n], rows.segments.bounds[n + 1])
            evidence.extend(suspect(ColumnRows(tables.measures, rows.at[own]), rows.seconds[own]))
        evidence.extend(signs[n])
        if one.label == "unknown":
            own = slice(ruling_rows.segments.bounds[n], ruling_rows.segments.bounds[n + 1])
            lacks = set(map(str, tables.measures["lacks"][ruling_rows.at[own]]))
            evidence.extend(unsettled(lacks, grounds.engine[n]))
        doubt, said = doubts(one.label, grounds, n)
        confidence = round(doubt * _confidence(one.share, case.coverage), 3)
        out.append(BottleneckVerdict(one.label, confidence, one.shares, (*evidence, *said)))  # type: ignore[arg-type]
    return out


def _by_label(codes: Ints, rows: PieceRows, names: Sequence[str]) -> list[dict[str, float]]:
    """Seconds of each label that occurs in each case, the most first; of as many, by name."""
    width, count = len(names), len(rows.segments)
    slot = rows.segments.number * width + codes
    sums = np.bincount(slot, weights=rows.seconds, minlength=count * width).reshape(count, width)
    occurs = np.bincount(slot, minlength=count * width).reshape(count, width) > 0
    order = np.argsort(-sums, axis=1, kind="stable")
    found: list[dict[str, float]] = []
    for total, ranked, there in zip(sums, order, occurs, strict=True):
        found.append({names[int(code)]: float(total[code]) for code in ranked[there[ranked]]})
    return found


def _ruled(case: Case, seconds: Mapping[str, float], total: float, dominant: float) -> _Ruled | BottleneckVerdict:
    """What rules it; the verdict itself where it never was at work. `seconds`: of each label."""
    kind: KindVerdict = case.kind
    if total <= 0:
        return BottleneckVerdict(
            "unknown", 0.0, {"unknown": 1.0}, (coded("nothing-observed", "No data for this workload."),)
        )
    shares = {label: round(value / total, 4) for label, value in seconds.items()}
    exact = {label: value / total for label, value in seconds.items()}
    ruled = ruling(exact, dominant)
    # Where somebody sits in front of it, most of the time is theirs: no limit of the GPU holds it back.
    at_rest = kind.label == "interactive" and exact.get("idle", 0.0) >= _PERSON_RESTS
    if kind.label == "idle" or ruled == "idle" or at_rest:
        share = shares.get("idle", 0.0)
        said = coded("idle-share", "Idle {share:.0%} of the time.", share=share)
        return BottleneckVerdict("idle", _confidence(share, case.coverage), shares, (said,))
    busy = {label: value for label, value in seconds.items() if label != "idle"}
    if sum(busy.values()) <= 0:
        return BottleneckVerdict("unknown", 0.0, shares, (coded("never-at-work", "No activity observed."),))
    lead = leading({label: value for label, value in exact.items() if label != "idle"})
    return _Ruled(ruled, lead, busy, shares)


def _shares_told(one: _Ruled, dominant: float) -> list[CodedText]:
    """What it waits for in its busy time."""
    lead, busy, share = one.lead, one.busy, one.share
    if share < dominant:
        names = _in_words(busy, one.worked)
        return [
            CodedText("no-single-limit", f"No single bottleneck in its busy time: {names}.", _of_busy(busy, one.worked))
        ]
    evidence = [coded(f"limited-by-{lead}", f"{_NAMES[lead]}: {{share:.0%}} of its busy time.", share=share)]
    others = {label: value for label, value in busy.items() if label != lead and value >= _WORTH_NAMING * one.worked}
    if others:
        names = _in_words(others, one.worked)
        evidence.append(CodedText("other-limits", f"Other bottlenecks: {names}.", _of_busy(others, one.worked)))
    return evidence


def _in_words(seconds: Mapping[str, float], worked: float) -> str:
    return ", ".join(f"{clause(_NAMES[label])} {percent(value / worked)}" for label, value in seconds.items())


def _of_busy(seconds: Mapping[str, float], busy: float) -> dict[str, Scalar]:
    return {label: value / busy for label, value in seconds.items()}


def _confidence(share: float, coverage: float) -> float:
    """How sure: the share of the time that says so, less where part of the time was not seen."""
    return round(min(0.99, share * (0.5 + 0.5 * min(1.0, coverage))), 3)


_NAMES = {
    "compute": "Compute-bound",
    "hbm-bandwidth": "Memory-bandwidth-bound",
    "nvlink": "NVLink-bound",
    "network": "Bound by the network between nodes",
    "pcie": "PCIe-bound",
    "host-input": "Waiting for the host or its input",
    "straggler": "Waiting in collectives",
    "latency": "Bound by kernel launches and dependencies",
    "throttled": "Throttled",
    "idle": "Idle",
    "mixed": "Bound by compute and memory bandwidth",
    "unknown": "Unknown bottleneck",
}
