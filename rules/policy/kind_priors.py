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
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, read_table
from .labels import KindLabel
from .thresholds import SHIPPED, SITE

FILE = "kind_priors.yaml"
# What a line can be about, and what is known of it (docs/rules.md tells it to people).
ABOUT: Mapping[str, str] = MappingProxyType(
    {
        "engine": "what an inference engine's own series show: counted-requests, counted-none, within-training",
        "framework": "the framework that the agent saw executed",
        "image": "the image of the container that holds the GPUs, without registry's port, tag and digest",
        "program": "the command line and the workload's name, for what is run",
        "task": "the command line and the workload's name, for what it is run for",
        "owner": "the kind of the Kubernetes object that made the pods; deployment-like where only a pod's name tells",
        "scheduler": "slurm, kubernetes, docker or process",
        "partition": "Slurm's partition",
        "qos": "Slurm's QOS",
        "job-name": "the name of a Slurm job",
        "namespace": "the Kubernetes namespace",
        "part": "what part of a GPU it holds: mig-instance, shared-gpu",
    }
)
# A site may state what it knows to be so, and no more: e to the 8 is three thousand to one.
LOG_ODDS_MAX = 8.0
LINES_MAX = 500
PATTERNS_MAX = 100
PATTERN_CHARACTERS = 64
# Of longer texts the beginning is looked at: commands are kept to some hundred characters.
TEXT_CHARACTERS = 2000
# Idleness is counted, never told by a name; a site cannot make work idle that its GPUs show.
KINDS = tuple(kind for kind in get_args(KindLabel) if kind not in ("idle", "unknown"))
_WORD = re.compile(r"\*?[a-z0-9]+(?:-[a-z0-9]+)*\*?", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_DAYS = 24.0 * 365


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


def load_kind_priors(rules_dir: Path | None = None) -> KindPriors:
    """The lines that ship, with a site's own before them. Raises RulesError with file and line."""
    shipped: dict[str, KindPrior] = {}
    site: dict[str, KindPrior] = {}
    for n, layer in enumerate(layers(rules_dir)):
        file: Traversable | Path = layer.joinpath(FILE)
        if n and not file.is_file():
            continue
        found, origin = (site, SITE) if n else (shipped, SHIPPED)
        top = Fields(str(file), read_table(file), FILE)
        table = top.subtable("priors")
        for name, entry in table.entries(lambda name: f"prior {quoted(name)}"):
            if not _NAME.fullmatch(name):
                raise table.fault(name, f"{quoted(name)} must be small letters, digits and dashes", "Rename it.")
            found[name] = _line(name, entry, origin)
        if len(found) > LINES_MAX:
            raise top.fault("priors", f"more than {LINES_MAX} lines", "Say it with fewer: a line takes many words.")
        top.done()
    by_subject: dict[str, list[KindPrior]] = {}
    for line in (*site.values(), *(one for name, one in shipped.items() if name not in site)):
        by_subject.setdefault(line.of, []).append(line)
    return KindPriors(MappingProxyType({of: tuple(lines) for of, lines in by_subject.items()}))


def _line(name: str, fields: Fields, origin: str) -> KindPrior:
    of = fields.text("of", tuple(ABOUT))
    names, words = fields.texts("names"), fields.texts("words")
    if not names and not words:
        raise fields.fault("words", "neither 'names' nor 'words' tell what it fits", "Give one of them.")
    if len(names) + len(words) > PATTERNS_MAX:
        raise fields.fault("words", f"more than {PATTERNS_MAX} names and words", "Make several lines of it.")
    for one in (*names, *words):
        if len(one) > PATTERN_CHARACTERS:
            raise fields.fault("words", f"{quoted(one)} is longer than {PATTERN_CHARACTERS} characters", "Shorten it.")
    weights = _weights(fields.subtable("log_odds"))
    hours = fields.number_or_none("hours_min", minimum=0, maximum=_DAYS)
    says, reason = (" ".join(fields.text(key).split()) for key in ("says", "reason"))
    if len(says) > 200:
        raise fields.fault("says", "'says' is longer than 200 characters", "Shorten it: it stands within a sentence.")
    fields.done()
    return KindPrior(
        name, of, frozenset(one.lower() for one in names), words, _compiled(fields, words), hours or 0.0, weights, says,
        reason, origin,
    )  # fmt: skip


def _weights(fields: Fields) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for kind in fields.table:
        if kind not in KINDS:
            near = suggest(kind, KINDS) or f"Known are {', '.join(KINDS)}."
            raise fields.fault(kind, f"unknown kind {quoted(kind)}", near)
        found[kind] = fields.number(kind, minimum=-LOG_ODDS_MAX, maximum=LOG_ODDS_MAX)
    fields.done()
    if not found:
        raise fields.fault(None, "no kind is named", "Give a kind and its log-odds.")
    return MappingProxyType(found)


def _compiled(fields: Fields, words: tuple[str, ...]) -> re.Pattern[str] | None:
    """The words as one expression of our own making: plain characters, and between words whatever is neither letter
    nor digit, so that a search takes time in proportion to the text."""
    parts = []
    for word in words:
        plain = word.lower()
        if not _WORD.fullmatch(plain):
            raise fields.fault(
                "words", f"{quoted(word)} is no word", "Write letters and digits, dashes between, * at an end."
            )
        if len(plain.strip("*")) < 2:
            raise fields.fault("words", f"{quoted(word)} fits too much", "Give two characters at least.")
        body = "[^a-z0-9]{1,3}".join(plain.strip("*").split("-"))
        before = "" if plain.startswith("*") else "(?<![a-z0-9])"
        after = "[a-z0-9]*" if plain.endswith("*") else "(?![a-z0-9])"
        parts.append(f"{before}{body}{after}")
    return re.compile("|".join(parts), re.ASCII) if parts else None
