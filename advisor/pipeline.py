"""From verdicts to the advice. Pure: the clock and the seed of random numbers are arguments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .classify.accounting.energy import hours_by_use
from .classify.types import Verdicts
from .core.advice_types import Advice, Decision, Recommendation, Summary, Unobserved
from .core.advice_types import Fleet as FleetIdentity
from .core.coded_text import CodedText
from .core.formatting import counted, hours, listed
from .core.timestamps import minute, span
from .core.verdict_types import INFERRED
from .core.worth import marked, min_saving
from .recommend.energy_accounts import energy_accounts
from .recommend.fleet import HOUR_SECONDS, Fleet, ready_at, when_possible
from .recommend.groups import groups_of
from .recommend.moves.move_sku import market_recommendations
from .recommend.predict.calibration import NO_SITE, Site
from .recommend.pricing import PriceBook, fabric_uses, price_notes, prices_named, reconcile, standings, with_costs
from .recommend.recommender import all_recommendations, recoverable_cash, work_that_is_over
from .recommend.service_levers import beside, service_levers, with_levers
from .recommend.waiting import Queue, idle_gpus, with_waiting
from .recommend.waste import excused, find_waste, slowed_usd, wasted
from .rulebook import Rulebook

_ROUNDING_HOURS = 1e-6
_OBSERVED_MIN = 0.9  # of a short life
_ACTIVITY = "activity"  # the measure that distinguishes idle from busy
# Codes of the notes about the window as a whole.
WINDOW_NOTES = frozenset({"telemetry-begins-late", "week-not-over"})


@dataclass(frozen=True)
class Reasoned:
    """An advice with its basis, for the plan. `options`: all recommendations with their draws, as they were made.
    `queue`: jobs that wait; None: none is known."""

    advice: Advice
    fleet: Fleet
    options: tuple[Recommendation, ...]
    queue: Queue | None = None


def fleet_of(verdicts: Verdicts, rulebook: Rulebook, generated_at: float, seed: int, *, site: Site = NO_SITE) -> Fleet:
    """The context of rules and recommendations. `generated_at`: now, Unix seconds."""
    return Fleet(
        verdicts=verdicts,
        groups=excused(groups_of(verdicts), rulebook.exceptions, generated_at),
        book=PriceBook(rulebook.catalog, tuple(rulebook.team.prices), rulebook.power, rulebook.hourly),
        rules=rulebook.rules,
        model=rulebook.move_model,
        at=max(generated_at, verdicts.window.end),
        seed=int(np.random.default_rng(seed).integers(2**63)),
        floor_hours=rulebook.floor_hours,
        site=site,
    )


def reason_on(
    verdicts: Verdicts, rulebook: Rulebook, now: float, seed: int, *, source: Mapping[str, object],
    decisions: Mapping[str, Decision] | None = None, site: Site = NO_SITE, with_market: bool = False,
    identity: FleetIdentity | None = None, queue: Queue | None = None,
) -> Reasoned:  # fmt: skip
    """The advice on verdicts, with its basis. `now`: Unix seconds; `seed`: of the intervals; `decisions`: of the
    ledger, by recommendation id; `site`: corrections from moves done here; `with_market`: also evaluate other
    providers; `queue`: jobs that wait for GPUs."""
    window, inventory, nodes = verdicts.window, verdicts.inventory, verdicts.nodes
    fleet = fleet_of(verdicts, rulebook, now, seed, site=site)
    book = fleet.book
    waste = find_waste(fleet, rulebook.exceptions, rulebook.custom)
    fleet = replace(fleet, waste=waste.waste)
    findings = tuple(sorted((result.finding for result in waste.waste), key=lambda f: -(f.cost_usd or 0.0)))
    if queue is not None:
        findings = tuple(with_waiting(findings, verdicts, queue, rulebook.catalog))
    levers = {g.lead.id: service_levers(fleet, g, rulebook.served_models) for g in fleet.groups}
    decided = (replace(r, decision=(decisions or {}).get(r.id)) for r in all_recommendations(fleet))
    recommendations = tuple(beside(r, levers) for r in decided)
    # Last, because its draws must not change those of the recommendations.
    market = market_recommendations(fleet) if with_market else None
    judged, judged_count, ready = _judged(verdicts, fleet.floor_hours, now)
    reconciliation = reconcile(verdicts, book)
    fleet_energy, workloads, node_energy = energy_accounts(verdicts, with_costs(verdicts, book), book, rulebook.energy)
    cash, interval = recoverable_cash(recommendations)

    def usd(value: float) -> float | None:
        """What was not judged is unknown, not zero."""
        return value if reconciliation.total is not None and (judged_count or value) else None

    gpu_count = inventory.gpu_count or sum(n.gpu_count for n in nodes)
    summary = Summary(
        gpu_count=gpu_count,
        gpu_hours=sum(n.gpu_count * n.span_hours for n in nodes),
        cost_usd=reconciliation.total,
        wasted_usd=usd(wasted((result.finding, result.group and result.group.series_id) for result in waste.waste)),
        slowed_usd=usd(slowed_usd(findings)),
        recoverable_usd_per_month=usd(cash),
        reconciliation=reconciliation,
        recoverable_interval_usd_per_month=interval,
        unobserved=tuple(_unobserved(verdicts, book)),
        window_hours=window.hours,
        observed_hours=inventory.observed_hours,
        observed_gpu_hours=inventory.observed_gpu_hours,
        judged_gpu_count=min(judged_count, gpu_count),
        judged_from=ready,
        floor_hours=fleet.floor_hours,
        gpu_hours_by_use=hours_by_use(verdicts.occupancy),
        energy=fleet_energy,
        waiting=None if queue is None else replace(queue.total, idle_gpus=idle_gpus(verdicts)),
    )
    minimum = rulebook.min_saving_usd
    if minimum is None:
        levels = rulebook.reporting
        minimum = min_saving(summary, levels.min_saving_usd_per_month, levels.min_saving_share_of_spend)
    prices = prices_named(book, nodes, {r.target.node_sku for r in recommendations})
    if market:
        prices += [price for node in rulebook.catalog.nodes.values() for price in node.prices]
    used = {price for r in (*recommendations, *(market or ())) for price in r.prices}
    used |= {finding.price for finding in findings} | {price.id for n in nodes if (price := book.of(n)) is not None}
    notes = (
        *price_notes(nodes, book), *_unowned(verdicts), *verdicts.notes, *_beginning(verdicts),
        *_too_little(verdicts, fleet.floor_hours, now), *waste.notes, *work_that_is_over(fleet), *fleet.site.notes,
    )  # fmt: skip
    advice = Advice(
        generated_at=now,
        start=window.start,
        end=window.end,
        source=dict(source),
        summary=replace(summary, min_saving_usd_per_month=minimum),
        prices=tuple(sorted({p.id: p for p in prices if p and p.id in used}.values(), key=lambda p: p.id)),
        workloads=tuple(with_levers(w, levers) for w in sorted(workloads, key=lambda w: -w.gpu_hours)),
        findings=findings,
        judged=waste.judged,
        not_judged=waste.not_judged,
        recommendations=recommendations,
        waiting=queue.groups if queue is not None else (),
        notes=notes,
        market=market,
        nodes=tuple(sorted(n.node for n in nodes)),
        fabrics=fabric_uses(nodes, book),
        node_energy=node_energy,
        standings=standings(nodes, book, judged),
        fleet=identity,
    )
    return Reasoned(marked(advice), fleet, recommendations, queue)


def _judged(
    verdicts: Verdicts, floor_hours: float, at: float
) -> tuple[Mapping[str, tuple[str, ...]], int, float | None]:
    """Node -> ids of GPUs observed for the coverage floor, and of their MIG instances; the number of these GPUs; when
    there will be more (Unix seconds; None: time alone does not help). `at`: now."""
    inventory, floor = verdicts.inventory, floor_hours - _ROUNDING_HOURS
    faulty = {(b.node, b.gpu_uuid) for b in verdicts.bare if b.telemetry_fault}
    instances: dict[tuple[str, str], list[str]] = {}
    for (_, uuid), parent in inventory.parents.items():
        instances.setdefault(parent, []).append(uuid)
    judged: dict[str, tuple[str, ...]] = {}
    count, moments = 0, []
    for facts in verdicts.nodes:
        node = inventory.nodes.get(facts.node)
        if node is None:
            continue
        # Of a node that lived shortly in a pool that was observed long enough, most of its life must have been.
        least = floor if facts.pool_hours < floor else min(floor, _OBSERVED_MIN * facts.span_hours)
        # GPU by GPU: one of eight that was observed long enough does not represent the node.
        enough = [
            gpu.gpu_uuid for gpu in node.gpus
            if facts.hours_observed >= least and gpu.hours >= least and gpu.measured.get(_ACTIVITY, 0.0) >= least > 0
            and (facts.node, gpu.gpu_uuid) not in faulty
        ]  # fmt: skip
        if enough:
            judged[facts.node] = tuple(id_ for uuid in enough for id_ in (uuid, *instances.get((facts.node, uuid), ())))
            count += min(len(enough), node.gpu_count)
        elif facts.hours_observed > 0 and facts.evidence_hours < floor:
            moments.append(ready_at(facts.hours_observed, floor_hours, verdicts.window, at, facts))
    return judged, count, min((ready for ready in moments if ready is not None), default=None)


def _unobserved(verdicts: Verdicts, book: PriceBook) -> Iterator[Unobserved]:
    for part in verdicts.inventory.unobserved:
        facts = verdicts.node(part.node)
        if facts is None:
            yield part
            continue
        gpu_hours, rate = facts.span_hours * len(part.gpus), book.per_gpu_hour(facts)
        yield replace(part, gpu_hours=gpu_hours, cost_usd=None if rate is None else rate * gpu_hours)


def _beginning(verdicts: Verdicts) -> tuple[CodedText, ...]:
    window = verdicts.window
    first = min((n.first_seen for n in verdicts.nodes), default=window.start)
    if first <= window.start + HOUR_SECONDS:
        return ()
    text = f"The window is {span(window.seconds)} long, but telemetry starts at {minute(first)}."
    return (CodedText("telemetry-begins-late", text, {"window_seconds": window.seconds, "first_ts": first}),)


def _unowned(verdicts: Verdicts) -> tuple[CodedText, ...]:
    workloads = [w for w in verdicts.workloads if w.basis == INFERRED]
    if not workloads:
        return ()
    share = f"{len(workloads):,} of {counted(len(verdicts.workloads), 'workload')}"
    gpu_hours = sum(w.gpu_hours for w in workloads)
    text = (
        f"The owner of {share} ({hours(gpu_hours)}) is unknown: no scheduler, label or process names it, "
        "so the workload is inferred from GPU activity. Verdicts are less certain, and recommendations "
        "are blocked until the owner is confirmed. For remedies run 'skuwise doctor'."
    )
    fields = {"workloads": len(workloads), "of": len(verdicts.workloads), "gpu_hours": gpu_hours}
    return (CodedText("owners-unknown", text, fields),)


def _too_little(verdicts: Verdicts, floor: float, at: float) -> tuple[CodedText, ...]:
    # Nodes without any observation are among the unobserved, with their reason.
    short = [n for n in verdicts.nodes if n.hours_observed > 0 and n.evidence_hours < floor]
    if not short:
        return ()
    most = max(short, key=lambda n: n.hours_observed)
    data = ("up to " if len(short) > 1 else "") + span(most.hours_observed * 3600)
    names = [n.node for n in short]
    then = when_possible(most.hours_observed, floor, verdicts.window, at, most)
    text = f"Too little data on {listed(names)}: {data} of the {floor:g} h that waste detection needs. {then}"
    fields = {"nodes": ", ".join(names), "hours": most.hours_observed, "needed_hours": floor}
    return (CodedText("too-little-data", text, fields),)
