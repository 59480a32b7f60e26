"""Energy by workload, owner, node, GPU and fleet, and its cost: the site's price of power times its PUE, hour
by hour, in no other sum (the price of a rented node holds its power); without a price there are no dollars."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ...rules.catalog.loader import ANY_REGION
from ...rules.catalog.price_files import SiteEnergy, SiteFigure
from ...rules.catalog.types import PowerPrice
from ..classify.types import NodeFacts, TokenEnergy, Verdicts
from ..core import energy_types as types
from ..core.verdict_types import WorkloadVerdict
from .pricing import PriceBook

_OWN = ("workload", "allocated_idle")
_USES = ("workload", "shared", "allocated_idle", "unallocated", "drained")  # as in `FleetEnergy.by_use`
_HOURS = ["gpu_hours", "measured_hours", "busy_hours"]
_SUMS = [*_HOURS, "kwh", "counted", "idle_kwh", "busy_kwh", "usd", "co2_kg", "cost", "unpriced"]
# Sums of some rows by name: hours of no row are 0, of the others None where nothing is known.
Sums = Mapping[Any, Any]
_NOTHING: Sums = dict.fromkeys(_SUMS) | dict.fromkeys(_HOURS, 0.0)


def energy_accounts(
    verdicts: Verdicts, workloads: Sequence[WorkloadVerdict], book: PriceBook, site: SiteEnergy
) -> tuple[types.FleetEnergy | None, tuple[WorkloadVerdict, ...], tuple[types.NodeEnergy, ...]]:
    """The fleet's (None: no node was evaluated), the workloads with theirs, and the nodes' by name."""
    if not verdicts.nodes or verdicts.energy.empty:
        return None, tuple(workloads), ()
    rows = _with_money(verdicts, book, site)
    row = rows[rows["class"].isin(_OWN)]
    by_workload, by_node = _sums(row, "workload_id"), _sums(rows, "node")
    phases, gpus = _nested(row, "workload_id", "phase"), _nested(rows, "node", "gpu_uuid")
    tokens, stated = verdicts.tokens, _stated(verdicts, book, site)
    with_energy = tuple(replace(w, energy=_of_workload(w, by_workload, phases, tokens.get(w.id))) for w in workloads)
    facts = sorted(verdicts.nodes, key=lambda n: n.node)
    nodes = tuple(_of_node(n, by_node.get(n.node, _NOTHING), gpus.get(n.node, {}), verdicts) for n in facts)
    return _of_fleet(rows, with_energy, verdicts, stated), with_energy, nodes


def _sums(rows: pd.DataFrame, *by: str) -> dict[Any, Sums]:
    table = rows.groupby(list(by))[_SUMS].sum(min_count=1)
    names, table = table.index.tolist(), table.fillna(dict.fromkeys(_HOURS, 0.0)).astype(object)
    return dict(zip(names, table.where(table.notna(), None).to_dict("records"), strict=True))


def _nested(rows: pd.DataFrame, outer: str, inner: str) -> dict[str, dict[str, Sums]]:
    by_key: dict[str, dict[str, Sums]] = defaultdict(dict)
    for (first, second), totals in _sums(rows, outer, inner).items():
        by_key[first][second] = totals
    return by_key


def _with_money(verdicts: Verdicts, book: PriceBook, site: SiteEnergy) -> pd.DataFrame:
    """The rows of the accounting with the columns of `_SUMS`, NaN: not known; `unpriced` 1: no cost."""
    rows = verdicts.energy
    measured, hour, idle = rows["measured_hours"] > 0, rows["hour"].to_numpy(int), rows["idle"].astype(bool)
    kwh = (rows["joules"].astype(float) / types.JOULES_PER_KWH).where(measured)
    drawn = kwh * _by_hour(site.pue, hour, 1.0)
    usd_per_kwh = np.full(len(rows), np.nan)
    regions = {n.node: n.region for n in verdicts.nodes}
    for node, at in rows.groupby("node", sort=False).indices.items():
        # The site's price of power, else that of the price file for the node's region.
        price = site.usd_per_kwh or _figure(book.power(regions.get(str(node))))
        usd_per_kwh[at] = _by_hour(price, hour[at], np.nan)
    cost = rows["gpu_hours"] * rows["node"].map({n.node: book.per_gpu_hour(n) for n in verdicts.nodes}).astype(float)
    return rows.assign(
        kwh=kwh,
        counted=(rows["counted_joules"].astype(float) / types.JOULES_PER_KWH).where(measured),
        idle_kwh=kwh.where(idle),
        busy_kwh=kwh.where(~idle),
        busy_hours=rows["measured_hours"].where(~idle),
        usd=drawn * usd_per_kwh,
        co2_kg=drawn * _by_hour(site.co2_grams_per_kwh, hour, np.nan) / 1000.0,
        cost=cost,
        unpriced=cost.isna().astype(float),
    )


def _by_hour(figure: SiteFigure | None, hours: np.ndarray, without: float) -> np.ndarray:
    if figure is None:
        return np.full(len(hours), without)
    return np.array([figure.at(hour) for hour in range(24)])[hours]


def _stated(verdicts: Verdicts, book: PriceBook, site: SiteEnergy) -> tuple[types.StatedFigure, ...]:
    powers = {p.region: p for n in verdicts.nodes if (p := book.power(n.region)) is not None}
    regional = [(None if region == ANY_REGION else region, _figure(price)) for region, price in sorted(powers.items())]
    figures: list[tuple[str, SiteFigure | None, str | None]] = [
        *(("usd_per_kwh", figure, region) for region, figure in regional if not site.usd_per_kwh),
        ("usd_per_kwh", site.usd_per_kwh, None),
        ("pue", site.pue, None),
        ("co2_grams_per_kwh", site.co2_grams_per_kwh, None),
    ]
    return tuple(
        types.StatedFigure(name, f.value, f.by_hour_utc or (), f.source, f.as_of, region)
        for name, f, region in figures
        if f is not None
    )


def _figure(price: PowerPrice | None) -> SiteFigure | None:
    return None if price is None else SiteFigure(price.source, price.as_of, price.usd_per_kwh)


def _figures(of: Sums, gpu_hours: float) -> dict[str, Any]:
    """The fields of `Energy`. `gpu_hours`: all hours there are; what was not observed of them is not measured."""
    return {
        "kwh": of["kwh"],
        "counted_kwh": of["counted"],
        "measured_gpu_hours": of["measured_hours"],
        "unmeasured_gpu_hours": max(gpu_hours - of["measured_hours"], 0.0),
        "idle_kwh": None if of["kwh"] is None else of["idle_kwh"] or 0.0,
        "usd": of["usd"],
        "co2_kg": of["co2_kg"],
        "basis": types.basis_of(of["kwh"], of["counted"]),
    }


def _of_workload(
    w: WorkloadVerdict, sums: Mapping[str, Sums], phases: Mapping[str, Mapping[str, Sums]], tokens: TokenEnergy | None
) -> types.WorkloadEnergy:
    of, workload_phases = sums.get(w.id, _NOTHING), phases.get(w.id, {})
    per_token = tokens.joules / tokens.tokens if tokens is not None else None
    return types.WorkloadEnergy(
        # What was not observed of its time, or was shared, has no energy; hours that only the verdict counts neither.
        **_figures(of, max(of["gpu_hours"], w.gpu_hours)),
        busy_gpu_hours=of["busy_hours"],
        kwh_per_busy_gpu_hour=of["busy_kwh"] / of["busy_hours"] if of["busy_kwh"] is not None else None,
        generated_tokens=tokens.tokens if tokens is not None else None,
        token_hours=tokens.hours if tokens is not None else None,
        joules_per_token=per_token,
        tokens_per_second_per_watt=1.0 / per_token if per_token else None,
        phases=tuple(
            types.PhaseEnergy(
                name, p["gpu_hours"], p["kwh"], None if p["unpriced"] else p["cost"], p["usd"], p["co2_kg"]
            )
            for name in types.PHASES
            if (p := workload_phases.get(name)) is not None
        ),
    )


def _of_node(node: NodeFacts, of: Sums, gpus: Mapping[str, Sums], verdicts: Verdicts) -> types.NodeEnergy:
    figures, power = _figures(of, node.gpu_count * node.span_hours), verdicts.power.get(node.node)
    each = (types.GpuEnergy(uuid, s["kwh"], s["counted"], s["measured_hours"]) for uuid, s in gpus.items())
    energy = types.NodeEnergy(**figures, node=node.node, gpus=tuple(each))
    return energy if power is None else replace(
        energy, mean_watts=power.mean, p95_watts=power.p95, highest_watts=power.highest, rated_watts=power.rated,
        interval_seconds=power.interval_seconds,
    )  # fmt: skip


def _of_fleet(
    rows: pd.DataFrame, workloads: Sequence[WorkloadVerdict], verdicts: Verdicts, stated: tuple[types.StatedFigure, ...]
) -> types.FleetEnergy:
    by_class = rows.groupby("class")[["kwh", "idle_kwh"]].sum().reindex(_USES, fill_value=0.0)
    free = float(by_class["idle_kwh"][["unallocated", "drained"]].sum())
    (sums,) = _sums(rows.assign(all=True), "all").values()
    figures = _figures(sums, sum(n.gpu_count * n.span_hours for n in verdicts.nodes))
    kwh = figures["kwh"]
    hours = verdicts.occupancy
    unobserved = float(hours.loc[hours["class"] == "unobserved", "gpu_hours"].sum())
    uses = dict(zip(("workloads", *_USES[1:]), by_class["kwh"].tolist(), strict=True))
    return types.FleetEnergy(
        **figures,
        **types.sums_of_workloads((w.owner.name, w.energy) for w in workloads),
        idle_held_kwh=None if kwh is None else figures["idle_kwh"] - free,
        idle_free_kwh=None if kwh is None else free,
        by_use=None if kwh is None else {**uses, "total": kwh, "unobserved_gpu_hours": unobserved},
        figures=stated,
    )
