"""The advisor's subcommands, from advise to demo. What each needs is imported when it is asked for."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.base.durations import parse_duration
from ...rules.base.errors import EXIT_DONE, UsageError
from ..advise import no_garbage_collection, read_and_advise
from ..core.timestamps import parse_moment
from ..render import FORMATS, render
from ..telemetry.source import add_source_choice, source_arguments, source_of
from .output import WIDTH_OF_A_PIPE, cores, say, write_stdout, write_whole
from .price_options import add_prices, said_prices

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..core.frame import Frame
    from ..ledger.sync import Beside

MAX_WINDOW_DAYS = 3650  # hours of ten years; nothing is kept for longer


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of one of this package's commands."""
    if command == "advise":
        _configure_advise(parser)
    elif command == "explain":
        from .explain import configure_explain  # noqa: PLC0415

        configure_explain(parser)
    elif command == "doctor":
        from .doctor import configure_doctor  # noqa: PLC0415

        configure_doctor(parser)
    elif command == "skus":
        from .skus import configure_skus  # noqa: PLC0415

        configure_skus(parser)
    elif command == "simulate":
        from .simulate import configure_simulate  # noqa: PLC0415

        configure_simulate(parser)
    elif command == "demo":
        from .demo import configure_demo  # noqa: PLC0415

        configure_demo(parser)
    elif command == "ledger":
        from .ledger import configure_ledger  # noqa: PLC0415

        configure_ledger(parser)
    elif command == "report":
        from .report import configure_report  # noqa: PLC0415

        configure_report(parser)
    elif command == "serve":
        from .serve import configure_serve  # noqa: PLC0415

        configure_serve(parser)
    elif command == "prices":
        from .prices import configure_prices  # noqa: PLC0415

        configure_prices(parser)
    elif command == "merge":
        from .merge import configure_merge  # noqa: PLC0415

        configure_merge(parser)
    else:
        raise UsageError(f"The advisor brings no command {command!r}.", "skuwise --help lists them.")


def add_source(parser: argparse.ArgumentParser) -> None:
    """The options that say which telemetry is read, and by which rules and prices it is judged."""
    add_source_choice(parser)
    parser.add_argument(
        "--since", type=_duration, default=14 * 86400.0, metavar="DURATION",
        help="length of the window, as in 24h or 14d (default: 14d)",
    )  # fmt: skip
    parser.add_argument(
        "--until", type=_moment, metavar="TIME",
        help="end of the window, RFC 3339 (default: the newest data)",
    )  # fmt: skip
    parser.add_argument("--rules", type=Path, metavar="DIR", help="your own rules, laid out like ours, over ours")
    add_prices(parser)


def _configure_advise(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="what to print (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there instead of to stdout, all or nothing")
    parser.add_argument("--market", action="store_true", help="also show other providers, apart and in no sum")
    add_ledger(parser)
    parser.set_defaults(run=run_advise)


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """The options that say which ledger of recommendations stands beside the advice."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--ledger", type=Path, metavar="PATH",
        help="what was decided on recommendations (default: the fleet's own in $XDG_STATE_HOME/skuwise/ledgers, where "
        "that can be used)",
    )  # fmt: skip
    choice.add_argument("--no-ledger", action="store_true", help="mark no decisions and note nothing")


def ledger_beside(options: argparse.Namespace) -> Beside:
    """The ledger that `add_ledger`'s options name."""
    from ..ledger.file.paths import default_path  # noqa: PLC0415
    from ..ledger.sync import Beside  # noqa: PLC0415

    named = None if options.no_ledger else options.ledger
    home = None if options.no_ledger or named is not None else default_path(os.environ)
    return Beside(named, named is not None, say, home)


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds > MAX_WINDOW_DAYS * 86400:
        raise argparse.ArgumentTypeError(f"{text} is longer than {MAX_WINDOW_DAYS} days. Choose a shorter window.")
    return seconds


def _moment(text: str) -> float:
    try:
        moment = parse_moment(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if moment < 0:
        raise argparse.ArgumentTypeError(f"{text} is before 1970. Choose a later time.")
    return moment


def run_advise(options: argparse.Namespace) -> int:
    """Read, judge, weigh, print. The only place of `advise` that knows the clock."""
    now, ledger = time.time(), ledger_beside(options)
    ledger.check()
    say("reading telemetry ...")
    with no_garbage_collection():
        frame, advice = read_and_advise(
            source_of(options, say, cores()), since=options.since, until=options.until, rules_dir=options.rules,
            prices=options.prices, hourly=said_prices(options, os.environ), now=now, ledger=ledger,
            with_market=options.market,
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


def print_advice(advice: Advice, options: argparse.Namespace) -> None:
    """The advice in `options.format`, to the file `options.output` or to stdout."""
    terminal = options.output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDTH_OF_A_PIPE, 24)).columns
    text = render(advice, options.format, width=width, color=terminal and not os.environ.get("NO_COLOR"))
    if options.output is None:
        write_stdout(text)
    else:
        write_whole(options.output, text)
        say(f"written to {options.output}")
