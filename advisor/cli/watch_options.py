"""What `watch` and `idle` share: the source, and how far back it is read."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import UsageError
from ...rules.base.output import say
from ..notify.settings import load_mail_settings
from ..telemetry.source import Source
from .old_options import SINCE, moment
from .output import cores
from .price_options import add_prices, add_rules
from .source_options import add_source_choice, source_of

# Beyond the longest limit: what tells a pause from an end lies before it.
MARGIN_SECONDS = 1.5 * 3600.0
# How far back a rest that began before is followed, as far as advice looks by default.
PAST_SECONDS = SINCE


def add_watched(parser: argparse.ArgumentParser) -> None:
    """The options that say what is watched, and by which rules and prices."""
    add_source_choice(parser, required=False)
    add_rules(parser)
    parser.add_argument(
        "--until", type=moment, metavar="TIME",
        help="evaluate the data as of this time, RFC 3339 in UTC (default: now)",
    )  # fmt: skip
    add_prices(parser)


def watched_source(options: argparse.Namespace) -> Source:
    """The source that options name, else the one of the weekly report, which is put into `options` for whoever prints
    commands. Raises UsageError where neither names one."""
    if not options.db and options.prometheus is None:
        report = load_mail_settings(os.environ)
        if not report.prometheus and not report.db:
            raise UsageError(
                "No telemetry source.", "Add --db PATH or --prometheus URL, or set report.db in skuwise.toml."
            )
        if report.prometheus and report.db:
            raise UsageError("Both report.db and report.prometheus are set.", "Remove one of them.")
        options.prometheus = report.prometheus or None
        options.db = None if report.prometheus else list(report.db)
        options.match = [*options.match, *(report.match if report.prometheus else ())]
    return source_of(options, say, cores())
