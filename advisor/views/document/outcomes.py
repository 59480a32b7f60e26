"""The section on accepted recommendations: what was predicted, what was measured, and what was reverted."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.timestamps import day
from ...ledger.outcomes import MoveOutcome
from .model import AsideBlock, Figures, Section, section
from .reader_commands import ReaderCommands
from .truncate import Lengths


def accepted(outcomes: Sequence[MoveOutcome], lengths: Lengths, commands: ReaderCommands) -> Section:
    title = "Accepted recommendations and their savings"
    if not outcomes:
        return section(title, "No accepted or completed recommendation is on record.")
    shown = outcomes[: lengths.rows]
    return section(
        title,
        _saved(outcomes),
        *(_card(number, o, lengths, commands) for number, o in enumerate(shown, 1)),
        AsideBlock(f"{len(outcomes) - len(shown)} more:", commands.ledger_list())
        if len(outcomes) > len(shown)
        else None,
    )


def _card(number: int, o: MoveOutcome, lengths: Lengths, commands: ReaderCommands) -> Section:
    when = o.done_at if o.done_at is not None else o.accepted_at
    return section(
        f"{number}. {lengths.sentence(o.about, 80)}: {o.state}{f', {day(when)}' if when is not None else ''}",
        lengths.sentence(o.why or "", 240),
        Figures(
            (
                ("From", lengths.name(o.from_config, 80)),
                ("To", "nothing held" if o.to_config == words.NONE else lengths.name(o.to_config, 80)),
                ("Predicted", _predicted(o)),
                ("Measured", _realised(o, lengths)),
            )
        ),
        AsideBlock(commands.lead, commands.ledger_show(lengths.name(o.id))),
    )


def _saved(outcomes: Sequence[MoveOutcome]) -> str:
    """The savings that were measured and last: what was reverted saves nothing any more."""
    done = [o for o in outcomes if o.state == "done" and o.realised_saving_usd_per_month is not None]
    if not done:
        return ""
    real = sum(o.realised_saving_usd_per_month or 0.0 for o in done)
    predicted = [o.predicted_saving_usd_per_month for o in done]
    known = sum(p.p50 for p in predicted if p is not None)
    of = f", of {words.usd(known)} predicted." if None not in predicted else "."
    moves = "1 recommendation was measured" if len(done) == 1 else f"{len(done)} recommendations were measured"
    return f"{moves}: {words.usd(real)}/month saved{of}"


def _predicted(o: MoveOutcome) -> str:
    saving, ratio = o.predicted_saving_usd_per_month, o.predicted_time_ratio
    told = _figures(
        saving.p50 if saving else None, o.predicted_freed_gpu_hours_per_month or None, ratio.p50 if ratio else None
    )
    return told or words.NONE


def _realised(o: MoveOutcome, lengths: Lengths) -> str:
    told = _figures(o.realised_saving_usd_per_month, o.realised_freed_gpu_hours_per_month, o.realised_time_ratio)
    return told or lengths.sentence(o.reason_missing or words.NONE, 160)


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    """Dollars, else GPU-hours, and the time; empty where none is known."""
    gain = f"{words.usd(usd)}/month" if usd is not None else f"{words.hours(freed)}/month" if freed is not None else ""
    return ", ".join(part for part in (gain, f"x{ratio:.2f} the time" if ratio is not None else "") if part)
