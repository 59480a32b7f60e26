"""``skuwise incidents show``: one incident with its evidence, its cost so far and its history."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_stdout
from ...incidents.formatting import as_text
from ..output import terminal_width
from .state_file import add_id, asked_incident, open_state

_WIDTH_MAX = 120

EXAMPLES = ("skuwise incidents show i-5603c79e",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)


def run(options: argparse.Namespace) -> int:
    one = asked_incident(options, open_state(options.state))
    write_stdout(as_text(one, time.time(), terminal_width(_WIDTH_MAX)))
    return EXIT_DONE
