"""What the terminal remembers between two runs, and the file it stands in. It holds nothing that was measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.files import read_bounded
from ..widgets.table import Arrangement

SCHEMA = "skuwise.tui/2"
_LARGEST = 64 * 1024  # bytes; ours is some kB
_TEXT_MAX = 200
_MOST_SOURCES = 100
_REMEDY = "It is ignored and replaced at exit."


@dataclass(frozen=True)
class View:
    """What was shown of one source. None: nothing is remembered of it."""

    window_seconds: float | None = None
    page: str | None = None


@dataclass(frozen=True)
class Preferences:
    """`theme` None: none is remembered. `tables`: by ``page.table``. `views`: by `source_key`, the newest last."""

    theme: str | None = None
    tables: Mapping[str, Arrangement] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)

    def with_view(self, source: str, view: View) -> Preferences:
        """The same with the view of a source as the newest; of too many the oldest go."""
        others = [(key, one) for key, one in self.views.items() if key != source]
        return replace(self, views=dict([*others, (source, view)][-_MOST_SOURCES:]))


def source_key(names: Sequence[str]) -> str:
    """A short key of a source, by what it is read from: the file holds no path and no URL."""
    return hashlib.sha256("\x1f".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def preferences_path(environment: Mapping[str, str]) -> Path | None:
    """``$XDG_STATE_HOME/skuwise/tui.json``, beside the state files; None: there is no home."""
    from ...advisor.state.file import state_folder  # noqa: PLC0415

    folder = state_folder(environment)
    return None if folder is None else folder / "tui.json"


def recall(path: Path | None) -> tuple[Preferences, str | None]:
    """What stands in the file, and a sentence where it could not be used; nothing is said of one that is not there."""
    if path is None:
        return Preferences(), None
    try:
        return _read(json.loads(read_bounded(path, _LARGEST))), None
    except FileNotFoundError:
        return Preferences(), None
    except OSError as error:
        return Preferences(), f"Cannot read {path}: {error.strerror}. {_REMEDY}"
    except (ValueError, RecursionError) as error:  # JSON's own errors are ValueErrors
        return Preferences(), f"{path} is damaged: {error}. {_REMEDY}"


def keep(path: Path | None, memory: Preferences) -> str | None:
    """Write it, whole or not at all; a sentence where that failed."""
    from ...rules.base.output import write_whole  # noqa: PLC0415

    if path is None:
        return None
    told = {
        "schema": SCHEMA,
        "theme": memory.theme,
        "views": {key: {"window_seconds": v.window_seconds, "page": v.page} for key, v in memory.views.items()},
        "tables": {
            name: {"columns": list(one.columns), "by": one.by, "turned": one.turned}
            for name, one in sorted(memory.tables.items())
        },
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(told, indent=2) + "\n")
    except (OSError, SkuwiseError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return str(UsageError(f"Settings of the screens are not saved: {why}", f"Check {path}."))
    return None


def _read(told: object) -> Preferences:
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    extra = told.keys() - {"schema", "theme", "tables", "views"}
    if extra:
        raise ValueError(f"unknown key {min(map(str, extra))!r}")
    tables, views = _object(told, "tables"), _object(told, "views")
    return Preferences(
        _text(told, "theme"),
        {str(name)[:_TEXT_MAX]: _arrangement(one) for name, one in tables.items()},
        {str(key)[:_TEXT_MAX]: _view(one) for key, one in [*views.items()][-_MOST_SOURCES:]},
    )


def _object(told: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = told.get(name) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


def _view(told: object) -> View:
    if not isinstance(told, dict) or told.keys() != {"window_seconds", "page"}:
        raise ValueError("a view needs window_seconds and page")
    return View(_seconds(told["window_seconds"]), _text(told, "page"))


def _arrangement(told: object) -> Arrangement:
    if not isinstance(told, dict) or told.keys() != {"columns", "by", "turned"}:
        raise ValueError("a table is not described by columns, by and turned")
    columns, turned = told["columns"], told["turned"]
    if not isinstance(columns, list) or not all(isinstance(one, str) for one in columns):
        raise ValueError("columns are not a list of titles")
    if not isinstance(turned, bool):
        raise ValueError("turned is neither true nor false")
    return Arrangement(tuple(columns), _text(told, "by"), turned)


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("invalid window_seconds")
    return float(value)


def _text(told: Mapping[str, object], name: str) -> str | None:
    value = told.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _TEXT_MAX):
        raise ValueError(f"invalid {name}")
    return value
