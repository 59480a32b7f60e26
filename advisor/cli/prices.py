"""``skuwise prices import EXPORT``: a price file from a billing export, and its charges without an explanation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import yaml

from ...rules.base.click_commands import Group, examples
from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import say, write_json, write_stdout, write_whole
from ...rules.catalog.loader import load_catalog
from ..core.formatting import counted
from .output import cores, terminal_width, wants_color
from .source_options import source_of


@click.group(
    "prices", cls=Group, subcommand_metavar="COMMAND ...", epilog="Run 'skuwise prices COMMAND --help' for details."
)
def prices() -> None:
    """Create a price file from a billing export."""


@prices.command("import", epilog=examples("skuwise prices import focus.csv --output prices.yaml"))
@click.argument("export", type=Path)
@click.option("--output", type=Path, metavar="FILE", help="write the price file, for --prices of other commands")
@click.option(
    "--db", multiple=True, type=Path, metavar="PATH", help="database, or folder of node databases (repeatable)"
)
@click.option("--prometheus", metavar="URL", help="URL of a server with the Prometheus API")
@click.option("--match", multiple=True, metavar='LABEL="V"', help="with --prometheus: read only these time series")
@click.option("--no-cache", is_flag=True, help="neither read nor write the cache of answers")
@click.option("--jobs", type=Path, metavar="FILE", help="Slurm's job table as written by sacct --parsable2")
@click.option("--rules", type=Path, metavar="DIR", help="folder of site rules, which override the built-in catalog")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="output format")
def import_(export: Path, output: Path | None, rules: Path | None, form: str, **source: Any) -> int:  # noqa: ANN401
    """Import prices from EXPORT: FOCUS 1.x or AWS cost and usage report (CSV, plain or gzip).

    With --db or --prometheus, the charges are compared with the observed nodes.
    """
    from ..billing import bill as bills  # noqa: PLC0415
    from ..billing.exports import Export  # noqa: PLC0415
    from ..core.advice_json import plain  # noqa: PLC0415
    from ..core.scalars import records, text  # noqa: PLC0415
    from ..show.writers.text import document_text  # noqa: PLC0415

    catalog, file = load_catalog(rules), Export(export)
    bill = bills.sum_up(file.charges(), catalog)
    if not bill.lines:
        raise NothingToDo(
            f"{export} charges no GPU node that the catalog knows ({file.rows} rows).",
            "Add a column of instance types to the export, or the nodes to --rules DIR.",
        )
    observed = []
    compared = bool(source["db"] or source["prometheus"] or source["match"])
    if compared:
        say("reading telemetry ...")
        reader = source_of(SimpleNamespace(**source), say, cores())
        frame = reader.read(catalog, since=bill.end - bill.start, until=bill.end, now=bill.end)
        for row in records(frame.nodes):
            hours = (min(float(row["last_seen"]), bill.end) - max(float(row["first_seen"]), bill.start)) / 3600
            if hours > 0:
                observed.append(bills.ObservedNode(row["node"], text(row["node_sku"]), text(row["region"]), hours))
    missing = bills.compare_bill(bill, observed)
    if form == "json":
        write_json(plain(bills.bill_json(bill, file, missing, compared)))
    else:
        page = bills.bill_document(bill, file, missing, compared)
        write_stdout(document_text(page, width=terminal_width(), color=wants_color()))
    if output is not None:
        entries = bills.price_entries(bill, file)
        write_whole(output, yaml.safe_dump({"prices": entries}, sort_keys=False, allow_unicode=True))
        say(f"{counted(len(entries), 'price')} written to {output}")
    return EXIT_DONE
