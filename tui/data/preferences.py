"""What the screens remember between two runs, and its file. It contains nothing that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.files import read_bounded
from ...rules.base.output import write_whole

_LARGEST = 64 * 1024  # bytes; ours is some kB


class Preferences(msgspec.Struct, frozen=True):
    """The file: the theme, window and page that were chosen last. None: not remembered."""

    theme: str | None = None
    window_seconds: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] | None = None
    page: str | None = None
    schema: Literal["skuwise.tui/3"] = "skuwise.tui/3"


def preferences_path(environment: Mapping[str, str]) -> Path | None:
    """Return ``$XDG_STATE_HOME/skuwise/tui.json``; None: there is no home."""
    from ...advisor.state.file import state_folder  # noqa: PLC0415

    folder = state_folder(environment)
    return None if folder is None else folder / "tui.json"


def recall(path: Path | None) -> tuple[Preferences, str | None]:
    """Return what the file contains, and a sentence where it exists and could not be used."""
    try:
        if path is None or not path.exists():
            return Preferences(), None
        return msgspec.json.decode(read_bounded(path, _LARGEST), type=Preferences), None
    except (OSError, ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        why = error.strerror if isinstance(error, OSError) else error
        return Preferences(), f"Cannot read {path}: {why}. It is ignored and replaced at exit."


def keep(path: Path | None, memory: Preferences) -> str | None:
    """Write it, whole or not at all; return a sentence where that failed."""
    if path is None:
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(memory)).decode() + "\n")
    except (OSError, SkuwiseError) as error:
        return str(UsageError(f"Settings of the screens are not saved: {error}", f"Check {path}."))
    return None
