"""The ledger beside an advice: what was decided before is marked in it, and what it proposes is noted afterwards.

Advice is read wherever it can be read. A ledger at the default path that cannot be read or written is said and done
without; one that was named with ``--ledger`` must be readable, and where it cannot be written that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...rules.errors import NothingToDo, StoreError
from ..model import Advice, Configuration, Decision, Recommendation
from .entries import Proposal
from .store import Ledger

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Beside:
    """A ledger beside one advice. `path` None: none. `named`: the user asked for this one."""

    path: Path | None
    named: bool
    say: Say

    def decisions(self, now: float) -> Mapping[str, Decision]:
        """What somebody decided, by recommendation, as far as it holds at `now`. Raises StoreError if it was named."""
        if self.path is None:
            return {}
        try:
            entries = Ledger(self.path).entries()
        except NothingToDo:
            return {}
        except StoreError as error:
            if self.named:
                raise
            self.say(f"no ledger: {error}")
            return {}
        told = {entry.proposal.id: entry.decision(now) for entry in entries}
        return {id_: decision for id_, decision in told.items() if decision.state not in ("proposed", "expired")}

    def note(self, advice: Advice, now: float) -> None:
        """Note what the advice proposes, and say where."""
        if self.path is None or not advice.recommendations:
            return
        try:
            new = Ledger(self.path).propose(proposals(advice), now)
        except StoreError as error:
            self.say(f"not noted in the ledger: {error}")
            return
        count = len(advice.recommendations)
        self.say(f"{count} {'recommendation' if count == 1 else 'recommendations'} noted in {self.path} ({new} new)")


def proposals(advice: Advice) -> tuple[Proposal, ...]:
    """What an advice recommends, as the ledger keeps it."""
    names = {w.id: w.name for w in advice.workloads}
    nodes = {f.id: ", ".join(f.nodes) for f in advice.findings}

    def about(r: Recommendation) -> str:
        return names.get(r.workload or "") or next((nodes[f] for f in r.findings if nodes.get(f)), "") or "the fleet"

    source = ", ".join(str(name) for name in advice.source.get("databases", ())) or str(advice.source.get("url", ""))  # type: ignore[union-attr]
    return tuple(
        Proposal(
            id=r.id,
            action=r.action,
            about=_storable(about(r)),
            source_config=_storable(_configuration(r.source)),
            target_config=_storable(_configuration(r.target)),
            saving_usd_per_month=r.saving_usd_per_month.p50 if r.saving_usd_per_month else None,
            freed_gpu_hours_per_month=r.freed_gpu_hours_per_month,
            realisation=r.realisation,
            risk=r.risk,
            blocked=bool(r.blocked_by),
            text=_storable(r.text),
            source=_storable(source),
        )
        for r in advice.recommendations
    )


def _configuration(c: Configuration) -> str:
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'a node not known'}" if c.gpu_count else "-"


def _storable(text: str) -> str:
    """Text that SQLite can keep: a lone surrogate (a name that is not UTF-8) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
