"""Reads ``kind_priors.yaml``: what names, images, owners and partitions say of a workload's kind, before any shape.

```yaml
priors:
  our-inference-namespaces:
    of: namespace
    names: [prod-llm, prod-vision]
    log_odds: {online-inference: 4.0, interactive: -2.0}
    says: where only services run
    reason: the platform team admits nothing else there
```

A line fits where one of its `names` is the whole text (small and capital letters are one), or one of its `words` stands
in it. A word is letters and digits; several joined by dashes stand one after the other, whatever parts them in the
text (``api-server`` fits api_server and api.server); a ``*`` at either end of the whole stands for more letters and
digits. Nothing of a file is a regular expression. Of the lines about one thing the first that fits speaks, a site's
before those that ship; one of a site's that has the name of a shipped line replaces it, and one whose log-odds are all
zero silences what would fit after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Slug, Text, joined
from ..base.yaml_loader import read_layers
from .labels import WorkingKind
from .thresholds import SHIPPED, SITE

FILE = "kind_priors.yaml"
# A site may state what it knows to be so, and no more: e to the 8 is three thousand to one.
LogOdds = Annotated[float, Meta(ge=-8, le=8)]
# What a line can be about (docs/rules.md tells it to people).
Subject = Literal[
    "engine", "framework", "image", "program", "task", "owner", "scheduler", "partition", "qos", "job-name",
    "namespace", "part",
]  # fmt: skip
Patterns = Annotated[tuple[Annotated[Text, Meta(max_length=64)], ...], Meta(max_length=100)]
# Of longer texts the beginning is looked at: commands are kept to some hundred characters.
TEXT_CHARACTERS = 2000
_WORD = re.compile(r"\*?[a-z0-9]+(?:-[a-z0-9]+)*\*?", re.ASCII)


@dataclass(frozen=True, slots=True)
class KindPrior:
    """One line. `words`: `words_told` as they are looked for. `log_odds`: by kind, natural logarithm; 0 for a kind that
    is not named. `hours_min`: it speaks only of work that has run for so long, restarts included. `says`: for people,
    after a comma or a colon; `reason`: why the weights are these."""

    name: str
    of: str
    names: frozenset[str]
    words_told: tuple[str, ...]
    words: re.Pattern[str] | None
    hours_min: float
    log_odds: Mapping[str, float]
    says: str
    reason: str
    origin: str = SHIPPED

    def found(self, text: str, hours: float) -> str | None:
        """What of a text in small letters the line fits, as it stands there; None: nothing."""
        if hours < self.hours_min:
            return None
        if text in self.names:
            return text
        match = self.words.search(text) if self.words is not None else None
        return match.group(0) if match is not None else None


@dataclass(frozen=True)
class KindPriors:
    """All lines by what they are about, in the order in which they are asked."""

    lines: Mapping[str, tuple[KindPrior, ...]]

    def first(self, of: str, text: str | None, hours: float) -> tuple[KindPrior, str] | None:
        """The line that speaks of a text, and what it fits there; None: none does."""
        own = (text or "")[:TEXT_CHARACTERS].lower()
        for line in self.lines.get(of, ()) if own else ():
            found = line.found(own, hours)
            if found is not None:
                return line, found
        return None

    @property
    def every(self) -> tuple[KindPrior, ...]:
        return tuple(line for lines in self.lines.values() for line in lines)


@dataclass(frozen=True, slots=True)
class _Line:
    of: Subject
    log_odds: Annotated[Mapping[WorkingKind, LogOdds], Meta(min_length=1)]
    says: Annotated[Text, Meta(max_length=200)]
    reason: Text
    names: Patterns = ()
    words: Patterns = ()
    hours_min: Annotated[float, Meta(ge=0, le=24 * 365)] = 0.0

    def __post_init__(self) -> None:
        if not self.names and not self.words:
            raise ValueError("neither 'names' nor 'words' is given", "Give one of them.")
        for word in self.words:
            if not _WORD.fullmatch(word.lower()) or len(word.strip("*")) < 2:
                remedy = "Write two letters or digits at least, dashes between, * at an end."
                raise ValueError(f"{quoted(word)} is no word", remedy)


@dataclass(frozen=True, slots=True)
class _File:
    priors: Annotated[Mapping[Slug, _Line], Meta(max_length=500)]


def load_kind_priors(rules_dir: Path | None = None) -> KindPriors:
    """The lines that ship, with a site's own before them. Raises RulesError with file and key."""
    found: dict[str, KindPrior] = {}
    for origin, (_, top) in zip((SHIPPED, SITE), read_layers(rules_dir, FILE, _File), strict=False):
        own = {
            name: KindPrior(
                name, told.of, frozenset(one.lower() for one in told.names), told.words, _compiled(told.words),
                told.hours_min, dict(told.log_odds.items()), joined(told.says), joined(told.reason),
                origin,
            )
            for name, told in top.priors.items()
        }  # fmt: skip
        found = own | {name: one for name, one in found.items() if name not in own}
    by_subject: dict[str, list[KindPrior]] = {}
    for line in found.values():
        by_subject.setdefault(line.of, []).append(line)
    return KindPriors({of: tuple(lines) for of, lines in by_subject.items()})


def _compiled(words: tuple[str, ...]) -> re.Pattern[str] | None:
    """The words as one expression of our own making: plain characters, and between words whatever is neither letter
    nor digit, so that a search takes time in proportion to the text."""
    parts = []
    for word in words:
        plain = word.lower()
        body = "[^a-z0-9]{1,3}".join(plain.strip("*").split("-"))
        before = "" if plain.startswith("*") else "(?<![a-z0-9])"
        after = "[a-z0-9]*" if plain.endswith("*") else "(?![a-z0-9])"
        parts.append(f"{before}{body}{after}")
    return re.compile("|".join(parts), re.ASCII) if parts else None
