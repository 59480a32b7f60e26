"""``skuwise ledger accept``: it will be done, and counts until it is."""

from __future__ import annotations

import argparse

from .decisions import add_decision, record_decision

EXAMPLES = ("skuwise ledger accept r-5603c79e --by ann",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)


def run(options: argparse.Namespace) -> int:
    return record_decision(options, "accepted")
