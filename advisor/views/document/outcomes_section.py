"""The section on what became of accepted moves: what was predicted, what was measured, and what turned back."""

from __future__ import annotations

from ...core import formatting as words
from ...core.timestamps import day
from ...ledger.outcomes import MoveOutcome
from .report_content import Story
from .sections import Lengths, more
from .truncate import Brief, brief
from .types import Card, Section


def accepted(story: Story, brevity: Brief, lengths: Lengths) -> Section:
    title = "What was accepted, and what it saved"
    if not story.outcomes:
        return Section(title, ("No accepted or completed recommendation is on record.",))

    rest = more(story.outcomes, lengths.rows, "skuwise ledger list has them all")
    return Section(
        title, _saved(story), cards=tuple(_card(o, brevity) for o in story.outcomes[: lengths.rows]),
        bullets=(rest,) if rest else (),
    )  # fmt: skip


def _card(o: MoveOutcome, brevity: Brief) -> Card:
    when = o.done_at if o.done_at is not None else o.accepted_at
    return Card(
        title=f"{brevity.sentence(o.about, 80)}: {o.state}{f', {day(when)}' if when is not None else ''}",
        sentences=(brevity.sentence(o.why, 240),) if o.why else (),
        figures=(
            ("From", brief(o.from_config, 80)),
            ("To", "nothing held" if o.to_config == words.NONE else brief(o.to_config, 80)),
            ("Predicted", _predicted(o)),
            ("Measured", _realised(o)),
        ),
        wrong_if="",
        command=brief(f"skuwise ledger show {o.id}"),
    )


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


def _predicted(o: MoveOutcome) -> str:
    saving, ratio = o.predicted_saving_usd_per_month, o.predicted_time_ratio
    told = _figures(
        saving.p50 if saving else None, o.predicted_freed_gpu_hours_per_month or None, ratio.p50 if ratio else None
    )
    return told or words.NONE


def _realised(o: MoveOutcome) -> str:
    told = _figures(o.realised_saving_usd_per_month, o.realised_freed_gpu_hours_per_month, o.realised_time_ratio)
    return told or brief(o.reason_missing or words.NONE, 160)


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    """Dollars, else GPU-hours, and the time; empty where none is known."""
    gain = (
        f"{words.usd(usd)} a month" if usd is not None else f"{words.hours(freed)} a month" if freed is not None else ""
    )
    return ", ".join(part for part in (gain, f"x{ratio:.2f} the time" if ratio is not None else "") if part)
