"""Energy as the advice tells it: by workload, owner, node, GPU and fleet, and what it comes to by the site's figures.

Dollars of energy are the site's price of power, times its PUE, hour by hour of the day; they enter no other sum: the
price of a rented node holds its power. Without a price there are no dollars, and without grams per kWh no carbon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ...rules.catalog.node_files import ANY_REGION
from ...rules.catalog.site_energy import SiteEnergy, SiteFigure
from ...rules.catalog.types import PowerPrice
from ..classify.types import NodeFacts, TokenEnergy, Verdicts
from ..core.column_rows import ColumnRows, rows_of
from ..core.energy_sums import JOULES_PER_KWH, basis_of, joules_a_token, owners_of, phases_together
from ..core.energy_types import (
    PHASES,
    EnergyByUse,
    EnergyFigure,
    EnergyPhase,
    FleetEnergy,
    GpuEnergy,
    NodeEnergy,
    PhaseEnergy,
    StatedFigure,
    WorkloadEnergy,
)
from ..core.verdict_types import WorkloadVerdict
from .price_book import PriceBook

_GRAMS_PER_KG = 1000.0
_OWN = ("workload", "allocated_idle")
_NOBODYS = ("unallocated", "drained")


@dataclass(frozen=True)
class EnergyAccounts:
    """`fleet` None: no node was looked at. `workloads`: with their energy; `nodes`: by name."""

    fleet: FleetEnergy | None
    workloads: tuple[WorkloadVerdict, ...]
    nodes: tuple[NodeEnergy, ...]


def energy_accounts(
    verdicts: Verdicts, workloads: Sequence[WorkloadVerdict], book: PriceBook, site: SiteEnergy
) -> EnergyAccounts:
    """`workloads`: those of the verdicts, as the advice has them."""
    if not verdicts.nodes or verdicts.energy.empty:
        return EnergyAccounts(None, tuple(workloads), ())
    table = _with_money(verdicts, book, site)
    rows = rows_of(table)
    by_workload = rows.where(table["class"].isin(_OWN).to_numpy(bool)).groups("workload_id")
    nothing = rows.where(np.zeros(len(rows), dtype=np.bool_))
    told = tuple(
        replace(w, energy=_of_workload(by_workload.get(w.id, nothing), w, verdicts.tokens.get(w.id))) for w in workloads
    )
    by_node = rows.groups("node")
    nodes = tuple(
        _of_node(by_node.get(n.node, nothing), n, verdicts) for n in sorted(verdicts.nodes, key=lambda one: one.node)
    )
    return EnergyAccounts(_of_fleet(rows, told, verdicts, _stated(verdicts, book, site)), told, nodes)


def _with_money(verdicts: Verdicts, book: PriceBook, site: SiteEnergy) -> pd.DataFrame:
    """The rows of the accounting with ``kwh``, ``counted``, ``usd``, ``grams`` and ``cost`` (of the node's hours); NaN
    where it is not known."""
    rows = verdicts.energy.copy()
    measured = rows["measured_hours"].to_numpy(float) > 0
    rows["kwh"] = np.where(measured, rows["joules"].to_numpy(float) / JOULES_PER_KWH, np.nan)
    rows["counted"] = np.where(measured, rows["counted_joules"].to_numpy(float) / JOULES_PER_KWH, np.nan)
    hours = rows["hour"].to_numpy(int)
    drawn = rows["kwh"].to_numpy(float) * _by_hour(site.pue, hours, 1.0)
    powers = {n.node: _price(n, book, site) for n in verdicts.nodes}
    rates = {n.node: book.per_gpu_hour(n) for n in verdicts.nodes}
    usd = np.full(len(rows), np.nan)
    for node, at in rows.groupby("node", sort=False).indices.items():
        usd[at] = drawn[at] * _by_hour(powers.get(str(node)), hours[at], np.nan)
    rows["usd"] = usd
    rows["grams"] = drawn * _by_hour(site.co2_grams_per_kwh, hours, np.nan)
    rate = rows["node"].map({node: np.nan if one is None else one for node, one in rates.items()}).astype(float)
    rows["cost"] = rows["gpu_hours"] * rate
    return rows


def _by_hour(figure: SiteFigure | None, hours: np.ndarray, without: float) -> np.ndarray:
    if figure is None:
        return np.full(len(hours), without)
    return np.array([figure.at(hour) for hour in range(24)])[hours]


def _price(node: NodeFacts, book: PriceBook, site: SiteEnergy) -> SiteFigure | None:
    """The site's price of power, else that of the price file for the node's region."""
    told = book.power(node.region) if site.usd_per_kwh is None else None
    return site.usd_per_kwh if told is None else SiteFigure((told.usd_per_kwh,), told.source, told.as_of)


def _stated(verdicts: Verdicts, book: PriceBook, site: SiteEnergy) -> tuple[StatedFigure, ...]:
    """The figures that dollars and carbon rest on, each with its source."""
    powers: Sequence[PowerPrice] = () if site.usd_per_kwh is not None else tuple(
        {one.region: one for n in verdicts.nodes if (one := book.power(n.region)) is not None}.values()
    )  # fmt: skip
    of_regions = [
        StatedFigure("usd_per_kwh", one.usd_per_kwh, (), one.source, one.as_of,
                     None if one.region == ANY_REGION else one.region)
        for one in sorted(powers, key=lambda one: one.region)
    ]  # fmt: skip
    named: tuple[tuple[EnergyFigure, SiteFigure | None], ...] = (
        ("usd_per_kwh", site.usd_per_kwh), ("pue", site.pue), ("co2_grams_per_kwh", site.co2_grams_per_kwh),
    )  # fmt: skip
    of_site = [
        StatedFigure(name, one.values[0] if len(one.values) == 1 else None, one.values if len(one.values) > 1 else (),
                     one.source, one.as_of)
        for name, one in named
        if one is not None
    ]  # fmt: skip
    return (*of_regions, *of_site)


def _figures(rows: ColumnRows, gpu_hours: float | None = None) -> dict[str, Any]:
    """The fields of `Energy`. `gpu_hours`: all hours there are, where some were not observed at all."""
    measured = rows.sum("measured_hours")
    every = rows.sum("gpu_hours") if gpu_hours is None else gpu_hours
    kwh, counted = rows.total("kwh"), rows.total("counted")
    grams = rows.total("grams")
    return {
        "kwh": kwh,
        "counted_kwh": counted,
        "measured_gpu_hours": measured,
        "unmeasured_gpu_hours": max(every - measured, 0.0),
        "idle_kwh": None if kwh is None else rows.where(rows.flags("idle")).sum("kwh"),
        "usd": rows.total("usd"),
        "co2_kg": None if grams is None else grams / _GRAMS_PER_KG,
        "basis": basis_of(kwh, counted),
    }


def _of_workload(rows: ColumnRows, w: WorkloadVerdict, tokens: TokenEnergy | None) -> WorkloadEnergy:
    busy = rows.where(~rows.flags("idle"))
    hours, kwh = busy.sum("measured_hours"), busy.total("kwh")
    # What was not observed of its time, or was shared with others, has no energy of its own; hours that the verdict
    # counts and the accounting does not are among those that were not measured.
    figures = _figures(rows, max(rows.sum("gpu_hours"), w.gpu_hours))
    per_token = tokens.joules / tokens.tokens if tokens is not None else None
    return WorkloadEnergy(
        **figures,
        busy_gpu_hours=hours,
        kwh_per_busy_gpu_hour=kwh / hours if kwh is not None and hours > 0 else None,
        generated_tokens=tokens.tokens if tokens is not None else None,
        token_hours=tokens.hours if tokens is not None else None,
        joules_per_token=per_token,
        tokens_per_second_per_watt=1.0 / per_token if per_token else None,
        phases=_phases(rows),
    )


def _phases(rows: ColumnRows) -> tuple[PhaseEnergy, ...]:
    parts = rows.groups("phase")
    return tuple(_phase(name, parts[name]) for name in PHASES if name in parts)


def _phase(name: EnergyPhase, rows: ColumnRows) -> PhaseEnergy:
    grams = rows.total("grams")
    return PhaseEnergy(
        name, rows.sum("gpu_hours"), rows.total("kwh"),
        None if np.isnan(rows.floats("cost")).any() else rows.sum("cost"),
        rows.total("usd"), None if grams is None else grams / _GRAMS_PER_KG,
    )  # fmt: skip


def _of_node(rows: ColumnRows, node: NodeFacts, verdicts: Verdicts) -> NodeEnergy:
    power = verdicts.power.get(node.node)
    gpus = tuple(
        GpuEnergy(str(uuid), own.total("kwh"), own.total("counted"), own.sum("measured_hours"))
        for uuid, own in sorted(rows.groups("gpu_uuid").items())
    )
    return NodeEnergy(
        **_figures(rows, node.gpu_count * node.span_hours),
        node=node.node,
        mean_watts=power.mean if power else None,
        p95_watts=power.p95 if power else None,
        highest_watts=power.highest if power else None,
        rated_watts=power.rated if power else None,
        interval_seconds=power.interval_seconds if power else None,
        gpus=gpus,
    )


def _of_fleet(
    rows: ColumnRows, workloads: Sequence[WorkloadVerdict], verdicts: Verdicts, stated: tuple[StatedFigure, ...]
) -> FleetEnergy:
    by_class: Mapping[str, float] = {name: own.sum("kwh") for name, own in rows.groups("class").items()}
    every = sum(n.gpu_count * n.span_hours for n in verdicts.nodes)
    hours = verdicts.occupancy
    idle = rows.where(rows.flags("idle"))
    free = pd.Series(idle["class"]).isin(_NOBODYS).to_numpy(bool)
    tokens, joules = joules_a_token(w.energy for w in workloads if w.energy is not None)
    figures = _figures(rows, every)
    known = figures["kwh"]
    unobserved = float(hours.loc[hours["class"] == "unobserved", "gpu_hours"].sum())
    return FleetEnergy(
        **figures,
        idle_held_kwh=None if known is None else idle.where(~free).sum("kwh"),
        idle_free_kwh=None if known is None else idle.where(free).sum("kwh"),
        by_use=None
        if known is None
        else EnergyByUse(
            by_class.get("workload", 0.0),
            by_class.get("shared", 0.0),
            by_class.get("allocated_idle", 0.0),
            by_class.get("unallocated", 0.0),
            by_class.get("drained", 0.0),
            known,
            unobserved,
        ),
        phases=phases_together(w.energy.phases for w in workloads if w.energy is not None),
        owners=owners_of(workloads),
        generated_tokens=tokens,
        joules_per_token=joules,
        figures=stated,
    )
