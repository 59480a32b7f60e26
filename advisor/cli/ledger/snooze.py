"""``skuwise ledger snooze``: not now, and not counted until then."""

from __future__ import annotations

import argparse

from ...core.timestamps import parse_moment
from .decisions import add_decision, record_decision


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)
    parser.add_argument("--until", required=True, metavar="DATE", help="RFC 3339 or a date, UTC")


def run(options: argparse.Namespace) -> int:
    return record_decision(options, "snoozed", parse_moment(options.until))
