"""Where ledgers lie unless ``--ledger`` says otherwise: one file a fleet, in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...rules.base.errors import NothingToDo, StoreError
from ..core.advice_types import Fleet
from .files import locked
from .fleets import file_stem, is_same, shared
from .ledger_file import DamagedLedgerError, Ledger

# Another process that begins a ledger holds the folder for some milliseconds.
_WAIT_SECONDS = 60.0


def default_ledgers(environment: Mapping[str, str]) -> Path | None:
    """The folder of the fleets' ledgers, ``$XDG_STATE_HOME/skuwise/ledgers``, by default ``~/.local/state/...``; None:
    there is no home.

    XDG: a relative path in the variable is to be ignored (https://specifications.freedesktop.org/basedir-spec/).
    """
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "skuwise" / "ledgers"
    return Path(home) / ".local" / "state" / "skuwise" / "ledgers" if home else None


def every_ledger(folder: Path) -> list[Path]:
    """The ledgers that there are, in the order of their names. Raises StoreError."""
    try:
        return sorted(folder.glob("*.db"))
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}.", "Use --ledger to name a ledger.") from error


def ledger_of(folder: Path, fleet: Fleet) -> tuple[Path, tuple[str, ...]]:
    """The fleet's ledger, or where it is to be begun; and what to say of files that are left out as damaged.

    Of several that share GPUs with it, the one that shares most, then the one used last. Raises StoreError where none
    fits and one cannot be read for now: it may be this fleet's.
    """
    said: list[str] = []
    found: list[tuple[int, float, Path]] = []
    closed: StoreError | None = None
    for path in every_ledger(folder):
        try:
            fleets = Ledger(path).fleets()
        except NothingToDo:
            continue
        except DamagedLedgerError as error:
            said.append(f"ignored ledger of an unknown fleet: {error.message}")
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


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Of several processes one begins a ledger at a time. Raises StoreError where there can be no folder."""
    with ExitStack() as held:
        try:
            # Who decided what, and why, is the user's own (XDG: a folder that is not there is made so).
            held.enter_context(locked(folder / ".lock", wait_seconds=_WAIT_SECONDS))
        except BlockingIOError as error:
            raise StoreError(
                f"Another process has locked the ledgers in {folder} for {_WAIT_SECONDS:.0f} s.",
                "Try again after it ends.",
            ) from error
        except OSError as error:
            raise StoreError(
                f"Cannot write ledgers in {folder}: {error.strerror}.", "Use --ledger with a file that you can write."
            ) from error
        yield
