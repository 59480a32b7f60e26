"""Offers of gpuhunt's catalog as entries of a price file: what nodes of our catalog cost on demand today, by region.

The catalog has one archive a provider, published each hour (github.com/dstackai/gpuhunt). gpuhunt's own loader has no
timeout, follows redirects and loads every provider; so the files are fetched here, and gpuhunt has their addresses and
reads their rows.
"""

import csv
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.yaml_loader import parse_table
from ...rules.catalog.gpu_files import normalise
from ...rules.catalog.loader import ANY_REGION, Catalog
from ...rules.catalog.types import NodeSku
from ..core.formatting import NONE, counted, usd
from ..show.document import Bullets, Document, Figures, Table, section

# Our provider -> gpuhunt's name of it.
PROVIDERS = {
    "aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambdalabs", "nebius": "nebius", "oci": "oci",
    "runpod": "runpod", "verda": "verda",
}  # fmt: skip
_SOURCE = "gpuhunt catalog"
_VERSION = re.compile(r"(\d{4})(\d{2})(\d{2})-\w{1,20}", re.ASCII)  # of publish_catalog.sh: the day and a number
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# Ratio to the list price of our catalog from which on an offer is named: A3 High on Google Cloud was at half its price
# (fixed in dstack 0.22.2).
_FAR = 1.5
# Of a request, and of archives with changed bytes (20,000 tried).
_BROKEN = OSError, ValueError, KeyError, EOFError, RuntimeError, csv.Error, zipfile.BadZipFile, zlib.error
_HEAD = "# 'skuwise prices update' replaces the prices whose source is a gpuhunt catalog, and keeps all others.\n"
_OURS = re.compile(rf'\s*- \{{sku: "(?P<provider>[^/"]+)/.*source: "{_SOURCE} .*\}}')
Place = tuple[str, str]  # node SKU and region


@dataclass(frozen=True, slots=True)
class Offers:
    """What a provider offers: US dollars per hour of a node by place. `as_of`: day of the catalog (ISO); `unknown`:
    instance types with GPUs that are no node of our catalog; `unreadable`: rows."""

    provider: str
    version: str
    as_of: str
    on_demand: Mapping[Place, float]
    spot: Mapping[Place, float]
    unknown: tuple[str, ...]
    unreadable: int


def read_offers(provider: str, catalog: Catalog, fetch: Callable[[str], bytes]) -> Offers:
    """The newest offers of one of `PROVIDERS`. `fetch`: the content at an address. Raises SkuwiseError where the
    provider's part of the catalog cannot be had or read."""
    from gpuhunt._internal.catalog import CATALOG_URL  # noqa: PLC0415 - an extra has it
    from gpuhunt._internal.storage import item_from_row  # noqa: PLC0415

    name, unreadable, items = PROVIDERS[provider], 0, []
    try:
        version = fetch(f"{CATALOG_URL}/{name}/version").decode("ascii").strip()
        if (day := _VERSION.fullmatch(version)) is None:
            raise ValueError("its version is not a day and a number")
        archive = zipfile.ZipFile(io.BytesIO(fetch(f"{CATALOG_URL}/{name}/{version}/catalog.zip")))
        for row in csv.DictReader(io.StringIO(archive.read(f"{name}.csv").decode("utf-8"), newline="")):
            try:
                items.append(item_from_row(row, provider=name))
            except ValueError:
                unreadable += 1
        if not items:
            raise ValueError("no row can be read")
    except _BROKEN as error:
        what = f"The offers of {provider} cannot be read: {f'{error}'.rstrip('.') or type(error).__name__}."
        raise SkuwiseError(what, "Try again later; prices of an earlier update stay.") from error
    vendors = {gpu.vendor.casefold() for gpu in catalog.gpus.values()}
    by_kind: tuple[dict[Place, float], dict[Place, float]] = {}, {}
    unknown = set()
    for item in items:
        if not item.gpu_count or item.gpu_vendor not in vendors or "gcp-dws-calendar-mode" in item.flags:
            continue  # no GPU, or time that is reserved in a calendar (Dynamic Workload Scheduler)
        region = item.location.rpartition("-")[0] if provider == "gcp" else item.location  # of a zone
        if not 0 < item.price < math.inf or not _REGION.fullmatch(region):
            unreadable += 1
        elif (node := _node(provider, item, catalog)) is None:
            unknown.add(f"{item.instance_name} ({item.gpu_count} x {item.gpu_name})")
        else:
            prices, place = by_kind[item.spot], (node.name, region)
            prices[place] = min(item.price, prices.get(place, math.inf))  # zones may differ
    on_demand, spot = (_in_all_regions(prices, catalog) for prices in by_kind)
    return Offers(provider, version, "-".join(day.groups()), on_demand, spot, tuple(sorted(unknown)), unreadable)


