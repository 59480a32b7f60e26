"""Showback as a page for people: a line for each team, one for all that is nobody's, and the check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..core.coded_text import CodedText
from ..core.formatting import counted, percent, price_note, usd
from ..core.formatting import hours as hour_words
from ..core.timestamps import minute
from ..render.csv import csv_text
from ..views.document.model import Bullets, Document, Table, section
from .focus_rows import COLUMNS, Billing, Value, focus_rows
from .showback import OWNED, Showback
from .showback_json import time_text
from .showback_sums import BY, By, GroupSum, NodeCheck, Sum, groups_of, node_checks, sum_rows, unowned_of, whole_check

ROWS_MOST = 40
_NONE = "-"
_NAMES = {"shared-pool": "(shared pool)", "unallocated": "(unallocated)", "drained": "(drained)",
          "unobserved": "(not observed)"}  # fmt: skip


def showback_document(showback: Showback, by: By) -> Document:
    """`by`: what a line stands for. Without any price the columns are GPU-hours."""
    groups = groups_of(showback, by)
    whole = sum_rows(showback.rows)
    priced = whole.total_usd is not None
    prices = [node.price for node in showback.nodes if node.price is not None]
    title = f"GPU cost by {by}"
    basis = f", {price_note(prices)}" if prices else ""
    # Hours before the first node was seen are no money: the window that was asked for may begin long before.
    start, end = min(n.start for n in showback.nodes), max(n.end for n in showback.nodes)
    table = (_dollar_table if priced else _hour_table)(showback, groups, whole, by)
    notes = Bullets(tuple(note.text for note in (*_no_names(groups, by), *showback.notes)))
    blocks = [
        section("Cost by category" if priced else "GPU-hours by category", table),
        section("Reconciliation", check_words(whole_check(tuple(node_checks(showback).values())), showback)),
    ]
    if notes.items:
        blocks.append(section("Notes", notes))
    return Document(
        title=title, heading=title,
        window=f"{minute(start)} to {minute(end)}, {counted(len(showback.nodes), 'node')}{basis}",
        summary="", tiles=(), sections=tuple(blocks),
    )  # fmt: skip


def _dollar_table(showback: Showback, groups: tuple[GroupSum, ...], whole: Sum, by: By) -> Table:
    heads = (by.capitalize(), "Used", "Held idle", "Fabric", "Total", "Share", "GPU-hours", "$/M tokens")

    def line(name: str, sums: Sum, owned: bool) -> tuple[str, ...]:
        cost, rate = sums.total_usd, sums.usd_per_million_tokens
        parts = [_dollars(sums.usd.get(category)) if owned else _NONE for category in OWNED]
        return (
            name, *parts, _dollars(cost), _share(cost, whole.total_usd), _hours(sums.total_gpu_hours),
            _NONE if rate is None else f"{rate:,.3g}",
        )  # fmt: skip

    return _table(heads, line, showback, groups, whole)


def _hour_table(showback: Showback, groups: tuple[GroupSum, ...], whole: Sum, by: By) -> Table:
    heads = (by.capitalize(), "Used", "Held idle", "Total", "Share")

    def line(name: str, sums: Sum, owned: bool) -> tuple[str, ...]:
        hours = sums.gpu_hours
        parts = [_hours(hours.get(category)) if owned else _NONE for category in ("used", "held-idle")]
        return (name, *parts, _hours(sums.total_gpu_hours), _share(sums.total_gpu_hours, whole.total_gpu_hours))

    return _table(heads, line, showback, groups, whole)


def _table(
    heads: tuple[str, ...], line: Callable[[str, Sum, bool], tuple[str, ...]], showback: Showback,
    groups: tuple[GroupSum, ...], whole: Sum,
) -> Table:  # fmt: skip
    names = Counter(group.name for group in groups)
    rows = [line(_name(group, names), group.sums, True) for group in groups[:ROWS_MOST]]
    rows += [line(_NAMES[category], sums, False) for category, sums in unowned_of(showback).items()]
    rows.append(line("Total", whole, True))
    left = len(groups) - ROWS_MOST
    more = f"{left:,} more with --format csv or json." if left > 0 else ""
    return Table(heads, tuple(rows), right=tuple(range(1, len(heads))), more=more)


def _name(group: GroupSum, names: Counter[str | None]) -> str:
    """Series of one name are told apart by their ids."""
    if group.name is None:
        return "(none)"
    return f"{group.name} ({group.series_id[:6]})" if group.series_id and names[group.name] > 1 else group.name


def _no_names(groups: tuple[GroupSum, ...], by: By) -> tuple[CodedText, ...]:
    if not groups or any(group.name is not None for group in groups):
        return ()
    others = " or ".join(f"--by {one}" for one in BY if one not in (by, "workload"))
    remedy = f"Name the teams in a file (--teams FILE), or use {others}." if by == "team" else f"Use {others}."
    return (CodedText("showback-without-names", f"No workload has a known {by}. {remedy}", {"by": by}),)


def _dollars(value: float | None) -> str:
    return _NONE if value is None else usd(value)


def _hours(value: float | None) -> str:
    return _NONE if value is None else hour_words(value, "").rstrip()


def _share(part: float | None, whole: float | None) -> str:
    if part is None or not whole:
        return _NONE
    return "<1 %" if 0 < part / whole < 0.005 else percent(part / whole)


def check_words(check: NodeCheck, showback: Showback) -> str:
    """How the rows compare with the nodes' price x hours."""
    without = sum(node.price is None for node in showback.nodes)
    left_out = f" {counted(without, 'node')} without a price not included." if without else ""
    if check.node_usd is None or check.rows_usd is None:
        return "No node has a price, so there is no cost to reconcile."
    difference = abs(check.difference_usd or 0.0)
    told = "difference below $0.01" if difference < 0.01 else f"difference {usd(difference)}"
    return f"Rows {usd(check.rows_usd)}, node price x hours {usd(check.node_usd)}: {told}.{left_out}"


def showback_csv(showback: Showback, billing: Billing) -> str:
    """A row under `COLUMNS` for each of the showback's; what is not known is empty."""
    rows = focus_rows(showback, billing)
    return csv_text(tuple(COLUMNS), ({name: _text(value) for name, value in row.items()} for row in rows))


def _text(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    return time_text(value)
