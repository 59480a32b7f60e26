"""``skuwise prices import EXPORT``: a price file from a billing export."""

from __future__ import annotations

from pathlib import Path

import click

from ...rules.base.click_commands import Group, examples
from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import say, write_json, write_stdout, write_whole
from .output import terminal_width, wants_color


@click.group(
    "prices", cls=Group, subcommand_metavar="COMMAND ...", epilog="Run 'skuwise prices COMMAND --help' for details."
)
def prices() -> None:
    """Create a price file from a billing export."""


@prices.command("import", epilog=examples("skuwise prices import focus.csv --output prices.yaml"))
@click.argument("export", type=Path)
@click.option("--output", type=Path, metavar="FILE", help="write the price file, for --prices of other commands")
@click.option("--rules", type=Path, metavar="DIR", help="folder of site rules, which override the built-in catalog")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="output format")
def import_(export: Path, output: Path | None, rules: Path | None, form: str) -> int:
    """Import prices from EXPORT: FOCUS 1.x or AWS cost and usage report (CSV, plain or gzip)."""
    import yaml  # noqa: PLC0415

    from ...rules.catalog.loader import load_catalog  # noqa: PLC0415
    from ..billing.bill import bill_document, bill_json, price_entries, sum_up  # noqa: PLC0415
    from ..billing.exports import Export  # noqa: PLC0415
    from ..core.advice_json import plain  # noqa: PLC0415
    from ..show.writers.text import document_text  # noqa: PLC0415

    file = Export(export)
    bill = sum_up(file.charges(), load_catalog(rules))
    if not bill.lines:
        raise NothingToDo(
            f"{export} charges no GPU node that the catalog knows ({file.rows} rows).",
            "Add a column of instance types to the export, or the nodes to --rules DIR.",
        )
    if form == "json":
        write_json(plain(bill_json(bill, file)))
    else:
        write_stdout(document_text(bill_document(bill, file), width=terminal_width(), color=wants_color()))
    if output is not None:
        entries = price_entries(bill, file)
        write_whole(output, yaml.safe_dump({"prices": entries}, sort_keys=False, allow_unicode=True))
        say(f"{len(entries)} price{'s' if len(entries) != 1 else ''} written to {output}")
    return EXIT_DONE
