"""Where the ledger lies unless ``--ledger`` says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def default_path(environment: Mapping[str, str]) -> Path | None:
    """``$XDG_STATE_HOME/skuwise/ledger.db``, by default ``~/.local/state/...``; None: there is no home.

    XDG: a relative path in the variable is to be ignored (https://specifications.freedesktop.org/basedir-spec/).
    """
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "skuwise" / "ledger.db"
    return Path(home) / ".local" / "state" / "skuwise" / "ledger.db" if home else None
