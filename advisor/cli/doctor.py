"""``skuwise doctor``: what a source can tell, before anybody waits for advice."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, NothingToDo
from ...rules.base.output import say, write_stdout
from ...rules.base.progress import progress
from ..telemetry.source import Databases, Source
from .options import add_source
from .output import cores, terminal_width, wants_color
from .price_options import rulebook_of
from .source_options import source_of

if TYPE_CHECKING:
    from ..doctor.facts import SourceCoverage
    from ..doctor.types import Diagnosis
    from ..rulebook import Rulebook

EXAMPLES = (
    "skuwise doctor --db node.db",
    "skuwise doctor --prometheus http://localhost:9090",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of doctor."""
    add_source(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    """Ask the source, diagnose, print. Raises NothingToDo, after printing what is known, where no GPU is observed."""
    from ..doctor.json import render_diagnosis_json  # noqa: PLC0415
    from ..doctor.text import render_diagnosis_text  # noqa: PLC0415

    now = time.time()
    book = rulebook_of(options, now)
    with progress("reading the source", "databases"):
        told = examine_source(source_of(options, say, cores()), book, since=options.since, until=options.until, now=now)
    found = diagnose_source(told, book, now)
    if options.format == "json":
        write_stdout(render_diagnosis_json(found))
    else:
        write_stdout(render_diagnosis_text(found, width=terminal_width(), color=wants_color()))
    if found.observed == 0:
        raise nothing_observed(found)
    return EXIT_DONE


def examine_source(source: Source, book: Rulebook, *, since: float, until: float | None, now: float) -> SourceCoverage:
    """What a source tells of a window: `since` seconds up to `until` (None: the newest data)."""
    from ..doctor.checks.slurm import with_table  # noqa: PLC0415

    if isinstance(source, Databases):
        from ..doctor.sqlite import read_databases  # noqa: PLC0415

        return with_table(read_databases(source.paths, since_seconds=since, until=until, now=now), source.jobs)
    from ...agent.config import load_config  # noqa: PLC0415
    from ..doctor.prometheus import ServerQuestion, read_server  # noqa: PLC0415
    from ..telemetry.prometheus.client.client import Client  # noqa: PLC0415
    from ..telemetry.prometheus.settings import load_prometheus_settings  # noqa: PLC0415

    settings = load_prometheus_settings(source.environ)
    client = Client(source.url, settings, source.environ)
    try:
        roles = load_config({}, source.environ).fabric_roles
        asked = ServerQuestion(client, source.matches, now, settings.concurrency, roles)
        return with_table(read_server(asked, book.catalog, since_seconds=since, until=until), source.jobs)
    finally:
        client.close()


def diagnose_source(told: SourceCoverage, book: Rulebook, now: float) -> Diagnosis:
    """The diagnosis by a rulebook's catalog, prices and floor of hours."""
    from ..doctor.diagnose import diagnose  # noqa: PLC0415
    from ..moves.base.price_book import PriceBook  # noqa: PLC0415

    prices = PriceBook(book.catalog, tuple(book.own.prices), tuple(book.own.power), book.hourly)
    return diagnose(told, book.catalog, prices, book.floor_hours, now)


def nothing_observed(found: Diagnosis) -> NothingToDo:
    """Why there is nothing to advise on: another window helps only where the exporters could read the GPUs."""
    driverless = [gap for gap in found.gaps if gap.code == "no-driver"]
    if driverless:
        nodes = sorted({node for gap in driverless for node in gap.nodes})
        named = nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more nodes"
        return NothingToDo(
            f"The GPUs of {named} cannot be read: {driverless[0].what.partition(': ')[2] or 'no driver'}",
            driverless[0].add,
        )
    if found.nodes:
        return NothingToDo(
            f"No GPU metrics observed; {found.expected} GPUs expected on {len(found.nodes)} nodes.",
            "Scrape dcgm-exporter or the agent (--listen) there, or check --match, --since and --until.",
        )
    return NothingToDo(
        "The source has no GPU telemetry and names no node with GPUs.",
        "Scrape dcgm-exporter or the agent (--listen), or check --match, --since and --until.",
    )
