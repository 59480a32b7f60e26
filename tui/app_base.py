"""Habits of the whole program: choosing columns, copying, exporting, and remembering all that between two runs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..advisor.core.timestamps import rfc3339
from ..rules.base.errors import UsageError
from ..rules.base.sanitize import clean
from .data.background_jobs import Jobs, Tell
from .data.preferences import Preferences, View
from .screens.base_page import Page
from .screens.dialogs.input_dialog import InputDialog
from .screens.dialogs.picker import ColumnPicker
from .state import State
from .widgets.exportable import Sheet, Sheeted
from .widgets.table import ItemTable

KINDS = (".csv", ".json", ".md", ".svg")
_SCHEMA = "skuwise.screen/1"
_TEXT = ("panel", "text")


def sheets_of(screen: Screen[object]) -> list[Sheet]:
    """Everything a page shows, in its order: tables whole, not only the lines that fit; text as it is."""
    found: list[Sheet] = []
    for widget in screen.query("#data *").results(Widget):
        if not all(ancestor.display for ancestor in widget.ancestors_with_self if isinstance(ancestor, Widget)):
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
    from ..advisor.show.writers.markdown import escape  # noqa: PLC0415

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
    from ..advisor.show.writers.csv import cell  # noqa: PLC0415

    return "\t".join(str(cell(text)) for text in cells)


def _csv(table: Sheet | None, sheets: Sequence[Sheet]) -> str:
    from ..advisor.show.writers.csv import cell  # noqa: PLC0415

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
    titled = (ancestor.border_title for ancestor in widget.ancestors_with_self if isinstance(ancestor, Widget))
    return next((str(title) for title in titled if title), "")


class HabitsApp(App[None]):
    """`memory`: what an earlier run chose. The program below it gives `state`, `source` and `jobs`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy the line", show=False),
        Binding("Y", "copy_all", "Copy the page", show=False),
        Binding("e", "export", "Export", show=False),
    ]
    state: State
    source: str
    jobs: Jobs

    def __init__(self, memory: Preferences, source_key: str, forced: bool) -> None:
        """`source_key`: whose window and page are remembered. `forced`: the theme was not chosen, so that the one
        remembered is kept."""
        super().__init__()
        self._recalled, self._source_key = memory, source_key
        self._tables, self._theme = dict(memory.tables), memory.theme if forced else None

    @property
    def memory(self) -> Preferences:
        """What to remember."""
        window = self.state.window
        # A window of certain days is of those days: nobody wants it next week.
        view = View(window.seconds if window.until is None else None, self.current_mode)
        kept = replace(self._recalled, theme=self._theme or self.theme, tables=self._tables)
        return kept.with_view(self._source_key, view)

    # Columns and order

    def on_item_table_arranged(self, message: ItemTable.Arranged) -> None:
        """A table that comes up gets what was chosen of it; what is chosen is kept."""
        table, page = message.table, message.table.screen
        if not isinstance(page, Page):
            return
        name = f"{page.NAME}.{table.id}"
        if not message.first:
            self._tables[name] = table.arrangement
        elif name in self._tables:
            table.restore(self._tables[name])

    def on_item_table_columns_wanted(self, message: ItemTable.ColumnsWanted) -> None:
        table = message.table

        def chosen(titles: tuple[str, ...] | None) -> None:
            if titles is not None:
                table.restore(replace(table.arrangement, columns=titles))
                table.post_message(ItemTable.Arranged(table))

        self.push_screen(ColumnPicker(table.titles, table.arrangement.columns), chosen)

    # Copying and exporting

    def action_copy(self) -> None:
        """The chosen line of the table that has the keys; elsewhere the page."""
        table = self.screen.focused
        if isinstance(table, ItemTable) and table.item is not None:
            self._copy(tabbed(table.line()), "Line")
        else:
            self.action_copy_all()

    def action_copy_all(self) -> None:
        if isinstance(self.screen, Page):
            self._copy(markdown(sheets_of(self.screen), self._about()), "Page (Markdown)")

    def _copy(self, text: str, what: str) -> None:
        self.copy_to_clipboard(text)
        self.notify(f"{what} copied to the terminal's clipboard ({len(text):,} characters).", markup=False)

    def action_export(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        # What is on the screen now, before the question for a name covers it.
        sheets, about = sheets_of(page), self._about()
        # Its fonts would be asked of a foreign server.
        svg = re.sub(r"@font-face \{.*?\}", "", self.export_screenshot(title=self.TITLE), flags=re.DOTALL)
        table = page.focused
        focused = table.sheet("") if isinstance(table, ItemTable) else None

        def named(path: Path | None) -> None:
            if path is None:
                return

            def work(tell: Tell) -> None:  # noqa: ARG001 - it is soon done
                from ..rules.base.output import write_whole  # noqa: PLC0415

                kind = path.suffix.casefold()
                write_whole(path, svg if kind == ".svg" else render_export(kind, sheets, about, focused))

            self.jobs.start("exporting", work, lambda _: self.notify(f"Wrote {clean(path)}.", markup=False))

        hint = f"a file that ends in {', '.join(KINDS)}; CSV contains the focused table"
        self.push_screen(InputDialog("Export this page", hint, path_of, f"skuwise-{page.NAME}.csv"), named)

    def _about(self) -> dict[str, str]:
        """What the figures of a page rest on."""
        look, page = self.state.look, self.screen
        told = {"page": page.NAME if isinstance(page, Page) else "", "source": self.source}
        if look is not None:
            told |= {"window": look.window.name, "read": rfc3339(look.at), "data_to": rfc3339(look.shown.end)}
        return told
