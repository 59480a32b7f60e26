"""The ledger for people and programs: a table, one entry in full, and plain values for JSON."""

import textwrap
from collections.abc import Sequence

from ...rules.base.output import columns
from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.advice_json import plain
from ..core.advice_types import DecisionState
from ..core.timestamps import minute, rfc3339
from ..state.ledger import LedgerEntry, LedgerEvent, configuration_words
from ..state.outcomes import measured_words
from .incident_words import labelled

# In the order in which they are listed: first those that somebody has to decide.
STATES: tuple[DecisionState, ...] = ("regressed", "proposed", "accepted", "done", "snoozed", "dismissed", "expired")


def as_dict(entry: LedgerEntry, now: float) -> dict[str, object]:
    """An entry as the values of JSON: times in RFC 3339, UTC."""
    r, decision, snapshot, realised = entry.recommendation, entry.decision(now), entry.snapshot, entry.realised
    values = plain(r)

    def when(ts: float | None) -> str | None:
        return rfc3339(ts) if ts is not None else None

    measured = plain(realised) and {name: value for name, value in plain(realised).items() if "predicted" not in name}
    copied = ("action", "freed_gpu_hours_per_month", "realisation", "risk", "text")
    return {
        "id": r.id,
        "state": decision.state,
        "about": entry.about,
        "from": configuration_words(r.source),
        "to": configuration_words(r.target),
        **{name: values[name] for name in copied},
        "saving_usd_per_month": plain(_saving(entry)),
        "blocked": bool(r.blocked_by),
        "source": entry.source,
        "first_proposed": when(entry.first_proposed),
        "last_proposed": when(entry.last_proposed),
        "snoozed_until": when(decision.until),
        "predicted": {
            "saving_usd_per_month": plain(snapshot.saving_usd_per_month) if snapshot else None,
            "time_ratio": plain(snapshot.time_ratio) if snapshot else None,
            "usd_per_month_before": plain(snapshot.yardstick.usd_per_month) if snapshot else None,
            "prices": snapshot.prices if snapshot else None,
        },
        "realised": measured,
        "history": [
            {"act": e.act, "at": when(e.at), "by": e.by, "why": e.why, "until": when(e.until)} for e in entry.events
        ],
    }


def as_text(entries: Sequence[LedgerEntry], left_out: int, now: float, width: int) -> str:
    """The ledger as a person reads it: a table, then what was decided and measured of each."""
    more = f"{left_out} more are blocked, expired or in another state; --all lists them.\n" if left_out else ""
    if not entries:
        return more or "No recommendations in the ledger yet.\n"
    rows, history = [], []
    order = {e.recommendation.id: (STATES.index(e.decision(now).state), -(_saving(e) or 0.0)) for e in entries}
    for entry in sorted(entries, key=lambda e: (*order[e.recommendation.id], e.recommendation.id)):
        r, measured = entry.recommendation, entry.realised.saving_usd_per_month if entry.realised is not None else None
        money = (words.NONE if value is None else words.usd(value) for value in (_saving(entry), measured))
        state, to, last = _state_words(entry, now), configuration_words(r.target), minute(entry.last_proposed)
        rows.append((r.id, state, r.action, entry.about, to, *money, last))
        for event in entry.events:
            if event.act not in ("proposed", "expired"):
                line = clean(f"{r.id}: {_event_words(event)}")
                history.append(textwrap.fill(line, width, subsequent_indent="    "))
    heads = ("ID", "state", "action", "of", "to", "saving/month", "measured/month", "last proposed")
    table = columns(heads, rows, right=(5, 6))
    return table + "\n" + ("\n" + "\n".join(history) + "\n" if history else "") + more


def entry_text(entry: LedgerEntry, now: float, width: int) -> str:
    """One entry in full: what was predicted, what was measured, and its history."""
    r, snapshot, cash = entry.recommendation, entry.snapshot, _saving(entry)
    predicted = f"{words.usd(cash)}/month; it is blocked" if cash is not None else "no cash saving; it is blocked"
    if snapshot is not None:
        priced = f", {snapshot.prices}" if snapshot.usd_per_hour else ""
        saving = words.saving_words(snapshot.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)
        predicted = f"{saving}{priced}; time: {words.time_words(snapshot.time_ratio)}"
    move = f"{r.action} of {entry.about}: {configuration_words(r.source)} to {configuration_words(r.target)}"
    lines = [("id", r.id), ("state", _state_words(entry, now)), ("move", move), ("advice", r.text)]
    lines += [("predicted", predicted), *(("measured", line) for line in _measured_lines(entry))]
    return labelled([*lines, *(("history", _event_words(event)) for event in entry.events)], width)


def _measured_lines(entry: LedgerEntry) -> list[str]:
    measured = entry.realised
    if measured is None:
        return ["not done yet"]
    over = f"measured over {measured.hours:,.0f} h until {minute(measured.until)}; done on {minute(measured.since)}"
    usd = f"{words.usd(measured.usd_per_month_before)} to {words.usd(measured.usd_per_month_after)} a month"
    before, after = measured.gpu_hours_per_month_before, measured.gpu_hours_per_month_after
    return [measured_words(measured), f"{usd}, {words.hours(before)} to {words.hours(after)} a month; {over}"]


def _state_words(entry: LedgerEntry, now: float) -> str:
    decision = entry.decision(now)
    return f"{decision.state} until {minute(decision.until)}" if decision.until is not None else decision.state


def _event_words(event: LedgerEvent) -> str:
    until = f" until {minute(event.until)}" if event.until is not None else ""
    return f"{event.act}{until} by {event.by} on {minute(event.at)}" + (f": {event.why}" if event.why else "")


def _saving(entry: LedgerEntry) -> float | None:
    saving = entry.recommendation.saving_usd_per_month
    return saving.p50 if saving is not None else None
