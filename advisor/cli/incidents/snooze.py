"""``skuwise incidents snooze``: no reminders until then."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ...core.timestamps import minute
from ...views.document.incident_table import title
from .snooze_end import HINT, parse_until
from .state_file import add_id, asked_incident, open_state

EXAMPLES = ("skuwise incidents snooze i-5603c79e --until 8h", "skuwise incidents snooze i-5603c79e --until 2027-01-15")


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)
    parser.add_argument("--until", required=True, metavar="WHEN", help=f"end of the snooze: {HINT}")


def run(options: argparse.Namespace) -> int:
    now = time.time()
    until = parse_until(options.until, now)
    store = open_state(options.state)
    one = store.snooze(asked_incident(options, store).id, until, now)
    say(f"{one.id} ({clean(title(one))}) is snoozed until {minute(until)}.")
    return EXIT_DONE
