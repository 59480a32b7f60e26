"""JSON as it came, looked at value by value: every complaint names the file and the place in it."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Interval
from ..core.coded_text import UNSPECIFIED, CodedText, Scalar
from ..core.timestamps import parse_moment

_REMEDY = "Write it anew with skuwise advise --format json."
# No count and no sum of dollars or hours comes near: beyond it, adding up would lose the last cent.
NUMBER_MAX = 1e13

_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True, slots=True)
class Checked:
    """One value, and where it stands: `key` (a name or a position) within `parent`; the root has neither."""

    file: str
    value: object
    parent: Checked | None = None
    key: str | int = ""

    def fault(self, what: str) -> UsageError:
        return UsageError(f"{self.file} cannot be merged: {self._path()} {what}.", _REMEDY)

    def _path(self) -> str:
        if self.parent is None:
            return "what it holds"
        step = f"[{self.key}]" if isinstance(self.key, int) else f".{clean(self.key)[:60]}"
        return step.removeprefix(".") if self.parent.parent is None else f"{self.parent._path()}{step}"

    def has(self, key: str) -> bool:
        return key in self._table()

    def at(self, key: str) -> Checked:
        """A value that must be there (null is)."""
        table = self._table()
        child = Checked(self.file, table.get(key), self, key)
        if key not in table:
            raise child.fault("is missing")
        return child

    def named(self) -> Iterator[tuple[str, Checked]]:
        """A mapping's entries."""
        for key, value in self._table().items():
            yield key, Checked(self.file, value, self, key)

    def items(self) -> Iterator[Checked]:
        """A list's entries, one at a time."""
        if not isinstance(self.value, list):
            raise self.fault("is not a list")
        return (Checked(self.file, value, self, n) for n, value in enumerate(self.value))

    def null(self) -> bool:
        return self.value is None

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fault("is not text")
        # Names, labels and reasons come again and again: kept once, all shards take a third less.
        return sys.intern(self.value)

    def text_or_none(self) -> str | None:
        return None if self.value is None else self.text()

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def statement(self, text: str = "text") -> CodedText:
        """A statement whose text stands under `text`; of advice that told no codes, the text alone."""
        if isinstance(self.value, str):
            return CodedText(UNSPECIFIED, self.text())
        if not self.has("code"):
            return CodedText(UNSPECIFIED, self.at(text).text())
        fields = {name: field.scalar() for name, field in self.at("fields").named()}
        return CodedText(self.at("code").text(), self.at(text).text(), fields)

    def statements(self) -> tuple[CodedText, ...]:
        return tuple(item.statement() for item in self.items())

    def scalar(self) -> Scalar:
        if self.value is None or isinstance(self.value, bool):
            return self.value
        return self.text() if isinstance(self.value, str) else self.number(-math.inf, math.inf)

    def word(self, among: Collection[_Word]) -> _Word:
        text = self.text()
        if text not in among:
            raise self.fault(f"is none of {', '.join(sorted(among))}")
        return cast("_Word", text)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fault("is neither true nor false")
        return self.value

    def number(self, minimum: float = -NUMBER_MAX, maximum: float = NUMBER_MAX) -> float:
        """A number as it is written: a whole one stays whole."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault("is not a number")
        if not minimum <= value <= maximum:
            raise self.fault(f"is not between {minimum:g} and {maximum:g}")
        return value

    def number_or_none(self, minimum: float = -NUMBER_MAX) -> float | None:
        return None if self.value is None else self.number(minimum)

    def whole(self) -> int:
        value = self.number(0)
        if not isinstance(value, int):
            raise self.fault("is not a whole number")
        return value

    def interval(self) -> Interval | None:
        if self.value is None:
            return None
        return Interval(*(self.at(name).number() for name in ("p10", "p50", "p90")))

    def moment(self) -> float:
        """Unix seconds of an RFC 3339 moment in UTC."""
        text = self.text()
        try:
            if text.endswith("Z"):
                return parse_moment(text)
        except UsageError:
            pass
        raise self.fault("is not a moment in RFC 3339, UTC")

    def plain(self, depth: int = 8) -> dict[str, object]:
        """A mapping of whatever JSON can say, nested at most `depth` deep."""
        self._shallow(self.value, depth)
        return self._table()

    def _shallow(self, value: object, depth: int) -> None:
        if isinstance(value, dict | list):
            if depth == 0:
                raise self.fault("is nested too deep")
            for item in value.values() if isinstance(value, dict) else value:
                self._shallow(item, depth - 1)

    def _table(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            raise self.fault("is not a mapping")
        return cast("dict[str, object]", self.value)
