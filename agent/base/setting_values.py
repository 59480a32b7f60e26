"""What the values of settings may be: readers of one value each, as a file, the environment or a flag has it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ...rules.base.suggestions import suggest
from ...rules.base.toml import line_of
from .durations import parse_duration

# (a value as the file or the environment has it, which key of which file it is) -> the value; raises UsageError.
Reader = Callable[[object, str], Any]
_WHOLE = re.compile(r"[0-9]{1,9}")
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def read_value(read: Reader, values: Mapping[str, object], key: str, what: str) -> object:
    """The value of `key` as `read` has it. An error of its is raised with the line of the key behind `what`, which
    begins it where it does not name the setting (UsageError)."""
    try:
        return read(values[key], what)
    except UsageError as error:
        place = f"{what}{line_of(values, key)}"
        told = error.message.replace(what, place, 1) if what in error.message else f"{place}: {error.message}"
        raise UsageError(told, error.remedy) from None


def text_value(value: object, what: str) -> str:
    """One line of text; it may be empty."""
    if not isinstance(value, str) or not (value == "" or value.isprintable()):
        raise UsageError(f"{what} must be text.", "Put it in quotes.")
    return value


def items_of(value: object) -> object:
    """A list as it stands; one in the environment has commas between its items."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def texts_value(value: object, what: str) -> tuple[str, ...]:
    """A list of texts."""
    items = items_of(value)
    if not isinstance(items, list) or not all(isinstance(item, str) and item and item.isprintable() for item in items):
        raise UsageError(f"{what} is not a list of texts.", 'Write ["one", "another"].')
    return tuple(items)


def path_value(value: object, what: str) -> Path:
    found = text_value(value, what)
    if not found:
        raise UsageError(f"{what} names no file.", "Name one, or leave the key out.")
    return Path(found)


def paths_value(value: object, what: str) -> tuple[Path, ...]:
    return tuple(Path(item) for item in texts_value(value, what))


def among(*choices: str) -> Reader:
    """A reader of one of these words."""

    def read(value: object, what: str) -> str:
        if value not in choices:
            raise UsageError(
                f"{what} is none of {', '.join(choices)}.", suggest(clean(value), choices) or "Choose one."
            )
        return str(value)

    return read


def whole_value(least: int, most: int) -> Reader:
    """A reader of whole numbers."""

    def read(value: object, what: str) -> int:
        told = clean(value)
        if not _WHOLE.fullmatch(told) or not least <= int(told) <= most:
            raise UsageError(f"{what} is not a number from {least} to {most}.", "Choose one inside.")
        return int(told)

    return read


def span_seconds(value: object) -> float:
    """Seconds of a number, or of a span of time as in ``30s``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number_of(value) if is_number else parse_duration(clean(value))  # type: ignore[arg-type]


def seconds_value(least: float, most: float, said: str) -> Reader:
    """A reader of spans of time: a number of seconds, or as in ``30s``. `said`: the limits in words."""

    def read(value: object, what: str) -> float:
        span = span_seconds(value)
        if not least <= span <= most:
            raise UsageError(f"{what} is outside {said}.", "Choose one inside.")
        return span

    return read


def number_of(value: float) -> float:
    """A number of a file as a float: a whole one may be larger than any float is."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def parse_flag(value: object, what: str) -> bool:
    """True or false, as a file or the environment says it. `what` names the setting in the error (UsageError)."""
    chosen = value if isinstance(value, bool) else _YES_NO.get(clean(value).lower())
    if chosen is None:
        raise UsageError(f"{what} is neither true nor false.", "Choose one.")
    return chosen


def parse_labels(value: object, what: str) -> tuple[str, ...]:
    """Labels of Kubernetes, as a file (a list) or the environment (with commas) has them. `what` names the setting in
    the error (UsageError)."""
    labels = items_of(value)
    if not isinstance(labels, list) or not all(isinstance(one, str) and _LABEL.fullmatch(one) for one in labels):
        raise UsageError(f"{what} must be labels of Kubernetes.", 'Write ["team", "example.com/team"].')
    return tuple(labels)
