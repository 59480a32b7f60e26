"""``skuwise ledger snooze``: not now, and not counted until then."""

from __future__ import annotations

import argparse

from ...core.timestamps import parse_moment
from .decisions import add_decision, record_decision

EXAMPLES = ("skuwise ledger snooze r-5603c79e --until 2027-01-15",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)
    parser.add_argument("--until", required=True, metavar="DATE", help="end of the snooze: a date or RFC 3339, UTC")


def run(options: argparse.Namespace) -> int:
    return record_decision(options, "snoozed", parse_moment(options.until))
