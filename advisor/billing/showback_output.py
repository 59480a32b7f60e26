"""Showback as a table for people, as JSON (schema ``skuwise.showback/1``) and as CSV in FOCUS' columns."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ..core.advice_json import plain
from ..core.formatting import NONE, bare_hours, counted, listed, percent, price_note, usd
from ..core.timestamps import minute, rfc3339
from ..show.document import Bullets, Document, Table, section
from ..show.writers.csv import csv_text
from .focus_rows import VERSION, focus_rows, price_cells
from .showback import OWNED, Showback
from .showback_sums import BY, By, GroupSum, NodeCheck, Sum, groups_of, node_checks, sum_rows, unowned_of, whole_check

SCHEMA = "skuwise.showback/1"
ROWS_MOST = 40
_NAMES = {"shared-pool": "(shared pool)", "unallocated": "(unallocated)", "drained": "(drained)",
          "unobserved": "(not observed)"}  # fmt: skip


def showback_csv(showback: Showback, billing_account: str | None) -> str:
    """A row under FOCUS' columns for each of the showback's; what is not known is empty."""
    rows = list(focus_rows(showback, billing_account))
    flags = {True: "true", False: "false"}
    return csv_text(
        tuple(rows[0]),
        ({name: flags[value] if isinstance(value, bool) else value for name, value in row.items()} for row in rows),
    )


def showback_json(showback: Showback, by: By, billing_account: str | None) -> dict[str, Any]:
    """Showback as plain values: sums by `by`, the nodes it was checked against, and every row. RFC 3339 UTC, US
    dollars, null for what is unknown."""
    checks = node_checks(showback)
    return {
        "schema": SCHEMA,
        "focus_version": VERSION,
        "generated_at": rfc3339(showback.generated_at),
        "window": {"start": rfc3339(showback.start), "end": rfc3339(showback.end)},
        "source": dict(showback.source),
        "by": by,
        "groups": [{**plain(group), **_sums(group.sums)} for group in groups_of(showback, by)],
        "unowned": {_json_name(category): _sums(sums) for category, sums in unowned_of(showback).items()},
        "total": _sums(sum_rows(showback.rows)),
        "reconciliation": {
            **_check(whole_check(checks.values())),
            "unpriced_nodes": [node.node for node in showback.nodes if node.price is None],
        },
        "nodes": [{**plain(n), **price_cells(n.price), **_check(checks[n.node])} for n in showback.nodes],
        "rows": list(focus_rows(showback, billing_account)),
        "notes": plain(showback.notes),
    }


def showback_json_text(showback: Showback, by: By, billing_account: str | None) -> str:
    return json.dumps(showback_json(showback, by, billing_account), indent=2, allow_nan=False) + "\n"


def _sums(sums: Sum) -> dict[str, Any]:
    by = {"cost_usd_by_category": sums.cost_usd_by_category, "gpu_hours_by_category": sums.gpu_hours_by_category}
    named = {key: {_json_name(name): value for name, value in of.items()} for key, of in by.items()}
    return plain({**plain(sums), **named})


def _json_name(category: str) -> str:
    return category.replace("-", "_")


def _check(check: NodeCheck) -> dict[str, Any]:
    return {**plain(check), "difference_usd": check.difference_usd}


def showback_document(showback: Showback, by: By) -> Document:
    """A line for each group of `by`, one for all that is nobody's, and the check. Without any price the columns are
    GPU-hours."""
    groups, whole = groups_of(showback, by), sum_rows(showback.rows)
    priced = whole.cost_usd is not None
    prices = [node.price for node in showback.nodes if node.price is not None]
    title = f"GPU cost by {by}"
    basis = f", {price_note(prices)}" if prices else ""
    # Hours before the first node was seen are no money: the window that was asked for may begin long before.
    start, end = min(n.start for n in showback.nodes), max(n.end for n in showback.nodes)
    parts = OWNED if priced else OWNED[:2]
    heads = [by.capitalize(), "Used", "Held idle", *(["Fabric"] if priced else []), "Total", "Share"]
    heads += ["GPU-hours", "$/M tokens"] if priced else []

    def line(name: str, sums: Sum, *, owned: bool = True) -> tuple[str, ...]:
        of = sums.cost_usd_by_category if priced else sums.gpu_hours_by_category
        amount, all_of_it = (sums.cost_usd, whole.cost_usd) if priced else (sums.gpu_hours, whole.gpu_hours)
        words = usd if priced else bare_hours
        cells = [words(of[category]) if owned and category in of else NONE for category in parts]
        cells += [NONE if amount is None else words(amount), _share(amount, all_of_it)]
        if priced:
            rate = sums.usd_per_million_tokens
            cells += [bare_hours(sums.gpu_hours), NONE if rate is None else f"{rate:,.3g}"]
        return (name, *cells)

    # Series of one name are told apart by their ids.
    same = Counter(group.name for group in groups)
    rows = []
    for group in groups[:ROWS_MOST]:
        apart = f" ({group.series_id[:6]})" if group.series_id and same[group.name] > 1 else ""
        rows.append(line("(none)" if group.name is None else f"{group.name}{apart}", group.sums))
    rows += [line(_NAMES[category], sums, owned=False) for category, sums in unowned_of(showback).items()]
    rows.append(line("Total", whole))
    left = len(groups) - ROWS_MOST
    more = f"{left:,} more with --format csv or json." if left > 0 else ""
    table = Table(tuple(heads), tuple(rows), right=tuple(range(1, len(heads))), more=more)
    notes = Bullets((*_about_names(groups, by), *(note.text for note in showback.notes)))
    return Document(
        title=title, heading=title,
        window=f"{minute(start)} to {minute(end)}, {counted(len(showback.nodes), 'node')}{basis}",
        summary="", tiles=(), sections=(
            section("Cost by category" if priced else "GPU-hours by category", table),
            section("Reconciliation", _check_words(whole_check(node_checks(showback).values()), showback)),
            *((section("Notes", notes),) if notes.items else ()),
        ),
    )  # fmt: skip


def _about_names(groups: tuple[GroupSum, ...], by: By) -> tuple[str, ...]:
    """What to do about work that no team, or nobody of `by`, is known for."""
    if not groups or (by != "team" and any(group.name is not None for group in groups)):
        return ()
    if by == "team":
        owners = [group.name for group in groups if group.name is not None and None in group.teams]
        if owners:
            return (
                f"No team is known for work of {listed(owners)}, so it is listed by namespace, account or user. "
                "Name the teams in a file (--teams FILE).",
            )
        if any(group.name is not None for group in groups):
            return ()
    others = " or ".join(f"--by {one}" for one in BY if one not in (by, "workload"))
    remedy = f"Name the teams in a file (--teams FILE), or use {others}." if by == "team" else f"Use {others}."
    return (f"No workload has a known {by}. {remedy}",)


def _share(part: float | None, whole: float | None) -> str:
    if part is None or not whole:
        return NONE
    return "<1 %" if 0 < part / whole < 0.005 else percent(part / whole)


def _check_words(check: NodeCheck, showback: Showback) -> str:
    """How the rows compare with the nodes' price x hours."""
    without = sum(node.price is None for node in showback.nodes)
    left_out = f" {counted(without, 'node')} without a price not included." if without else ""
    if check.node_price_times_hours_usd is None or check.rows_usd is None:
        return "No node has a price, so there is no cost to reconcile."
    difference = abs(check.difference_usd or 0.0)
    told = "difference below $0.01" if difference < 0.01 else f"difference {usd(difference)}"
    return f"Rows {usd(check.rows_usd)}, node price x hours {usd(check.node_price_times_hours_usd)}: {told}.{left_out}"
