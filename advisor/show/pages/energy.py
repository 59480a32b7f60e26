"""The section on energy: how much and how it was measured, at rest or in use, by phase, owner, workload and node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_types import Energy, FleetEnergy, figures_of, joules_a_token, total
from ...core.verdict_types import WorkloadVerdict
from .. import energy_shares as say
from ..document import AsideBlock, Section, Table, section
from ..titles import runs_words

_LIMITS = (
    "Limits: the sum of the power limits of a node's GPUs, without the rest of the node. The 95th percentile "
    "covers intervals of up to an hour in which every GPU of the node was measured."
)
_PHASES = {"inference": "inference, phase unknown", "not-told": "phase unknown"}


def energy_section(advice: Advice, team: str | None = None) -> tuple[Section, ...]:
    """The energy of a fleet, or of a team's part of it (`team`) without uses, owners and nodes; none where it is
    unknown."""
    e = advice.summary.energy
    if e is None:
        return ()
    tables = [_phases(e), _workloads(advice, e)]
    if team is None:
        tables = [_uses(e), _phases(e), _owners(e), _workloads(advice, e), _nodes(advice)]
    return (
        section(
            "Energy",
            say.drawn_words(e, "the GPUs" if team is None else "the team's workloads"),
            say.idle_words(e),
            say.token_words(e),
            *say.money_words(e),
            *tables,
            AsideBlock(_LIMITS) if team is None and any(n.rated_watts for n in advice.node_energy) else None,
        ),
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
    spent = any(p.cost_usd is not None for p in e.phases)
    return _table([
        {
            "phase": _PHASES.get(p.phase, p.phase), "GPU-hours": words.bare_hours(p.gpu_hours), "kWh": say.kwh(p.kwh, ""),
            **({"spend": words.usd(p.cost_usd)} if spent else {}),
            **({"power cost": words.usd(p.usd)} if e.usd is not None else {}),
            **({"kg CO2": say.kg(p.co2_kg, "")} if e.co2_kg is not None else {}),
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
        figures = _figures(e, owner, "kWh per GPU-hour", per_hour, owner.joules_per_token)
        rows.append({"owner": owner.owner or "unknown owner", "GPU-hours": words.bare_hours(hours), **figures})
    return _table(rows)


def _figures(fleet: FleetEnergy, e: Energy, per: str, per_hour: float | None, joules: float | None) -> dict[str, str]:
    """The figures of a part of the fleet, by column; what is unknown of the whole fleet has no column."""
    tokens = {"J per token": say.small(joules), "tokens/s per W": say.small(1 / joules if joules else None)}
    return {
        "kWh": say.kwh(e.kwh, ""), "at rest": say.kwh(e.idle_kwh, ""), per: say.small(per_hour),
        **(tokens if fleet.joules_per_token is not None else {}),
        **({"power cost": words.usd(e.usd)} if fleet.usd is not None else {}),
        **({"kg CO2": say.kg(e.co2_kg, "")} if fleet.co2_kg is not None else {}),
    }  # fmt: skip


def _workloads(advice: Advice, e: FleetEnergy) -> Table | None:
    """Workloads by energy; runs of one series and name in a row."""
    runs: dict[tuple[str, str], list[WorkloadVerdict]] = {}
    for w in advice.workloads:
        if w.energy is not None:
            runs.setdefault((w.series_id, w.name), []).append(w)
    rows: list[tuple[float, dict[str, str]]] = []
    for (_, name), same in runs.items():
        parts = [w.energy for w in same if w.energy is not None]
        busy = sum((p.kwh_per_busy_gpu_hour or 0.0) * p.busy_gpu_hours for p in parts)
        hours = sum(p.busy_gpu_hours for p in parts)
        per_hour, sums = busy / hours if hours > 0 else None, Energy(**figures_of(parts))
        figures = _figures(e, sums, "kWh per busy GPU-hour", per_hour, joules_a_token(parts)[1])
        rows.append((-(total(p.kwh for p in parts) or 0.0), {"workload": f"{name}{runs_words(same)}", **figures}))
    return _table([row for _, row in sorted(rows, key=lambda row: (row[0], row[1]["workload"]))])


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
    """Rows that have the same columns; None without rows."""
    if not rows:
        return None
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), tuple(range(1, len(rows[0]))))
