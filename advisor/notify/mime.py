"""A letter, addressed: the bytes that are sent. Pure; whatever came from outside can end no header."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.policy import SMTP, Policy
from typing import Any

from ...agent.base.safe_text import clean_text
from ..state.deliveries import Message
from .letters import Letter, webhook_json
from .routes import Recipient, Routes

# The sender where the settings name none: in previews, and where there are only webhooks.
NOBODY = Address("skuwise", addr_spec="skuwise@localhost")
_MAX_SUBJECT = 200


class _Whole(BaseHeader):
    """A short header of ASCII as it is: not decoded, and not folded into encoded words, which break an address."""

    max_count = 1

    @classmethod
    def parse(cls, value: str, kwds: dict[str, Any]) -> None:
        kwds["decoded"], kwds["parse_tree"] = value, None

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {self}{policy.linesep}"


_HEADERS = HeaderRegistry()
_HEADERS.map_to_type("list-unsubscribe", _Whole)
_POLICY = SMTP.clone(header_factory=_HEADERS)


def message_id(batch: str, team: str, recipient: str, routes: Routes) -> str:
    """The same for a batch, team and recipient however often it is sent, so that a reader sees a repeated mail once."""
    what = "\0".join((batch, team, recipient)).encode("utf-8", "backslashreplace")
    return f"<skuwise.{hashlib.sha256(what).hexdigest()[:32]}@{(routes.sender or NOBODY).domain}>"


def message_to(
    to: Recipient, letter: Letter, batch: str, routes: Routes, date: float, *, items: Sequence[str] = (),
    in_reply_to: str = "",
) -> Message:  # fmt: skip
    """The message of `batch` to one recipient, by its channel. `items`: keys of what it informs of; else as
    `compose`."""
    id_ = message_id(batch, to.team, to.address, routes)
    content = webhook_json(letter)
    if to.channel == "mail":
        content = compose(letter, routes, (to.address,), message_id=id_, date=date, in_reply_to=in_reply_to)
    return Message(batch, to.team, to.channel, to.address, id_, letter.subject, content, tuple(items))


def compose(
    letter: Letter, routes: Routes, to: Sequence[str], *, message_id: str, date: float, in_reply_to: str = ""
) -> bytes:
    """The message as it goes over the wire: text, HTML and files. `to` may be empty in a preview; `date`: Unix seconds;
    `in_reply_to`: the id of the mail that this one follows; empty: none.

    7-bit throughout, lines within RFC 5322's limit, headers as RFC 2047 encodes them.
    """
    message = EmailMessage(policy=_POLICY)
    message["From"] = routes.sender or NOBODY
    message["To"] = ", ".join(to) or "undisclosed-recipients:;"
    # Python decodes encoded words that it is given, line ends and all, so none may come from outside.
    message["Subject"] = clean_text(letter.subject, _MAX_SUBJECT).replace("=?", "= ?")
    message["Date"] = datetime.fromtimestamp(date, UTC)
    message["Message-ID"] = message_id
    if in_reply_to:
        message["In-Reply-To"] = in_reply_to
        message["References"] = in_reply_to
    if routes.list_unsubscribe:
        message["List-Unsubscribe"] = f"<{routes.list_unsubscribe}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no absence note answers it
    message["Precedence"] = "bulk"
    message.set_content(_storable(letter.text), cte="quoted-printable")
    message.add_alternative(_storable(letter.html), subtype="html", cte="quoted-printable")
    for file in letter.attachments:
        main, _, sub = file.media_type.partition("/")
        if main == "text":  # Base64 would add a third
            text = file.data.decode("utf-8")
            message.add_attachment(text, subtype=sub, cte="quoted-printable", filename=file.name)
        else:
            message.add_attachment(file.data, main, sub, filename=file.name)
    return message.as_bytes()


def file_names(teams: Sequence[str]) -> tuple[str, ...]:
    """A file name for each team, without its ending: plain letters, and no two alike even where case is lost.

    The fleet's report has the team "" and the name ``fleet``; ``index`` is the name of the list of them.
    """
    names: list[str] = []
    for team in teams:
        name = re.sub(r"[^a-z0-9_-]+", "-", team.lower())[:60].strip("-") if team else "fleet"
        if team and (name != team or name in ("fleet", "index")):
            digest = hashlib.sha256(team.encode("utf-8", "backslashreplace")).hexdigest()
            name = f"{name}-{digest[:16]}".lstrip("-")
        names.append(name)
    return tuple(names)


def _storable(text: str) -> str:
    """Text that UTF-8 can carry: a lone surrogate (a name that is none) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
