"""Evidence of a workload's kind from names (``kind_priors.yaml``): of engines, images, owners, partitions and more.

An entry matches where one of its `names` is the whole text, or one of its `words` is in it (docs/rules.md has their
form); case is ignored. Of the entries about one subject the first match applies, a site's before those that ship. A
site's entry replaces the shipped one of its name; log-odds of 0 disable the entries after it.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import Slug, Strict, Text
from ..base.yaml_loader import read_layers
from .labels import WorkingKind

LogOdds = Annotated[float, Meta(ge=-8, le=8)]  # e to the 8 is three thousand to one; no entry is more certain
# What an entry can be about (docs/rules.md explains them).
Subject = Literal[
    "engine", "framework", "image", "program", "task", "owner", "scheduler", "partition", "qos", "job-name",
    "namespace", "part",
]  # fmt: skip
_WORD = (
    r"\A(?#two letters or digits or more, dashes between, * at an end)\*?(?=[^*]{2})[A-Za-z0-9]+(-[A-Za-z0-9]+)*\*?\Z"
)
Word = Annotated[str, Meta(pattern=_WORD, max_length=64)]
TEXT_CHARACTERS = 2000  # the searched beginning of a text: commands are kept to some hundred characters


class KindPrior(Strict, frozen=True, kw_only=True, dict=True):
    """An entry. `log_odds`: by kind, natural logarithm; 0 for a kind that is not named. `hours_min`: it applies to work
    that has run for so long, restarts included. `says`: for people, after a comma or a colon."""

    of: Subject
    names: tuple[Annotated[Text, Meta(max_length=64)], ...] = ()
    words: tuple[Word, ...] = ()
    hours_min: Annotated[float, Meta(ge=0, le=24 * 365)] = 0.0
    log_odds: Annotated[Mapping[WorkingKind, LogOdds], Meta(min_length=1)]
    says: Annotated[Text, Meta(max_length=200)]
    reason: Text

    def __post_init__(self) -> None:
        if not self.names and not self.words:
            raise ValueError("neither 'names' nor 'words' is given", "Give one of them.")

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Names and words as one expression; a search takes time in proportion to the text."""
        parts = [rf"\A{re.escape(name.lower())}\Z" for name in self.names]
        for word in self.words:
            body = "[^a-z0-9]{1,3}".join(word.lower().strip("*").split("-"))
            before = "" if word.startswith("*") else "(?<![a-z0-9])"
            after = "[a-z0-9]*" if word.endswith("*") else "(?![a-z0-9])"
            parts.append(f"{before}{body}{after}")
        return re.compile("|".join(parts), re.ASCII)


class KindPriors(Strict, frozen=True):
    """The entries of a file or of all files by name, in the order of their precedence."""

    priors: Mapping[Slug, KindPrior]

    def first(self, of: str, text: str | None, hours: float) -> tuple[KindPrior, str] | None:
        """The first entry about this subject that matches a text, and the matching part; None: none does."""
        beginning = (text or "")[:TEXT_CHARACTERS].lower()
        for prior in self.priors.values() if beginning else ():
            if prior.of == of and hours >= prior.hours_min and (match := prior.pattern.search(beginning)):
                return prior, match[0]
        return None


def load_kind_priors(rules_dir: Path | None = None) -> KindPriors:
    """The entries that ship, with a site's own before them. Raises RulesError with file and key."""
    priors: dict[str, KindPrior] = {}
    for _, _, table in read_layers(rules_dir, "kind_priors.yaml", KindPriors):
        priors = {**table.priors, **{name: prior for name, prior in priors.items() if name not in table.priors}}
    return KindPriors(priors)
