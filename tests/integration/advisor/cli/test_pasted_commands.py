"""Every command that skuwise prints runs when it is pasted: taken from real output, given to a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from skuwise.advisor.demo import simulate
from skuwise.tests.support.pasted_commands import commands_in, paste

END = 1_790_000_000.0 // 3600 * 3600
# A folder and a file that a shell would take apart; prices, rules and a ledger of one's own beside them.
FOLDER = "fleet of 'a' site"
# A command that is named where no source is known: it is to be run with one. What a source is called.
NAMES = ("skuwise advise", "skuwise agent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pasted") / FOLDER
    place.mkdir()
    simulate("founding", place / "a fleet.db", days=3, until=END)
    (place / "rules").mkdir()
    return place


GIVEN = "--db 'a fleet.db' --rules rules --gpu-hour-usd H100-SXM5=2.5 --ledger 'my ledger.db'"


def ran(command: str, folder: Path, *statuses: int) -> subprocess.CompletedProcess[str]:
    done = paste(command, folder)
    assert done.returncode in (statuses or (0,)), f"{command}\n{done.stdout[-2000:]}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def printed(command: str, folder: Path, *statuses: int) -> list[str]:
    """The commands that a command prints, on stdout and stderr."""
    done = ran(command, folder, *statuses)
    found = [*commands_in(done.stdout), *commands_in(done.stderr)]
    return [one for one in found if one not in NAMES]


@pytest.fixture(scope="module")
def advised(folder: Path) -> list[str]:
    return printed(f"skuwise advise {GIVEN}", folder)


def test_every_command_of_advise_runs(advised: list[str], folder: Path) -> None:
    assert len(advised) >= 2
    for command in advised:
        ran(command, folder)


@pytest.mark.parametrize(
    ("words", "statuses", "least"),
    [
        (f"explain {GIVEN} app-32", (2,), 8),
        (f"explain {GIVEN} app-32@serve-01", (2,), 2),
        ("ledger accept app-32 --ledger 'my ledger.db' --why 'it is so'", (2,), 2),
        ("doctor --db 'a fleet.db'", (0,), 0),
        ("ledger list --ledger 'my ledger.db'", (0,), 0),
        ("rules list", (0,), 0),
        ("skus show azure/Standard_ND96isr_H100_v5", (0,), 0),
        ("simulate founding --days 1 --db 'one more.db'", (0,), 1),
        ("advize", (2,), 0),
        ("nonsense", (2,), 0),
        ("advise --db 'a fleet.db' --formt json", (2,), 1),
        ("ledger show r-00000000 --ledger 'my ledger.db'", (2,), 1),
        ("ledger list --ledger none.db", (3,), 0),
        ("skus show H1000000", (2,), 0),
    ],
)
def test_every_command_of_output_and_errors_runs(
    words: str, statuses: tuple[int, ...], least: int, advised: list[str], folder: Path
) -> None:
    commands = printed(f"skuwise {words}", folder, *statuses)
    assert len(commands) >= least, commands
    for command in commands[:4]:
        # 3: nothing to work on is what a new machine has to say of itself.
        ran(command, folder, 0, 3)


def test_an_explained_recommendation_prints_commands_that_run(advised: list[str], folder: Path) -> None:
    first = next(one for one in advised if one.startswith("skuwise explain "))
    for command in printed(first, folder):
        ran(command, folder)
