"""The advice as CSV: a row of sums, then one per node with unobserved GPUs, workload, node, finding and recommendation.

It is safe to open in a spreadsheet.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ....rules.base.sanitize import clean
from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_types import Energy
from ...core.timestamps import rfc3339
from .. import coverage

COLUMNS = (
    "row", "id", "name", "workload", "node", "rule_or_action", "label", "bottleneck", "severity_or_risk", "confidence",
    "start", "end", "gpu_sku", "node_sku", "gpu_count", "to_gpu_sku", "to_node_sku", "to_gpu_count", "gpu_hours",
    "cost_usd", "time_ratio_p10", "time_ratio_p50", "time_ratio_p90", "saving_usd_per_month_p10",
    "saving_usd_per_month_p50", "saving_usd_per_month_p90", "freed_gpu_hours_per_month",
    "energy_saving_kwh_per_month_p10", "energy_saving_kwh_per_month_p50", "energy_saving_kwh_per_month_p90", "levers",
    "realisation", "blocked_by", "price_basis", "price_date", "price_source", "price_region_assumed", "shown",
    "decision", "text", "energy_kwh", "energy_idle_kwh", "energy_basis", "energy_measured_gpu_hours",
    "joules_per_token", "tokens_per_second_per_watt",
    "kwh_per_busy_gpu_hour", "power_usd", "co2_kg", "mean_watts", "p95_watts", "rated_watts",
)  # fmt: skip
_ENERGY = ("joules_per_token", "tokens_per_second_per_watt", "kwh_per_busy_gpu_hour", "co2_kg")
_SIDE = ("gpu_sku", "node_sku", "gpu_count")
# What spreadsheets take for the beginning of a formula, also behind blanks and quotes: ASCII, full-width and small
# forms, superscripts and subscripts, which are folded into it; at the very beginning also what starts DDE.
_STARTS = "=+\\-@＝＋－＠﹢﹣﹦﹫⁺⁻⁼₊₋₌−"
_CELL_BEGINS = re.compile(rf"(^(?=[\s\"']*[{_STARTS}|%])|[,;|\t](?=[\s\"']*[{_STARTS}]))")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Rows under their columns; what a row does not have is empty."""
    return sheet_text([columns, *([row.get(column) for column in columns] for row in rows)])


def sheet_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, safe to open in a spreadsheet."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def cell(value: object) -> object:
    """One cell: a missing number is empty, and text that a spreadsheet might run as a formula gets an apostrophe.

    Also inside a cell, after each character that some reader takes for its end: in many countries spreadsheets separate
    by semicolons, and these find the quotes in the middle of their cells.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, int):
        return value
    return _CELL_BEGINS.sub(r"\1'", clean(value))


def advice_csv(advice: Advice) -> str:
    """The advice as CSV."""
    names = {w.id: w.name for w in advice.workloads}
    prices = {p.id: p for p in advice.prices}
    # Of several prices of a SKU its cost is at the highest: savings may be calculated with a lower one.
    sku_prices = {p.sku: p for p in sorted(advice.prices, key=lambda p: (p.usd_per_hour, p.id))}
    s, window = advice.summary, {"start": rfc3339(advice.start), "end": rfc3339(advice.end)}
    observed = f"{coverage.observed_time(advice)}; {coverage.size_words(s)}. {coverage.extent_sentence(s)}".rstrip()
    rows = [_row("summary", s, **window, text=observed, **_energy(s.energy))]
    for u in s.unobserved:
        text = f"{u.reason} GPUs: {' '.join(u.gpus)}"
        rows.append(_row("unobserved", u, label=u.code, gpu_count=len(u.gpus), text=text))
    for w in advice.workloads:
        price = sku_prices.get(w.node_sku or "") if w.cost_usd is not None else None
        rows.append(_row(
            "workload", w, workload=w.id, node=" ".join(w.nodes), label=w.kind.label, bottleneck=w.bottleneck.label,
            confidence=w.kind.confidence, start=rfc3339(w.start), end=rfc3339(w.end), gpu_count=len(w.gpus),
            **_price(price), **_energy(w.energy),
        ))  # fmt: skip
    for n in advice.node_energy:
        rows.append(_row("node", n, gpu_count=len(n.gpus), **_energy(n)))
    for f in advice.findings:
        rows.append(_row(
            "finding", f, name=names.get(f.workload or ""), node=" ".join(f.nodes), rule_or_action=f.rule,
            severity_or_risk=f.severity, gpu_count=len(f.gpus), **_price(prices.get(f.price or "")),
        ))  # fmt: skip
    moves = [("recommendation", r) for r in advice.recommendations] + [("market", r) for r in advice.market or ()]
    for kind, r in moves:
        target = {f"to_{name}": getattr(r.target, name) for name in _SIDE}
        source = {name: getattr(r.source, name) for name in _SIDE}
        rows.append(_row(
            kind, r, name=names.get(r.workload or ""), rule_or_action=r.action, severity_or_risk=r.risk, **source,
            **target, **_price(next((prices[p] for p in r.prices if p in prices), None)),
            shown=None if r.shown is None else "yes" if r.shown else "no",
            decision=words.decision_words(r.decision) if r.decision else None,
        ))  # fmt: skip
    return csv_text(COLUMNS, rows)


def _row(kind: str, record: object, **values: object) -> dict[str, object]:
    row: dict[str, object] = {}
    for column in COLUMNS:
        name, _, quantile = column.rpartition("_") if column[-4:-2] == "_p" else (column, "", "")
        value = getattr(record, name, None)
        value = getattr(value, quantile, None) if quantile else value
        row[column] = "; ".join(map(str, value)) if isinstance(value, tuple) else value
    return row | {"row": kind} | values


def _price(price: Price | None) -> dict[str, object]:
    if price is None:
        return {}
    return {
        "price_basis": price.basis, "price_date": price.as_of, "price_source": price.source,
        "price_region_assumed": "yes" if price.region_assumed else "no",
    }  # fmt: skip


def _energy(e: Energy | None) -> dict[str, object]:
    names = {"energy_kwh": "kwh", "energy_idle_kwh": "idle_kwh", "energy_basis": "basis", "power_usd": "usd"}
    names |= {"energy_measured_gpu_hours": "measured_gpu_hours", **{name: name for name in _ENERGY}}
    return {column: getattr(e, name, None) for column, name in names.items()}
