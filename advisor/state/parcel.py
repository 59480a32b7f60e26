"""What the outbox takes and what carriers say of it: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Channel = Literal["mail", "webhook"]
Result = Literal["accepted", "later", "refused"]
# How the batches of the watch begin; a week begins with its year.
WATCH = "watch-"


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one team is to receive by one channel. `week`: the date of its Monday, or the name of another batch of
    which each recipient receives one parcel (`WATCH`); `team` empty: the fleet's report.

    `content`: a whole message, or the JSON of a webhook. `recipients` of a webhook is its team's name: the address is a
    secret. `about`: keys of what it informs of, which the outbox keeps with it; a report has none.
    """

    week: str
    team: str
    channel: Channel
    message_id: str
    subject: str
    content: bytes
    recipients: tuple[str, ...]
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said to one recipient. ``later``: it may be accepted another time."""

    result: Result
    text: str
