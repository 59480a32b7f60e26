"""A trial for people and programs: a sentence or two, and plain values for JSON."""

from __future__ import annotations

import dataclasses
import math

from ...core.advice_types import Interval
from ...core.timestamps import minute, rfc3339
from ..entries import LedgerEntry, LedgerEvent
from ..records import TRIAL_HOURS, TRIAL_MOST_HOURS
from .events import progress_words
from .ratio import BASES
from .sides import HOUR

_KEYS = ("started", "ends", "replica", "ended", "verdict", "time_ratio", "interval", "hours", "basis", "by",
         "energy_ratio", "code", "reason", "due")  # fmt: skip


def trial_words(entry: LedgerEntry) -> str | None:
    """What a trial came to, or where it stands and what it still needs; None: there was none."""
    opened = entry.open_trial
    if opened is None:
        last = entry.last("trial", "tried")
        if last is None or last.act == "tried":
            return last.why if last is not None else None
        began = next(e for e in reversed(entry.events) if e.act == "trial" and e.figures.progress is None)
        return f"Started on {minute(began.at)}; the other replicas moved before it had a result."
    begun, told = opened
    ends = f"It ends on {minute(_end(begun))} at the latest."
    if told and told[-1].figures.progress is not None:
        return f"Started on {minute(begun.at)}. {progress_words(told[-1].figures.progress)} {ends}"
    replica = begun.figures.trial.replica if begun.figures.trial else None
    who = f"replica {replica}" if replica else "one replica"
    return (
        f"Started on {minute(begun.at)}; no result yet. It needs {TRIAL_HOURS:.0f} h of {who} on "
        f"{entry.proposal.target_config} next to unchanged replicas, observed by 'skuwise advise'. {ends}"
    )


def trial_dict(entry: LedgerEntry) -> dict[str, object] | None:
    """The values of JSON; None: there was no trial. `verdict` null: it is under way, or the others moved before."""
    last = entry.last("trial", "tried")
    begun = next((e for e in reversed(entry.events) if e.act == "trial" and e.figures.progress is None), None)
    if last is None:
        return None
    values: dict[str, object] = {**dict.fromkeys(_KEYS)}
    if begun is not None:
        values |= {"started": rfc3339(begun.at), "replica": begun.figures.trial and begun.figures.trial.replica}
    result, undecided = last.figures.tried, last.figures.undecided
    if last.act == "tried":
        values |= {"ended": rfc3339(last.at), "reason": last.why}
    if result is not None:
        values |= {
            "verdict": result.verdict, "time_ratio": _finite(result.time_ratio), "hours": _finite(result.hours),
            "interval": _interval(result.interval), "basis": result.basis, "by": result.by,
            "energy_ratio": _finite(result.energy_ratio),
        }  # fmt: skip
    elif undecided is not None:
        ratio = undecided.interval
        values |= {
            "verdict": "undecided", "time_ratio": _finite(ratio.p50) if ratio else None, "interval": _interval(ratio),
            "hours": _finite(undecided.hours), "code": undecided.code, "reason": undecided.reason,
            "basis": undecided.basis, "by": BASES.get(undecided.basis or ""),
        }  # fmt: skip
    opened = entry.open_trial
    if opened is None:
        return values
    told = opened[1][-1].figures.progress if opened[1] else None
    values["ends"] = rfc3339(_end(opened[0]))
    if told is not None:
        values |= {
            "hours": _finite(told.hours), "code": told.code, "reason": told.reason, "basis": told.basis,
            "by": BASES.get(told.basis or ""), "due": rfc3339(told.due) if told.due is not None else None,
        }  # fmt: skip
    return values


def is_progress(event: LedgerEvent) -> bool:
    """Whether an event only says how far a trial is: the newest is shown with the trial, and none in the history."""
    return event.figures.progress is not None


def _end(begun: LedgerEvent) -> float:
    return begun.at + TRIAL_MOST_HOURS * HOUR


def _interval(value: Interval | None) -> dict[str, float] | None:
    return dataclasses.asdict(value) if value is not None else None


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
