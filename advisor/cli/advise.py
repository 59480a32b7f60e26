"""``skuwise advise``: what each workload is, what is wasted, and what to move."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import say
from ..advise import no_garbage_collection, read_and_advise
from ..render import format_names
from ..telemetry.source import source_arguments, source_of
from .options import add_ledger, add_source, ledger_beside
from .output import cores, print_advice
from .price_options import rulebook_of

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..core.frame import Frame


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of advise."""
    add_source(parser)
    parser.add_argument("--format", choices=format_names(), default="table", help="what to print (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there instead of to stdout, all or nothing")
    parser.add_argument("--market", action="store_true", help="also show other providers, apart and in no sum")
    add_ledger(parser)


def run(options: argparse.Namespace) -> int:
    """Read, judge, weigh, print. The only place of `advise` that knows the clock."""
    now, ledger = time.time(), ledger_beside(options)
    ledger.check()
    say("reading telemetry ...")
    with no_garbage_collection():
        frame, advice = read_and_advise(
            source_of(options, say, cores()), rulebook_of(options, now), since=options.since, until=options.until,
            now=now, ledger=ledger, with_market=options.market,
        )  # fmt: skip
    print_advice(advice, options)
    _say_coverage(frame, advice, options)
    ledger.note(advice, now)
    return EXIT_DONE


def _say_coverage(frame: Frame, advice: Advice, options: argparse.Namespace) -> None:
    """Where much is missing, one line says so: figures over half a fleet look like those over a whole one."""
    from ...rules.base.sanitize import clean  # noqa: PLC0415
    from ..doctor.line import coverage_line  # noqa: PLC0415

    line = coverage_line(frame, advice, f"skuwise doctor {source_arguments(options)}")
    if line is not None:
        say(clean(line))
