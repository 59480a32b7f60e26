"""``skuwise ledger reopen``: a decision is taken back, and it is proposed again."""

from __future__ import annotations

import argparse

from ....rules.base.errors import EXIT_DONE
from .decisions import add_decision, record_decision

EXAMPLES = ("skuwise ledger reopen r-5603c79e --why 'the launch is over'",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)


def run(options: argparse.Namespace) -> int:
    record_decision(options, "reopened")
    return EXIT_DONE
