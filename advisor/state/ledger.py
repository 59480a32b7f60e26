"""The ledger beside an advice: what was decided before is marked in it, and what it proposes is noted afterwards.

Advice is read wherever it can be read. A ledger at the default path that cannot be read or written is said and done
without; one that was named with ``--ledger`` must be readable, and where it cannot be written that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.errors import NothingToDo, StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice, Configuration, Decision, Fleet, Interval, Recommendation
from ..core.formatting import price_note
from ..core.verdict_types import WorkloadVerdict
from ..recommend.moves import BY_ACTION
from ..recommend.predict.calibration import NO_SITE, Site, site_factor
from ..recommend.progress import (
    Observation,
    PredictionSnapshot,
    WorkloadAddress,
    measure,
    observation_of,
    serves,
    source_words,
)
from .entries import LedgerEntry, LedgerEvent, Proposal
from .fleets import is_part_of_same_server, is_same, names_of
from .guard import sqlite_text
from .ledger_file import Ledger
from .outcomes import LOAD_CHANGED, ledger_events
from .paths import ledger_of, one_at_a_time

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LedgerSync:
    """A ledger beside one advice. `path` None: none, or the fleet's own, which is known when its telemetry is read.

    `named`: the user asked for this one. `home`: the folder of every fleet's ledger (`default_ledgers`). `fleet`: whose
    it is.
    """

    path: Path | None
    named: bool
    say: Say
    home: Path | None = None
    fleet: Fleet | None = None

    def check(self) -> None:
        """Raises StoreError where a ledger that was asked for cannot be read: before telemetry is, which takes time."""
        if self.named:
            self._own()

    def of(self, fleet: Fleet | None) -> LedgerSync:
        """The ledger of a fleet; as it is where its fleet is known already. Raises UsageError where the ledger that was
        named is another fleet's, StoreError where it cannot be read."""
        if fleet is None or self.fleet is not None:
            return self
        if self.home is None:
            if self.path is not None:
                self._refuse_others(self.path, fleet)
            return replace(self, fleet=fleet)
        try:
            path, left_out = ledger_of(self.home, fleet)
            for sentence in left_out:
                self.say(sentence)
            return replace(self, path=path, fleet=fleet)
        except StoreError as error:
            self.say(f"no ledger: {error}")
        except OSError as error:
            self.say(f"no ledger: cannot read {error.filename}: {error.strerror}.")
        return replace(self, path=None, home=None, fleet=fleet)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """What stands in the ledger. Raises StoreError if it was named."""
        try:
            return self._own()
        except StoreError as error:
            if self.named:
                raise
            self.say(f"no ledger: {error}")
            return ()

    def decisions(self, now: float) -> Mapping[str, Decision]:
        """What somebody decided, by recommendation, as far as it holds at `now`. Raises StoreError if it was named."""
        told = {entry.proposal.id: entry.decision(now) for entry in self.entries()}
        return {id_: decision for id_, decision in told.items() if decision.state not in ("proposed", "expired")}

    def site(self, now: float) -> Site:
        """What the moves that were done here say of predictions; nothing where there is no ledger to read."""
        try:
            # What cannot be read was said when decisions were asked for.
            return site_of(replace(self, named=True, say=_nothing).entries(), now)
        except StoreError:
            return NO_SITE

    def note(self, advice: Advice, now: float) -> None:
        """Note what the advice proposes and what became of what stands there, and say so."""
        beside = replace(replace(self, say=_nothing).of(advice.fleet), say=self.say)
        if beside.path is None or not (advice.recommendations or beside.path.exists()):
            return
        seen = observation_of(advice)
        told: list[tuple[str, LedgerEvent]] = []

        def happened(entries: Iterable[LedgerEntry]) -> list[tuple[str, LedgerEvent]]:
            told[:] = ledger_events(entries, seen, now)
            return told

        try:
            ledger = beside.written()
            new = ledger.propose(proposals(advice), now, happened, fleet=advice.fleet)
        except StoreError as error:
            self.say(f"not recorded in the ledger: {error}")
            return
        for id_, event in told:
            if event.act in ("done", "regressed"):
                self.say(f"{id_} is {event.act}: {clean(event.why or '')}")
        count = len(advice.recommendations)
        self.say(
            f"{count} {('recommendation' if count == 1 else 'recommendations')} recorded in {ledger.path} ({new} new)"
        )

    def written(self) -> Ledger:
        """The ledger to write to; that of a fleet is begun. Raises StoreError."""
        assert self.path is not None
        if self.home is None or self.fleet is None:
            return Ledger(self.path)
        with one_at_a_time(self.home):
            # Another process may have begun it since it was looked for.
            ledger = Ledger(ledger_of(self.home, self.fleet)[0])
            if not ledger.path.exists():
                ledger.begin(self.fleet)
        return ledger

    def _own(self) -> tuple[LedgerEntry, ...]:
        try:
            return Ledger(self.path).entries() if self.path is not None else ()
        except NothingToDo:
            return ()

    def _refuse_others(self, path: Path, fleet: Fleet) -> None:
        """A ledger that was named belongs to whom it was written for; one that holds nothing, to whoever comes."""
        try:
            entries, fleets = Ledger(path).entries(), Ledger(path).fleets()
        except NothingToDo:
            return
        except StoreError:
            if self.named:
                raise
            return
        if any(is_same(fleet, known) or is_part_of_same_server(fleet, known) for known in fleets):
            return
        if entries and fleets:
            mixed = any(known.simulated != fleet.simulated for known in fleets)
            why = "simulated and real telemetry cannot share a ledger" if mixed else "the fleets have no GPU in common"
            raise UsageError(
                f"The ledger {path} belongs to another fleet ({names_of(fleets)}), not to this source "
                f"({clean(fleet.name)}): {why}.",
                "Remove --ledger, or use another file.",
            )


