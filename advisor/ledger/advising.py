"""The ledger beside an advice: what was decided before is marked in it, and what it proposes is noted afterwards.

Advice is read wherever it can be read. A ledger at the default path that cannot be read or written is said and done
without; one that was named with ``--ledger`` must be readable, and where it cannot be written that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.errors import NothingToDo, StoreError
from ...rules.plain import clean
from ..model import Advice, Configuration, Decision, Interval, Recommendation, WorkloadVerdict
from ..moves.site import NO_SITE, Case, Site, site_factor
from ..words import price_note
from .entries import Entry, Event, Proposal
from .happened import happenings
from .kept import Ground
from .measuring import LOAD_CHANGED
from .seen import Seen, measure, seen_in, serves, source_words
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

    def site(self, now: float) -> Site:
        """What the moves that were done here say of predictions; nothing where there is no ledger to read."""
        try:
            return site_of(Ledger(self.path).entries(), now) if self.path is not None else NO_SITE
        except (NothingToDo, StoreError):
            return NO_SITE

    def note(self, advice: Advice, now: float) -> None:
        """Note what the advice proposes and what became of what stands there, and say so."""
        if self.path is None or not (advice.recommendations or self.path.exists()):
            return
        seen = seen_in(advice)
        told: list[tuple[str, Event]] = []

        def happened(entries: Iterable[Entry]) -> list[tuple[str, Event]]:
            told[:] = happenings(entries, seen, now)
            return told

        try:
            new = Ledger(self.path).propose(proposals(advice), now, happened)
        except StoreError as error:
            self.say(f"not noted in the ledger: {error}")
            return
        for id_, event in told:
            if event.act in ("done", "regressed", "tried"):
                self.say(f"{id_} is {event.act}: {clean(event.why or '')}")
        count = len(advice.recommendations)
        self.say(f"{count} {'recommendation' if count == 1 else 'recommendations'} noted in {self.path} ({new} new)")


def site_of(entries: Iterable[Entry], now: float) -> Site:
    """What the measured moves of a ledger say. Where the load changed, the time is not the move's alone: left out."""
    cases: list[Case] = []
    predicted = measured = 0.0
    savings = 0
    for entry in entries:
        ground, told, state = entry.proposal.ground, entry.realised, entry.decision(now).state
        if ground is None or told is None or state not in ("done", "regressed"):
            continue
        steady = told.load_ratio is None or abs(told.load_ratio - 1) <= LOAD_CHANGED
        other = entry.proposal.action == "move-sku" and ground.source.gpu_sku != ground.target.gpu_sku
        if other and steady and told.time_ratio is not None and told.predicted_time_ratio is not None:
            cases.append(Case(told.predicted_time_ratio, told.time_ratio, ground.yardstick.site_factor))
        if told.saving_usd_per_month is not None and told.predicted_saving_usd_per_month is not None:
            predicted += told.predicted_saving_usd_per_month.p50
            measured += told.saving_usd_per_month
            savings += 1
    factor, count = site_factor(cases)
    return Site(factor, count, (predicted, measured), savings)


def proposals(advice: Advice) -> tuple[Proposal, ...]:
    """What an advice recommends, as the ledger keeps it."""
    seen = seen_in(advice)
    workloads = {w.id: w for w in advice.workloads}
    nodes = {f.id: ", ".join(f.nodes) for f in advice.findings}

    def about(r: Recommendation) -> str:
        own = workloads.get(r.workload or "")
        return (own.name if own else "") or next((nodes[f] for f in r.findings if nodes.get(f)), "") or "the fleet"

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
            source=_storable(source_words(advice)),
            ground=None if r.blocked_by else _ground(advice, r, workloads.get(r.workload or ""), seen),
        )
        for r in advice.recommendations
    )


def _ground(advice: Advice, r: Recommendation, own: WorkloadVerdict | None, seen: Seen) -> Ground:
    """What its prediction rests on, for whoever measures it later. `own`: the workload it names, if it names one."""
    runs = [w for w in seen.series(own.series_id if own else None) if own and w.node_sku == own.node_sku]
    now = [w for w in seen.now(own.series_id if own else None) if w in runs]
    prices = [p for p in advice.prices if p.id in r.prices]
    return Ground(
        series_id=_storable(own.series_id) if own else None,
        serving=serves(runs),
        nodes=tuple(sorted({_storable(node) for w in now for node in w.nodes})),
        source=r.source,
        target=r.target,
        saving_usd_per_month=_told(r.saving_usd_per_month),
        # That of a swap is the training's, which is another series than the one it is told of.
        time_ratio=_told(r.time_ratio) if r.action != "swap-placement" else None,
        yardstick=replace(r.yardstick, nodes=tuple(map(_storable, r.yardstick.nodes))),
        before=measure(runs, seen.start, seen.end),
        usd_per_hour={p.sku: p.usd_per_hour for p in prices},
        prices=price_note(prices),
        seen_until=seen.end,
        fleet=len(seen.nodes),
    )


def _told(interval: Interval | None) -> Interval | None:
    """An interval of which every end is a number; None otherwise."""
    return interval if interval and all(map(math.isfinite, (interval.p10, interval.p50, interval.p90))) else None


def _configuration(c: Configuration) -> str:
    return f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'a node not known'}" if c.gpu_count else "-"


def _storable(text: str) -> str:
    """Text that SQLite can keep: a lone surrogate (a name that is not UTF-8) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
