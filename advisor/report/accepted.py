"""The section on what became of accepted moves: what was predicted, what was measured, and what turned back."""

from __future__ import annotations

from .. import words
from ..ledger.outcomes import Outcome
from ..moments import day
from .brief import Brief, brief
from .page import Section, Sheet
from .sections import Lengths, more
from .story import Story


def accepted(story: Story, brevity: Brief, lengths: Lengths) -> Section:
    title = "What was accepted, and what it saved"
    if not story.outcomes:
        return Section(title, ("No move was accepted yet, and none was seen done.",))

    def row(o: Outcome) -> tuple[str, ...]:
        to = "nothing" if o.to_config == words.NONE else brief(o.to_config, 80)
        return (
            f"{brevity.sentence(o.about, 80)}: {brief(o.from_config, 80)} to {to}",
            _state(o),
            _predicted(o),
            _realised(o),
        )

    sheet = Sheet(
        ("move", "state", "predicted", "measured"), tuple(map(row, story.outcomes[: lengths.rows])),
        more=more(story.outcomes, lengths.rows, "skuwise ledger list has them all"),
    )  # fmt: skip
    back = tuple(
        f"{brevity.sentence(o.about, 80)} went back: {brevity.sentence(o.why, 240)}"
        for o in story.outcomes
        if o.state == "regressed"
    )
    return Section(title, _saved(story), sheet=sheet, bullets=back[: lengths.bullets])


def _saved(story: Story) -> tuple[str, ...]:
    """What is saved today by what was measured: moves that went back save nothing any more."""
    done = [o for o in story.outcomes if o.state == "done" and o.realised_saving_usd_per_month is not None]
    if not done:
        return ()
    real = sum(o.realised_saving_usd_per_month or 0.0 for o in done)
    predicted = [o.predicted_saving_usd_per_month for o in done]
    known = sum(p.p50 for p in predicted if p is not None)
    of = f", of {words.usd(known)} predicted." if None not in predicted else "."
    moves = "1 move was measured" if len(done) == 1 else f"{len(done)} moves were measured"
    return (f"{moves}: {words.usd(real)} a month saved{of}",)


def _state(o: Outcome) -> str:
    when = o.done_at if o.done_at is not None else o.accepted_at
    return f"{o.state} {day(when)}" if when is not None else o.state


def _predicted(o: Outcome) -> str:
    saving, ratio = o.predicted_saving_usd_per_month, o.predicted_time_ratio
    told = _figures(
        saving.p50 if saving else None, o.predicted_freed_gpu_hours_per_month or None, ratio.p50 if ratio else None
    )
    return told or words.NONE


def _realised(o: Outcome) -> str:
    told = _figures(o.realised_saving_usd_per_month, o.realised_freed_gpu_hours_per_month, o.realised_time_ratio)
    return told or brief(o.reason_missing or words.NONE, 160)


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    """Dollars, else GPU-hours, and the time; empty where none is known."""
    gain = (
        f"{words.usd(usd)} a month" if usd is not None else f"{words.hours(freed)} a month" if freed is not None else ""
    )
    return ", ".join(part for part in (gain, f"x{ratio:.2f} the time" if ratio is not None else "") if part)
