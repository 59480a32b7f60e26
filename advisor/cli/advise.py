"""``skuwise advise``: what each workload is, what is wasted, and what to change."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say
from ...rules.base.typed_again import program
from ..advise import read_and_reason
from ..show.page_options import SECTIONS, PageOptions
from ..show.writers.formats import FORMATS
from .options import add_source, again_of
from .output import EVALUATING, cores, print_advice, reading_telemetry
from .price_options import rulebook_of
from .source_options import source_arguments, source_of
from .state_options import add_state, beside

if TYPE_CHECKING:
    from ...rules.catalog.loader import Catalog
    from ..core.frame import Frame
    from ..pipeline import Reasoned

_TABLE = "table"

EXAMPLES = (
    "skuwise advise --db node.db",
    "skuwise advise --prometheus http://localhost:9090 --match 'cluster=\"eu\"' --since 7d",
    "skuwise advise --db node.db --format json --output advice.json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of advise."""
    add_source(parser)
    parser.add_argument("--format", choices=FORMATS, default=_TABLE, help="output format (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")
    parser.add_argument(
        "--section", action="append", choices=SECTIONS, default=[], metavar="NAME",
        help=f"print this section in full; repeatable: {', '.join(SECTIONS)} (default: a summary of two screens)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="print every section with all rows")
    parser.add_argument(
        "--verbose", action="store_true", help="print every note, every reason and blocked recommendations as well"
    )
    parser.add_argument(
        "--min-saving", type=_usd, metavar="USD",
        help="hide recommendations that save less than USD a month (default: the lesser of 100 and 1 %% of spend; "
        "reporting.yaml of --rules)",
    )  # fmt: skip
    parser.add_argument(
        "--market", action="store_true", help="also compare prices of other providers; not included in any sum"
    )
    add_state(parser, optional=True)


def _usd(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"invalid amount: {text!r}. Use a number of US dollars, as in 250.")
    return value


def run(options: argparse.Namespace) -> int:
    """Read, evaluate, print. The only place of `advise` that knows the clock."""
    page = _page(options)
    source = source_of(options, say, cores())
    now, ledger = time.time(), beside(options)
    ledger.check()
    book = rulebook_of(options, now)
    if options.min_saving is not None:
        book = book.with_min_saving(options.min_saving, "--min-saving")
    with reading_telemetry(options) as reading:
        frame, found = read_and_reason(
            replace(source, steps=reading.step), book, since=options.since, until=options.until, now=now,
            ledger=ledger, with_market=options.market, read=lambda: reading.stage(EVALUATING),
        )  # fmt: skip
    print_advice(found.advice, options, page)
    _say_coverage(frame, found, book.catalog, options)
    ledger.note(found.advice, now)
    return EXIT_DONE


def _page(options: argparse.Namespace) -> PageOptions:
    """What the options ask to see. Raises UsageError for sections of a format that is always whole."""
    asked = [f"--{name}" for name in ("section", "all", "verbose") if getattr(options, name)]
    if asked and options.format != _TABLE:
        raise UsageError(
            f"{asked[0]} applies to --format table; --format {options.format} contains everything.",
            f"Remove {asked[0]}.",
        )
    return PageOptions(tuple(options.section), options.all, options.verbose, again_of(options))


def _say_coverage(frame: Frame, found: Reasoned, catalog: Catalog, options: argparse.Namespace) -> None:
    """Where much is missing, one line says so: figures over half a fleet look like those over a whole one."""
    from ...rules.base.sanitize import clean  # noqa: PLC0415
    from ..doctor.coverage import coverage_line  # noqa: PLC0415

    line = coverage_line(frame, found, catalog, f"{program()} doctor {source_arguments(options)}")
    if line is not None:
        say(clean(line))
