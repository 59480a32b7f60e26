"""Options that several commands share: which telemetry, and which window of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable

from ...agent.base.durations import parse_duration
from ...rules.base.errors import UsageError
from ...rules.base.typed_again import program
from ..core.timestamps import parse_moment, rfc3339
from ..show.page_options import Again
from .price_options import add_prices, add_rules
from .source_options import add_source_choice, source_arguments

SINCE = 14 * 86400.0  # seconds
MAX_WINDOW_DAYS = 3650  # hours of ten years; nothing is kept for longer


def add_source(
    parser: argparse.ArgumentParser, *, required: bool = True, since: float = SINCE, since_words: str = "14d"
) -> None:
    """The options that say which telemetry is read, and by which rules and prices it is judged. `since`: the default
    window, seconds, which `since_words` says."""
    add_source_choice(parser, required=required)
    parser.add_argument(
        "--since", type=duration, default=since, metavar="DURATION",
        help=f"length of the time window, as in 24h or 14d (default: {since_words})",
    )  # fmt: skip
    parser.add_argument(
        "--until", type=moment, metavar="TIME",
        help="end of the time window, RFC 3339 in UTC (default: the newest data)",
    )  # fmt: skip
    add_rules(parser)
    add_prices(parser)


def _typed(parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration(text: str) -> float:
    """A length of time as typed (``2h``), seconds. Raises ArgumentTypeError."""
    seconds = _typed(parse_duration, text)
    if seconds > MAX_WINDOW_DAYS * 86400:
        raise argparse.ArgumentTypeError(f"{text} is longer than {MAX_WINDOW_DAYS} days. Choose a shorter window.")
    return seconds


def moment(text: str) -> float:
    """A moment as typed, Unix seconds. Raises ArgumentTypeError."""
    ts = _typed(parse_moment, text)
    if ts < 0:
        raise argparse.ArgumentTypeError(f"{text} is before 1970. Choose a later time.")
    return ts


_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def again_of(options: argparse.Namespace) -> Again:
    """The source, the window, the rules, the prices and the ledger of `options`, quoted for a shell."""
    return Again(program(), " ".join(part for part in (source_arguments(options), *_others(options)) if part))


def _others(options: argparse.Namespace) -> list[str]:
    given: list[tuple[str, object]] = [
        ("--since", None if options.since == SINCE else _duration(options.since)),
        ("--until", None if options.until is None else rfc3339(options.until)),
        ("--rules", options.rules),
        ("--prices", options.prices),
        *(("--gpu-hour-usd", one) for one in options.gpu_hour_usd),
        ("--state", getattr(options, "state", None)),
    ]
    told = [f"{flag} {shlex.quote(str(value))}" for flag, value in given if value is not None]
    return [*told, *(["--no-ledger"] if getattr(options, "no_ledger", False) else [])]


def _duration(seconds: float) -> str:
    """``7d``, ``36h``; as it was given, or the same length."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds % size == 0), (1, "s"))
    return f"{seconds / size:g}{unit}"
