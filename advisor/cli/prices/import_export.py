"""``skuwise prices import EXPORT``: a price file from what was charged, and what the export leaves unexplained."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import yaml

from ....rules.base.errors import EXIT_DONE, NothingToDo
from ....rules.base.output import columns, say, write_json, write_lines, write_whole
from ....rules.base.sanitize import clean
from ....rules.catalog.loader import Catalog, load_catalog
from ...billing.billing_exports import Export
from ...billing.cost_summary import Bill, BillLine, ObservedNode, compare_bill, sum_up
from ...core import formatting as words
from ...core.advice_json import plain
from ...core.scalars import records, text
from ...core.timestamps import day, rfc3339
from ..output import cores
from ..price_options import add_rules
from ..source_options import add_source_choice, source_of

SCHEMA = "skuwise.prices/1"
_SERVICES = 5  # of what is no GPU node, so many are named

EXAMPLES = ("skuwise prices import focus.csv --output prices.yaml",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("export", type=Path, metavar="EXPORT", help="billing export: CSV, plain or gzip")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the price file, for --prices of other commands"
    )
    add_source_choice(parser, required=False)
    add_rules(parser, "catalog")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    """Read the export, hold it against telemetry where a source is given, print, and write the price file."""
    catalog, export = load_catalog(options.rules), Export(options.export)
    bill = sum_up(export.charges(), catalog)
    if not bill.lines:
        raise NothingToDo(
            f"{options.export} charges no GPU node that the catalog knows ({export.rows} rows).",
            "Add a column of instance types to the export, or the nodes to --rules DIR.",
        )
    observed = None
    if options.db or options.prometheus or options.match:
        observed = _observed(options, bill, catalog)
    found, without = compare_bill(bill, observed or ())
    source = f"{export.dialect.partition(' ')[2]} {options.export.name}, {day(bill.start)} to {day(bill.end - 1)}"
    prices = [p for one in found if (p := bill.price(one, source)) is not None]
    tell = _document if options.format == "json" else _text
    tell(export, bill, found, without, observed is not None)
    if options.output is not None:
        kept = ("sku", "region", "usd_per_hour", "basis", "committed_until", "source", "as_of")
        told = [{name: getattr(price, name) for name in kept} | {"source": clean(price.source)} for price in prices]
        entries = [{name: value for name, value in one.items() if value is not None} for one in told]
        write_whole(options.output, yaml.safe_dump({"prices": entries}, sort_keys=False, allow_unicode=True))
        say(f"{words.counted(len(prices), 'price')} written to {options.output}")
    return EXIT_DONE


def _observed(options: argparse.Namespace, bill: Bill, catalog: Catalog) -> list[ObservedNode]:
    """The nodes that were there in the export's time."""
    say("reading telemetry ...")
    frame = source_of(options, say, cores()).read(catalog, since=bill.end - bill.start, until=bill.end, now=bill.end)
    found = []
    for row in records(frame.nodes):
        hours = (min(float(row["last_seen"]), bill.end) - max(float(row["first_seen"]), bill.start)) / 3600
        if hours > 0:
            found.append(ObservedNode(str(row["node"]), text(row["node_sku"]), text(row["region"]), hours))
    return found


def _text(
    export: Export, bill: Bill, found: Sequence[BillLine], without: Sequence[ObservedNode], compared: bool
) -> None:
    heads = ["node", "region", "node-hours", "list", "effective", "committed", "basis", "cost"]
    heads += ["observed", "explained"] if compared else []
    rows = []
    for line in found:
        basis = [line.basis]
        if 0 < line.committed_hours < line.hours:
            basis.append(f"{line.committed_hours / line.hours * 100:.0f} % of hours committed")
        if line.spot_hours > 0:
            basis.append(f"{line.spot_hours / line.hours * 100:.0f} % spot")
        prices = (line.list_usd_per_hour, line.usd_per_hour, line.committed_usd_per_hour)
        rates = [words.NONE if price is None else words.usd(price, "/h") for price in prices]
        row = (line.sku, line.region, f"{line.hours:,.0f}", *rates, ", ".join(basis), words.usd(line.effective))
        rows.append((*row, *((f"{line.observed_hours:,.0f}", words.usd(line.explained)) if compared else ())))
    lines = [
        f"{clean(str(export.path))}, {export.dialect}, {day(bill.start)} to {day(bill.end - 1)} UTC, {export.rows:,} "
        f"rows: {words.usd(bill.effective)} effective, {words.usd(bill.billed)} billed",
        "",
        columns(heads, rows, right=tuple(n for n in (2, 3, 4, 5, 7, 8, 9) if n < len(heads))),
        "",
        "Unexplained" if compared else "Not of priced GPU nodes",
    ]
    lines += [f"  {words.usd(usd):>12}  {clean(what)}" for what, usd in remainder(bill, found, compared) if usd]
    if without:
        names = words.listed([clean(n.node) for n in without])
        hours = sum(n.hours for n in without)
        lines.append(f"Observed without a charge: {names} ({hours:,.0f} node-hours).")
    if compared:
        named = sum(len(one.named) for one in found)
        lines.append(f"{named} of {sum(len(one.nodes) for one in found)} observed nodes are in it by name.")
    if export.skipped:
        lines.append(f"{export.skipped} rows could not be read, the first is row {export.first_skipped}.")
    write_lines("\n".join(lines))


def remainder(bill: Bill, found: Sequence[BillLine], compared: bool) -> list[tuple[str, float]]:
    """What the export charges beside what is explained, by reason, US dollars. With it, the parts sum to its effective
    cost; where nothing was observed, every GPU node counts as explained."""
    over = [(one, one.effective - one.explained) for one in found] if compared else []
    parts = [
        (f"{one.sku} in {one.region}: more hours than were observed", usd) for one, usd in over if abs(usd) > 0.005
    ]
    parts += [("commitments that nothing used", bill.unused)]
    parts += [("GPU nodes that are not charged by the hour", bill.uncounted)]
    named = sorted(bill.other.items(), key=lambda item: (-abs(item[1]), item[0]))
    parts += named[:_SERVICES]
    parts.append((f"{max(len(named) - _SERVICES, 0)} other services", sum(usd for _, usd in named[_SERVICES:])))
    return parts


def _document(
    export: Export, bill: Bill, found: Sequence[BillLine], without: Sequence[ObservedNode], compared: bool
) -> None:
    nodes = [
        {
            "sku": line.sku, "region": line.region, "node_hours": line.hours,
            "list_usd_per_hour": line.list_usd_per_hour, "effective_usd_per_hour": line.usd_per_hour,
            "committed_usd_per_hour": line.committed_usd_per_hour, "basis": line.basis,
            "committed_hours": line.committed_hours, "spot_hours": line.spot_hours, "effective_usd": line.effective,
            "observed_node_hours": line.observed_hours if compared else None,
            "explained_usd": line.explained if compared else None, "observed": line.nodes, "named": line.named,
        }
        for line in found
    ]  # fmt: skip
    kind = {"file": str(export.path), "kind": export.dialect, "rows": export.rows, "unreadable": export.skipped}
    write_json(plain({
        "schema": SCHEMA, "export": kind, "window": {"start": rfc3339(bill.start), "end": rfc3339(bill.end)},
        "billed_usd": bill.billed, "effective_usd": bill.effective, "nodes": nodes,
        "unexplained": [{"what": what, "usd": usd} for what, usd in remainder(bill, found, compared) if usd],
        "observed_without_charge": [n.node for n in without],
    }))  # fmt: skip
