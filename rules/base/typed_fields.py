"""Checks on a table as read: every value of the right type and range, no key unknown, every complaint with its line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from .errors import RulesError
from .sanitize import quoted
from .suggestions import suggest
from .yaml_loader import Items, Table, fault, layers, packaged_rules, read_table

T = TypeVar("T")
_ISO_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_COMMIT = re.compile(r"commit [0-9a-f]{7,40}")
_MOST = 1e18
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a number", Table: "a mapping"}


def _is_date(text: str) -> bool:
    """Whether text is a day that there is, as 2026-09-19."""
    try:
        return _ISO_DATE.fullmatch(text) is not None and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


class Fields:
    """One table, read key by key; `done` refuses what nobody asked for, here and in the tables within.

    `where` names the entry in errors (``gpu 'H100-SXM5'``). A key that is absent or null reads as None where it is
    optional, and is an error where it is not.
    """

    def __init__(self, file: str, table: Table, where: str) -> None:
        self.file = file
        self.table = table
        self.where = where
        self._known: set[str] = set()
        self._parts: list[Fields] = []

    def fault(self, key: str | None, sentence: str, remedy: str = "") -> RulesError:
        line = self.table.line if key is None else self.table.lines.get(key, self.table.line)
        return fault(self.file, line, f"{sentence.rstrip('.')} in {self.where}.", remedy)

    def done(self) -> None:
        """Every key must have been asked for, in the tables within too as far as they were read."""
        for part in self._parts:
            if part._known:
                part.done()
        for key in self.table:
            if key not in self._known:
                raise self.fault(
                    key,
                    f"unknown key {quoted(key)}",
                    suggest(key, self._known) or f"Known are {', '.join(sorted(self._known))}.",
                )

    def _get(self, key: str, kinds: tuple[type, ...]) -> object:
        self._known.add(key)
        value = self.table.get(key)
        if value is None:
            return None
        if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
            raise self.fault(key, f"{quoted(key)} must be {_NAMES.get(kinds[0], 'a list')}", "Correct the value.")
        return value

    def _need(self, key: str, value: T | None) -> T:
        if value is None:
            unasked = [one for one in self.table if one not in self._known]
            near = difflib.get_close_matches(key, unasked, n=1, cutoff=0.7)
            at = near[0] if near else key if key in self.table else None
            raise self.fault(
                at, f"{quoted(key)} is missing", f"Is it what {quoted(near[0])} should be?" if near else "Add it."
            )
        return value

    def _part(self, table: Table, where: str) -> Fields:
        part = Fields(self.file, table, where)
        self._parts.append(part)
        return part

    def text_or_none(self, key: str, among: Collection[str] | None = None) -> str | None:
        value = self._get(key, (str,))
        if value is None:
            return None
        assert isinstance(value, str)
        if not value.strip():
            raise self.fault(key, f"{quoted(key)} is empty", "Write it, or remove the key.")
        if _CONTROL.search(value.replace("\n", "")):
            raise self.fault(key, f"{quoted(key)} holds control characters", "Remove them.")
        if among is not None and value not in among:
            raise self.fault(
                key, f"{quoted(key)} is {quoted(value)}, not one of {', '.join(sorted(among))}", suggest(value, among)
            )
        return value

    def text(self, key: str, among: Collection[str] | None = None) -> str:
        return self._need(key, self.text_or_none(key, among))

    def date_or_none(self, key: str) -> str | None:
        value = self.text_or_none(key)
        if value is not None and not _is_date(value):
            raise self.fault(key, f"{quoted(key)} must be a date", "Write it as 2026-09-19.")
        return value

    def date(self, key: str) -> str:
        return self._need(key, self.date_or_none(key))

    def as_of(self, key: str = "as_of") -> str:
        """When a figure was read: a date, or the commit of a dated repository."""
        value = self.text(key)
        if not _COMMIT.fullmatch(value) and not _is_date(value):
            raise self.fault(key, f"{quoted(key)} must be a date or a commit", "Write 2026-09-19, or commit 3f5f6971.")
        return value

    def number_or_none(
        self, key: str, minimum: float | None = None, above: float | None = None, maximum: float | None = None
    ) -> float | None:
        value = self._get(key, (float, int))
        if value is None:
            return None
        assert isinstance(value, float | int)
        # What is larger is no figure of anything, and becomes infinite where it is brought to base units.
        if not abs(value) <= _MOST:
            raise self.fault(key, f"{quoted(key)} is not a number up to {_MOST:g}", "Correct the value.")
        number = float(value)
        for wrong, bound in (
            (minimum is not None and number < minimum, f"at least {minimum:g}" if minimum is not None else ""),
            (above is not None and number <= above, f"above {above:g}" if above is not None else ""),
            (maximum is not None and number > maximum, f"at most {maximum:g}" if maximum is not None else ""),
        ):
            if wrong:
                raise self.fault(key, f"{quoted(key)} is {number:g} and must be {bound}", "Correct the value.")
        return number

    def number(
        self, key: str, minimum: float | None = None, above: float | None = None, maximum: float | None = None
    ) -> float:
        return self._need(key, self.number_or_none(key, minimum, above, maximum))

    def whole_or_none(self, key: str, minimum: int = 0, maximum: int = 1_000_000) -> int | None:
        value = self._get(key, (int,))
        number = self.number_or_none(key, minimum=minimum, maximum=maximum)
        return None if value is None or number is None else int(number)

    def whole(self, key: str, minimum: int = 0, maximum: int = 1_000_000) -> int:
        return self._need(key, self.whole_or_none(key, minimum, maximum))

    def flag_or_none(self, key: str) -> bool | None:
        value = self._get(key, (bool,))
        return None if value is None else bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of text; empty where the key is absent."""
        value = self._get(key, (Items,))
        if value is None:
            return ()
        assert isinstance(value, Items)
        for item, line in zip(value, value.lines, strict=True):
            if not isinstance(item, str) or not item.strip() or _CONTROL.search(item.replace("\n", "")):
                raise fault(self.file, line, f"every item of {quoted(key)} must be text in {self.where}.", "Quote it.")
        return tuple(str(item) for item in value)

    def numbers_or_none(self, key: str) -> tuple[float, ...] | None:
        """A list of numbers; None where the key is absent."""
        value = self._get(key, (Items,))
        if value is None:
            return None
        assert isinstance(value, Items)
        for item, line in zip(value, value.lines, strict=True):
            if isinstance(item, bool) or not isinstance(item, (int, float)) or not abs(item) <= _MOST:
                raise fault(
                    self.file, line, f"every item of {quoted(key)} must be a number in {self.where}.", "Correct it."
                )
        return tuple(float(item) for item in value)  # type: ignore[arg-type] - checked above

    def table_or_none(self, key: str, where: str = "") -> Fields | None:
        value = self._get(key, (Table,))
        if value is None:
            return None
        assert isinstance(value, Table)
        return self._part(value, where or f"{key} of {self.where}")

    def subtable(self, key: str) -> Fields:
        return self._need(key, self.table_or_none(key))

    def tables(self, key: str, where: str = "") -> Iterator[Fields]:
        """A list of tables; empty where the key is absent."""
        value = self._get(key, (Items,))
        if value is None:
            return
        assert isinstance(value, Items)
        for number, (item, line) in enumerate(zip(value, value.lines, strict=True), start=1):
            if not isinstance(item, Table):
                raise fault(
                    self.file, line, f"every item of {quoted(key)} must be a mapping in {self.where}.", "Correct it."
                )
            named = where or f"item {number} of {quoted(key)} of {self.where}"
            yield self._part(item, named)

    def entries(self, describe: Callable[[str], str]) -> Iterator[tuple[str, Fields]]:
        """This table as names and their tables: every key is the name of one entry."""
        for name, value in self.table.items():
            if not isinstance(value, Table):
                raise self.fault(name, f"{quoted(name)} must be a mapping", "Correct it.")
            if _CONTROL.search(name) or not name.strip():
                raise self.fault(name, "a name is empty or holds control characters", "Correct it.")
            self._known.add(name)
            yield name, self._part(value, describe(name))


def packaged_fields(
    file: Traversable | Path | None, name: str, schema: str = "", remedy: str = "Correct it."
) -> Fields:
    """A file of the rules that ship, or `file` in its place. Raises RulesError where its schema is another."""
    file = file or packaged_rules().joinpath(name)
    top = Fields(str(file), read_table(file), name)
    if schema and top.text("schema") != schema:
        raise top.fault("schema", f"the schema is not {schema}", remedy)
    return top


def read_named(
    rules_dir: Path | None, file: str, key: str, called: str, read: Callable[[str, Fields], T]
) -> Mapping[str, T]:
    """What one file has under `key`, by name; a site's file replaces those it names. `called`: one of them, in errors.
    Raises RulesError with file and line."""
    found: dict[str, T] = {}
    for layer in layers(rules_dir):
        path = layer.joinpath(file)
        if found and not path.is_file():
            continue
        top = Fields(str(path), read_table(path), file)
        for name, entry in top.subtable(key).entries(lambda name: f"{called} {quoted(name)}"):
            found[name] = read(name, entry)
        top.done()
    return MappingProxyType(found)
