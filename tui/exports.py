"""What a page shows, as CSV, JSON or Markdown: tables whole, not only the lines that fit; text as it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..advisor.show.document import Document, Section, Table
from ..advisor.show.writers.csv import sheet_text
from ..advisor.show.writers.markdown import document_markdown
from ..rules.base.errors import UsageError
from ..rules.base.sanitize import clean
from .widgets.frame import Drawn

KINDS = (".csv", ".json", ".md")

Panel = tuple[str, Table | str]  # the title of its frame, and what it shows


def page_panels(screen: Screen[object]) -> list[Panel]:
    """Return everything a page shows, in its order, under the titles of its frames."""
    panels: list[Panel] = []
    for widget in screen.query("#data *").results(Widget):
        frames = [ancestor for ancestor in widget.ancestors_with_self if isinstance(ancestor, Widget)]
        shown: Table | str | None = getattr(widget, "sheet", None)
        if shown is None and isinstance(widget, Static) and (widget.has_class("prose") or isinstance(widget, Drawn)):
            shown = widget.content.plain.strip() if isinstance(widget.content, Content) else ""
        if shown and all(frame.display for frame in frames):
            panels.append((next((str(frame.border_title) for frame in frames if frame.border_title), ""), shown))
    return panels


def path_of(text: str) -> Path:
    """Parse the name of a file to write. Raises UsageError for an unknown type, and for a file that exists."""
    path = Path(text).expanduser()
    if not text or path.suffix.casefold() not in KINDS:
        raise UsageError(f"Invalid file name {text!r}: unknown type.", f"Use a name that ends in {', '.join(KINDS)}.")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already.", "Use another name.")
    return path


def render_export(kind: str, panels: Sequence[Panel], about: Mapping[str, str], focused: Table | None) -> str:
    """Return the text of a file. `kind`: .csv, .json or .md. `about`: what the figures rest on. A CSV contains one
    table: `focused`, else the first; without a table, the text."""
    if kind == ".md":
        basis = ", ".join(f"{name}: {value}" for name, value in about.items())
        sections = tuple(
            Section(title, tuple(shown.split("\n")) if isinstance(shown, str) else (shown,)) for title, shown in panels
        )
        return document_markdown(Document(about["page"], about["page"], "", basis, (), sections))
    if kind == ".csv":
        tables = [shown for _, shown in panels if isinstance(shown, Table)]
        texts = [(title, text) for title, shown in panels if isinstance(shown, str) for text in shown.split("\n")]
        table = focused or next(iter(tables), Table(("panel", "text"), tuple(texts)))
        return sheet_text((table.heads, *table.rows))
    documents = [
        {"title": clean(title), "columns": shown.heads, "rows": [[clean(text) for text in row] for row in shown.rows]}
        if isinstance(shown, Table)
        else {"title": clean(title), "text": [clean(text) for text in shown.split("\n")]}
        for title, shown in panels
    ]
    page = {"schema": "skuwise.screen/1", **{name: clean(value) for name, value in about.items()}, "panels": documents}
    return msgspec.json.format(msgspec.json.encode(page)).decode() + "\n"
