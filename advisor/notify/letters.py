"""The one builder of letters: a page as a mail (HTML, plain text, files) and as the JSON of a webhook."""

import base64
import gzip
import hashlib
import json
import quopri
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.headerregistry import Address, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.policy import SMTP, Policy
from typing import Any

from ...agent.base.safe_text import clean_text
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice
from ..core.timestamps import day
from ..core.worth import selected
from ..show.document import Document
from ..show.incident_words import Item
from ..show.pages.incident import incident_document
from ..show.pages.report import report_document
from ..show.pages.story import Story
from ..show.reader_links import NO_LINKS, ReaderLinks
from ..show.writers.csv import csv_text
from ..show.writers.formats import FORMATS, render
from ..show.writers.html import mail_html
from ..show.writers.text import mail_text
from ..state.deliveries import Message
from ..watch.settings import WatchSettings
from .routes import Recipient, Routes

SUBJECT_MAX = 150
# Bytes of a whole message; quoted-printable and Base64 add a tenth and a third.
MAIL_MAX, _HEADER_BYTES = 250_000, 6_000
_ROWS = 8  # of each list of a report; teams: four times as many
_PLAIN_MAX = 64 * 1024
# Slack cuts a message at 40,000 characters and folds it long before; the mail has the whole letter.
WEBHOOK_MAX = 3000


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file beside the text. `media_type` as in ``text/csv``."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Letter:
    """One mail's contents, before anybody is addressed. `subject` is one line without control characters; `text` alone
    is a full report too."""

    subject: str
    html: str
    text: str
    attachments: tuple[Attachment, ...] = ()


def incident_letter(
    items: Sequence[Item], team: str, now: float, settings: WatchSettings, links: ReaderLinks = NO_LINKS
) -> Letter:
    """One incident, or a digest of several. `team` empty: the administrators; `now`: Unix seconds."""
    start = min(item.incident.since for item in items)
    return _letter(incident_document(items, now, settings, links.of_window(team, min(start, now), now)))


def report_letter(story: Story, links: ReaderLinks = NO_LINKS) -> Letter:
    """The mail of a week, with the whole page and the lists as far as a mail has room for them."""
    files, kept = _files(story), list[Attachment]()
    letter = _letter(report_document(story, _ROWS, [file.name for file in files], links))
    texts = "".join((letter.html, letter.text)).encode("utf-8", "backslashreplace")
    room = MAIL_MAX - _HEADER_BYTES - len(quopri.encodestring(texts))
    for file in files:
        encode = quopri.encodestring if file.media_type.startswith("text/") else base64.encodebytes
        if (size := len(encode(file.data))) <= room:
            kept.append(file)
            room -= size
    if len(kept) < len(files):
        letter = _letter(report_document(story, _ROWS, [file.name for file in kept], links))
    return replace(letter, attachments=tuple(kept))


def _letter(page: Document) -> Letter:
    return Letter(clean_text(page.title, SUBJECT_MAX), mail_html(page), mail_text(page))


def webhook_json(letter: Letter) -> bytes:
    """A letter for Slack and what understands its JSON, in `WEBHOOK_MAX` characters at most: the subject and the
    beginning of its text. Nothing in it is a mention, a link or markup."""
    text = f"*{_escaped(letter.subject).replace('*', '')}*\n```\n"
    for line in map(clean, letter.text.splitlines()):
        escaped = _escaped(line).replace("```", "'''")
        if len(text) + len(escaped) > WEBHOOK_MAX - len("\n...\n```"):
            text += "...\n"
            break
        text += f"{escaped}\n"
    return json.dumps({"text": f"{text}```"}).encode("ascii")


def _escaped(text: str) -> str:
    """The three characters by which Slack begins what is no text (https://docs.slack.dev: formatting text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _files(story: Story) -> tuple[Attachment, ...]:
    if story.empty:
        return ()
    name, files = f"skuwise-{day(story.advice.start)}", []

    def add(ending: str, form: str, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= _PLAIN_MAX or form == "html":
            files.append(Attachment(f"{name}{ending}", FORMATS[form][0], data))
        else:
            files.append(Attachment(f"{name}{ending}.gz", "application/gzip", gzip.compress(data, mtime=0)))

    add(".html", "html", render(story.advice, "html", team=story.team))
    if story.teams:
        rows = [_team_values(*row) for row in story.teams]
        add("-teams.csv", "csv", csv_text(tuple(rows[0]), rows))
        add("-teams.json", "json", json.dumps({"teams": rows}, indent=2, allow_nan=False) + "\n")
    for form in ("csv", "json"):
        add(FORMATS[form][1], form, render(story.advice, form))
    return tuple(files)


def _team_values(team: str | None, part: Advice, before: Advice | None) -> dict[str, object]:
    now, was = part.summary, before.summary if before is not None else None
    values: dict[str, object] = {"team": clean(team) if team is not None else None}
    values |= {"workloads": len(part.workloads), "moves": len(selected(part).shown)}
    for name in ("gpu_hours", "cost_usd"):
        values |= {name: getattr(now, name), f"{name}_before": getattr(was, name, None)}
    return values | {name: getattr(now, name) for name in ("wasted_usd", "slowed_usd", "recoverable_usd_per_month")}


# The sender where the settings name none: in previews, and where there are only webhooks.
NOBODY = Address("skuwise", addr_spec="skuwise@localhost")


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
    """The message as it goes over the wire: text, HTML and files; 7-bit, lines within RFC 5322's limit, headers as RFC
    2047 encodes them. `to` may be empty in a preview; `date`: Unix seconds; `in_reply_to`: the id of the mail that this
    one follows; empty: none."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = routes.sender or NOBODY
    message["To"] = ", ".join(to) or "undisclosed-recipients:;"
    # Python decodes encoded words that it is given, line ends and all, so none may come from outside.
    message["Subject"] = clean_text(letter.subject, SUBJECT_MAX).replace("=?", "= ?")
    message["Date"] = datetime.fromtimestamp(date, UTC)
    message["Message-ID"] = message_id
    if in_reply_to:
        message["In-Reply-To"] = message["References"] = in_reply_to
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
    """A file name for each team, without its ending: plain letters, and no two alike even where case is lost. The
    fleet's report has the team "" and the name ``fleet``; ``index`` is the name of the list of them."""
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
