"""A section of the settings files (``[report]``), then its variables (``SKUWISE_REPORT_*``): each layer over the one
before. Every key has a reader, which says what its value may be; unknown keys are errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..rules.base.errors import UsageError
from ..rules.base.sanitize import clean, quoted
from ..rules.base.typed_fields import suggest
from .base.durations import parse_duration
from .config import AGENT_VARIABLES, ENVIRONMENT_PREFIX, SYSTEM_FILE, number_of, read_sections

# (a value as the file or the environment has it, which key of which file it is) -> the value; raises UsageError.
Reader = Callable[[object, str], Any]
_WHOLE = re.compile(r"[0-9]{1,9}")


def read_section(
    section: str,
    keys: Mapping[str, tuple[str, Reader]],
    environ: Mapping[str, str],
    *,
    system_file: Path = SYSTEM_FILE,
    config_home: Path | None = None,
) -> dict[str, Any]:
    """The fields that some layer gives. `keys`: name in the file -> (field, reader).

    Raises `UsageError` for an unknown key or a value that cannot be.
    """
    layers = read_sections(section, environ, system_file=system_file, config_home=config_home)
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}_"
    named = {name: name.removeprefix(prefix).lower() for name in environ if name.startswith(prefix)}
    # SKUWISE_SLURM_CONF is the agent's own setting slurm_conf, not a key of the section [slurm].
    own = {key: environ[name] for name, key in named.items() if key in keys or name not in AGENT_VARIABLES}
    found: dict[str, Any] = {}
    for origin, table in (*layers, ("the environment", own)):
        for key, value in table.items():
            if key not in keys:
                remedy = suggest(key, keys) or f"Known are {', '.join(sorted(keys))}."
                raise UsageError(f"Unknown setting {quoted(key)} of {section} in {origin}.", remedy)
            field, read = keys[key]
            found[field] = read(value, f"{section}.{key} in {origin}")
    return found


def text(value: object, what: str) -> str:
    """One line of text; it may be empty."""
    if not isinstance(value, str) or not (value == "" or value.isprintable()):
        raise UsageError(f"{what} must be text.", "Put it in quotes.")
    return value


def texts(value: object, what: str) -> tuple[str, ...]:
    """A list of texts; in the environment with commas between them."""
    items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and item and item.isprintable() for item in items):
        raise UsageError(f"{what} is no list of texts.", 'Write ["one", "another"].')
    return tuple(items)


def path(value: object, what: str) -> Path:
    found = text(value, what)
    if not found:
        raise UsageError(f"{what} names no file.", "Name one, or leave the key out.")
    return Path(found)


def paths(value: object, what: str) -> tuple[Path, ...]:
    return tuple(Path(item) for item in texts(value, what))


def among(*choices: str) -> Reader:
    """A reader of one of these words."""

    def read(value: object, what: str) -> str:
        if value not in choices:
            raise UsageError(
                f"{what} is none of {', '.join(choices)}.", suggest(clean(value), choices) or "Choose one."
            )
        return str(value)

    return read


def whole(least: int, most: int) -> Reader:
    """A reader of whole numbers."""

    def read(value: object, what: str) -> int:
        told = clean(value)
        if not _WHOLE.fullmatch(told) or not least <= int(told) <= most:
            raise UsageError(f"{what} is no number from {least} to {most}.", "Choose one inside.")
        return int(told)

    return read


def seconds(least: float, most: float, said: str) -> Reader:
    """A reader of spans of time: a number of seconds, or as in ``30s``. `said`: the limits in words."""

    def read(value: object, what: str) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        span = number_of(value) if is_number else parse_duration(clean(value))  # type: ignore[arg-type]
        if not least <= span <= most:
            raise UsageError(f"{what} is outside {said}.", "Choose one inside.")
        return span

    return read
