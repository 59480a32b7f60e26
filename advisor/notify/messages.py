"""A letter as the message to one recipient, by its channel."""

from __future__ import annotations

from collections.abc import Sequence

from ..state.deliveries import Message
from .letters import Letter, webhook_json
from .mime import NOBODY, Envelope, compose, message_id
from .routes import Recipient, Routes


def message_to(
    to: Recipient,
    letter: Letter,
    batch: str,
    routes: Routes,
    date: float,
    *,
    items: Sequence[str] = (),
    in_reply_to: str = "",
) -> Message:
    """The message of `batch` to one recipient. `date`: Unix seconds; `items`: keys of what it informs of;
    `in_reply_to`: the id of the mail that this one follows; empty: none."""
    sender = routes.sender or NOBODY
    id_ = message_id(batch, to.team, to.address, sender)
    if to.channel == "webhook":
        content = webhook_json(letter)
    else:
        envelope = Envelope(sender, (to.address,), routes.list_unsubscribe)
        content = compose(letter, envelope, message_id=id_, date=date, in_reply_to=in_reply_to)
    return Message(batch, to.team, to.channel, to.address, id_, letter.subject, content, tuple(items))
