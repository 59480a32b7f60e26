"""Showback: who held every GPU-hour of every node on every day, and what it cost.

A node's price x hours is split by GPU-hours, so its rows sum to it: hours that one workload held, used or idle; hours
that several held at once (shared pool); hours without a holder (unallocated, drained, unobserved). The part of a node's
price that the compute fabric adds is taken out of the used hours as a category; all other hours keep the whole price.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..classify.accounting.energy import placed_rows, token_hours
from ..classify.judge import judge_rows, measured_rows
from ..classify.types import Verdicts
from ..core.coded_text import CodedText
from ..core.formatting import counted, listed
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict
from ..recommend.pricing import PriceBook, fabric_uses, price_notes
from ..recommend.rules.idle_links import IdleFabric
from ..rulebook import Rulebook

# Class of an hour in the accounting -> its category. The first three are a workload's, the others have no owner.
_CATEGORY = {
    "workload": "used", "allocated_idle": "held-idle", "premium": "fabric-premium", "shared": "shared-pool",
    "unallocated": "unallocated", "drained": "drained", "unobserved": "unobserved",
}  # fmt: skip
CATEGORIES = tuple(_CATEGORY.values())
OWNED, UNOWNED = CATEGORIES[:3], CATEGORIES[3:]
DAY = 86400.0
DIGITS = 6  # of a dollar, and of an hour
_USE = ["node", "class", "workload_id"]


@dataclass(frozen=True)
class Showback:
    """`start`, `end`: of the window, Unix seconds. Unknown values of the tables are NaN or None.

    `nodes`: by name, with price, `start` and `end` of its hours and `usd` (price x hours: the sum of its rows).
    `list_usd_per_hour`: of exactly this node and region. `fabric_usd_per_hour`: the fabric's part of the price,
    `fabric_assumed`: by a prior. `fabric_used`: whether the fabric carried more than an idle one; None: not observed.

    `workloads`: by id; `owner`: its team, else namespace, account or user, as in the advice.

    `rows`: a node's hours of one day in one category, by node, day, category and workload. `gpu_hours`: 0 in rows of a
    fabric premium. `node_hours`: the part of the node's hours that the row pays for; times the price they are `usd`.
    `tokens`, `token_usd`: generated in hours in which the workload's engines reported them, and the cost of its GPUs on
    this node in these hours.
    """

    generated_at: float
    start: float
    end: float
    source: Mapping[str, object]
    nodes: pd.DataFrame
    workloads: pd.DataFrame
    rows: pd.DataFrame
    notes: tuple[CodedText, ...]


def showback_of(
    frame: Frame, rulebook: Rulebook, *, now: float, team_of: Callable[[WorkloadVerdict], str | None]
) -> Showback:
    """The frame's showback. `now`: Unix seconds."""
    measured = measured_rows(frame, rulebook)
    frame, verdicts = measured.frame, judge_rows(measured, rulebook)
    book = PriceBook(rulebook.catalog, tuple(rulebook.team.prices), rulebook.power, rulebook.hourly)
    nodes = _nodes(verdicts, book, rulebook.rules[IdleFabric.id].value("util_p995_max"))
    placed = placed_rows(frame, measured.attribution, measured.rows["idle"], measured.parts)
    made = token_hours(frame, measured.attribution, measured.parts)
    rows = _rows(_daily_hours(frame, placed, verdicts.occupancy, nodes), nodes, made)
    reporting = set() if frame.tokens.empty else set(frame.tokens["workload_id"].astype(str))
    workloads = pd.DataFrame([
        {
            "workload": w.id, "series_id": w.series_id, "name": w.name, "kind": w.kind.label,
            "team": team_of(w) or None, "owner": team_of(w) or w.owner.name or None,
            "namespace": w.owner.namespace or None, "account": w.owner.account or None,
            "reports_tokens": w.id in reporting,
        }
        for w in verdicts.workloads
    ], dtype=object, columns=WORKLOADS).set_index("workload", drop=False)  # fmt: skip
    return Showback(
        generated_at=now, start=verdicts.window.start, end=verdicts.window.end, source=dict(frame.source),
        nodes=nodes, workloads=workloads, rows=rows, notes=(*_notes(verdicts, book, nodes, rows), *verdicts.notes),
    )  # fmt: skip


WORKLOADS = ["workload", "series_id", "name", "kind", "team", "owner", "namespace", "account", "reports_tokens"]


