"""Showback: who held every GPU-hour of every node on every day, and what it cost.

A node's price x hours is split by GPU-hours, so that its rows sum to it: of the hours that were a workload's alone,
those in which its GPUs worked (used) and those in which they stood idle (held idle); hours that several held at once
(shared pool); and those of nobody (unallocated, drained, unobserved). What the compute fabric adds to a node's price is
taken out of the used hours as a category of its own; all other hours keep their whole price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.base.quantities import Moment
from ...rules.catalog.types import Price
from ..classify.accounting.energy import placed_by_nodes, summed, token_hours
from ..classify.judge import judge_rows, measured_rows
from ..classify.types import Verdicts
from ..classify.workloads.attribution import Attribution
from ..classify.workloads.inventory import Inventory
from ..core.coded_text import CodedText
from ..core.formatting import counted, listed
from ..core.frame import Frame, Window
from ..core.verdict_types import WorkloadVerdict
from ..recommend.pricing import PriceBook, fabric_uses, price_notes
from ..recommend.rules.idle_fabric import IdleFabric
from ..rulebook import Rulebook

Category = Literal["used", "held-idle", "fabric-premium", "shared-pool", "unallocated", "drained", "unobserved"]
# In this order rows and columns stand. The first three are a workload's, the others nobody's.
OWNED: tuple[Category, ...] = ("used", "held-idle", "fabric-premium")
UNOWNED: tuple[Category, ...] = ("shared-pool", "unallocated", "drained", "unobserved")
CATEGORIES = (*OWNED, *UNOWNED)
# Class of an hour in the accounting -> its category.
_CATEGORY: Mapping[str, Category] = {
    "workload": "used", "allocated_idle": "held-idle", "shared": "shared-pool", "unallocated": "unallocated",
    "drained": "drained", "unobserved": "unobserved",
}  # fmt: skip
DIGITS = 6  # of a dollar, and of an hour
ROWS = ("start", "end", "node", "category", "workload", "gpu_hours", "node_hours", "usd", "tokens", "token_usd")
HIDDEN = {"json": None}  # what the JSON of a node tells in other words, or not
# The team of a workload; None: not known.
Whose = Callable[[WorkloadVerdict], str | None]


@dataclass(frozen=True, slots=True)
class ShowbackNode:
    """A node and its price. `hours`: for which it is accounted for, from `start` to `end` (Unix seconds).

    `price` None: not known, or the node shows no GPU that its price could be shared by. `list_usd_per_hour`: the
    catalog's, where it has one of exactly this node and region. `fabric_usd_per_hour`: what the compute fabric adds to
    the price; None: no such fabric, or not known. `fabric_assumed`: by a prior. `fabric_used`: whether it carried more
    than an idle fabric does; None: not observed.
    """

    node: str
    cluster: str | None
    provider: str | None = field(metadata=HIDDEN)
    region: str | None = field(metadata=HIDDEN)
    node_sku: str | None
    gpu_sku: str | None
    gpu_count: int
    start: Moment
    end: Moment
    hours: float
    price: Price | None = field(metadata=HIDDEN)
    list_usd_per_hour: float | None = field(metadata=HIDDEN)
    fabric_usd_per_hour: float | None
    fabric_assumed: bool
    fabric_used: bool | None

    @property
    def usd(self) -> float | None:
        """Price x hours: what its rows sum to."""
        return self.price.usd_per_hour * self.hours if self.price is not None else None


@dataclass(frozen=True, slots=True)
class ShowbackWorkload:
    """Whom a row is of. `owner`: its team, else namespace, account or user, as the advice names owners; None: nobody's.
    `reports_tokens`: whether its engines reported tokens at all."""

    id: str
    series_id: str
    name: str
    kind: str
    team: str | None
    owner: str | None
    namespace: str | None
    account: str | None
    reports_tokens: bool


@dataclass(frozen=True)
class Showback:
    """`start`, `end`: of the window, Unix seconds. `rows`: `ROWS`, a node's hours of one day in one category, by node,
    day, category and workload (None: nobody's). What is not known is NaN.

    `gpu_hours`: 0 of a fabric's premium, whose hours stand in the row of use. `node_hours`: the part of the node's
    hours that the row pays for; times the node's price they are `usd`. `tokens`, `token_usd`: generated in hours in
    which the workload's engines told them, and what its GPUs on this node cost in these hours.
    """

    generated_at: float
    start: float
    end: float
    source: Mapping[str, object]
    nodes: tuple[ShowbackNode, ...]
    workloads: Mapping[str, ShowbackWorkload]
    rows: pd.DataFrame
    notes: tuple[CodedText, ...]


def showback_of(frame: Frame, rulebook: Rulebook, *, now: float, whose: Whose) -> Showback:
    """The frame's showback. `now`: Unix seconds."""
    measured = measured_rows(frame, rulebook)
    verdicts = judge_rows(measured, rulebook)
    book = PriceBook(rulebook.catalog, tuple(rulebook.own.prices), rulebook.power, rulebook.hourly)
    attribution, parts, inventory = measured.attribution, measured.parts, measured.inventory
    occupancy = verdicts.occupancy
    hours = daily_hours(measured.frame, inventory, attribution, measured.rows["idle"], parts, occupancy)
    nodes = _nodes(verdicts, book, node_spans(inventory, frame.window), rulebook)
    rows = _rows(hours, nodes, token_hours(measured.frame, attribution, parts))
    reporting = set() if measured.frame.tokens.empty else set(measured.frame.tokens["workload_id"].astype(str))
    workloads = {}
    for w in verdicts.workloads:
        team = whose(w) or None
        workloads[w.id] = ShowbackWorkload(
            w.id, w.series_id, w.name, w.kind.label, team, team or w.owner.name, w.owner.namespace or None,
            w.owner.account or None, w.id in reporting,
        )  # fmt: skip
    return Showback(
        generated_at=now, start=verdicts.window.start, end=verdicts.window.end, source=dict(frame.source),
        nodes=nodes, workloads=workloads, rows=rows, notes=(*_notes(verdicts, book, nodes, rows), *verdicts.notes),
    )  # fmt: skip


def _nodes(
    verdicts: Verdicts, book: PriceBook, spans: Mapping[str, tuple[float, float]], rulebook: Rulebook
) -> tuple[ShowbackNode, ...]:
    """Those that are accounted for, by name."""
    silent = rulebook.rules[IdleFabric.id].value("util_p995_max")
    fabrics = {use.node: use for use in fabric_uses(verdicts.nodes, book)}
    out = []
    for node in sorted((n for n in verdicts.nodes if n.node in spans), key=lambda n: n.node):
        price = book.of(node) if node.gpu_count > 0 else None
        list_price = price if price is not None and price.basis == "list" else None
        if list_price is None and node.node_sku and node.region:
            list_price = book.catalog.price(node.node_sku, node.region)
        use = fabrics.get(node.node)
        premium = use.cost_usd / node.span_hours if price and use and use.cost_usd is not None else None
        start, end = spans[node.node]
        out.append(ShowbackNode(
            node=node.node, cluster=node.cluster or None, provider=node.provider, region=node.region,
            node_sku=node.node_sku, gpu_sku=node.gpu_sku, gpu_count=node.gpu_count, start=start, end=end,
            hours=node.span_hours, price=price,
            list_usd_per_hour=list_price.usd_per_hour if list_price is not None else None,
            fabric_usd_per_hour=premium, fabric_assumed=premium is not None and use is not None and use.assumed,
            fabric_used=use.util_p995 > silent if use is not None and use.util_p995 is not None else None,
        ))  # fmt: skip
    return tuple(out)


def _rows(hours: pd.DataFrame, nodes: Iterable[ShowbackNode], made: pd.DataFrame) -> pd.DataFrame:
    """`ROWS` from `DAILY` hours and from `made` (`TOKENS` by day), rounded so that a node's sum to its price x hours to
    the last digit."""
    about = pd.DataFrame(
        [(n.node, n.gpu_count, n.price and n.price.usd_per_hour, n.fabric_usd_per_hour, n.start, n.end) for n in nodes],
        columns=["node", "count", "price", "fabric", "from", "to"],
    ).astype(dict.fromkeys(["count", "price", "fabric", "from", "to"], float))
    rows = hours.rename(columns={"workload_id": "workload"}).merge(about, on="node")
    rows["category"] = rows["class"].map(_CATEGORY)
    rows["node_hours"] = (rows["gpu_hours"] / rows["count"]).where(rows["count"] > 0, 0.0)
    share = (rows["fabric"] / rows["price"]).where(rows["category"] == "used").clip(upper=1.0).fillna(0.0)
    premium = rows.assign(category="fabric-premium", gpu_hours=0.0, node_hours=rows["node_hours"] * share)
    rows = pd.concat([rows.assign(node_hours=rows["node_hours"] * (1.0 - share)), premium[share > 0]])
    # The premium follows the used hours of its workload.
    order = {category: at for at, category in enumerate(CATEGORIES)} | {"fabric-premium": 0}
    rows = rows.assign(order=rows["category"].map(order), usd=rows["node_hours"] * rows["price"])
    rows = rows.sort_values(["node", "day", "order", "workload"], kind="stable", ignore_index=True)
    for column in ("gpu_hours", "node_hours", "usd"):
        # Every sum from the first row on is the rounded sum: no error grows with the rows.
        sums = rows.groupby("node")[column].cumsum().round(DIGITS)
        rows[column] = (sums - sums.groupby(rows["node"]).shift(fill_value=0.0)).round(DIGITS)
    rows = rows.merge(_tokens(made, about), how="left", on=["workload", "node", "day"])
    # The tokens of a workload's day stand in the first of its rows, so that sums count none twice.
    rows["works"] = rows["category"].isin(["used", "held-idle"])
    again = rows.duplicated(["works", "workload", "node", "day"])
    rows.loc[~rows["works"] | again, ["tokens", "token_usd"]] = None
    rows["start"], rows["end"] = np.fmax(rows["day"], rows["from"]), np.fmin(rows["day"] + DAY, rows["to"])
    rows["workload"] = rows["workload"].where(rows["workload"] != "", None)
    rows["category"] = pd.Categorical(rows["category"], CATEGORIES)
    held = rows[["gpu_hours", "node_hours", "usd"]].fillna(0.0).any(axis=1)
    return rows.loc[held, list(ROWS)].reset_index(drop=True)


def _tokens(made: pd.DataFrame, about: pd.DataFrame) -> pd.DataFrame:
    """Tokens (NaN: its engine is on another node) and dollars by workload, node and day. Where one of a workload's
    nodes has no price, its tokens of the day have no cost: half a cost is none."""
    made = made.rename(columns={"workload_id": "workload"}).merge(about, on="node")
    usd = (made["price"] / made["count"] * made["gpu_hours"]).round(DIGITS)
    priced = usd.notna().groupby([made["workload"], made["day"]]).transform("all")
    tokens = made["generated_tokens"].where(made["generated_tokens"] > 0)
    return made[["workload", "node", "day"]].assign(tokens=tokens, token_usd=usd.where(priced))


def _notes(
    verdicts: Verdicts, book: PriceBook, nodes: Sequence[ShowbackNode], rows: pd.DataFrame
) -> tuple[CodedText, ...]:
    """What the dollars rest on, and which nodes have none."""
    known, premium = verdicts.inventory.nodes, (rows["category"] == "fabric-premium").any()
    cases = {
        "showback-without-price": (
            [n.node for n in nodes if n.price is None],
            "No cost for {nodes} without a price ({names}): the rows have GPU-hours and an empty cost.",
        ),
        "nodes-that-left": (
            [n.node for n in nodes if known[n.node].end is not None and known[n.node].moved_to is None],
            "{nodes} ({names}) stopped sending data before the end of the window: counted until the last data.",
        ),
        "fabric-premium-assumed": (
            [n.node for n in nodes if n.fabric_assumed and premium],
            "Assumed fabric premium for {nodes} ({names}): the catalog has no price of the same node without the "
            "fabric, so the share is that of node pairs at other providers.",
        ),
    }  # fmt: skip
    told = (
        CodedText(code, text.format(nodes=counted(len(n), "node"), names=listed(n)), {"nodes": ", ".join(n)})
        for code, (n, text) in cases.items() if n
    )  # fmt: skip
    return *(note for note in price_notes(verdicts.nodes, book) if note.code != "price-not-used"), *told


Floats = npt.NDArray[np.float64]

DAILY = ("node", "class", "workload_id", "day", "gpu_hours")
DAY = 86400.0


def node_spans(inventory: Inventory, window: Window) -> dict[str, tuple[float, float]]:
    """Node -> the time for which it is accounted for, Unix seconds; without those that are for none."""
    ends = {name: min(window.end if n.end is None else n.end, window.end) for name, n in inventory.nodes.items()}
    return {
        name: (ends[name] - n.span_hours * 3600, ends[name]) for name, n in inventory.nodes.items() if n.span_hours > 0
    }


def daily_hours(  # noqa: PLR0917
    frame: Frame, inventory: Inventory, attribution: Attribution, idle: pd.Series, parts: Floats,
    occupancy: pd.DataFrame,
) -> pd.DataFrame:  # fmt: skip
    """`DAILY`: GPU-hours by node, class, workload ("" where there is none) and day (its beginning, Unix seconds, UTC).

    The totals of the window are those of `occupancy`; a day's part of them is as its rows tell. A row that spans
    midnight is divided by time. What was not observed lies in the days in which something is missing.
    """
    use = list(DAILY[:3])
    spans = node_spans(inventory, frame.window)
    totals = _named(occupancy).groupby(use)["gpu_hours"].sum()
    tables = (_by_day(frame, table, spans) for table in placed_by_nodes(frame, attribution, idle, parts))
    observed = summed(tables, list(DAILY[:4]), ["gpu_hours"])
    seen = observed.groupby(use)["gpu_hours"].transform("sum")
    observed["gpu_hours"] *= totals.reindex(pd.MultiIndex.from_frame(observed[use])).to_numpy(float) / seen
    by_day = observed.groupby(["node", "day"])["gpu_hours"].sum()
    rest = []
    for (node, kind, workload), hours in totals.items():  # type: ignore[misc]
        if kind == "unobserved" and node in spans:
            days, (start, end) = _days(*spans[node]), spans[node]
            held = np.clip(np.minimum(end, days + DAY) - np.maximum(start, days), 0.0, None) / 3600
            there = by_day.reindex([(node, day) for day in days]).fillna(0.0).to_numpy()
            lacking = np.maximum(inventory.nodes[node].gpu_count * held - there, 0.0)
            weights = lacking if lacking.sum() > 0 else held
            rest += [
                (node, kind, workload, day, part)
                for day, part in zip(days, hours * weights / weights.sum(), strict=True)
            ]
    filled = [table for table in (observed, pd.DataFrame(rest, columns=list(DAILY))) if not table.empty]
    whole = pd.concat(filled, ignore_index=True) if filled else observed
    return whole[whole["gpu_hours"] > 0].sort_values(list(DAILY[:4]), ignore_index=True)


def _days(start: float, end: float) -> Floats:
    """The beginning of every UTC day that a span touches, Unix seconds."""
    return np.arange(start // DAY, max(np.ceil(end / DAY) - 1, start // DAY) + 1) * DAY


def _by_day(frame: Frame, table: pd.DataFrame, spans: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """`DAILY` of each moment, cut at the ends of days, before they are held to the totals."""
    table = table[table["node"].isin(list(spans))]
    at = table["row"].to_numpy(int)
    end = frame.gpu["ts"].to_numpy(float)[at]
    begin = end - frame.gpu["interval_seconds"].to_numpy(float)[at]
    bounds = {name: _days(*span)[[0, -1]] / DAY for name, span in spans.items()}
    least, most = (table["node"].map({name: days[n] for name, days in bounds.items()}).to_numpy(float) for n in (0, 1))
    # A row may begin before its node's span, or end behind it by a clock that is off: it counts in the nearest day.
    first = np.clip(np.floor(begin / DAY), least, most)
    last = np.maximum(np.clip(np.ceil(end / DAY) - 1, least, most), first)
    count = (last - first + 1).astype(int)
    taken = np.repeat(np.arange(len(table)), count)
    nth = np.arange(len(taken)) - np.repeat(np.cumsum(count) - count, count)
    day = (first[taken] + nth) * DAY
    overlap = np.clip(np.minimum(end[taken], day + DAY) - np.maximum(begin[taken], day), 0.0, None)
    whole = np.bincount(taken, overlap, minlength=len(table))[taken]
    share = np.where(whole > 0, overlap / np.where(whole > 0, whole, 1.0), 1.0 / count[taken])
    found = _named(table[["node", "class", "workload_id", "gpu_hours"]]).iloc[taken]
    return found.assign(day=day, gpu_hours=found["gpu_hours"] * share)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "" for a workload where there is none."""
    ids = table["workload_id"].astype(object)
    return table.assign(workload_id=ids.where(ids.notna(), ""))
