"""What a widget shows, as plain rows or text that can be copied and written to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Sheet:
    """`columns` and `rows` of a table, or `text`. Rows are made when they are asked for: there may be many."""

    title: str
    columns: tuple[str, ...] = ()
    make_rows: Callable[[], Sequence[Sequence[str]]] = tuple
    text: str = ""

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        return self.make_rows()


@runtime_checkable
class Sheeted(Protocol):
    """A widget that can be copied and exported."""

    def sheet(self, title: str) -> Sheet: ...
