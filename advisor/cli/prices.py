"""``skuwise prices``: a price file, from a bill or from today's offers."""

from pathlib import Path
from urllib.parse import urlsplit

from click import argument, group, option

from ...rules.base.click_commands import FILE, Choice, Group, examples, format_option
from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, NothingToDo, SkuwiseError
from ...rules.base.output import Progress, say, write_json, write_whole
from ...rules.base.sanitize import clean
from ..billing.offers import PROVIDERS
from .options import OutputOptions, RulebookOptions, rules_option

_FETCH_SECONDS = 60.0  # without a byte


@group("prices", cls=Group)
def prices() -> None:
    """Create a price file from a billing export, or from current offers."""


@prices.command("import", epilog=examples("skuwise prices import focus.csv --output prices.yaml"))
@argument("export", type=FILE)
@option("--output", type=FILE, help="write the price file, for --prices of other commands")
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


@prices.command(
    "update", epilog=examples("skuwise prices update --provider aws", "skuwise prices update --output prices.yaml")
)
@option("--provider", "names", type=Choice(tuple(PROVIDERS)), multiple=True, help="repeatable (default: all)")
@option("--output", type=FILE, help="put them into this price file, beside prices that your site set")
@rules_option("catalog")
def update(names: tuple[str, ...], output: Path | None, rules: Path | None) -> int:
    """Read current offers of cloud providers from the gpuhunt catalog.

    On-demand prices of nodes in the catalog, by region. Connects to the catalog's host; no other command does.
    """
    from ...rules.catalog.loader import load_catalog
    from ...rules.catalog.price_files import load_prices
    from ..billing.offers import merge, offers_document, read_offers
    from ..core.formatting import counted

    catalog, text, offers = load_catalog(rules), "", []
    if output is not None and output.is_file():
        load_prices(output, catalog.nodes)
        text = output.read_text("utf-8-sig")
    names = tuple(dict.fromkeys(names)) or tuple(PROVIDERS)
    with Progress("reading offers", "providers") as reading:
        for done, name in enumerate(names, 1):
            try:
                offers.append(read_offers(name, catalog, _fetch))
            except SkuwiseError as error:
                say(f"skuwise: {clean(error)}")
            reading.step(done, len(names))
    if not offers:
        raise SkuwiseError("No offers were read.", "Check that this machine may connect to the catalog's host.")
    OutputOptions("table").write(offers_document(offers, catalog))
    if output is not None:
        stated = RulebookOptions().stated_prices()
        gpus = filter(None, (catalog.gpu_asked(price.name) for price in stated.gpu))
        has_price = {price.name for price in stated.node}.union(n.name for g in gpus for n in catalog.nodes_of(g.name))
        text, count = merge(text, str(output), offers, has_price)
        write_whole(output, text)
        say(f"{counted(count, 'price')} written to {output}")
    return EXIT_DONE if len(offers) == len(names) else EXIT_FAILED


def _fetch(url: str) -> bytes:
    """The content at an address, from no other host. Raises OSError."""
    import requests

    host = urlsplit(url).hostname
    try:
        answer = requests.get(url, timeout=_FETCH_SECONDS, allow_redirects=False)
    except requests.RequestException as error:
        raise OSError(f"no answer of {host} ({type(error).__name__})") from error
    if answer.status_code != 200:
        raise OSError(f"{host} answers with status {answer.status_code}")
    return answer.content
