"""``skuwise prices import EXPORT``: a price file from a billing export."""

from pathlib import Path

import click

from ...rules.base.click_commands import FILE, Group, examples, format_option
from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import say, write_json, write_whole
from .options import OutputOptions, rules_option


@click.group("prices", cls=Group)
def prices() -> None:
    """Create a price file from a billing export."""


@prices.command("import", epilog=examples("skuwise prices import focus.csv --output prices.yaml"))
@click.argument("export", type=FILE)
@click.option("--output", type=FILE, help="write the price file, for --prices of other commands")
@rules_option("catalog")
@format_option("table", "json")
def import_(export: Path, output: Path | None, rules: Path | None, form: str) -> int:
    """Import prices from a billing export: FOCUS 1.x or AWS cost and usage report.

    EXPORT: billing export: CSV, plain or gzip.
    """
    import yaml

    from ...rules.catalog.loader import load_catalog
    from ..billing.bill import Export, bill_document, bill_json, price_entries, sum_up
    from ..core.advice_json import plain
    from ..core.formatting import counted

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
        OutputOptions("table").write(bill_document(bill, file))
    if output is not None:
        entries = price_entries(bill, file)
        write_whole(output, yaml.safe_dump({"prices": entries}, sort_keys=False, allow_unicode=True))
        say(f"{counted(len(entries), 'price')} written to {output}")
    return EXIT_DONE
