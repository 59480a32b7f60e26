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

    def key(card: Card) -> tuple[float, float, float, str]:
        return (-(card.idle_usd or 0.0), -(card.use.idle_gpu_hours or 0.0), -card.gpu_hours, card.id)

    return tuple(sorted(cards, key=key))


def card_list(cards: Sequence[Card]) -> CardList:
    """The table of these cards, in their order."""
    short = short_ids(card.id for card in cards)
    rows = tuple(
        (
            short[card.id], card.job_id or pod_of(card) or "", card.name, state_words(card), f"{card.gpu_count}",
            _hours(card.gpu_hours), _share(card.use.sm_active), _hours(card.use.idle_gpu_hours),
            words.usd(card.cost_usd) if card.cost_usd is not None else words.NONE, card.next_step.text,
        )
        for card in cards
    )  # fmt: skip
    return CardList(_HEADS, rows, _RIGHT, total_line(cards))


def total_line(cards: Sequence[Card]) -> str:
    """``12 jobs, 340 GPU-hours, 41.0 of them idle, $1,234 ($120 idle)``, and what that leaves out."""
    hours = sum(card.gpu_hours for card in cards)
    idle = [card.use.idle_gpu_hours for card in cards if card.use.idle_gpu_hours is not None]
    costs = [card.cost_usd for card in cards if card.cost_usd is not None]
    wasted = sum(card.idle_usd for card in cards if card.idle_usd is not None)
    told = [words.counted(len(cards), "job"), words.hours(hours)]
    if idle:
        told.append(f"{_hours(sum(idle))} of them idle")
    if costs:
        told.append(f"{words.usd(sum(costs))} ({words.usd(wasted)} idle)")
    rest = [
        f"idle hours unknown for {len(cards) - len(idle)}" if len(idle) < len(cards) else "",
        f"cost unknown for {len(cards) - len(costs)}" if len(costs) < len(cards) else "",
    ]
    left = "; ".join(part for part in rest if part)
    return f"Total: {', '.join(told)}{f' ({left})' if left else ''}"


def _hours(value: float | None) -> str:
    return words.NONE if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return words.NONE if value is None else percent_of(value)
