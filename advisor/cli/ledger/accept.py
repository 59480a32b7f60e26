"""``skuwise ledger accept``: it will be done, and counts until it is."""

from __future__ import annotations

import argparse

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import say
from ....rules.base.typed_again import program
from .decisions import add_decision, record_decision
from .entries import place_arguments

EXAMPLES = ("skuwise ledger accept r-5603c79e --by ann",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_decision(parser)


def run(options: argparse.Namespace) -> int:
    """Record it, and print what does it."""
    from ...patches.build import next_step  # noqa: PLC0415 - read where it is needed

    say(next_step(record_decision(options, "accepted"), program(), place_arguments(options)))
    return EXIT_DONE
