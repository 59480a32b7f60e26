"""What stands on a screen, as files and for the clipboard: CSV, JSON and Markdown, with all outside text escaped."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..widgets.exportable import Sheet, Sheeted

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = (".csv", ".json", ".md", ".svg")
_SCHEMA = "skuwise.screen/1"
_TEXT = ("panel", "text")


def sheets_of(screen: Screen[object]) -> list[Sheet]:
    """Everything a page shows, in its order: tables whole, not only the lines that fit; text as it is."""
    found: list[Sheet] = []
    for widget in screen.query("#data *").results(Widget):
        if not all(one.display for one in widget.ancestors_with_self if isinstance(one, Widget)):
            continue
        if isinstance(widget, Sheeted):
            found.append(widget.sheet(_title(widget)))
        elif isinstance(widget, Static) and widget.has_class("prose") and isinstance(widget.content, Content):
            text = widget.content.plain
            if text.strip():
                found.append(Sheet(_title(widget), text=text))
    return found


def path_of(text: str) -> Path:
    """A file that somebody named. Raises UsageError for a kind we do not write, and for a file that is there."""
    path = Path(text).expanduser()
    if not text or path.suffix.casefold() not in KINDS:
        raise UsageError(f"Invalid file name {text!r}: unknown type.", f"Use a name that ends in {', '.join(KINDS)}.")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already.", "Use another name.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"Folder {path.absolute().parent} does not exist.", "Use an existing folder.")
    return path


def render_export(kind: str, sheets: Sequence[Sheet], about: Mapping[str, str], focused: Sheet | None) -> str:
    """`kind`: .csv, .json or .md. `about`: what the figures rest on. A CSV holds one table: `focused`, else the first;
    where there is none, the text."""
    if kind == ".csv":
        tables = [sheet for sheet in sheets if sheet.columns]
        return _csv(focused or next(iter(tables), None), sheets)
    return _json(sheets, about) if kind == ".json" else markdown(sheets, about)


def markdown(sheets: Sequence[Sheet], about: Mapping[str, str]) -> str:
    """For people, and for the clipboard."""
    from ...advisor.render.formats.markdown import escape  # noqa: PLC0415

    lines = [f"{escape(name)}: {escape(value)}  " for name, value in about.items()]
    for sheet in sheets:
        lines += ["", f"## {escape(sheet.title)}", ""]
        if sheet.columns:
            lines.append(f"| {' | '.join(escape(c) for c in sheet.columns)} |")
            lines.append(f"|{'---|' * len(sheet.columns)}")
            lines += [f"| {' | '.join(escape(cell) for cell in row)} |" for row in sheet.rows]
        else:
            lines += [f"{escape(line)}  " for line in sheet.text.split("\n")]
    return "\n".join(lines).strip() + "\n"


def tabbed(cells: Sequence[str]) -> str:
    """One line for the clipboard: cells with tabs between them."""
    from ...advisor.render.formats.csv import cell  # noqa: PLC0415

    return "\t".join(str(cell(text)) for text in cells)


def _csv(table: Sheet | None, sheets: Sequence[Sheet]) -> str:
    from ...advisor.render.formats.csv import cell  # noqa: PLC0415

    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    rows = table.rows if table is not None else [(s.title, line) for s in sheets for line in s.text.split("\n")]
    writer.writerow([cell(name) for name in (table.columns if table is not None else _TEXT)])
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def _json(sheets: Sequence[Sheet], about: Mapping[str, str]) -> str:
    panels: list[dict[str, object]] = []
    for sheet in sheets:
        panel: dict[str, object] = {"title": clean(sheet.title)}
        if sheet.columns:
            panel["columns"] = list(sheet.columns)
            panel["rows"] = [[clean(cell) for cell in row] for row in sheet.rows]
        else:
            panel["text"] = [clean(line) for line in sheet.text.split("\n")]
        panels.append(panel)
    told = {"schema": _SCHEMA, **{name: clean(value) for name, value in about.items()}, "panels": panels}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _title(widget: Widget) -> str:
    """The nearest frame's title."""
    titled = (one.border_title for one in widget.ancestors_with_self if isinstance(one, Widget))
    return next((str(title) for title in titled if title), "")
