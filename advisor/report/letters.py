"""A story as a mail's contents: HTML, plain text, pictures and the lists that go with it."""

from __future__ import annotations

from ..mail.letter import Attachment, Letter
from ..moments import day
from ..render.csv import render_csv
from ..render.json import render_json
from .story import Story


def letter_of(story: Story) -> Letter:
    """The mail of a story, before anybody is addressed."""
    name = f"skuwise-{day(story.start)}"
    title = f"GPU report {day(story.start)}"
    return Letter(
        subject=title,
        html=f"<p>{title}</p>",
        text=f"{title}\n",
        attachments=(
            Attachment(f"{name}.csv", "text/csv", render_csv(story.advice).encode("utf-8", "backslashreplace")),
            Attachment(f"{name}.json", "application/json", render_json(story.advice).encode()),
        ),
    )
