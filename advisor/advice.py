"""Frame in, one frozen Advice out. Time and randomness are given; nothing is read or written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..rules.catalog import Price
from ..rules.library import Catalog
from ..rules.thresholds import Threshold, WasteRule
from .frame import Frame
from .model import Advice, Summary
from .moments import rfc3339
from .moves.found import Found
from .moves.groups import groups_of
from .moves.money import PriceBook, reconcile, unique, with_costs
from .moves.options import enumerate_options, order, recoverable
from .moves.scene import Scene
from .moves.waste import find_waste
from .verdicts.facts import Verdicts
from .verdicts.verdict import judge


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
) -> Advice:
    """Everything there is to say about a frame. `prices` are a team's own, before the catalog's list prices.

    `generated_at`: Unix seconds; `rng` draws the intervals, so a seed makes the advice repeatable.
    `kinds`, `bottlenecks`: thresholds of the verdicts; the packaged ones where None.
    """
    verdicts = judge(frame, catalog, kinds, bottlenecks)
    return advise_on(verdicts, catalog, rules, prices, generated_at=generated_at, rng=rng, source=frame.source)


def advise_on(
    verdicts: Verdicts,
    catalog: Catalog,
    rules: Mapping[str, WasteRule],
    prices: Sequence[Price],
    *,
    generated_at: float,
    rng: np.random.Generator,
    source: Mapping[str, object],
) -> Advice:
    """The moves and the money of verdicts that are already given."""
    book = PriceBook(catalog, tuple(prices))
    window = verdicts.window
    groups = groups_of(verdicts)
    found, waste_notes = find_waste(verdicts, groups, rules, book)
    scene = Scene(
        catalog=catalog,
        book=book,
        headroom=rules["too-many-gpus"].value("headroom"),
        at=max(generated_at, window.end),
        window_hours=window.hours,
        rng=rng,
    )
    options, over = enumerate_options(scene, groups, found, window.end)
    reconciliation, money_notes = reconcile(verdicts, book)
    cash, interval = recoverable(options)
    recommendations = order(options)
    used = {p for r in recommendations for p in r.prices} | {f.finding.price for f in found}
    named = [book.of(n) for n in verdicts.nodes] + [
        book.price(r.target.node_sku, n.region) for r in recommendations for n in verdicts.nodes
    ]
    fleet = {p.id for p in unique(book.of(n) for n in verdicts.nodes)}
    priced = reconciliation.total is not None
    return Advice(
        generated_at=generated_at,
        start=window.start,
        end=window.end,
        source=dict(source),
        summary=Summary(
            gpu_count=sum(n.gpu_count for n in verdicts.nodes),
            gpu_hours=sum(n.gpu_count * n.span_hours for n in verdicts.nodes),
            cost_usd=reconciliation.total,
            wasted_usd=wasted(found) if priced else None,
            recoverable_usd_per_month=cash if priced else None,
            reconciliation=reconciliation,
            recoverable_interval_usd_per_month=interval,
        ),
        prices=tuple(p for p in unique(named) if p.id in used | fleet),
        workloads=with_costs(verdicts, book),
        findings=tuple(f.finding for f in found),
        recommendations=recommendations,
        notes=(*verdicts.notes, *_too_little(verdicts, rules), *waste_notes, *over, *money_notes),
    )


def wasted(found: Sequence[Found]) -> float:
    """US dollars of the window that bought nothing, each once.

    The fabric under GPUs that are wasted themselves is part of their price: of its cost only the rest is added.
    """
    total = 0.0
    surplus: dict[str, float] = {}
    for item in found:
        if item.finding.rule != "idle-fabric":
            total += item.finding.cost_usd or 0.0
            if item.group is not None:
                series = item.group.series_id
                surplus[series] = surplus.get(series, 0.0) + item.finding.gpu_hours
    for item in found:
        if item.finding.rule == "idle-fabric" and item.group is not None and item.finding.gpu_hours > 0:
            share = min(surplus.get(item.group.series_id, 0.0) / item.finding.gpu_hours, 1.0)
            total += (item.finding.cost_usd or 0.0) * (1 - share)
    return total


def _too_little(verdicts: Verdicts, rules: Mapping[str, WasteRule]) -> tuple[str, ...]:
    """Where the window holds less data than any verdict on waste needs: from when there will be one."""
    floor = min(rule.value("coverage_hours") for rule in rules.values())
    short = [n for n in verdicts.nodes if n.hours_observed < floor]
    if not short:
        return ()
    first = min(short, key=lambda n: n.first_seen)
    names = ", ".join(n.node for n in short[:3]) + (f" and {len(short) - 3} more" if len(short) > 3 else "")
    return (
        f"{names}: {first.hours_observed:.1f} h of data, and waste is judged from {floor:g} h on. A verdict will be "
        f"possible from {rfc3339(first.first_seen + floor * 3600)} on.",
    )
