"""What a page shows, as CSV, JSON or Markdown: tables whole, not only the lines that fit; text as it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..advisor.show.document import Block, Document, Section, Table
from ..rules.base.errors import UsageError
from ..rules.base.sanitize import clean
from .widgets.frame import Drawn

KINDS = (".csv", ".json", ".md")
_SCHEMA = "skuwise.screen/1"


def page_sections(screen: Screen[object]) -> list[Section]:
    """Return everything a page shows, in its order, under the titles of its frames."""
    sections: list[Section] = []
    for widget in screen.query("#data *").results(Widget):
        frames = [ancestor for ancestor in widget.ancestors_with_self if isinstance(ancestor, Widget)]
        block: Block | None = getattr(widget, "sheet", None)
        if block is None and isinstance(widget, Static) and (widget.has_class("prose") or isinstance(widget, Drawn)):
            block = widget.content.plain if isinstance(widget.content, Content) else ""
        if block and all(frame.display for frame in frames):
            title = next((str(frame.border_title) for frame in frames if frame.border_title), "")
            sections.append(Section(title, (block,)))
    return sections


def path_of(text: str) -> Path:
    """Parse the name of a file to write. Raises UsageError for an unknown type, and for a file that exists."""
    path = Path(text).expanduser()
    if not text or path.suffix.casefold() not in KINDS:
        raise UsageError(f"Invalid file name {text!r}: unknown type.", f"Use a name that ends in {', '.join(KINDS)}.")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already.", "Use another name.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"Folder {path.absolute().parent} does not exist.", "Use an existing folder.")
    return path


def render_export(kind: str, sections: Sequence[Section], about: Mapping[str, str], focused: Table | None) -> str:
    """Return the text of a file. `kind`: .csv, .json or .md. `about`: what the figures rest on. A CSV contains one
    table: `focused`, else the first; without a table, the text."""
    if kind == ".csv":
        from ..advisor.show.writers.csv import cell  # noqa: PLC0415 - not at the start

        tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
        rows = tuple((section.title, text) for section in sections for text in _lines(section))
        table = focused or next(iter(tables), Table(("panel", "text"), rows))
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerows([cell(text) for text in row] for row in (table.heads, *table.rows))
        return out.getvalue()
    return _json(sections, about) if kind == ".json" else markdown(sections, about)


def markdown(sections: Sequence[Section], about: Mapping[str, str]) -> str:
    """Return Markdown, for people and for the clipboard."""
    from ..advisor.show.writers.markdown import document_markdown  # noqa: PLC0415 - not at the start

    basis = ", ".join(f"{name}: {value}" for name, value in about.items())
    by_line = tuple(
        Section(section.title, section.blocks if _table(section) else tuple(_lines(section))) for section in sections
    )
    return document_markdown(Document(about["page"], about["page"], "", basis, (), by_line))


def _json(sections: Sequence[Section], about: Mapping[str, str]) -> str:
    panels: list[dict[str, object]] = []
    for section in sections:
        panel: dict[str, object] = {"title": clean(section.title)}
        if (table := _table(section)) is not None:
            panel |= {"columns": table.heads, "rows": [[clean(cell) for cell in row] for row in table.rows]}
        else:
            panel["text"] = [clean(line) for line in _lines(section)]
        panels.append(panel)
    page = {"schema": _SCHEMA, **{name: clean(value) for name, value in about.items()}, "panels": panels}
    return msgspec.json.format(msgspec.json.encode(page)).decode() + "\n"


def _table(section: Section) -> Table | None:
    return next((block for block in section.blocks if isinstance(block, Table)), None)


def _lines(section: Section) -> list[str]:
    return [line for block in section.blocks if isinstance(block, str) for line in block.split("\n")]
