"""Frame in, one frozen Advice out. Time and randomness are given; nothing is read or written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .classify.accounting.energy import hours_by_use
from .classify.judge import judge
from .classify.types import Verdicts
from .core.advice_types import Advice, Decision, Recommendation, Summary, Unobserved
from .core.coded_text import CodedText
from .core.formatting import counted, hours, listed
from .core.frame import Frame
from .core.timestamps import minute, span
from .core.verdict_types import INFERRED
from .core.worth import MIN_SAVING_SHARE as MIN_SAVING_PART
from .core.worth import MIN_SAVING_USD, marked, min_saving
from .recommend.energy_accounts import energy_accounts
from .recommend.finding import HOUR_SECONDS, ready_at, when_possible
from .recommend.fleet import Fleet
from .recommend.groups import groups_of
from .recommend.moves.move_sku import market_recommendations
from .recommend.predict.calibration import NO_SITE, Site
from .recommend.pricing import (
    PriceBook,
    fabric_uses,
    price_notes,
    prices_named,
    reconcile,
    standings,
    with_costs,
)
from .recommend.recommender import all_recommendations, recoverable_cash, work_that_is_over
from .recommend.service_levers import beside, levers_by_workload, with_levers
from .recommend.waste import excused, find_waste, slowed_usd, wasted
from .rulebook import MIN_SAVING, MIN_SAVING_SHARE, Rulebook

_ROUNDING_HOURS = 1e-6
_OBSERVED_MIN = 0.9  # of a short life
_ACTIVITY = "activity"  # without it nobody can tell idle from busy


@dataclass(frozen=True, slots=True)
class JudgedGpus:
    """`gpus`: node -> ids of the GPUs that were observed for the coverage floor, and of their MIG instances. `count`:
    physical GPUs among them. `ready`: when more will be (Unix seconds); None: nothing waits for time alone."""

    gpus: Mapping[str, tuple[str, ...]]
    count: int
    ready: float | None


def judged_gpus(verdicts: Verdicts, floor_hours: float, at: float) -> JudgedGpus:
    """What can be judged, GPU by GPU. `at`: the moment of the advice, Unix seconds."""
    inventory = verdicts.inventory
    faulty = {(b.node, b.gpu_uuid) for b in verdicts.bare if b.telemetry_fault}
    instances: dict[tuple[str, str], list[str]] = {}
    for (_, uuid), parent in inventory.parents.items():
        instances.setdefault(parent, []).append(uuid)
    gpus: dict[str, tuple[str, ...]] = {}
    count, moments = 0, []
    for facts in verdicts.nodes:
        node = inventory.nodes.get(facts.node)
        if node is None:
            continue
        floor = floor_hours - _ROUNDING_HOURS
        # Of a node that lived shortly in a pool that was observed long enough, most of its life must have been.
        least = floor if facts.pool_hours < floor else min(floor, _OBSERVED_MIN * facts.span_hours)
        # Waste is judged node by node: one GPU of eight that was observed long enough says nothing of the node.
        enough = [
            gpu.gpu_uuid for gpu in node.gpus
            if facts.hours_observed >= least and gpu.hours >= least and gpu.known.get(_ACTIVITY, 0.0) >= least > 0
            and (facts.node, gpu.gpu_uuid) not in faulty
        ]  # fmt: skip
        if enough:
            own = (instance for uuid in enough for instance in (uuid, *instances.get((facts.node, uuid), ())))
            gpus[facts.node] = tuple(own)
            count += min(len(enough), node.gpu_count)
        elif facts.hours_observed > 0 and facts.evidence_hours < floor:
            moments.append(ready_at(facts.hours_observed, floor_hours, verdicts.window, at, facts))
    return JudgedGpus(gpus, count, min((ready for ready in moments if ready is not None), default=None))


def unobserved_cost(unobserved: Iterable[Unobserved], verdicts: Verdicts, book: PriceBook) -> tuple[Unobserved, ...]:
    """Unobserved GPUs with their hours and dollars in the window."""
    told = []
    for one in unobserved:
        facts = verdicts.node(one.node)
        if facts is not None:
            hours = facts.span_hours * len(one.gpus)
            rate = book.per_gpu_hour(facts)
            told.append(replace(one, gpu_hours=hours, cost_usd=None if rate is None else rate * hours))
        else:
            told.append(one)
    return tuple(told)


# Codes of the notes that speak of the window as a whole, and not of one node or workload.
WINDOW_NOTES = frozenset({"telemetry-begins-late", "week-not-over"})


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """What an advice depends on beside telemetry and rules. `generated_at`: now, Unix seconds. `decisions`: what people
    decided on recommendations (the ledger), by id: what they dismissed or snoozed is marked and not counted. `site`:
    what moves that were done here say of predictions. `with_market`: whether other providers are looked at, too."""

    generated_at: float
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    site: Site = NO_SITE
    with_market: bool = False


@dataclass(frozen=True)
class Reasoned:
    """An advice with what it was made of, for what goes on from there (a plan). `options`: all recommendations with
    their joint draws, in the order in which they were made."""

    advice: Advice
    fleet: Fleet
    options: tuple[Recommendation, ...]


def advise(frame: Frame, book: Rulebook, options: AdviseOptions, rng: np.random.Generator) -> Advice:
    """Everything there is to say about a frame. `rng` draws the intervals: a seed makes the advice repeatable."""
    return advise_on(judge(frame, book), book, options, rng, source=frame.source)


def advise_on(
    verdicts: Verdicts,
    rulebook: Rulebook,
    options: AdviseOptions,
    rng: np.random.Generator,
    *,
    source: Mapping[str, object],
) -> Advice:
    """The moves and the money of verdicts that are already given."""
    return reason_on(verdicts, rulebook, options, rng, source=source).advice


def fleet_of(
    verdicts: Verdicts, rulebook: Rulebook, generated_at: float, rng: np.random.Generator, *, site: Site = NO_SITE
) -> Fleet:
    """The context of rules and recommendations. `generated_at`: now, Unix seconds; `site`: what moves done here say."""
    return Fleet(
        verdicts=verdicts,
        groups=excused(groups_of(verdicts), rulebook.exceptions, generated_at),
        book=PriceBook(rulebook.catalog, tuple(rulebook.own.prices), rulebook.power, rulebook.hourly),
        rules=rulebook.rules,
        model=rulebook.move_model,
        at=max(generated_at, verdicts.window.end),
        seed=int(rng.integers(2**63)),
        floor_hours=rulebook.floor_hours,
        site=site,
    )


def reason_on(
    verdicts: Verdicts,
    rulebook: Rulebook,
    options: AdviseOptions,
    rng: np.random.Generator,
    *,
    source: Mapping[str, object],
) -> Reasoned:
    """The advice of verdicts that are already given, with what it rests on."""
    generated_at, window = options.generated_at, verdicts.window
    fleet = fleet_of(verdicts, rulebook, generated_at, rng, site=options.site)
    book = fleet.book
    asked = find_waste(fleet, rulebook.exceptions, rulebook.custom)
    fleet = replace(fleet, waste=asked.waste)
    told = levers_by_workload(fleet, rulebook.served_models)
    every = all_recommendations(fleet)
    ways = tuple(beside(replace(r, decision=options.decisions.get(r.id)), told) for r in every)
    reconciliation = reconcile(verdicts, book)
    cash, interval = recoverable_cash(ways)
    recommendations = tuple(sorted(ways, key=lambda r: r.rank))
    # After everything that counts: its draws must not change those of what is recommended.
    elsewhere = market_recommendations(fleet) if options.with_market else None
    used = {p for r in (*recommendations, *(elsewhere or ())) for p in r.prices}
    used |= {f.finding.price for f in asked.waste if f.finding.price is not None}
    named = prices_named(book, verdicts.nodes, {r.target.node_sku for r in recommendations})
    if elsewhere:
        named += [p for n in rulebook.catalog.nodes.values() for p in n.prices]
    here = {p.id for n in verdicts.nodes if (p := book.of(n)) is not None}
    priced = reconciliation.total is not None
    notes = (
        *price_notes(verdicts.nodes, book), *_unowned(verdicts), *verdicts.notes, *_beginning(verdicts),
        *_too_little(verdicts, fleet.floor_hours, generated_at), *asked.notes, *work_that_is_over(fleet),
        *fleet.site.notes,
    )  # fmt: skip
    enough = judged_gpus(verdicts, fleet.floor_hours, generated_at)
    gpu_count = verdicts.inventory.gpu_count or sum(n.gpu_count for n in verdicts.nodes)
    waste = wasted((f.finding, f.group and f.group.series_id) for f in asked.waste)
    slowed = slowed_usd(f.finding for f in asked.waste)
    energy = energy_accounts(verdicts, with_costs(verdicts, book), book, rulebook.energy)
    summary = Summary(
        gpu_count=gpu_count,
        gpu_hours=sum(n.gpu_count * n.span_hours for n in verdicts.nodes),
        cost_usd=reconciliation.total,
        # What was not judged is unknown, and no zero.
        wasted_usd=waste if priced and (enough.count or waste) else None,
        slowed_usd=slowed if priced and (enough.count or slowed) else None,
        recoverable_usd_per_month=cash if priced and (enough.count or cash) else None,
        reconciliation=reconciliation,
        recoverable_interval_usd_per_month=interval,
        unobserved=unobserved_cost(verdicts.inventory.unobserved, verdicts, book),
        window_hours=window.hours,
        observed_hours=verdicts.inventory.observed_hours,
        observed_gpu_hours=verdicts.inventory.observed_gpu_hours,
        judged_gpu_count=min(enough.count, gpu_count),
        judged_from=enough.ready,
        floor_hours=fleet.floor_hours,
        gpu_hours_by_use=hours_by_use(verdicts.occupancy),
        energy=energy.fleet,
    )
    whole = Advice(
        generated_at=generated_at,
        start=window.start,
        end=window.end,
        source=dict(source),
        summary=replace(summary, min_saving_usd_per_month=_min_saving(rulebook, summary)),
        prices=tuple(sorted({p.id: p for p in named if p and p.id in used | here}.values(), key=lambda p: p.id)),
        workloads=tuple(with_levers(w, told) for w in energy.workloads),
        findings=tuple(f.finding for f in asked.waste),
        judged=asked.judged,
        not_judged=asked.not_judged,
        recommendations=recommendations,
        notes=notes,
        market=elsewhere,
        nodes=tuple(sorted(n.node for n in verdicts.nodes)),
        fabrics=fabric_uses(verdicts.nodes, book),
        node_energy=energy.nodes,
        standings=standings(verdicts.nodes, book, enough.gpus),
    )
    return Reasoned(marked(whole), fleet, ways)


def _min_saving(rulebook: Rulebook, summary: Summary) -> float:
    """The gain in US dollars a month below which lists and mails leave a recommendation out."""
    usd, share = (rulebook.reporting.get(name) for name in (MIN_SAVING, MIN_SAVING_SHARE))
    return min_saving(
        summary, usd.value if usd is not None else MIN_SAVING_USD, share.value if share is not None else MIN_SAVING_PART
    )


def _beginning(verdicts: Verdicts) -> tuple[CodedText, ...]:
    """Where telemetry begins within the window: the window asked for is no proof of data."""
    first = min((n.first_seen for n in verdicts.nodes), default=verdicts.window.start)
    if first <= verdicts.window.start + HOUR_SECONDS:
        return ()
    return (
        CodedText(
            "telemetry-begins-late",
            f"The window is {span(verdicts.window.seconds)} long, but telemetry starts at {minute(first)}.",
            {"window_seconds": verdicts.window.seconds, "first_ts": first},
        ),
    )


def _unowned(verdicts: Verdicts) -> tuple[CodedText, ...]:
    """How much of the work nobody is named for, and what that costs."""
    found = [w for w in verdicts.workloads if w.basis == INFERRED]
    if not found:
        return ()
    share = f"{len(found):,} of {counted(len(verdicts.workloads), 'workload')}"
    gpu_hours = sum(w.gpu_hours for w in found)
    text = (
        f"The owner of {share} ({hours(gpu_hours)}) is unknown: no scheduler, label or process names it, "
        "so the workload is inferred from GPU activity. Verdicts are less certain, and recommendations "
        "are blocked until the owner is confirmed. For remedies run 'skuwise doctor'."
    )
    fields = {"workloads": len(found), "of": len(verdicts.workloads), "gpu_hours": gpu_hours}
    return (CodedText("owners-unknown", text, fields),)


def _too_little(verdicts: Verdicts, floor: float, at: float) -> tuple[CodedText, ...]:
    """Where the window holds less data than any verdict on waste needs (`floor` hours): what it takes to have one."""
    # Nodes of which nothing was observed stand among the unobserved, with their reason.
    short = [n for n in verdicts.nodes if n.hours_observed > 0 and n.evidence_hours < floor]
    if not short:
        return ()
    most = max(short, key=lambda n: n.hours_observed)
    held = ("up to " if len(short) > 1 else "") + span(most.hours_observed * 3600)
    names = [n.node for n in short]
    then = when_possible(most.hours_observed, floor, verdicts.window, at, most)
    return (
        CodedText(
            "too-little-data",
            f"Too little data on {listed(names)}: {held} of the {floor:g} h that waste detection needs. {then}",
            {"nodes": ", ".join(names), "hours": most.hours_observed, "needed_hours": floor},
        ),
    )
