"""What the screens remember between two runs, and its file. It contains nothing that was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.files import read_bounded
from ...rules.base.output import write_whole

_LARGEST = 64 * 1024  # bytes; ours is some kB
_MOST_SOURCES = 100


class View(msgspec.Struct, frozen=True):
    """Window and page of a source. None: not remembered."""

    window_seconds: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] | None = None
    page: str | None = None


class Preferences(msgspec.Struct, frozen=True):
    """The file. `theme` None: not remembered. `views`: by `source_key`, the newest last."""

    theme: str | None = None
    views: Mapping[str, View] = {}
    schema: Literal["skuwise.tui/2"] = "skuwise.tui/2"

    def with_view(self, source: str, view: View) -> Preferences:
        """Return the same with the view of a source as the newest; of too many the oldest are dropped."""
        others = [(key, other) for key, other in self.views.items() if key != source]
        return msgspec.structs.replace(self, views=dict([*others, (source, view)][-_MOST_SOURCES:]))


def source_key(names: Sequence[str]) -> str:
    """Return a short key of a source, from what it is read from: the file contains no path and no URL."""
    return hashlib.sha256("\x1f".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
