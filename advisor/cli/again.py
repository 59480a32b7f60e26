"""The command line that runs on the same telemetry again: the program as it is called here, its options as given."""

from __future__ import annotations

import argparse
import shlex

from ...rules.base.typed_again import program
from ..core.timestamps import rfc3339
from ..views.document.page_options import Again
from .options import SINCE
from .source_options import source_arguments

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
        ("--ledger", getattr(options, "ledger", None)),
    ]
    told = [f"{flag} {shlex.quote(str(value))}" for flag, value in given if value is not None]
    return [*told, *(["--no-ledger"] if getattr(options, "no_ledger", False) else [])]


def _duration(seconds: float) -> str:
    """``7d``, ``36h``; as it was given, or the same length."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds % size == 0), (1, "s"))
    return f"{seconds / size:g}{unit}"
