"""The ledger for people and programs: a table, one entry in full, and plain values for JSON."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import get_args

from ....rules.base.sanitize import clean
from ....rules.base.text_table import columns
from ...core import formatting as words
from ...core.advice_types import DecisionState
from ...core.timestamps import minute, rfc3339
from ...state.entries import LedgerEntry, LedgerEvent, Realised

# In the order in which they are listed: what waits for somebody first.
STATES: tuple[DecisionState, ...] = (
    "regressed", "proposed", "accepted", "done", "snoozed", "dismissed", "expired",
)  # fmt: skip
assert set(STATES) == set(get_args(DecisionState))
_LABEL_WIDTH = 12


def as_dict(entry: LedgerEntry, now: float) -> dict[str, object]:
    """An entry as the values of JSON: times in RFC 3339, UTC."""
    p, decision, ground = entry.proposal, entry.decision(now), entry.proposal.ground
    saving, ratio = (ground.saving_usd_per_month, ground.time_ratio) if ground else (None, None)
    return {
        "id": p.id, "state": decision.state, "action": p.action, "about": p.about, "from": p.source_config,
        "to": p.target_config, "saving_usd_per_month": _finite(p.saving_usd_per_month),
        "freed_gpu_hours_per_month": _finite(p.freed_gpu_hours_per_month), "realisation": p.realisation,
        "risk": p.risk, "blocked": p.blocked, "text": p.text, "source": p.source,
        "first_proposed": rfc3339(entry.first_proposed), "last_proposed": rfc3339(entry.last_proposed),
        "snoozed_until": rfc3339(decision.until) if decision.until is not None else None,
        "predicted": {
            "saving_usd_per_month": dataclasses.asdict(saving) if saving else None,
            "time_ratio": dataclasses.asdict(ratio) if ratio else None,
            "usd_per_month_before": _finite(ground.yardstick.usd_per_month) if ground else None,
            "prices": ground.prices if ground else None,
        },
        "realised": _realised(entry.realised) if entry.realised else None,
        "history": [
            {"act": e.act, "at": rfc3339(e.at), "by": e.by, "why": e.why,
             "until": rfc3339(e.until) if e.until is not None else None}
            for e in entry.events
        ],
    }  # fmt: skip


def _realised(told: Realised) -> dict[str, object]:
    """A measurement without the prediction, which stands beside it."""
    values = dataclasses.asdict(told)
    kept = {name: _finite(v) if isinstance(v, float) else v for name, v in values.items() if "predicted" not in name}
    return {**kept, "since": rfc3339(told.since), "until": rfc3339(told.until)}


def as_text(entries: Sequence[LedgerEntry], left_out: int, now: float, width: int) -> str:
    """The ledger as a person reads it: a table, then what was decided and seen of each."""
    more = f"{left_out} more are blocked, expired or in another state; --all lists them.\n" if left_out else ""
    if not entries:
        return more or "No recommendations in the ledger yet.\n"
    rows, history = [], []
    for entry in sorted(
        entries,
        key=lambda e: (STATES.index(e.decision(now).state), -(e.proposal.saving_usd_per_month or 0.0), e.proposal.id),
    ):
        p = entry.proposal
        saving = words.usd(p.saving_usd_per_month) if p.saving_usd_per_month is not None else words.NONE
        real = entry.realised.saving_usd_per_month if entry.realised is not None else None
        measured = words.NONE if real is None else words.usd(real)
        rows.append(
            (p.id, state_words(entry, now), p.action, p.about, p.target_config, saving, measured,
             minute(entry.last_proposed))
        )  # fmt: skip
        kept = [e for e in entry.events if e.by and e.act not in ("proposed", "expired")]
        told = [f"{p.id}: {event_words(event)}" for event in kept]
        history += [textwrap.fill(clean(line), width, subsequent_indent="    ") for line in told]
    heads = ("ID", "state", "action", "of", "to", "saving/month", "measured/month", "last proposed")
    table = columns(heads, rows, right=(5, 6))
    return table + "\n" + ("\n" + "\n".join(history) + "\n" if history else "") + more


def state_words(entry: LedgerEntry, now: float) -> str:
    """Its state, with the end of a snooze."""
    decision = entry.decision(now)
    return f"{decision.state} until {minute(decision.until)}" if decision.until is not None else decision.state


def entry_text(entry: LedgerEntry, now: float, width: int) -> str:
    """One entry in full: what was predicted, what was measured, and its history."""
    p, ground, measured = entry.proposal, entry.proposal.ground, entry.realised
    lines = [
        ("id", p.id),
        ("state", state_words(entry, now)),
        ("move", f"{p.action} of {p.about}: {p.source_config} to {p.target_config}"),
        ("advice", p.text),
    ]
    if ground is not None:
        priced = f", {ground.prices}" if ground.usd_per_hour else ""
        saving = words.saving_words(ground.saving_usd_per_month, p.freed_gpu_hours_per_month, p.realisation)
        lines.append(("predicted", f"{saving}{priced}; time: {words.time_words(ground.time_ratio)}"))
    else:
        saving = (
            f"{words.usd(p.saving_usd_per_month)}/month" if p.saving_usd_per_month is not None else "no cash saving"
        )
        lines.append(("predicted", f"{saving}; it is blocked"))
    lines += [("measured", line) for line in _measured_lines(measured)] if measured else [("measured", "not done yet")]
    lines += [("history", event_words(e)) for e in entry.events]
    indent = " " * _LABEL_WIDTH
    told = []
    for n, (label, text) in enumerate(lines):
        head = "" if n and lines[n - 1][0] == label else label  # before the first of its lines
        told.append(
            textwrap.fill(clean(text), width, initial_indent=f"{head:<{_LABEL_WIDTH}}", subsequent_indent=indent)
        )
    return "\n".join(told) + "\n"


def _measured_lines(told: Realised) -> list[str]:
    over = f"measured over {told.hours:,.0f} h until {minute(told.until)}; done on {minute(told.since)}"
    if told.saving_usd_per_month is not None:
        cost = f"{words.usd(told.usd_per_month_before)} to {words.usd(told.usd_per_month_after)} a month"
        saving = f"{words.usd(told.saving_usd_per_month)}/month saved ({cost}), {over}"
    else:
        saving = f"saving unknown: {told.saving_missing}"
    before, after = told.gpu_hours_per_month_before, told.gpu_hours_per_month_after
    held = f"{words.hours(before)} to {words.hours(after)} a month"
    time = f"time x{told.time_ratio:.2f}" if told.time_ratio is not None else f"time unknown: {told.time_missing}"
    load = f"load x{told.load_ratio:.2f}" if told.load_ratio is not None else "load unknown"
    return [saving, held, time, load, *told.confounders]


def event_words(event: LedgerEvent) -> str:
    """``dismissed by ann on 2026-11-02 10:00 UTC: a warm standby``."""
    until = f" until {minute(event.until)}" if event.until is not None else ""
    return f"{event.act}{until} by {event.by} on {minute(event.at)}" + (f": {event.why}" if event.why else "")


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