def _node(provider: str, item: Any, catalog: Catalog) -> NodeSku | None:  # noqa: ANN401 - gpuhunt's CatalogItem
    """The node of our catalog that an offer is for; None: there is none of this name with these GPUs."""
    if provider == "runpod":  # it offers GPUs by their driver's name: in its data centers (EU-RO-1), else by country
        sku = catalog.gpu(item.instance_name)
        kind = "(Secure)" if "-" in item.location else "(Community)"
        nodes = [n for n in catalog.nodes_of(sku.name if sku else "") if n.provider == provider and kind in n.name]
    else:
        node = catalog.node(f"{provider}/{item.instance_name.replace(' ', '_')}")
        nodes = [node] if node is not None else []
    gpu, count = normalise(item.gpu_name or "").replace("-", ""), item.gpu_count
    return next((n for n in nodes if n.gpu_count == count and normalise(n.gpu).replace("-", "").startswith(gpu)), None)


def _in_all_regions(prices: Mapping[Place, float], catalog: Catalog) -> dict[Place, float]:
    """The prices by place; one for all regions where our catalog has that too, and every region has the same price."""
    of_sku: dict[str, set[float]] = {}
    for (sku, _), price in prices.items():
        of_sku.setdefault(sku, set()).add(price)
    whole = {sku for sku, values in of_sku.items() if len(values) == 1 and catalog.price(sku, None)}
    return {(sku, ANY_REGION if sku in whole else region): price for (sku, region), price in sorted(prices.items())}


def merge(text: str, file: str, offers: Sequence[Offers], has_price: Collection[str] = ()) -> tuple[str, int]:
    """A price file with the offers in place of earlier ones of their providers, and how many they are; `text`: what it
    holds today; `has_price`: node SKUs with a price in the settings, which the file would replace. All other lines stay
    as they are, and a price that a site set has no second one. Raises SkuwiseError where prices are not a list of
    lines."""
    read = {o.provider for o in offers}
    lines = (text or f"{_HEAD}prices:\n").splitlines()
    lines = [line for line in lines if (ours := _OURS.fullmatch(line)) is None or ours["provider"] not in read]
    prices = parse_table("\n".join(lines).encode(), file).get("prices")
    site = {(entry["sku"], entry["region"]) for entry in prices or ()}
    begin = next((number for number, line in enumerate(lines) if re.fullmatch(r"prices\s*:\s*(#.*)?", line)), None)
    if begin is None and prices is not None:
        raise UsageError(f"{file} has its prices in one line.", "Write each on lines of its own, below 'prices:'.")
    if begin is None:
        begin = len(lines)
        lines.append("prices:")
    after = next((line for line in lines[begin + 1 :] if line.strip() and not line.lstrip().startswith("#")), "")
    indent = after.partition("-")[0] if after.lstrip().startswith("-") else "  "
    entries = [
        f"{indent}- {{sku: {json.dumps(sku)}, region: {json.dumps(region)}, usd_per_hour: {round(price, 6)}, "
        f'basis: list, source: "{_SOURCE} {o.version}", as_of: {o.as_of}}}'
        for o in offers
        for (sku, region), price in o.on_demand.items()
        if sku not in has_price and site.isdisjoint(((sku, region), (sku, ANY_REGION)))
    ]
    merged = "\n".join([*lines[: begin + 1], *entries, *lines[begin + 1 :]]) + "\n"
    parse_table(merged.encode(), file)
    return merged, len(entries)


def offers_document(offers: Sequence[Offers], catalog: Catalog) -> Document:
    """The page: prices by node on demand and as spot, those far from the list price, and what is no node here."""
    rows, far = [], []
    for o in offers:
        for sku in sorted({sku for sku, _ in (*o.on_demand, *o.spot)}):
            listed = catalog.reference_price(catalog.nodes[sku])
            kinds = [[price for place, price in kind.items() if place[0] == sku] for kind in (o.on_demand, o.spot)]
            spans = [" to ".join(dict.fromkeys((usd(min(k)), usd(max(k))))) if k else NONE for k in kinds]
            rows.append((sku, f"{len(kinds[0])}", *spans, usd(listed.usd_per_hour) if listed else NONE))
        for (sku, region), price in o.on_demand.items():
            listed = catalog.price(sku, region)
            if listed is not None and not 1 / _FAR < price / listed.usd_per_hour < _FAR:
                far.append(f"{sku} in {region}: {usd(price)}, list price {usd(listed.usd_per_hour)} ({listed.as_of})")
    heads = ("Node", "Places", "On demand", "Spot", "List price")
    unknown = ((f"{o.provider}, {counted(len(o.unknown), 'type')}", ", ".join(o.unknown)) for o in offers if o.unknown)
    title = "Offers of the gpuhunt catalog, US dollars per hour of a node"
    read = (f"{o.provider} {o.version}{f' ({o.unreadable} rows unreadable)' * bool(o.unreadable)}" for o in offers)
    return Document(
        title=title, heading=title, window=", ".join(read), sections=(
            section("Prices", Table(heads, tuple(rows), right=(1, 2, 3, 4))),
            section("Far from the list price", Bullets(tuple(far))),
            section("Not in our catalog", Figures(tuple(unknown))),
        ),
    )  # fmt: skip
