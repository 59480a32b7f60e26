"""What processes of their own do with a state file. A test module is not importable in a child: packages on the index
have a top-level package ``tests``, too (gpuhunt 0.1.34)."""

import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from skuwise.advisor.state.fleets import StateBeside
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.ledger_builders import advice_with, decide, propose, recommendation
from skuwise.tests.support.report_fixtures import IDENTITY

NOW = 1_790_000_000.0
MOVE, FLEET = recommendation(), replace(IDENTITY, start=NOW - 86400.0, end=NOW)


def advise(folder: Path, who: str, answers: Any) -> None:
    said: list[str] = []
    try:
        for n in range(6):
            beside = StateBeside(said.append, folder=folder).of(FLEET)
            advice = advice_with(MOVE, recommendation(f"r-{who}-{n}"), end=NOW + n)
            beside.note(replace(advice, fleet=FLEET), NOW + n)
            assert beside.state is not None
            decide(beside.state.path, MOVE.id, "accepted", NOW + n, by=who)
    except SkuwiseError as error:
        said.append(f"failed: {error}")
    answers.put([line for line in said if "recorded in" not in line])


def fill(path: Path, limit: int, answers: Any) -> None:
    """Write to files that may not grow beyond `limit` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        propose(path, *(recommendation(f"r-{n}", text="x" * 2000) for n in range(99)), now=NOW)
        answers.put("")
    except SkuwiseError as error:
        answers.put(str(error))
