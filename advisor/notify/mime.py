"""A letter, addressed: the bytes that are sent. Pure; whatever came from outside can end no header."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.policy import SMTP, Policy
from typing import Any

from ...agent.base.safe_text import clean_text
from .letter import Letter

# Stands in From where the settings name nobody: in previews, and where only webhooks are told.
NOBODY = Address("skuwise", addr_spec="skuwise@localhost")
_MAX_SUBJECT = 200
_MAX_FILE_NAME = 100
# File names that Windows keeps for devices, whatever their ending.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
_MEDIA_TYPE = re.compile(r"([a-z]{1,30})/([a-z0-9.+-]{1,60})")


class _Whole(BaseHeader):
    """A short header of ASCII as it is: neither decoded, nor folded into encoded words, which break an address."""

    max_count = 1

    @classmethod
    def parse(cls, value: str, kwds: dict[str, Any]) -> None:
        kwds["decoded"], kwds["parse_tree"] = value, None

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {self}{policy.linesep}"


_HEADERS = HeaderRegistry()
_HEADERS.map_to_type("list-unsubscribe", _Whole)
_POLICY = SMTP.clone(header_factory=_HEADERS)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who writes to whom. `to` may be empty in a preview. `list_unsubscribe`: a mailto: or https: address, or empty."""

    sender: Address
    to: tuple[str, ...]
    list_unsubscribe: str = ""


def message_id(week: str, team: str, sender: Address) -> str:
    """The same for a team and a week however often it is sent, so that a reader sees a repeated mail once."""
    told = hashlib.sha256(f"{week}\0{team}".encode("utf-8", "backslashreplace")).hexdigest()[:24]
    return f"<skuwise.{week}.{told}@{sender.domain}>"


def compose(letter: Letter, envelope: Envelope, *, message_id: str, date: float, in_reply_to: str = "") -> bytes:
    """The message as it goes over the wire: text, HTML with its images, and files. `date`: Unix seconds. `in_reply_to`:
    the id of the mail that this one follows; empty: none.

    7-bit throughout, lines within RFC 5322's limit, headers as RFC 2047 encodes them.
    """
    message = EmailMessage(policy=_POLICY)
    message["From"] = envelope.sender
    message["To"] = ", ".join(envelope.to) if envelope.to else "undisclosed-recipients:;"
    # Python decodes encoded words that it is given, line ends and all, so none may come from outside.
    message["Subject"] = clean_text(letter.subject, _MAX_SUBJECT).replace("=?", "= ?")
    message["Date"] = datetime.fromtimestamp(date, UTC)
    message["Message-ID"] = message_id
    if in_reply_to:
        message["In-Reply-To"] = in_reply_to
        message["References"] = in_reply_to
    if envelope.list_unsubscribe:
        message["List-Unsubscribe"] = f"<{envelope.list_unsubscribe}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence note answers it
    message["Precedence"] = "bulk"
    message.set_content(_storable(letter.text), cte="quoted-printable")
    message.add_alternative(_storable(letter.html), subtype="html", cte="quoted-printable")
    html = list(message.iter_parts())[1]
    assert isinstance(html, EmailMessage)
    for image in letter.images:
        html.add_related(
            image.png, "image", "png", cid=f"<{image.name}>", filename=f"{image.name}.png", disposition="inline"
        )
    for file in letter.attachments:
        main, sub = _media_type(file.media_type)
        message.add_attachment(file.data, main, sub, filename=_file_name(file.name))
    return message.as_bytes()


def inlined(letter: Letter) -> str:
    """The letter's HTML by itself: its images stand in it, so that a browser shows it from a file."""
    html = letter.html
    for image in letter.images:
        # In a picture's address alone: a text may say the same.
        data = f"data:image/png;base64,{base64.b64encode(image.png).decode()}"
        html = re.sub(rf"""(<img\b[^<>]*\bsrc=["'])cid:{re.escape(image.name)}(?=["'])""", rf"\g<1>{data}", html)
    return html


def file_names(teams: Sequence[str]) -> tuple[str, ...]:
    """A file name for each team, without its ending: safe everywhere, and no two alike even where case is lost.

    The fleet's report has the team "" and the name ``fleet``; ``index`` is the name of the list of them.
    """
    names: list[str] = []
    taken = {"fleet", "index", *_DEVICES}
    for team in teams:
        name = re.sub(r"[^a-z0-9_-]+", "-", team.lower())[:60].strip("-") if team else "fleet"
        if team and (name != team or name in taken):
            digest = hashlib.sha256(team.encode("utf-8", "backslashreplace")).hexdigest()
            name = next(n for end in range(8, 65) if (n := f"{name}-{digest[:end]}".lstrip("-")) not in taken)
        taken.add(name)
        names.append(name)
    return tuple(names)


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-_MAX_FILE_NAME:].lstrip(".-") or "file"


def _media_type(media_type: str) -> tuple[str, str]:
    found = _MEDIA_TYPE.fullmatch(media_type)
    return (found[1], found[2]) if found else ("application", "octet-stream")


def _storable(text: str) -> str:
    """Text that UTF-8 can carry: a lone surrogate (a name that is none) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