def _nodes(verdicts: Verdicts, book: PriceBook, idle_util: float) -> pd.DataFrame:
    fabrics = {use.node: use for use in fabric_uses(verdicts.nodes, book)}
    nodes = []
    for facts in sorted(verdicts.nodes, key=lambda n: n.node):
        inventory = verdicts.inventory.nodes.get(facts.node)
        if inventory is None or inventory.span_hours <= 0:
            continue
        end = min(verdicts.window.end if inventory.end is None else inventory.end, verdicts.window.end)
        price = book.of(facts) if facts.gpu_count > 0 else None
        list_price = price if price is not None and price.basis == "list" else None
        if list_price is None and facts.node_sku and facts.region:
            list_price = book.catalog.price(facts.node_sku, facts.region)
        use = fabrics.get(facts.node)
        premium = use.cost_usd / facts.span_hours if price and use and use.cost_usd is not None else None
        nodes.append({
            "node": facts.node, "cluster": facts.cluster or None, "node_sku": facts.node_sku, "gpu_sku": facts.gpu_sku,
            "gpu_count": facts.gpu_count, "start": end - inventory.span_hours * 3600, "end": end,
            "hours": facts.span_hours, "provider": facts.provider, "region": facts.region,
            "sku": facts.node_sku or (price and price.sku), "price": price and price.id,
            "usd_per_hour": price and price.usd_per_hour, "price_basis": price and price.basis,
            "price_source": price and price.source, "price_as_of": price and price.as_of,
            "price_region_assumed": price and price.region_assumed,
            "list_usd_per_hour": list_price and list_price.usd_per_hour, "fabric_usd_per_hour": premium,
            "fabric_assumed": premium is not None and use is not None and use.assumed,
            "fabric_used": None if use is None or use.util_p995 is None else use.util_p995 > idle_util,
            "usd": price and price.usd_per_hour * facts.span_hours, "known_price": price,
        })  # fmt: skip
    return pd.DataFrame(nodes, dtype=object)


