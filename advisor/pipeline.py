"""Frame in, one frozen Advice out. Time and randomness are given; nothing is read or written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..rules.catalog.hour_prices import HourPrices
from ..rules.catalog.loader import Catalog
from ..rules.catalog.types import PowerPrice, Price
from ..rules.policy.custom import CustomRules
from ..rules.policy.exceptions import Exceptions, load_exceptions
from ..rules.policy.thresholds import Threshold, WasteRule
from .core.advice_types import INFERRED, Advice, Decision, Summary
from .core.coded_text import CodedText
from .core.formatting import counted, hours
from .core.frame import Frame, Window
from .core.timestamps import minute, span
from .moves.base.pricing import PriceBook, fabric_uses, prices_named, reconcile, standings, unique, with_costs
from .moves.base.workload_groups import groups_of
from .moves.context.finding_context import HOUR_SECONDS, listed, when_possible
from .moves.context.judged import judged, with_cost
from .moves.context.move_context import Scene
from .moves.context.rule_context import Scope
from .moves.market import market
from .moves.predict.calibration import NO_SITE, Site
from .moves.recommender import decided, enumerate_options, order, recoverable
from .moves.waste.too_many_gpus import RULE as SIZING
from .moves.waste_rules import excused, find_custom, find_waste, wasted
from .verdicts.judge import judge
from .verdicts.types import Verdicts

# Codes of the notes that speak of the window as a whole, and not of one node or workload.
WINDOW_NOTES = frozenset({"telemetry-begins-late", "week-not-over"})


def advise(
    frame: Frame,
    catalog: Catalog,
    rules: Mapping[str, WasteRule],
    prices: Sequence[Price] = (),
    *,
    generated_at: float,
    rng: np.random.Generator,
    kinds: Mapping[str, Threshold] | None = None,
    bottlenecks: Mapping[str, Threshold] | None = None,
    power: Sequence[PowerPrice] = (),
    hourly: HourPrices | None = None,
    decisions: Mapping[str, Decision] | None = None,
    custom: CustomRules | None = None,
    exceptions: Exceptions | None = None,
    with_market: bool = False,
    site: Site | None = None,
) -> Advice:
    """Everything there is to say about a frame. `prices` are a team's own, before the catalog's list prices; `power`
    is what it pays for electricity, `hourly` what it says of GPU-hours and node-hours in its settings.

    `generated_at`: Unix seconds; `rng` draws the intervals, so a seed makes the advice repeatable.
    `kinds`, `bottlenecks`: thresholds of the verdicts; the packaged ones where None. `decisions`: what people decided
    on recommendations (the ledger), by id: what they dismissed or snoozed is marked and not counted. `custom`: a site's
    own rules (None: none); `exceptions`: whose work a rule does not speak of (None: the packaged ones). `with_market`:
    whether other providers are looked at, too. `site`: what moves that were done here say of predictions.
    """
    verdicts = judge(frame, catalog, kinds, bottlenecks, floor_hours=_floor_hours(rules))
    return advise_on(
        verdicts, catalog, rules, prices, generated_at=generated_at, rng=rng, source=frame.source, power=power,
        hourly=hourly, decisions=decisions, custom=custom, exceptions=exceptions, with_market=with_market, site=site,
    )  # fmt: skip


def advise_on(
    verdicts: Verdicts,
    catalog: Catalog,
    rules: Mapping[str, WasteRule],
    prices: Sequence[Price],
    *,
    generated_at: float,
    rng: np.random.Generator,
    source: Mapping[str, object],
    power: Sequence[PowerPrice] = (),
    hourly: HourPrices | None = None,
    decisions: Mapping[str, Decision] | None = None,
    custom: CustomRules | None = None,
    exceptions: Exceptions | None = None,
    with_market: bool = False,
    site: Site | None = None,
) -> Advice:
    """The moves and the money of verdicts that are already given."""
    book = PriceBook(catalog, tuple(prices), tuple(power), hourly or HourPrices())
    window = verdicts.window
    if exceptions is None:
        exceptions = load_exceptions(known_rules=rules)
    groups = excused(groups_of(verdicts), exceptions, generated_at)
    scope = Scope(verdicts, groups, rules, book, generated_at)
    found, waste_notes = find_waste(scope, exceptions)
    own, own_notes = find_custom(scope, custom or CustomRules({}), exceptions)
    scene = scene_of(window, book, rules, generated_at, rng, site=site)
    options, over = enumerate_options(scene, verdicts, groups, found)
    options = decided(options, decisions or {})
    reconciliation, money_notes = reconcile(verdicts, book)
    cash, interval = recoverable(options)
    recommendations = order(options)
    # After everything that counts: its draws must not change those of what is recommended.
    elsewhere = market(scene, verdicts, groups) if with_market else None
    used = {p for r in (*recommendations, *(elsewhere or ())) for p in r.prices} | {f.finding.price for f in found}
    named = prices_named(book, verdicts.nodes, {r.target.node_sku for r in recommendations})
    if elsewhere:
        named += [p for n in catalog.nodes.values() for p in n.prices]
    fleet = {p.id for p in unique(book.of(n) for n in verdicts.nodes)}
    priced = reconciliation.total is not None
    unowned = _unowned(verdicts)
    short = (*_beginning(verdicts), *_too_little(verdicts, rules, generated_at))
    enough = judged(verdicts, scene.floor_hours, generated_at)
    waste = wasted((f.finding, f.group and f.group.series_id) for f in found)
    return Advice(
        generated_at=generated_at,
        start=window.start,
        end=window.end,
        source=dict(source),
        summary=Summary(
            gpu_count=verdicts.inventory.gpu_count or sum(n.gpu_count for n in verdicts.nodes),
            gpu_hours=sum(n.gpu_count * n.span_hours for n in verdicts.nodes),
            cost_usd=reconciliation.total,
            # What was not judged is unknown, and no zero.
            wasted_usd=waste if priced and (enough.count or waste) else None,
            recoverable_usd_per_month=cash if priced and (enough.count or cash) else None,
            reconciliation=reconciliation,
            recoverable_interval_usd_per_month=interval,
            unobserved=with_cost(verdicts.inventory.unobserved, verdicts, book),
            window_hours=window.hours,
            observed_hours=verdicts.inventory.observed_hours,
            observed_gpu_hours=verdicts.inventory.observed_gpu_hours,
            judged_gpu_count=enough.count,
            judged_from=enough.ready,
            floor_hours=scene.floor_hours,
        ),
        prices=tuple(p for p in unique(named) if p.id in used | fleet),
        workloads=with_costs(verdicts, book),
        findings=tuple(f.finding for f in (*found, *own)),
        recommendations=recommendations,
        notes=(*money_notes, *unowned, *verdicts.notes, *short, *waste_notes, *own_notes, *over, *scene.site.notes),
        market=elsewhere,
        nodes=tuple(sorted(n.node for n in verdicts.nodes)),
        fabrics=fabric_uses(verdicts.nodes, book),
        standings=standings(verdicts.nodes, book, enough.gpus),
    )


def scene_of(
    window: Window,
    book: PriceBook,
    rules: Mapping[str, WasteRule],
    generated_at: float,
    rng: np.random.Generator,
    *,
    site: Site | None = None,
) -> Scene:
    """What the moves of a window are weighed with. `generated_at`: Unix seconds; `site`: what moves done here say."""
    sizing = rules[SIZING.id]
    return Scene(
        catalog=book.catalog, book=book, headroom=sizing.value("headroom"), sizing=sizing,
        at=max(generated_at, window.end), window_hours=window.hours, seed=int(rng.integers(2**63)),
        site=site or NO_SITE, floor_hours=_floor_hours(rules),
    )  # fmt: skip


def _beginning(verdicts: Verdicts) -> tuple[CodedText, ...]:
    """Where telemetry begins within the window: the window asked for is no proof of data."""
    first = min((n.first_seen for n in verdicts.nodes), default=verdicts.window.start)
    if first <= verdicts.window.start + HOUR_SECONDS:
        return ()
    return (
        CodedText(
            "telemetry-begins-late",
            f"The window is {span(verdicts.window.seconds)} long, and telemetry begins at {minute(first)}.",
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
        f"The owner of {share} ({hours(gpu_hours)}) is unknown: no scheduler, label or process "
        "names them, so they were inferred from what their GPUs do. Verdicts on them are less sure, and their "
        "recommendations are blocked: ask who uses the nodes first. 'skuwise doctor' prints what to add for owners."
    )
    fields = {"workloads": len(found), "of": len(verdicts.workloads), "gpu_hours": gpu_hours}
    return (CodedText("owners-unknown", text, fields),)


def _floor_hours(rules: Mapping[str, WasteRule]) -> float:
    """Hours per GPU below which no rule gives a verdict."""
    floors = (rule.thresholds.get("coverage_hours") for rule in rules.values())
    return min(floor.value for floor in floors if floor is not None)


def _too_little(verdicts: Verdicts, rules: Mapping[str, WasteRule], at: float) -> tuple[CodedText, ...]:
    """Where the window holds less data than any verdict on waste needs: what it takes to have one."""
    floor = _floor_hours(rules)
    # Nodes of which nothing was observed stand among the unobserved, with their reason.
    short = [n for n in verdicts.nodes if 0 < n.hours_observed < floor]
    if not short:
        return ()
    most = max(short, key=lambda n: n.hours_observed)
    held = ("up to " if len(short) > 1 else "") + span(most.hours_observed * 3600)
    names = [n.node for n in short]
    then = when_possible(most.hours_observed, floor, verdicts.window, at, most)
    return (
        CodedText(
            "too-little-data",
            f"No verdict on waste for {listed(names)}: {held} of data, and waste is judged from {floor:g} h on. {then}",
            {"nodes": ", ".join(names), "hours": most.hours_observed, "needed_hours": floor},
        ),
    )
