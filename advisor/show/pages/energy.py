"""The section on energy: how much and how it is known, what of it was at rest, what it bought, and where it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_types import Energy, FleetEnergy, WorkloadEnergy, figures_of, joules_a_token, total
from .. import energy_shares as told
from ..document import AsideBlock, Section, Table, section
from ..truncate import Lengths

TITLE = "Energy"
_ROWS = 10  # of each table, unless all are wanted
_LIMITS = (
    "Limits: the sum of the power limits of a node's GPUs, without the rest of the node. The 95th percentile "
    "covers intervals of up to an hour in which every GPU of the node was measured."
)


def energy_section(advice: Advice, lengths: Lengths, team: str | None = None) -> tuple[Section, ...]:
    """None where the advice tells nothing of energy.

    A team's part has its sums, phases and workloads; a fleet (`team` None) its uses, owners and nodes too.
    """
    e, whole = advice.summary.energy, team is None
    if e is None:
        return ()
    return (
        section(
            TITLE,
            told.drawn_words(e, "the GPUs" if whole else "the team's workloads"),
            told.idle_words(e),
            told.token_words(e),
            *told.money_words(e),
            _uses(e) if whole else None,
            _phases(e),
            _owners(e, lengths) if whole else None,
            _workloads(advice, lengths),
            _nodes(advice, lengths) if whole else None,
            AsideBlock(_LIMITS) if whole and any(n.rated_watts for n in advice.node_energy) else None,
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
    rows = [(name, told.kwh(value, ""), words.percent(value / u.total)) for name, value in parts if value]
    rows.append(("total", told.kwh(u.total, ""), ""))
    if u.unobserved_gpu_hours > 0:
        rows.append(("not observed", "unknown", words.hours(u.unobserved_gpu_hours)))
    return Table(("energy breakdown", "kWh", "share"), tuple(rows), (1, 2))


def _phases(e: FleetEnergy) -> Table | None:
    spent = any(p.cost_usd is not None for p in e.phases)
    return _table([
        {
            "phase": told.phase_name(p), "GPU-hours": words.bare_hours(p.gpu_hours), "kWh": told.kwh(p.kwh, ""),
            **({"spend": words.usd(p.cost_usd)} if spent else {}),
            **({"power cost": words.usd(p.usd)} if e.usd is not None else {}),
            **({"kg CO2": told.kg(p.co2_kg, "")} if e.co2_kg is not None else {}),
        }
        for p in e.phases
    ])  # fmt: skip


def _owners(e: FleetEnergy, lengths: Lengths) -> Table | None:
    if not any(one.owner for one in e.owners):
        return None
    rows = []
    for owner in e.owners[: _most(lengths)]:
        hours = owner.measured_gpu_hours
        each = owner.kwh / hours if owner.kwh is not None and hours > 0 else None
        figures = _figures(e, owner, "kWh per GPU-hour", each, owner.joules_per_token)
        rows.append({"owner": owner.owner or "unknown owner", "GPU-hours": words.bare_hours(hours), **figures})
    return _table(rows, lengths.more(e.owners, _most(lengths)))


def _figures(whole: FleetEnergy, e: Energy, per: str, an_hour: float | None, joules: float | None) -> dict[str, str]:
    """What one of a fleet drew, by the heads of all tables; what the fleet has nothing of has no column."""
    tokens = {"J per token": told.small(joules), "tokens/s per W": told.small(1 / joules if joules else None)}
    return {
        "kWh": told.kwh(e.kwh, ""), "at rest": told.kwh(e.idle_kwh, ""), per: told.small(an_hour),
        **(tokens if whole.joules_per_token is not None else {}),
        **({"power cost": words.usd(e.usd)} if whole.usd is not None else {}),
        **({"kg CO2": told.kg(e.co2_kg, "")} if whole.co2_kg is not None else {}),
    }  # fmt: skip


def _workloads(advice: Advice, lengths: Lengths) -> Table | None:
    """Who drew most; runs of one series and name in a line."""
    e = advice.summary.energy
    runs: dict[tuple[str, str], list[WorkloadEnergy]] = {}
    for w in advice.workloads:
        if w.energy is not None:
            runs.setdefault((w.series_id, w.name), []).append(w.energy)
    if e is None:
        return None
    by_size = sorted(runs.items(), key=lambda one: (-(total(p.kwh for p in one[1]) or 0.0), one[0][1]))
    rows = []
    for (_, name), parts in by_size[: _most(lengths)]:
        busy = sum((p.kwh_per_busy_gpu_hour or 0.0) * p.busy_gpu_hours for p in parts)
        hours = sum(p.busy_gpu_hours for p in parts)
        an_hour, sums = busy / hours if hours > 0 else None, Energy(**figures_of(parts))
        figures = _figures(e, sums, "kWh per busy GPU-hour", an_hour, joules_a_token(parts)[1])
        rows.append({"workload": f"{name} ({len(parts)} runs)" if len(parts) > 1 else name, **figures})
    return _table(rows, lengths.more(by_size, _most(lengths)))


def _nodes(advice: Advice, lengths: Lengths) -> Table | None:
    most = _most(lengths)
    by_load = sorted(advice.node_energy, key=lambda n: (-(told.load_of(n) or 0.0), n.node))
    rows = [
        {
            "node": n.node, "kWh": told.kwh(n.kwh, ""), "at rest": told.kwh(n.idle_kwh, ""),
            "mean W": told.watts(n.mean_watts, ""), "95th percentile W": told.watts(n.p95_watts, ""),
            "limits W": told.watts(n.rated_watts, ""), "of the limits": words.percent(told.load_of(n)),
        }
        for n in by_load[:most]
    ]  # fmt: skip
    return _table(rows, lengths.more(by_load, most))


def _most(lengths: Lengths) -> int:
    return lengths.rows if lengths.whole else min(lengths.rows, _ROWS)


def _table(rows: Sequence[Mapping[str, str]], more: str = "") -> Table | None:
    """Rows that have the same columns; None without rows."""
    if not rows:
        return None
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), tuple(range(1, len(rows[0]))), more)
