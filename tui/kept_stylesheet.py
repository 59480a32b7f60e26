"""A stylesheet that reads its rules once for each theme."""

from __future__ import annotations

from collections.abc import Iterator

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet

_MOST_SOURCES = 512  # Textual remembers 64: fewer than there are kinds of widgets here


class KeptStylesheet(Stylesheet):
    """Textual reads all rules anew whenever a page comes up that is newer than the theme. They say the same for as long
    as the theme's variables do."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(_MOST_SOURCES)
        self._read: dict[tuple[tuple[str, str], ...], KeptStylesheet] = {}

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        other = self._of(self._variables)
        for _ in self._read_into(other):
            pass
        self._rules, self._rules_map, self._require_parse = other.rules, None, False

    def read_ahead(self, variables: dict[str, str]) -> Iterator[None]:
        """Read the rules with other variables, one source a step."""
        other = self._of(variables)
        for _ in self._read_into(other):
            _ = other.rules
            yield

    def _of(self, variables: dict[str, str]) -> KeptStylesheet:
        """What was read with these variables."""
        told = tuple(sorted(variables.items()))
        if told not in self._read:
            self._read[told] = KeptStylesheet(variables=dict(variables))
        return self._read[told]

    def _read_into(self, other: KeptStylesheet) -> Iterator[None]:
        """Give it the sources that it does not have."""
        for read_from, source in tuple(self.source.items()):
            if other.source.get(read_from) != source:
                other.add_source(source.content, read_from, source.is_defaults, source.tie_breaker, source.scope)
                yield
