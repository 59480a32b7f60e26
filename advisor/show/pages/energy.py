"""The section on energy: how much and how it was measured, at rest or in use, by phase, owner, workload and node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_types import Energy, FleetEnergy, figures_of, joules_a_token
from ...core.verdict_types import WorkloadVerdict
from .. import energy_shares as say
from ..document import AsideBlock, Section, Table, section
from ..titles import runs_words

_LIMITS = (
    "Limits: the sum of the power limits of a node's GPUs, without the rest of the node. The 95th percentile "
    "covers intervals of up to an hour in which every GPU of the node was measured."
)
_PHASES = {"inference": "inference, phase unknown", "not-told": "phase unknown"}


def energy_section(advice: Advice, team: str | None = None) -> Section:
    """The energy of a fleet, or of a team's part of it (`team`) without uses, owners and nodes; empty where it is
    unknown."""
    e = advice.summary.energy
    if e is None:
        return section("Energy")
    tables = [_phases(e), _workloads(advice)]
    if team is None:
        tables = [_uses(e), _phases(e), _owners(e), _workloads(advice), _nodes(advice)]
    return section(
        "Energy",
        say.drawn_words(e, "the GPUs" if team is None else "the team's workloads"),
        say.idle_words(e),
        say.token_words(e),
        *say.money_words(e),
        *tables,
        AsideBlock(_LIMITS) if team is None and any(n.rated_watts for n in advice.node_energy) else None,
    )


def _uses(e: FleetEnergy) -> Table | None:
    u = e.by_use
    if u is None or u.total <= 0:
        return None
    parts = (
        ("workloads", u.workloads), ("shared", u.shared), ("allocated but idle", u.allocated_idle),
        ("unallocated", u.unallocated), ("drained", u.drained),
    )  # fmt: skip
    rows = [(name, say.kwh(value, ""), words.percent(value / u.total)) for name, value in parts if value]
    rows.append(("total", say.kwh(u.total, ""), ""))
    if u.unobserved_gpu_hours > 0:
        rows.append(("not observed", "unknown", words.hours(u.unobserved_gpu_hours)))
    return Table(("energy breakdown", "kWh", "share"), tuple(rows), (1, 2))


def _phases(e: FleetEnergy) -> Table | None:
    return _table([
        {
            "phase": _PHASES.get(p.phase, p.phase), "GPU-hours": words.bare_hours(p.gpu_hours),
            "kWh": say.kwh(p.kwh, ""), "spend": words.usd(p.cost_usd), **_money(p.usd, p.co2_kg),
        }
        for p in e.phases
    ])  # fmt: skip


def _owners(e: FleetEnergy) -> Table | None:
    if not any(owner.owner for owner in e.owners):
        return None
    rows = []
    for owner in e.owners:
        hours = owner.measured_gpu_hours
        per_hour = owner.kwh / hours if owner.kwh is not None and hours > 0 else None
        figures = _figures(owner, "kWh per GPU-hour", per_hour, owner.joules_per_token)
        rows.append({"owner": owner.owner or "unknown owner", "GPU-hours": words.bare_hours(hours), **figures})
    return _table(rows)


def _workloads(advice: Advice) -> Table | None:
    """Workloads by energy; runs of one series and name in a row."""
    runs: dict[tuple[str, str], list[WorkloadVerdict]] = {}
    for w in advice.workloads:
        runs.setdefault((w.series_id, w.name), []).append(w)
    rows: list[tuple[float, str, dict[str, str]]] = []
    for (_, name), same in runs.items():
        if parts := [w.energy for w in same if w.energy is not None]:
            busy = sum((p.kwh_per_busy_gpu_hour or 0.0) * p.busy_gpu_hours for p in parts)
            hours, energy = sum(p.busy_gpu_hours for p in parts), Energy(**figures_of(parts))
            per_hour = busy / hours if hours > 0 else None
            figures = _figures(energy, "kWh per busy GPU-hour", per_hour, joules_a_token(parts)[1])
            rows.append((-(energy.kwh or 0.0), name, {"workload": f"{name}{runs_words(same)}", **figures}))
    return _table([row for *_, row in sorted(rows, key=lambda row: row[:2])])


def _figures(e: Energy, per: str, per_hour: float | None, joules: float | None) -> dict[str, str]:
    return {
        "kWh": say.kwh(e.kwh, ""), "at rest": say.kwh(e.idle_kwh, ""), per: say.small(per_hour),
        "J per token": say.small(joules), "tokens/s per W": say.small(1 / joules if joules else None),
        **_money(e.usd, e.co2_kg),
    }  # fmt: skip


def _money(usd: float | None, co2_kg: float | None) -> dict[str, str]:
    return {"power cost": words.usd(usd), "kg CO2": say.kwh(co2_kg, "")}


def _nodes(advice: Advice) -> Table | None:
    by_load = sorted(advice.node_energy, key=lambda n: (-(say.load_of(n) or 0.0), n.node))
    return _table([
        {
            "node": n.node, "kWh": say.kwh(n.kwh, ""), "at rest": say.kwh(n.idle_kwh, ""),
            "mean W": say.watts(n.mean_watts, ""), "95th percentile W": say.watts(n.p95_watts, ""),
            "limits W": say.watts(n.rated_watts, ""), "of the limits": words.percent(say.load_of(n)),
        }
        for n in by_load
    ])  # fmt: skip


def _table(rows: Sequence[Mapping[str, str]]) -> Table | None:
    """Rows that have the same columns, without columns in which nothing is known; None without rows."""
    heads = [head for head in rows[0] if any(row[head] not in ("unknown", words.NONE) for row in rows)] if rows else []
    cells = tuple(tuple(row[head] for head in heads) for row in rows)
    return Table(tuple(heads), cells, tuple(range(1, len(heads)))) if rows else None
