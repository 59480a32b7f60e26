"""``skuwise ledger reopen``: a decision is taken back, and it is proposed again."""

from __future__ import annotations

import argparse

from .decisions import add_decision, record_decision

EXAMPLES = ("skuwise ledger reopen r-5603c79e --why 'the launch is over'",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)


def run(options: argparse.Namespace) -> int:
    return record_decision(options, "reopened")
