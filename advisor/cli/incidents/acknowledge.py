"""``skuwise incidents acknowledge``: somebody takes care of it, and nobody is reminded any more."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ...views.document.incident_table import title
from ..ledger.decisions import deciding_user
from .state_file import add_id, asked_incident, open_state

EXAMPLES = ("skuwise incidents acknowledge i-5603c79e --by ann",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)
    parser.add_argument("--by", metavar="NAME", help="name of the person who takes it (default: your user name)")


def run(options: argparse.Namespace) -> int:
    store = open_state(options.state)
    one = store.acknowledge(asked_incident(options, store).id, deciding_user(options.by), time.time())
    say(f"{one.id} ({clean(title(one))}) is acknowledged by {clean(one.acknowledged_by or '')}.")
    return EXIT_DONE
