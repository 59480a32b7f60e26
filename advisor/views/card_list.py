"""Many cards as a table, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import formatting as words
from ..core.card_types import Card
from ..core.ids import short_ids
from .card_rows import percent_of, pod_of, state_words

_HEADS = ("ID", "Job", "Name", "State", "GPUs", "GPU-hours", "SM", "Idle hours", "Cost", "Next step")
_RIGHT = (4, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class CardList:
    """`rows` by `heads`; `right`: columns of numbers; `total`: one sentence over all of them."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...]
    total: str


def worst_first(cards: Sequence[Card]) -> tuple[Card, ...]:
    """By what their idle GPU-hours cost, then by the hours, then by what they cost; the unknown last."""
    return tuple(
        sorted(cards, key=lambda c: (-(c.idle_usd or 0.0), -(c.use.idle_gpu_hours or 0.0), -c.gpu_hours, c.id))
    )


def card_list(cards: Sequence[Card]) -> CardList:
    """The table of these cards, in their order, and ``12 jobs, 340 GPU-hours, 41.0 of them idle, $1,234 ($120 idle)``
    with what that leaves out."""
    short = short_ids(card.id for card in cards)
    rows = []
    for card in cards:
        sm, cost = card.use.sm_active, card.cost_usd
        rows.append((
            short[card.id], card.job_id or pod_of(card), card.name, state_words(card), f"{card.gpu_count}",
            _hours(card.gpu_hours), words.NONE if sm is None else percent_of(sm), _hours(card.use.idle_gpu_hours),
            words.NONE if cost is None else words.usd(cost), card.next_step.text,
        ))  # fmt: skip
    idle = [card.use.idle_gpu_hours for card in cards if card.use.idle_gpu_hours is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    told = [words.counted(len(cards), "job"), words.hours(sum(card.gpu_hours for card in cards))]
    told += [f"{_hours(sum(idle))} of them idle"] if idle else []
    wasted = words.usd(sum(card.idle_usd or 0.0 for card in cards))
    told += [f"{words.usd(sum(costs))} ({wasted} idle)"] if costs else []
    counts = {"idle hours": len(cards) - len(idle), "cost": len(cards) - len(costs)}
    left = "; ".join(f"{what} unknown for {count}" for what, count in counts.items() if count)
    return CardList(_HEADS, tuple(rows), _RIGHT, f"Total: {', '.join(told)}{f' ({left})' if left else ''}")


def _hours(value: float | None) -> str:
    return words.NONE if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
