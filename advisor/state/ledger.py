"""The ledger: what was recommended, what was decided on it and what became of it, in the state file.

Plain functions over an open state file; several of them may run in one transaction.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from sqlite_utils import Database

from ...rules.base.typed import Moment
from ..core.advice_types import Advice, Configuration, Decision, Interval, Recommendation
from ..core.formatting import price_note
from ..core.verdict_types import WorkloadVerdict
from ..recommend.moves import BY_ACTION
from ..recommend.progress import Observation, PredictionSnapshot, WorkloadAddress, measure, serves
from .file import cells, from_json


@dataclass(frozen=True, slots=True)
class Realised:
    """A move as it was measured, beside what was predicted. `since`: it stood at its target from then on, and was
    measured up to `until` (Unix seconds), over `hours`.

    Costs are US dollars a month in the prices of the proposal, on its basis: whole nodes. What is None has its reason
    in `saving_missing` or `time_missing`. `load_ratio`: work asked of it over what was asked before; None: unknown.
    `confounders` are sentences.
    """

    since: Moment
    until: Moment
    hours: float
    predicted_saving_usd_per_month: Interval | None
    predicted_time_ratio: Interval | None
    usd_per_month_before: float | None
    usd_per_month_after: float | None
    saving_usd_per_month: float | None
    saving_missing: str | None
    gpu_hours_per_month_before: float | None
    gpu_hours_per_month_after: float | None
    time_ratio: float | None
    time_missing: str | None
    load_ratio: float | None = None
    confounders: tuple[str, ...] = ()


Act = Literal[
    "proposed", "accepted", "snoozed", "dismissed", "reopened", "done", "measured", "regressed", "expired"
]  # fmt: skip
# Who adds what telemetry shows, and not a person.
BY_ITSELF = "skuwise"
# A recommendation that nothing proposed for so long is no longer open. Advice looks back 14 days by default: after 30
# what it rested on has left that window twice over.
EXPIRES_AFTER_SECONDS = 30 * 86400.0
# What is dated so much later than now was dated by a clock that ran ahead, or now is of one that is behind.
_CLOCK_DOUBT_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One thing that happened to a recommendation. `at`, `until`: Unix seconds; `by`: the user.

    Events are only ever added. `until` is the end of a snooze, None otherwise; `why` the reason that was given, or the
    evidence in the telemetry; `realised`: what was measured.
    """

    act: Act
    at: float
    by: str
    until: float | None = None
    why: str | None = None
    realised: Realised | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A recommendation as it was last proposed, with its whole history, oldest first. Times are Unix seconds.

    `about`: the workload's name, or the node's; `source`: where the telemetry lay; `snapshot`: what the prediction
    rested on, as it stood when it was accepted; None: it was always blocked.
    """

    recommendation: Recommendation
    about: str
    source: str
    snapshot: PredictionSnapshot | None
    first_proposed: float
    last_proposed: float
    events: tuple[LedgerEvent, ...]

    def decision(self, now: float) -> Decision:
        """Where it stands at `now`."""
        return decision_from(self.events, self.last_proposed, now)

    def last(self, *acts: Act) -> LedgerEvent | None:
        """The newest event that is one of these; None: there is none."""
        return next((e for e in reversed(self.events) if e.act in acts), None)

    @property
    def realised(self) -> Realised | None:
        """The newest measurement; None: it was never done, or not since it regressed and was decided on again."""
        event = self.last("accepted", "done", "measured", "regressed")
        return event.realised if event is not None else None


def decision_from(events: Sequence[LedgerEvent], last_proposed: float, now: float) -> Decision:
    """The state that events leave: the last decision holds, a snooze until its end; what telemetry shows counts as one.
    All else is proposed. What is proposed or regressed is expired from 30 days after it was last proposed."""
    over = last_proposed + EXPIRES_AFTER_SECONDS <= now
    for event in reversed(events):
        state = event.act
        if state == "reopened" or (state == "proposed" and any(e.act == "done" for e in events)):
            break
        if state in ("accepted", "snoozed", "dismissed", "done", "regressed"):
            if (state == "snoozed" and (event.until or 0.0) <= now) or (state == "regressed" and over):
                break
            by = None if event.by == BY_ITSELF else event.by
            return Decision(state, event.at, by, event.until, event.why)
    if over:
        return Decision("expired", last_proposed + EXPIRES_AFTER_SECONDS)
    return Decision("proposed", last_proposed)


def entries(db: Database) -> tuple[LedgerEntry, ...]:
    """All that was ever proposed, by id."""
    histories: dict[str, list[LedgerEvent]] = {}
    for _, id_, act, at, by, until, why, realised in db.execute("SELECT * FROM decisions ORDER BY seq"):
        event = LedgerEvent(act, at, by, until, why, from_json(Realised, realised) if realised is not None else None)
        histories.setdefault(id_, []).append(event)
    return tuple(
        LedgerEntry(
            from_json(Recommendation, row["recommendation"]), row["about"], row["source"],
            from_json(PredictionSnapshot, row["snapshot"]) if row["snapshot"] is not None else None,
            row["first_proposed"], row["last_proposed"], tuple(histories.get(row["id"], ())),
        )
        for row in db.query("SELECT * FROM recommendations ORDER BY id")
    )  # fmt: skip


def decisions_of(entries: Iterable[LedgerEntry], now: float) -> dict[str, Decision]:
    """Decisions of users and of telemetry by recommendation, as they hold at `now`."""
    decisions = {entry.recommendation.id: entry.decision(now) for entry in entries}
    return {id_: decision for id_, decision in decisions.items() if decision.state not in ("proposed", "expired")}


def add(db: Database, id_: str, event: LedgerEvent) -> None:
    """Add an event to a recommendation that was proposed before."""
    event_cells = {field.name: getattr(event, field.name) for field in fields(event)}
    db.table("decisions").insert(cells(recommendation=id_, **event_cells))


def note(
    db: Database, advice: Advice, seen: Observation, now: float, observed: Sequence[tuple[str, LedgerEvent]] = ()
) -> int:
    """Record what an advice recommends at `now` (Unix seconds), what its telemetry (`seen`) shows of recommendations
    that are known (`observed`, by their ids), and what expired meanwhile. Returns how many are new."""
    # Where telemetry is of a later time than the clock, it is not the ledger that is dated wrong.
    if advice.end <= now + _CLOCK_DOUBT_SECONDS:
        # Dated by a clock that ran ahead they would stay open for as long again.
        changes = "last_proposed = ?1, first_proposed = min(first_proposed, ?1)"
        sql = f"UPDATE recommendations SET {changes} WHERE last_proposed > ?2"  # noqa: S608 - ours
        db.execute(sql, [now, now + _CLOCK_DOUBT_SECONDS])
    earlier = {entry.recommendation.id: entry for entry in entries(db)}
    for id_, event in observed:
        earlier[id_] = replace(earlier[id_], events=(*earlier[id_].events, event))
    events = list(observed)
    proposed = {r.id: r for r in advice.recommendations}
    workloads, nodes = {w.id: w for w in advice.workloads}, {f.id: ", ".join(f.nodes) for f in advice.findings}
    for r in proposed.values():
        old, workload = earlier.get(r.id), workloads.get(r.workload or "")
        about = workload.name if workload else next((nodes[f] for f in r.findings if nodes.get(f)), "")
        snapshot = None if r.blocked_by else _snapshot(advice, r, workload, seen)
        # What was accepted is measured against what was predicted then; what is blocked by now rests on nothing new.
        if old is not None and (snapshot is None or old.decision(now).state in ("accepted", "done")):
            snapshot = old.snapshot or snapshot
        row = cells(
            id=r.id, action=r.action, about=about or "the fleet", source=seen.source, snapshot=snapshot,
            first_proposed=old.first_proposed if old else now, last_proposed=max(now, old.last_proposed if old else 0),
            recommendation=_kept(r),
        )  # fmt: skip
        db.table("recommendations").upsert(row, pk="id")
        if old is None or _is_expired(old, now, advice.end):
            events.append((r.id, LedgerEvent("proposed", now, BY_ITSELF)))
    for id_, entry in earlier.items():
        is_noted = bool(entry.events) and entry.events[-1].act == "expired"
        if id_ not in proposed and not is_noted and _is_expired(entry, now, advice.end):
            events.append((id_, LedgerEvent("expired", now, BY_ITSELF)))
    for id_, event in events:
        add(db, id_, event)
    return len(proposed.keys() - earlier.keys())


def note_mailed(db: Database, recipient: str, ids: Collection[str], now: float, week_end: float | None = None) -> None:
    """Note that a recipient was sent these recommendations at `now`, of the week up to `week_end` (both Unix
    seconds; None: of no week)."""
    db.conn.executemany(
        "INSERT INTO told (recipient, recommendation, at, week, decision) "
        "VALUES (?, ?, ?, ?, (SELECT coalesce(max(seq), 0) FROM decisions))",
        [(recipient, id_, now, week_end) for id_ in sorted(set(ids))],
    )


def mailed_since(db: Database, recipient: str, since: float, before: float = math.inf) -> frozenset[str]:
    """What a recipient was sent of weeks that ended from `since` until `before` (Unix seconds); of no week: by when it
    was sent. What regressed after that is not among them: it is due again."""
    # By the order in which they were written, which no clock can move.
    sql = """
        SELECT recommendation FROM told WHERE recipient = ? AND coalesce(week, at) >= ? AND coalesce(week, at) < ?
        GROUP BY recommendation HAVING max(decision) >= coalesce((SELECT max(seq) FROM decisions
        WHERE decisions.recommendation = told.recommendation AND act = 'regressed'), 0)
    """
    return frozenset(id_ for (id_,) in db.execute(sql, [recipient, since, before]))


def configuration_words(c: Configuration) -> str:
    """``8 x H100-SXM5 on azure/nd96``; ``-``: no GPUs."""
    sku, node = c.gpu_sku or "unknown GPU", c.node_sku or "unknown node type"
    return f"{c.gpu_count} x {sku} on {node}" if c.gpu_count else "-"


def _is_expired(entry: LedgerEntry, now: float, seen_until: float) -> bool:
    covered = seen_until - entry.snapshot.seen_until if entry.snapshot else -1.0
    return entry.decision(now).state == "expired" and not 0 <= covered < EXPIRES_AFTER_SECONDS


def _kept(r: Recommendation) -> Recommendation:
    return replace(
        r, decision=None, draws=None, claims=(), needs=None, time_ratio=_finite(r.time_ratio),
        saving_usd_per_month=_finite(r.saving_usd_per_month),
        energy_saving_kwh_per_month=_finite(r.energy_saving_kwh_per_month),
    )  # fmt: skip


def _finite(interval: Interval | None) -> Interval | None:
    return interval if interval and all(map(math.isfinite, (interval.p10, interval.p50, interval.p90))) else None


def _snapshot(
    advice: Advice, r: Recommendation, workload: WorkloadVerdict | None, seen: Observation
) -> PredictionSnapshot:
    series = workload.series_id if workload else None
    runs = [w for w in seen.series(series) if workload and w.node_sku == workload.node_sku]
    current = [w for w in seen.now(series) if w in runs]
    prices, address = [p for p in advice.prices if p.id in r.prices], None
    if workload is not None:
        at, owner = workload.scheduled, workload.owner
        # On Kubernetes each run is a pod, or a gang of them on several nodes, whose replicas are unknown.
        are_pods = at.name == "kubernetes" and all(len(run.nodes) == 1 for run in current)
        address = WorkloadAddress(
            scheduler=at.name, name=workload.name, namespace=owner.namespace, controller_kind=at.controller_kind,
            user=owner.user, account=owner.account, partition=at.partition, container=at.container,
            replicas=len(current) or None if are_pods else None,
        )  # fmt: skip
    return PredictionSnapshot(
        series_id=series,
        serving=serves(runs),
        nodes=tuple(sorted({node for w in current for node in w.nodes})),
        source=r.source,
        target=r.target,
        saving_usd_per_month=_finite(r.saving_usd_per_month),
        time_ratio=_finite(r.time_ratio) if not BY_ACTION[r.action].of_another else None,
        yardstick=r.yardstick,
        before=measure(runs, seen.start, seen.end),
        usd_per_hour={p.sku: p.usd_per_hour for p in prices},
        prices=price_note(prices),
        seen_until=seen.end,
        fleet=len(seen.nodes),
        address=address,
    )