def _daily_hours(frame: Frame, placed: pd.DataFrame, occupancy: pd.DataFrame, nodes: pd.DataFrame) -> pd.DataFrame:
    """GPU-hours by node, class, workload ("": none) and day (its beginning, Unix seconds, UTC). The totals are those of
    `occupancy`; observed rows give each day's part of them, unobserved hours are in the days that lack observations."""
    middle = (frame.gpu["ts"] - frame.gpu["interval_seconds"] / 2).to_numpy(float)
    spans = nodes.set_index("node")[["start", "end"]].astype(float)
    placed = _without_missing(placed[placed["node"].isin(spans.index)])
    start, end = spans.reindex(placed["node"]).to_numpy().T
    day = (middle[placed["row"].to_numpy(int)] // DAY).clip(start // DAY, np.ceil(end / DAY) - 1)
    observed = placed.assign(day=day * DAY).groupby([*_USE, "day"])["gpu_hours"].sum().reset_index()
    totals = _without_missing(occupancy).groupby(_USE)["gpu_hours"].sum()
    of_use = observed.groupby(_USE)["gpu_hours"].transform("sum")
    observed["gpu_hours"] *= totals.reindex(pd.MultiIndex.from_frame(observed[_USE])).to_numpy(float) / of_use
    of_day = observed.groupby(["node", "day"])["gpu_hours"].sum()
    tables = [observed]
    for name, count, start, end in nodes[["node", "gpu_count", "start", "end"]].itertuples(index=False):
        days = np.arange(start // DAY, end / DAY) * DAY
        there = (np.minimum(end, days + DAY) - np.maximum(start, days)) / 3600
        missing = (count * there - of_day.reindex([(name, day) for day in days]).fillna(0.0).to_numpy()).clip(0.0)
        weights = missing if missing.sum() > 0 else there
        hours = totals.get((name, "unobserved", ""), 0.0) * weights / weights.sum()
        about = {"node": name, "class": "unobserved", "workload_id": "", "day": days, "gpu_hours": hours}
        tables.append(pd.DataFrame(about))
    whole = pd.concat([table for table in tables if not table.empty], ignore_index=True)
    return whole[whole["gpu_hours"] > 0]


def _without_missing(table: pd.DataFrame) -> pd.DataFrame:
    ids = table["workload_id"].astype(object)
    return table.assign(workload_id=ids.where(ids.notna(), ""))


def _rows(hours: pd.DataFrame, nodes: pd.DataFrame, made: pd.DataFrame) -> pd.DataFrame:
    """Rows from daily hours and from `made` (tokens by day), rounded so that a node's rows sum to its price x hours to
    the last digit."""
    about = nodes[["node", "gpu_count", "usd_per_hour", "fabric_usd_per_hour", "start", "end"]]
    about = about.astype(dict.fromkeys(about.columns[1:], float))
    rows = hours.rename(columns={"workload_id": "workload"}).merge(about, on="node")
    rows["node_hours"] = (rows["gpu_hours"] / rows["gpu_count"]).where(rows["gpu_count"] > 0, 0.0)
    share = (rows["fabric_usd_per_hour"] / rows["usd_per_hour"]).where(rows["class"] == "workload")
    share = share.clip(upper=1.0).fillna(0.0)
    premium = rows.assign(**{"class": "premium"}, gpu_hours=0.0, node_hours=rows["node_hours"] * share)
    rows = pd.concat([rows.assign(node_hours=rows["node_hours"] * (1.0 - share)), premium[share > 0]])
    rows["category"] = pd.Categorical(rows["class"].map(_CATEGORY), CATEGORIES)
    # The premium follows the used hours of its workload.
    rows = rows.assign(order=rows["category"].cat.codes.replace(2, 0), usd=rows["node_hours"] * rows["usd_per_hour"])
    rows = rows.sort_values(["node", "day", "order", "workload"], kind="stable", ignore_index=True)
    for column in ("gpu_hours", "node_hours", "usd"):
        # Each running sum is rounded, so no error grows with the rows.
        sums = rows.groupby("node")[column].cumsum().round(DIGITS)
        rows[column] = (sums - sums.groupby(rows["node"]).shift(fill_value=0.0)).round(DIGITS)
    made = made.rename(columns={"workload_id": "workload", "gpu_hours": "hours"})
    made = made.merge(about[["node", "gpu_count", "usd_per_hour"]], on="node")
    usd = (made["usd_per_hour"] / made["gpu_count"] * made["hours"]).round(DIGITS)
    # Where one of a workload's nodes has no price, its tokens of the day have no cost: half a cost is none.
    made["token_usd"] = usd.where(usd.notna().groupby([made["workload"], made["day"]]).transform("all"))
    made["tokens"] = made["generated_tokens"].where(made["generated_tokens"] > 0)
    keys = ["workload", "node", "day"]
    rows = rows.merge(made[[*keys, "tokens", "token_usd"]], how="left", on=keys)
    # The tokens of a workload's day are in the first of its rows, so sums count none twice.
    works = rows["category"].isin(["used", "held-idle"])
    rows.loc[~works | rows.assign(works=works).duplicated(["works", *keys]), ["tokens", "token_usd"]] = None
    rows["start"], rows["end"] = np.fmax(rows["day"], rows["start"]), np.fmin(rows["day"] + DAY, rows["end"])
    rows["workload"] = rows["workload"].where(rows["workload"] != "", None)
    held = rows[["gpu_hours", "node_hours", "usd"]].fillna(0.0).any(axis=1)
    sums = ["gpu_hours", "node_hours", "usd", "tokens", "token_usd"]
    return rows.loc[held, ["start", "end", "node", "category", "workload", *sums]].reset_index(drop=True)


def _notes(verdicts: Verdicts, book: PriceBook, nodes: pd.DataFrame, rows: pd.DataFrame) -> Iterable[CodedText]:
    left = [name for name, n in verdicts.inventory.nodes.items() if n.end is not None and n.moved_to is None]
    premium = bool((rows["category"] == "fabric-premium").any())
    cases = (
        (
            "showback-without-price", nodes["usd"].isna(),
            "No cost for {nodes} without a price ({names}): the rows have GPU-hours and an empty cost.",
        ), (
            "nodes-that-left", nodes["node"].isin(left),
            "{nodes} ({names}) stopped sending data before the end of the window: counted until the last data.",
        ), (
            "fabric-premium-assumed", nodes["fabric_assumed"].astype(bool) & premium,
            "Assumed fabric premium for {nodes} ({names}): the catalog has no price of the same node without the "
            "fabric, so the share is that of node pairs at other providers.",
        ),
    )  # fmt: skip
    yield from (note for note in price_notes(verdicts.nodes, book) if note.code != "price-not-used")
    for code, where, text in cases:
        if where.any():
            names = list(nodes.loc[where, "node"])
            sentence = text.format(nodes=counted(len(names), "node"), names=listed(names))
            yield CodedText(code, sentence, {"nodes": ", ".join(names)})
