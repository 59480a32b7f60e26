"""A plan as a page: what comes back and when, the steps in order, the fleet before and after, what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.formatting import counted
from ...core.scalars import sum_if_all
from ...core.timestamps import day, minute
from ..document import AsideBlock, Bullets, Document, Table, Tile, section
from ..reader_links import ReaderCommands
from ..titles import Titles, gain_text

if TYPE_CHECKING:  # it needs numpy, which the terminal has not at its start
    from ...plan.result import Plan, PlanStep, PoolPlan, RentedNode, ReturnedNode

_LISTED = 5  # independent recommendations on a short page
_UNFIT = "This demand does not fit the fleet: without these nodes some of it has no place. Use --buy to plan with them."
_GOALS = {"cash": "cash", "nodes": "nodes", "capacity": "GPU capacity", "energy": "energy"}


def plan_document(plan: Plan, advice: Advice, again: ReaderCommands | None = None, rows: int | None = None) -> Document:
    """`again`: how to run a command on the same telemetry; `rows`: of each list at most, None: all."""
    titles, by_id = Titles(advice), {r.id: r for r in advice.recommendations}
    named = {id_: titles.of(r) for id_, r in by_id.items()}
    beside = [f"{id_}: {named[id_]}" for id_ in plan.beside if id_ in named]
    if rows is not None and len(beside) > _LISTED:
        beside[_LISTED:] = [f"{len(beside) - _LISTED} more: --all"]
    used = {r.price for r in (*plan.returned, *plan.rented) if r.price is not None}
    prices = [p for p in advice.prices if p.id in used]
    first, patch = next((s.recommendation for s in plan.steps if s.recommendation is not None), None), None
    if first is not None and again is not None:
        text = "Accept a step, then print the patch that does it:"
        patch = AsideBlock(text, again.run("ledger accept", first))
    left = tuple(
        (n.recommendation, named.get(n.recommendation, n.action),
         gain_text(by_id[n.recommendation]) if n.recommendation in by_id else "-", n.why.text)
        for n in sorted(plan.not_in_plan, key=lambda n: not n.risk_alone)
        if n.why.code != "plan-blocked" and (not n.risk_alone or (n.would_bring_usd_per_month or 0.0) >= 0)
    )  # fmt: skip
    sections = (
        section("What if", Bullets(tuple(change.text for change in plan.changes))),
        section("Nodes to return", _returned_table(plan, rows)),
        section("Waiting jobs that start", _starts_table(plan, advice, rows)),
        section("Nodes to rent first", _node_list(plan.rented)),
        section("Missing nodes", _UNFIT if plan.missing else "", _node_list(plan.missing)),
        section("Compared with advise", Bullets(reconciled(plan))),
        section("Steps", _steps_table(plan, named, rows), patch),
        section("Fleet before and after", _pools_table(plan.pools, rows)),
        section("Left out", _table(("id", "recommendation", "gain alone", "why not"), left, rows, ())),
        section("Independent of the plan", Bullets(tuple(beside))),
        section("Notes", Bullets(tuple(note.text for note in plan.notes))),
        section("How good this plan is", quality(plan)),
    )
    return Document(
        title=heading(plan),
        window=f"From telemetry of {day(plan.start)} to {day(plan.end)}: {counted(plan.nodes_today, 'node')}, "
        f"{counted(plan.gpus_today, 'GPU')}, {counted(plan.workloads, 'workload')}",
        summary=f"Costs are {words.price_note(prices)}. A month has 730 hours." if prices else "",
        tiles=tiles(plan),
        sections=tuple(part for part in sections if part.blocks),
        footer=(f"Written by skuwise, {minute(plan.generated_at)}. Nothing is applied: every step is yours to take.",),
    )


def heading(plan: Plan) -> str:
    """``Plan: return 6 of 62 nodes (saves $71,774/month)``."""
    count, gain = len(plan.returned), _cash(plan)
    starts = ""
    if plan.starts and plan.waiting is not None:
        starts = f"start {sum(s.jobs for s in plan.starts):,} of {counted(plan.waiting.jobs, 'waiting job')}"
    if not plan.steps and not count and not plan.rented and not plan.missing:
        return f"Plan: {starts or 'nothing to change'}"
    head = f"return {count} of {counted(plan.nodes_today, 'node')}" if count else "" if starts else "return no node"
    head = ", ".join(filter(None, (starts, head)))
    head += f", rent {len(plan.rented)}" if plan.rented else ""
    head += f", {counted(len(plan.missing), 'node')} missing" if plan.missing else ""
    return f"Plan: {head}{f' ({gain})' if gain else ''}"


def tiles(plan: Plan) -> tuple[Tile, ...]:
    """The figures of the head."""
    shown = [Tile("Goal", _GOALS[plan.goal]), Tile("Nodes to return", f"{len(plan.returned)} of {plan.nodes_today}")]
    for cash in plan.cash:
        usd, label = cash.saving_usd_per_month, "Cash now" if cash.date is None else f"Cash from {cash.date}"
        low, median, high = map(words.usd, (usd.p10, usd.p50, usd.p90))
        shown.append(Tile(label, f"{median}/month", f"80 % interval {low} to {high}" if low != high else ""))
    if plan.rented:
        before, after = (round(sum(getattr(p, f"gpus_needed{when}") for p in plan.pools)) for when in ("_today", ""))
        needed = f"{after:,} needed at the peak instead of {before:,}"
        shown.append(Tile("Net GPUs", f"{before - after:,}", needed if before != after else ""))
    else:
        shown.append(Tile("GPUs freed", f"{plan.gpus_freed:,} of {plan.gpus_today:,}"))
    if plan.energy_kwh_per_month is not None and plan.returned:
        shown.append(Tile("Energy", f"{plan.energy_kwh_per_month:,.0f} kWh/month", "idle power of the GPUs to return"))
    return (*shown, Tile("Workloads touched", f"{plan.touched} of {plan.workloads}"))


def _returned_table(plan: Plan, rows: int | None) -> Table:
    def key(r: ReturnedNode) -> tuple[str, str, str]:
        return r.available_from or "", r.node_sku or r.pool, r.realisation

    lines = []
    for (_, sku, _how), group in groupby(sorted(plan.returned, key=lambda r: (*key(r), r.name)), key=key):
        nodes = list(group)
        gpus, names = words.gpus(sum(r.gpus for r in nodes), nodes[0].gpu_sku), words.listed([r.name for r in nodes])
        empty = sum(r.step is None for r in nodes)
        free = f"{empty} {'once jobs end' if any(r.drains for r in nodes) else 'empty now'}" if empty else ""
        after = ", ".join(map(str, sorted({r.step for r in nodes if r.step is not None})))
        cost, steps = words.usd(sum_if_all(r.usd_per_month for r in nodes)), "; ".join(filter(None, (after, free)))
        lines.append((str(len(nodes)), sku, gpus, when_words(nodes[0]), cost, steps, names))
    return _table(("nodes", "node type", "GPUs", "when", "cost/month", "after step", "names"), lines, rows, (0, 4))


def _table(heads: tuple[str, ...], lines: Sequence[tuple[str, ...]], rows: int | None, right: tuple[int, ...]) -> Table:
    more = f"{len(lines) - rows} more: --all" if rows is not None and len(lines) > rows else ""
    return Table(heads, tuple(lines[:rows]), right, more)


def when_words(r: ReturnedNode) -> str:
    """When a node can be returned, and whether it is cash."""
    when = {"cash-at": f"cash from {r.available_from}", "cash-now": "now"}
    return when.get(r.realisation, "capacity, no cash")


def _steps_table(plan: Plan, titles: dict[str, str], rows: int | None) -> Table:
    heads = ("step", "what", "recommendation", "moves", "empties", "risk", "after")
    lines = []
    for s in plan.steps:
        moves, empties, after = _moves_words(s), words.listed(s.frees), ", ".join(map(str, s.after))
        lines.append((str(s.number), step_title(s, titles), s.recommendation, moves, empties, s.risk, after))
    return _table(heads, [tuple(cell or words.NONE for cell in line) for line in lines], rows, (0,))


def _starts_table(plan: Plan, advice: Advice, rows: int | None) -> Table:
    groups, skus = {group.id: group for group in advice.waiting}, {p.pool: p.node_sku for p in plan.pools}
    lines = []
    for s in plan.starts:
        group = groups[s.waiting]
        since = minute(group.since) if group.since is not None else words.NONE
        nodes = words.listed([f"{node.node} ({node.gpus})" for node in s.nodes])
        lines.append((
            str(s.jobs), group.name, words.owner_words(group.owner) or words.NONE, since, str(s.gpus),
            node_type(skus.get(s.pool), s.pool), nodes, f"step {s.step}" if s.step is not None else "now",
        ))  # fmt: skip
    heads = ("jobs", "the first", "owner", "waits since", "GPUs", "node type", "nodes (GPUs)", "after")
    return _table(heads, lines, rows, (0, 4))


def step_title(step: PlanStep, titles: dict[str, str]) -> str:
    """A step as an action."""
    if step.kind == "rent":
        return f"Rent {counted(len(step.rents), 'node')}"
    if step.kind == "give-up":
        return f"Return {counted(len(step.frees), 'empty node')}"
    if step.recommendation is not None:
        return titles.get(step.recommendation, f"{step.action} of {step.name}")
    if moved := sum(m.start is not None and m.end is not None for m in step.moves):
        return f"Move {counted(moved, 'replica')} of {step.name} to another node"
    return f"Start {counted(len(step.moves), 'more replica')} of {step.name}"


def _pools_table(pools: Sequence[PoolPlan], rows: int | None) -> Table:
    growing = any(p.runs_out_at is not None for p in pools)
    shown = [p for p in pools if rows is None or growing or p.nodes_after != p.nodes_today or p.rented or p.short_gpus]
    lines = []
    for p in shown:
        lasts = "not in 10 years" if p.runs_out_at is None else "now" if (p.carries or 2) <= 1 else day(p.runs_out_at)
        lasts = words.NONE if p.carries is None else lasts
        lines.append((
            node_type(p.node_sku, p.pool), p.region or words.NONE, change_words(p.nodes_today, p.nodes_after, p.rented),
            change_words(p.gpus_needed_today, p.gpus_needed), f"{p.gpus_after:,}",
            f"{p.reserve_gpus} of {p.reserve_wanted_gpus}", words.NONE if p.carries is None else f"x{p.carries:.2f}",
            *((lasts,) if growing else ()),
        ))  # fmt: skip
    heads = ("node type", "region", "nodes", "GPUs needed at peak", "GPUs", "GPUs in reserve", "demand carried")
    rest = f"{counted(len(pools) - len(shown), 'node type')} unchanged: --all" if len(shown) < len(pools) else ""
    return Table((*heads, *(("runs out",) if growing else ())), tuple(lines), (2, 3, 4, 5, 6), rest)


def node_type(sku: str | None, pool: str) -> str:
    """A node SKU without its provider; of a pool without a SKU, its shape."""
    return (sku or pool).rpartition("/")[2].removeprefix("Standard_")


def change_words(before: float, after: float, rented: int = 0) -> str:
    """``12 to 14 (2 rented)``; a single figure where nothing changes."""
    if round(before) == round(after) and not rented:
        return f"{before:,.0f}"
    return f"{before:,.0f} to {after:,.0f}{f' ({rented} rented)' if rented else ''}"


def _cash(plan: Plan) -> str:
    if not plan.cash or not plan.returned:
        return ""
    date, usd = plan.cash[-1].date, plan.cash[-1].saving_usd_per_month.p50
    if usd <= 0:
        return f"costs {words.usd(-usd)}/month more" if usd < 0 else ""
    return f"saves {words.usd(usd)}/month{f' from {date}' if date is not None else ''}"


def _node_list(nodes: Sequence[RentedNode]) -> Table:
    def key(n: RentedNode) -> tuple[str, float]:
        return n.node_sku or n.pool, n.usd_per_month or 0.0

    rows = []
    for (sku, _), group in groupby(sorted(nodes, key=key), key=key):
        alike = list(group)
        gpus = words.gpus(sum(n.gpus for n in alike), alike[0].gpu_sku)
        rows.append((str(len(alike)), sku, gpus, words.usd(sum_if_all(n.usd_per_month for n in alike))))
    return Table(("nodes", "node type", "GPUs", "cost/month"), tuple(rows), (0, 3))


def quality(plan: Plan) -> str:
    """How good the plan is, and within which limits."""
    s, kept = plan.solver, sum(p.reserve_gpus for p in plan.pools)
    limits = [f"risk {plan.risk}"]
    if plan.max_moves is not None:
        limits.append(f"at most {counted(plan.max_moves, 'workload')} touched")
    if plan.reserve or kept:
        limits.append(f"{counted(len(plan.reserve), 'node') if plan.reserve else counted(kept, 'GPU')} in reserve")
    within = f"{', '.join(limits)} (found in {s.seconds:.1f} s)."
    if s.gap is None:
        return f"Unknown how much better a plan could be within: {within}"
    return f"Best plan within: {within}" if s.gap < 5e-4 else f"At most {s.gap:.1%} below the best within: {within}"


def reconciled(plan: Plan) -> tuple[str, ...]:
    """What the plan keeps in reserve, and how its cash adds up to what `advise` calls recoverable."""
    if not round(plan.advise_usd_per_month or 0.0) and not round(plan.plan_usd_per_month or 0.0):
        return ()
    kept = [f"Kept in reserve: {r.node} ({words.usd(r.usd_per_month)}/month)" for r in plan.reserve]
    left = sum(n.advise_usd_per_month or 0.0 for n in plan.not_in_plan)
    sums = f"{words.usd(plan.plan_usd_per_month)} in the plan"
    sums += f" + {words.usd(sum(r.usd_per_month for r in plan.reserve))} kept in reserve" if plan.reserve else ""
    sums += f" + {words.usd(left)} left out" if round(left) else ""
    if combined := round(plan.combined_usd_per_month or 0.0):
        sign, what = ("-", "found by combining moves") if combined > 0 else ("+", "less where moves are combined")
        sums += f" {sign} {words.usd(abs(combined))} {what}"
    return (*kept, f"{sums} = {words.usd(plan.advise_usd_per_month)}/month recoverable in advise")


def _moves_words(step: PlanStep) -> str:
    moved = [m for m in step.moves if m.start is not None and m.end is not None]
    parts = [f"{m.start} to {m.end}" for m in moved[:2]] + ([f"{len(moved) - 2} more"] if len(moved) > 2 else [])
    if step.kind != "rent":
        new, ended = sum(m.start is None for m in step.moves), sum(m.end is None for m in step.moves)
        parts += [f"start {new}"] * bool(new) + [f"stop {ended}"] * bool(ended)
    if step.staging is not None:
        parts.append(step.staging.text)
    return "; ".join(parts)
