"""Which moves a report tells first: those that gain most today, none that another of them rules out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.advice_types import Advice, Recommendation
from ...core.exclusions import compatible
from ...core.formatting import target_words
from ..move_words import action_words

# A new sentence, not the dot of a figure or an abbreviation within one.
_SENTENCE_ENDS = re.compile(r"(?<=[\w)%][.])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Move:
    """One recommendation as a reader needs it to decide. `about` names the workload, or the node; `evidence`: the
    sentence that it stands on. `told`: the reader was told of it in full within the cooldown.
    """

    recommendation: Recommendation
    about: str
    title: str
    evidence: str
    told: bool

    @property
    def id(self) -> str:
        return self.recommendation.id


def moves_of(advice: Advice, told: frozenset[str] = frozenset()) -> tuple[Move, ...]:
    """Every move that is open and gains something, what is worth most first; of those that exclude one another, the
    first, and none that a move rules out which somebody accepted: such moves are in the ledger's outcomes."""
    names = {w.id: w.name for w in advice.workloads}
    findings = {f.id: f for f in advice.findings}

    def move(r: Recommendation) -> Move:
        found = [findings[f] for f in r.findings if f in findings]
        nodes = sorted({n for f in found for n in f.nodes})
        about = names.get(r.workload or "") or ", ".join(nodes[:3]) or "the fleet"
        return Move(r, about, _title(r), _SENTENCE_ENDS.split(found[0].text)[0] if found else "", r.id in told)

    settled = [r for r in advice.recommendations if _settled(r)]
    open_ = sorted((r for r in advice.recommendations if _open(r) and _gains(r)), key=lambda r: r.rank)
    return tuple(move(r) for r in compatible((*settled, *open_)) if not _settled(r))


def _settled(r: Recommendation) -> bool:
    """Whether somebody chose it already: what it excludes is no way out any more."""
    return r.decision is not None and r.decision.state in ("accepted", "done")


def _title(r: Recommendation) -> str:
    leads = r.target.gpu_count > 0 and r.target != r.source
    return action_words(r) + (f", to {target_words(r)}" if leads else "")


def _open(r: Recommendation) -> bool:
    return not r.blocked_by and (r.decision is None or r.decision.state in ("proposed", "regressed"))


def _gains(r: Recommendation) -> bool:
    saving, energy = r.saving_usd_per_month, r.energy_saving_kwh_per_month
    saves = (saving is not None and saving.p50 > 0) or (energy is not None and energy.p50 > 0)
    return saves or r.freed_gpu_hours_per_month > 0
