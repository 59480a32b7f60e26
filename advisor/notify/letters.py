"""The one builder of letters: a page as a mail (HTML, plain text, files) and as the JSON of a webhook."""

from __future__ import annotations

import base64
import gzip
import json
import quopri
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from ..watch.settings import WatchSettings

SUBJECT_MAX = 150
# Bytes: Gmail shows no more than 102 kB of a mail. Only names of thousands of signs come near.
HTML_MAX = 98_000
# Bytes of a whole message; quoted-printable and Base64 add a tenth and a third.
MAIL_MAX, _HEADERS = 250_000, 6_000
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
    rows, files = _ROWS, _files(story)
    names = [file.name for file in files]
    letter = _letter(report_document(story, rows, names, links))
    while len(letter.html.encode()) > HTML_MAX and rows:
        rows //= 2
        letter = _letter(report_document(story, rows, names, links))
    texts = "".join((letter.html, letter.text)).encode("utf-8", "backslashreplace")
    room, kept = MAIL_MAX - _HEADERS - len(quopri.encodestring(texts)), list[Attachment]()
    for file in files:
        encode = quopri.encodestring if file.media_type.startswith("text/") else base64.encodebytes
        if (size := len(encode(file.data))) <= room:
            kept.append(file)
            room -= size
    if len(kept) < len(files):
        letter = _letter(report_document(story, rows, [file.name for file in kept], links))
    return replace(letter, attachments=tuple(kept))


def _letter(page: Document) -> Letter:
    return Letter(clean_text(page.title, SUBJECT_MAX), mail_html(page), mail_text(page))


def webhook_json(letter: Letter) -> bytes:
    """A letter for Slack and what understands its JSON, in `WEBHOOK_MAX` characters at most: the subject and the
    beginning of its text. Nothing in it is a mention, a link or markup."""
    subject = _escaped(letter.subject).replace("*", "")
    shown: list[str] = []
    room = WEBHOOK_MAX - len(subject) - len("**\n```\n...\n```")
    for line in map(clean, letter.text.splitlines()):
        escaped = _escaped(line).replace("```", "'''")
        room -= len(escaped) + 1
        if room < 0:
            shown.append("...")
            break
        shown.append(escaped)
    body = "\n".join(shown)
    return json.dumps({"text": f"*{subject}*\n```\n{body}\n```"}).encode("ascii")


def _escaped(text: str) -> str:
    """The three characters by which Slack begins what is no text (https://docs.slack.dev: formatting text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _files(story: Story) -> tuple[Attachment, ...]:
    """The whole page, the table of teams and the lists, what a reader misses most first."""
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
    s, was = part.summary, before.summary if before is not None else None
    return {
        "team": clean(team) if team is not None else None,
        "workloads": len(part.workloads),
        "moves": len(selected(part).shown),
        "gpu_hours": s.gpu_hours,
        "gpu_hours_before": was.gpu_hours if was else None,
        "cost_usd": s.cost_usd,
        "cost_usd_before": was.cost_usd if was else None,
        **{name: getattr(s, name) for name in ("wasted_usd", "slowed_usd", "recoverable_usd_per_month")},
    }
