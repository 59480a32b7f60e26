"""Where ledgers lie unless ``--ledger`` says otherwise: one file a fleet, in a folder beside the one file of before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ....rules.base.errors import NothingToDo, StoreError
from ...core.advice_types import Fleet
from ..identity import file_stem, is_same, shared
from .files import locked
from .store import DamagedLedgerError, Ledger

# Splitting the ledger for all fleets of an older version takes some seconds.
_WAIT_SECONDS = 60.0


def default_ledger_path(environment: Mapping[str, str]) -> Path | None:
    """``$XDG_STATE_HOME/skuwise/ledger.db``, by default ``~/.local/state/...``; None: there is no home. It is the one
    ledger that older versions kept for all fleets; now its folder holds the fleets' (`folder_of`).

    XDG: a relative path in the variable is to be ignored (https://specifications.freedesktop.org/basedir-spec/).
    """
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "skuwise" / "ledger.db"
    return Path(home) / ".local" / "state" / "skuwise" / "ledger.db" if home else None


def folder_of(home: Path) -> Path:
    """The folder of the fleets' ledgers. `home`: `default_ledger_path`."""
    return home.with_name("ledgers")


def every_ledger(home: Path) -> list[Path]:
    """The ledgers that there are, the fleets' in the order of their names, then the one for all of an older version."""
    try:
        return [*sorted(folder_of(home).glob("*.db")), *([home] if home.exists() else [])]
    except OSError as error:
        raise StoreError(f"The ledgers in {home.parent} cannot be read: {error.strerror}.", "Name one.") from error


def ledger_of(home: Path, fleet: Fleet) -> tuple[Path, tuple[str, ...]]:
    """The fleet's ledger, or where it is to be begun; and what to say of files that are left out as damaged.

    Of several that share GPUs with it, the one that shares most, then the one used last. Raises StoreError where none
    fits and one cannot be read for now: it may be this fleet's.
    """
    folder, said = folder_of(home), []
    found: list[tuple[int, float, Path]] = []
    closed: StoreError | None = None
    try:
        files = sorted(folder.glob("*.db"))
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}.", "Name a ledger with --ledger.") from error
    for path in files:
        try:
            fleets = Ledger(path).fleets()
        except NothingToDo:
            continue
        except DamagedLedgerError as error:
            said.append(f"left out, as its fleet is unknown: {error.message}")
            continue
        except StoreError as error:
            closed = closed or error
            continue
        own = [known for known in fleets if known.match == fleet.match and is_same(fleet, known)]
        found += [(shared(fleet, known), known.last_seen, path) for known in own]
    if found:
        return max(found)[2], tuple(said)
    if closed is not None:
        raise closed
    stem, number, path = file_stem(fleet), 1, folder / f"{file_stem(fleet)}.db"
    while path.exists() and path.stat().st_size:
        number, path = number + 1, folder / f"{stem}-{number + 1}.db"
    return path, tuple(said)


def retired_ledgers(home: Path) -> list[Path]:
    """What was set aside of ledgers for all fleets."""
    return sorted(home.parent.glob(f"{home.stem}.old-*{home.suffix}"))


def retire_ledger(home: Path, now: float) -> Path:
    """Rename the ledger for all fleets; gives its new name. Nothing is deleted. Raises OSError."""
    day, number = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d}", 1
    path = home.with_name(f"{home.stem}.old-{day}{home.suffix}")
    while path.exists():
        number += 1
        path = home.with_name(f"{home.stem}.old-{day}-{number}{home.suffix}")
    return home.rename(path)


@contextmanager
def one_at_a_time(home: Path) -> Iterator[None]:
    """Of several processes one begins or splits ledgers at a time. Raises StoreError where there can be no folder."""
    folder = folder_of(home)
    with ExitStack() as held:
        try:
            # Who decided what, and why, is the user's own (XDG: a folder that is not there is made so).
            held.enter_context(locked(folder / ".lock", wait_seconds=_WAIT_SECONDS))
        except BlockingIOError as error:
            raise StoreError(
                f"Another process has held the ledgers in {folder} for {_WAIT_SECONDS:.0f} s.",
                "Try again when it is done.",
            ) from error
        except OSError as error:
            raise StoreError(
                f"Ledgers cannot be written in {folder}: {error.strerror}.",
                "Name a file that you may write with --ledger.",
            ) from error
        yield
