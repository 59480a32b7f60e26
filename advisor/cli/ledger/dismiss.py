"""``skuwise ledger dismiss``: it will not be done, and is not counted any more."""

from __future__ import annotations

import argparse

from .decisions import add_decision, record_decision

EXAMPLES = ("skuwise ledger dismiss r-5603c79e --why 'reserved until March'",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser, why_required=True)


def run(options: argparse.Namespace) -> int:
    return record_decision(options, "dismissed")
