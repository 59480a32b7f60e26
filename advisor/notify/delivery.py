"""Takes what waits in the outbox to its carriers, one mail after the other, and writes down every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ...agent.model import Instant
from ...rules.base.errors import SkuwiseError, StoreError
from ...rules.base.sanitize import clean
from ..state.outbox import DamagedParcelError, Outbox
from ..state.parcel import Channel, Parcel, Reply


@dataclass(frozen=True)
class Clocks:
    """The clocks, and how to wait."""

    now: Callable[[], Instant]
    sleep: Callable[[float], None]


class CarrierDownError(SkuwiseError):
    """Nothing can be handed over just now. Nobody is given up for it: all of it waits for the next run."""


class Carrier(Protocol):
    """A way by which parcels travel."""

    def ready(self, parcel: Parcel) -> None:
        """See to it that this can be handed over now. Raises CarrierDownError."""
        ...

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        """Hand it over; what was said to each recipient."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run did, by recipients. `refused`: who will not receive it, and why, in words. `down`: why a channel was
    left for later. `soonest_seconds`: in how long somebody who waits is due again; 0: now."""

    sent: int
    waiting: int
    refused: tuple[str, ...]
    down: tuple[SkuwiseError, ...]
    soonest_seconds: float = 0.0


def send_waiting(
    outbox: Outbox,
    carriers: Mapping[Channel, Carrier],
    *,
    clock: Callable[[], Instant],
    sleep: Callable[[float], None],
    mails_per_minute: int,
    say: Callable[[str], None],
    only: str | None = None,
    batch: str = "",
    most_seconds: float | None = None,
) -> Tally:
    """Try everything that is due once; of the team `only` where one is named, of batches that begin with `batch`. After
    `most_seconds` no further mail is begun.

    The caller holds the outbox (`Outbox.sending`).
    """
    sent, refused, carried = 0, [], 0
    down: dict[Channel, SkuwiseError] = {}
    began = clock()
    try:
        for number in outbox.due(began, only, batch):
            if most_seconds is not None and clock().monotonic_seconds - began.monotonic_seconds >= most_seconds:
                break
            try:
                parcel = outbox.load(number, clock())
            except DamagedParcelError as error:
                refused += [clean(f"{name}: {error}") for name in outbox.give_up(number, error.message, clock())]
                continue
            carrier = carriers.get(parcel.channel)
            if carrier is None or parcel.channel in down or not parcel.recipients:  # the clock may have gone back
                continue
            if carried:
                sleep(60.0 / mails_per_minute)
            try:
                carrier.ready(parcel)
            except CarrierDownError as error:
                down[parcel.channel] = error
                continue
            outbox.begin(number, parcel.recipients, clock())
            noted = outbox.end(number, carrier.carry(parcel), clock())
            carried += 1
            for recipient, reply in noted.items():
                name = clean(f"{parcel.team or 'the fleet'} ({parcel.channel}, {recipient})")
                if reply.result == "accepted":
                    sent += 1
                    say(f"sent: {name}")
                elif reply.result == "refused":
                    refused.append(f"{name}: {reply.text}")
                else:
                    say(f"later: {name}: {reply.text}")
            with suppress(StoreError):  # on a full disk: the next run does
                outbox.let_go()
    finally:
        for carrier in carriers.values():
            carrier.close()
    return Tally(sent, outbox.waiting(), tuple(refused), tuple(down.values()), outbox.soonest(clock()))