def _nothing(text: str) -> None:
    pass


def site_of(entries: Iterable[LedgerEntry], now: float) -> Site:
    """What the measured moves of a ledger say. Where the load changed, the time is not the move's alone: left out."""
    cases: list[tuple[Interval, float, float]] = []
    predicted = measured = 0.0
    savings = 0
    for entry in entries:
        ground, told, state = entry.proposal.ground, entry.realised, entry.decision(now).state
        if ground is None or told is None or state not in ("done", "regressed"):
            continue
        steady = told.load_ratio is None or abs(told.load_ratio - 1) <= LOAD_CHANGED
        kind = BY_ACTION.get(entry.proposal.action)
        other = kind is not None and kind.calibrates and ground.source.gpu_sku != ground.target.gpu_sku
        if other and steady and told.time_ratio is not None and told.predicted_time_ratio is not None:
            cases.append((told.predicted_time_ratio, told.time_ratio, ground.yardstick.site_factor))
        if told.saving_usd_per_month is not None and told.predicted_saving_usd_per_month is not None:
            predicted += told.predicted_saving_usd_per_month.p50
            measured += told.saving_usd_per_month
            savings += 1
    factor, count = site_factor(cases)
    return Site(factor, count, (predicted, measured), savings)


def proposals(advice: Advice) -> tuple[Proposal, ...]:
    """What an advice recommends, as the ledger keeps it."""
    seen = observation_of(advice)
    workloads = {w.id: w for w in advice.workloads}
    nodes = {f.id: ", ".join(f.nodes) for f in advice.findings}

    def about(r: Recommendation) -> str:
        own = workloads.get(r.workload or "")
        return (own.name if own else "") or next((nodes[f] for f in r.findings if nodes.get(f)), "") or "the fleet"

    return tuple(
        Proposal(
            id=r.id,
            action=r.action,
            about=sqlite_text(about(r)),
            source_config=sqlite_text(_configuration(r.source)),
            target_config=sqlite_text(_configuration(r.target)),
            saving_usd_per_month=r.saving_usd_per_month.p50 if r.saving_usd_per_month else None,
            freed_gpu_hours_per_month=r.freed_gpu_hours_per_month,
            realisation=r.realisation,
            risk=r.risk,
            blocked=bool(r.blocked_by),
            text=sqlite_text(r.text),
            source=sqlite_text(source_words(advice)),
            ground=None if r.blocked_by else _ground(advice, r, workloads.get(r.workload or ""), seen),
        )
        for r in advice.recommendations
    )


def _ground(advice: Advice, r: Recommendation, own: WorkloadVerdict | None, seen: Observation) -> PredictionSnapshot:
    """What its prediction rests on, for whoever measures it later. `own`: the workload it names, if it names one."""
    runs = [w for w in seen.series(own.series_id if own else None) if own and w.node_sku == own.node_sku]
    now = [w for w in seen.now(own.series_id if own else None) if w in runs]
    prices = [p for p in advice.prices if p.id in r.prices]
    return PredictionSnapshot(
        series_id=sqlite_text(own.series_id) if own else None,
        serving=serves(runs),
        nodes=tuple(sorted({sqlite_text(node) for w in now for node in w.nodes})),
        source=r.source,
        target=r.target,
        saving_usd_per_month=_told(r.saving_usd_per_month),
        time_ratio=_told(r.time_ratio) if not BY_ACTION[r.action].of_another else None,
        yardstick=replace(
            r.yardstick,
            nodes=tuple(map(sqlite_text, r.yardstick.nodes)),
            freed=tuple(map(sqlite_text, r.yardstick.freed)),
            partner=_text(r.yardstick.partner),
        ),
        before=measure(runs, seen.start, seen.end),
        usd_per_hour={p.sku: p.usd_per_hour for p in prices},
        prices=price_note(prices),
        seen_until=seen.end,
        fleet=len(seen.nodes),
        address=_address(own, now) if own else None,
    )


def _address(own: WorkloadVerdict, now: Sequence[WorkloadVerdict]) -> WorkloadAddress:
    """How its scheduler knows a workload. `now`: its runs that hold GPUs: on Kubernetes each a pod, or a gang of them
    on several nodes, whose replicas are not told."""
    at = own.scheduled
    pods = at.name == "kubernetes" and all(len(one.nodes) == 1 for one in now)
    return WorkloadAddress(
        scheduler=sqlite_text(at.name), name=sqlite_text(own.name), namespace=_text(own.owner.namespace),
        controller_kind=_text(at.controller_kind), user=_text(own.owner.user), account=_text(own.owner.account),
        partition=_text(at.partition), container=_text(at.container), replicas=len(now) or None if pods else None,
    )  # fmt: skip


def _text(text: str | None) -> str | None:
    return sqlite_text(text) if text is not None else None


def _told(interval: Interval | None) -> Interval | None:
    """An interval of which every end is a number; None otherwise."""
    return interval if interval and all(map(math.isfinite, (interval.p10, interval.p50, interval.p90))) else None


def _configuration(c: Configuration) -> str:
    return (
        f"{c.gpu_count} x {c.gpu_sku or 'unknown GPU'} on {c.node_sku or 'unknown node type'}" if c.gpu_count else "-"
    )
