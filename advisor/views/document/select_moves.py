"""Which recommendations a report shows, in which order: those worth showing, none that another rules out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.advice_types import Advice, Recommendation
from ..titles import Titles, gain_text
from ..worth import shown_recommendations

# A new sentence, not the dot of a figure or an abbreviation within one.
_SENTENCE_ENDS = re.compile(r"(?<=[\w)%][.])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Move:
    """One recommendation as a reader needs it to decide. `title`: as an action; `gain`: ``saves $71,774/month``;
    `workload`: its name, `node`: the first of its nodes, empty where there is none; `evidence`: the sentence that it
    stands on. `told`: the reader read of it in full within the cooldown.
    """

    recommendation: Recommendation
    title: str
    gain: str
    workload: str
    node: str
    evidence: str
    told: bool

    @property
    def id(self) -> str:
        return self.recommendation.id


def moves_of(advice: Advice, told: frozenset[str] = frozenset()) -> tuple[Move, ...]:
    """Every open recommendation that is worth showing, what is worth most first; of those that exclude one another,
    the first, and none that one excludes which somebody accepted: such are in the ledger's outcomes."""
    workloads, titles = {w.id: w for w in advice.workloads}, Titles(advice)
    findings = {f.id: f for f in advice.findings}

    def move(r: Recommendation) -> Move:
        found = [findings[f] for f in r.findings if f in findings]
        own = workloads.get(r.workload or "")
        nodes = sorted({n for f in found for n in f.nodes}) or list(own.nodes if own else ())
        return Move(
            r, titles.of(r), gain_text(r, advice), own.name if own else "", nodes[0] if nodes else "",
            _SENTENCE_ENDS.split(found[0].text)[0] if found else "", r.id in told,
        )  # fmt: skip

    return tuple(move(r) for r in shown_recommendations(advice))
