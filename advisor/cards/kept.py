"""Kept cards beside those of telemetry: found, compared, and put in the place of what telemetry has lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.card_types import Card, CardState
from .runs import Run, named_run
from .store import CardStore

_ENDED: CardState = "ended"
_SHORTER = 0.999


def kept_card(store: CardStore, asked: str, command: Callable[[str], str]) -> Card | None:
    """The kept card of the job that is named; None: there is none. Raises AmbiguousError, StoreError."""
    cards = {card.id: card for card in store.named(asked)}
    if not cards:
        return None
    return cards[named_run(asked, [_run(card) for card in cards.values()], command).run.id]


def compared_with_kept(store: CardStore, card: Card) -> Card:
    """The card with kept runs of its series; the kept card itself where it tells of more of the job's life."""
    from .build import with_kept  # noqa: PLC0415

    same = next((one for one in store.named(card.id) if one.id == card.id), None)
    if same is not None and card.state == _ENDED and card.gpu_hours < same.gpu_hours * _SHORTER:
        return same
    return with_kept(card, store.series(card.series_id))


def with_kept_ones(
    store: CardStore, cards: Sequence[Card], since: float, until: float | None, *, user: str | None,
    account: str | None, namespace: str | None,
) -> tuple[Card, ...]:  # fmt: skip
    """The cards, and the kept ones of the same owners that ended within the window and telemetry no longer has."""
    kept = store.listed(since, user=user, account=account, namespace=namespace)
    known = {card.id for card in cards}
    return (*cards, *(one for one in kept if one.id not in known and (until is None or one.start < until)))


def is_of(card: Card, user: str | None, account: str | None, namespace: str | None) -> bool:
    """Whether a card is of these owners (None: any)."""
    asked = ((user, card.owner.user), (account, card.owner.account), (namespace, card.namespace))
    return all(wanted is None or wanted == told for wanted, told in asked)


def _run(card: Card) -> Run:
    array, _, task = (card.job_id or "").partition("_")
    return Run(
        card.id, card.series_id, card.name, card.start, card.end, card.scheduler, card.job_id,
        card.job_id if task else None, array if task else None, card.cluster, card.namespace, card.pod, card.owner,
        card.nodes, card.end,
    )  # fmt: skip
