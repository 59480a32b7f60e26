"""The ledger for people and programs: a table, one entry in full, and plain values for JSON."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence

from ...rules.base.output import columns
from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.advice_types import DecisionState
from ..core.timestamps import minute, rfc3339
from ..state.ledger import LedgerEntry, LedgerEvent, configuration_words

# In the order in which they are listed: what waits for somebody first.
STATES: tuple[DecisionState, ...] = (
    "regressed", "proposed", "accepted", "done", "snoozed", "dismissed", "expired",
)  # fmt: skip
_LABEL_WIDTH = 12


def as_dict(entry: LedgerEntry, now: float) -> dict[str, object]:
    """An entry as the values of JSON: times in RFC 3339, UTC."""
    r, decision, snapshot, realised = entry.recommendation, entry.decision(now), entry.snapshot, entry.realised
    predicted = snapshot.saving_usd_per_month if snapshot else None
    ratio = snapshot.time_ratio if snapshot else None
    measured = None
    if realised is not None:  # without the prediction, which stands beside it
        values = {key: value for key, value in dataclasses.asdict(realised).items() if "predicted" not in key}
        measured = {key: _finite(value) if isinstance(value, float) else value for key, value in values.items()}
        measured |= {"since": rfc3339(realised.since), "until": rfc3339(realised.until)}
    return {
        "id": r.id, "state": decision.state, "action": r.action, "about": entry.about,
        "from": configuration_words(r.source), "to": configuration_words(r.target),
        "saving_usd_per_month": _finite(_saving(entry)),
        "freed_gpu_hours_per_month": _finite(r.freed_gpu_hours_per_month), "realisation": r.realisation,
        "risk": r.risk, "blocked": bool(r.blocked_by), "text": r.text, "source": entry.source,
        "first_proposed": rfc3339(entry.first_proposed), "last_proposed": rfc3339(entry.last_proposed),
        "snoozed_until": rfc3339(decision.until) if decision.until is not None else None,
        "predicted": {
            "saving_usd_per_month": dataclasses.asdict(predicted) if predicted else None,
            "time_ratio": dataclasses.asdict(ratio) if ratio else None,
            "usd_per_month_before": _finite(snapshot.yardstick.usd_per_month) if snapshot else None,
            "prices": snapshot.prices if snapshot else None,
        },
        "realised": measured,
        "history": [
            {"act": e.act, "at": rfc3339(e.at), "by": e.by, "why": e.why,
             "until": rfc3339(e.until) if e.until is not None else None}
            for e in entry.events
        ],
    }  # fmt: skip


def as_text(entries: Sequence[LedgerEntry], left_out: int, now: float, width: int) -> str:
    """The ledger as a person reads it: a table, then what was decided and measured of each."""
    more = f"{left_out} more are blocked, expired or in another state; --all lists them.\n" if left_out else ""
    if not entries:
        return more or "No recommendations in the ledger yet.\n"
    rows, history = [], []
    order = {e.recommendation.id: (STATES.index(e.decision(now).state), -(_saving(e) or 0.0)) for e in entries}
    for entry in sorted(entries, key=lambda e: (*order[e.recommendation.id], e.recommendation.id)):
        r, saving = entry.recommendation, _saving(entry)
        measured = entry.realised.saving_usd_per_month if entry.realised is not None else None
        rows.append(
            (
                r.id, _state_words(entry, now), r.action, entry.about, configuration_words(r.target),
                *(words.NONE if value is None else words.usd(value) for value in (saving, measured)),
                minute(entry.last_proposed),
            )
        )  # fmt: skip
        for event in entry.events:
            if event.act not in ("proposed", "expired"):
                line = clean(f"{r.id}: {_event_words(event)}")
                history.append(textwrap.fill(line, width, subsequent_indent="    "))
    heads = ("ID", "state", "action", "of", "to", "saving/month", "measured/month", "last proposed")
    table = columns(heads, rows, right=(5, 6))
    return table + "\n" + ("\n" + "\n".join(history) + "\n" if history else "") + more


def entry_text(entry: LedgerEntry, now: float, width: int) -> str:
    """One entry in full: what was predicted, what was measured, and its history."""
    r, snapshot = entry.recommendation, entry.snapshot
    move = f"{r.action} of {entry.about}: {configuration_words(r.source)} to {configuration_words(r.target)}"
    if snapshot is not None:
        priced = f", {snapshot.prices}" if snapshot.usd_per_hour else ""
        saving = words.saving_words(snapshot.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)
        predicted = f"{saving}{priced}; time: {words.time_words(snapshot.time_ratio)}"
    else:
        cash = _saving(entry)
        predicted = f"{words.usd(cash)}/month; it is blocked" if cash is not None else "no cash saving; it is blocked"
    lines = [
        ("id", r.id), ("state", _state_words(entry, now)), ("move", move), ("advice", r.text), ("predicted", predicted),
        *(("measured", line) for line in _measured_lines(entry)),
        *(("history", _event_words(event)) for event in entry.events),
    ]  # fmt: skip
    told = []
    for n, (label, text) in enumerate(lines):
        head = "" if n and lines[n - 1][0] == label else label  # before the first of its lines
        initial, indent = f"{head:<{_LABEL_WIDTH}}", " " * _LABEL_WIDTH
        told.append(textwrap.fill(clean(text), width, initial_indent=initial, subsequent_indent=indent))
    return "\n".join(told) + "\n"


def _measured_lines(entry: LedgerEntry) -> list[str]:
    measured = entry.realised
    if measured is None:
        return ["not done yet"]
    saving = f"saving unknown: {measured.saving_missing}"
    if measured.saving_usd_per_month is not None:
        cost = f"{words.usd(measured.usd_per_month_before)} to {words.usd(measured.usd_per_month_after)} a month"
        over = f"measured over {measured.hours:,.0f} h until {minute(measured.until)}; done on {minute(measured.since)}"
        saving = f"{words.usd(measured.saving_usd_per_month)}/month saved ({cost}), {over}"
    before, after = measured.gpu_hours_per_month_before, measured.gpu_hours_per_month_after
    ratio, load = measured.time_ratio, measured.load_ratio
    return [
        saving,
        f"{words.hours(before)} to {words.hours(after)} a month",
        f"time x{ratio:.2f}" if ratio is not None else f"time unknown: {measured.time_missing}",
        f"load x{load:.2f}" if load is not None else "load unknown",
        *measured.confounders,
    ]


def _state_words(entry: LedgerEntry, now: float) -> str:
    """Its state, with the end of a snooze."""
    decision = entry.decision(now)
    return f"{decision.state} until {minute(decision.until)}" if decision.until is not None else decision.state


def _event_words(event: LedgerEvent) -> str:
    """``dismissed by ann on 2026-11-02 10:00 UTC: a warm standby``."""
    until = f" until {minute(event.until)}" if event.until is not None else ""
    return f"{event.act}{until} by {event.by} on {minute(event.at)}" + (f": {event.why}" if event.why else "")


def _saving(entry: LedgerEntry) -> float | None:
    """The median, US dollars a month; None: no cash is claimed."""
    saving = entry.recommendation.saving_usd_per_month
    return saving.p50 if saving is not None else None


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
