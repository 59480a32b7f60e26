"""A stylesheet that reads its rules once for each theme."""

from __future__ import annotations

from collections.abc import Iterator

from textual.css.model import RuleSet
from textual.css.stylesheet import CssSource, Stylesheet

_Variables = tuple[tuple[str, str], ...]
_Sources = tuple[tuple[tuple[str, str], CssSource], ...]


class KeptStylesheet(Stylesheet):
    """Textual reads all rules anew whenever a page comes up that is newer than the theme. They say the same for as long
    as the theme's variables and the sources do."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._kept: dict[_Variables, tuple[_Sources, list[RuleSet]]] = {}

    def set_variables(self, variables: dict[str, str]) -> None:
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        known = self._kept.get(_told(self._variables))
        if known is None or known[0] != tuple(self.source.items()):
            # What was read with these variables before is not read again: only `set_variables` forgets it.
            self.parse()
            self._keep(self)
        elif self._rules is not known[1]:
            self._rules, self._rules_map, self._require_parse = known[1], None, False

    def read_ahead(self, variables: dict[str, str]) -> Iterator[None]:
        """Read the rules with other variables, one source a step; those that are known are not read again."""
        known = self._kept.get(_told(variables))
        if variables == self._variables or (known is not None and known[0] == tuple(self.source.items())):
            return
        other = KeptStylesheet(variables=variables)
        for read_from, source in tuple(self.source.items()):
            other.add_source(source.content, read_from, source.is_defaults, source.tie_breaker, source.scope)
            _ = other.rules
            yield
        self._keep(other)

    def _keep(self, read: Stylesheet) -> None:
        self._kept[_told(read._variables)] = (tuple(read.source.items()), read.rules)


def _told(variables: dict[str, str]) -> _Variables:
    return tuple(sorted(variables.items()))
