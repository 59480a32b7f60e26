"""A story as a mail's contents: HTML, plain text, pictures and the lists that go with it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence

from ...rules.base.sanitize import clean
from ..core.timestamps import day
from ..render import FORMATS, render
from ..render.charts import Words, charts_of
from ..render.csv import csv_text
from ..render.html import mail_html
from ..render.text import mail_text
from ..views.document.mail_document import NO_LINKS, ReaderLinks, mail_document
from ..views.document.report_content import Story
from ..views.document.truncate import Lengths
from .letter import Attachment, Image, Letter

SUBJECT_MAX = 150
# Bytes: Gmail shows no more than 102 kB of a mail. Only names of thousands of signs come near.
HTML_MAX = 98_000
# Mail servers refuse messages of 10 to 25 MB, and Base64 adds a third.
LISTS_MAX = 5 * 1024**2
_PLAIN_MAX = 512 * 1024
_LISTS = ("csv", "json")  # the formats of the lists


def letter_of(story: Story, *, links: ReaderLinks = NO_LINKS, lettering: Words | None = None) -> Letter:
    """The mail of a story, before anybody is addressed. `lettering`: kept from one mail to the next, so that
    the words of their charts are drawn once."""
    charts = charts_of(story, lettering or Words())
    lists, left_out = _fitting(_lists(story))
    lengths = Lengths()
    page = mail_document(story, charts, lengths, left_out, links)
    html = mail_html(page)
    while len(html.encode()) > HTML_MAX and lengths.rows:
        lengths = lengths.halved()
        page = mail_document(story, charts, lengths, left_out, links)
        html = mail_html(page)
    return Letter(
        subject=page.title[:SUBJECT_MAX],
        html=html,
        text=mail_text(page),
        images=tuple(Image(chart.name, chart.png, chart.alt) for chart in charts.values()),
        attachments=lists,
    )


def _lists(story: Story) -> tuple[Attachment, ...]:
    """Everything that the text cuts short."""
    if story.empty:
        return ()
    name = f"skuwise-{day(story.advice.start)}"
    forms = {form: FORMATS[form] for form in _LISTS}
    every = [_attachment(f"{name}{end}", media, render(story.advice, form)) for form, (media, end) in forms.items()]
    if story.teams:
        rows: list[dict[str, str | float | int | None]] = [
            {
                "team": clean(row.team) if row.team is not None else None, "workloads": row.workloads,
                "moves": row.moves, "gpu_hours": row.gpu_hours.now, "gpu_hours_before": row.gpu_hours.before,
                "cost_usd": row.cost_usd.now, "cost_usd_before": row.cost_usd.before, "wasted_usd": row.wasted_usd,
                "slowed_usd": row.slowed_usd, "recoverable_usd_per_month": row.recoverable_usd_per_month,
            }
            for row in story.teams
        ]  # fmt: skip
        tables = {
            "csv": csv_text(tuple(rows[0]), rows),
            "json": json.dumps({"teams": rows}, indent=2, allow_nan=False) + "\n",
        }
        teams = (_attachment(f"{name}-teams{end}", media, tables[form]) for form, (media, end) in forms.items())
        every = [*teams, *every]
    return tuple(every)


def _fitting(lists: Sequence[Attachment]) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    """The lists that a mail can carry, and the names of those left out: the largest first."""
    kept = list(lists)
    while sum(len(file.data) for file in kept) > LISTS_MAX:
        kept.remove(max(kept, key=lambda file: len(file.data)))
    return tuple(kept), tuple(file.name for file in lists if file not in kept)


def _attachment(name: str, media_type: str, text: str) -> Attachment:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= _PLAIN_MAX:
        return Attachment(name, media_type, data)
    return Attachment(f"{name}.gz", "application/gzip", gzip.compress(data, mtime=0))


def preview_index(teams: Sequence[str], names: Sequence[str]) -> str:
    """Each team with its mail and its page, as CSV: a file's name does not say whose it is. `names`: of the files,
    without their endings; the fleet's report has the team ""."""
    rows = [{"team": t, "mail": f"{n}.eml", "page": f"{n}.html"} for t, n in zip(teams, names, strict=True)]
    return csv_text(("team", "mail", "page"), rows)
