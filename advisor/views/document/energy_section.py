"""The section on energy: how much and how it is known, what of it was at rest, what it bought, and where it went."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_sums import figures_of, joules_a_token, total
from ...core.energy_types import Energy, FleetEnergy, WorkloadEnergy
from .. import energy as told
from .model import AsideBlock, Section, Table, section
from .truncate import Lengths

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
    lost = words.hours(u.unobserved_gpu_hours) if u.unobserved_gpu_hours > 0 else ""
    return Table(
        ("energy breakdown", "kWh", "share"),
        (*rows, ("total", told.kwh(u.total, ""), ""), *((("not observed", "unknown", lost),) if lost else ())),
        (1, 2),
    )  # fmt: skip


def _phases(e: FleetEnergy) -> Table | None:
    heads = ("phase", "GPU-hours", "kWh", "spend", "power cost", "kg CO2")
    rows = [
        (told.phase_name(p), words.hours(p.gpu_hours, "").rstrip(), told.kwh(p.kwh, ""), words.usd(p.cost_usd),
         words.usd(p.usd), told.kg(p.co2_kg, ""))
        for p in e.phases
    ]  # fmt: skip
    priced = [any(p.cost_usd is not None for p in e.phases), e.usd is not None, e.co2_kg is not None]
    return _table(heads, rows, (True, True, True, *priced))


def _owners(e: FleetEnergy, lengths: Lengths) -> Table | None:
    heads = ("owner", "GPU-hours", *_HEADS[:2], "kWh per GPU-hour", *_HEADS[3:])
    if not any(one.owner for one in e.owners):
        return None
    rows = []
    for one in e.owners[: _most(lengths)]:
        hours = one.measured_gpu_hours
        each = one.kwh / hours if one.kwh is not None and hours > 0 else None
        rows.append((
            one.owner or "unknown owner", words.hours(hours, "").rstrip(), *_figures(one, each, one.joules_per_token),
        ))  # fmt: skip
    shown = (True, True, *_shown(e))
    return _table(heads, rows, shown, lengths.more(e.owners, _most(lengths)))


# Of all tables of who drew what.
_HEADS = ("kWh", "at rest", "kWh per busy GPU-hour", "J per token", "tokens/s per W", "power cost", "kg CO2")


def _figures(e: Energy, an_hour: float | None, joules: float | None) -> tuple[str, ...]:
    return (
        told.kwh(e.kwh, ""), told.kwh(e.idle_kwh, ""), told.small(an_hour), told.small(joules),
        told.small(1 / joules if joules else None), words.usd(e.usd), told.kg(e.co2_kg, ""),
    )  # fmt: skip


def _shown(e: FleetEnergy) -> tuple[bool, ...]:
    """Which of `_HEADS` hold anything at all."""
    tokens = e.joules_per_token is not None
    return (True, True, True, tokens, tokens, e.usd is not None, e.co2_kg is not None)


def _workloads(advice: Advice, lengths: Lengths) -> Table | None:
    """Who drew most; runs of one series and name in a line."""
    e = advice.summary.energy
    runs: dict[tuple[str, str], list[WorkloadEnergy]] = {}
    for w in advice.workloads:
        if w.energy is not None:
            runs.setdefault((w.series_id, w.name), []).append(w.energy)
    if e is None or not runs:
        return None
    by_size = sorted(runs.items(), key=lambda one: (-(total(p.kwh for p in one[1]) or 0.0), one[0][1]))
    rows = []
    for (_, name), parts in by_size[: _most(lengths)]:
        busy = sum((p.kwh_per_busy_gpu_hour or 0.0) * p.busy_gpu_hours for p in parts)
        hours = sum(p.busy_gpu_hours for p in parts)
        sums = Energy(**figures_of(parts))
        called = f"{name} ({len(parts)} runs)" if len(parts) > 1 else name
        an_hour = busy / hours if hours > 0 else None
        rows.append((called, *_figures(sums, an_hour, joules_a_token(parts)[1])))
    return _table(
        ("workload", *_HEADS), rows, (True, *_shown(e)), lengths.more(by_size, _most(lengths))
    )  # fmt: skip


def _nodes(advice: Advice, lengths: Lengths) -> Table | None:
    most = _most(lengths)
    by_load = sorted(advice.node_energy, key=lambda n: (-(told.load_of(n) or 0.0), n.node))
    rows = [
        (n.node, told.kwh(n.kwh, ""), told.kwh(n.idle_kwh, ""), told.watts(n.mean_watts, ""),
         told.watts(n.p95_watts, ""), told.watts(n.rated_watts, ""), words.percent(told.load_of(n)))
        for n in by_load[:most]
    ]  # fmt: skip
    heads = ("node", "kWh", "at rest", "mean W", "95th percentile W", "limits W", "of the limits")
    return _table(heads, rows, (True,) * len(heads), lengths.more(by_load, most))


def _most(lengths: Lengths) -> int:
    return lengths.rows if lengths.whole else min(lengths.rows, _ROWS)


def _table(
    heads: Sequence[str], rows: Sequence[tuple[str, ...]], shown: Sequence[bool], more: str = ""
) -> Table | None:
    """The columns that hold something; None without rows."""
    if not rows:
        return None
    kept = [n for n, one in enumerate(shown) if one]
    cut = tuple(tuple(row[n] for n in kept) for row in rows)
    return Table(tuple(heads[n] for n in kept), cut, tuple(range(1, len(kept))), more)
