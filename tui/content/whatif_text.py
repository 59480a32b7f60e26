"""The words of an answer to a question of what if."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from ...advisor.core import formatting as words
from ..cell_text import line, lines
from ..widgets.rows import Pair

if TYPE_CHECKING:
    from ...advisor.core.advice_types import Interval, Recommendation
    from ...advisor.recommend.whatif import Side, WhatIfResult
    from ...advisor.show.series.whatif_session import Workbench
    from ...rules.catalog.types import Price


NOTICED = 1.005  # a time ratio beyond it is told as slower


def cost_change(o: WhatIfResult) -> str:
    """The nodes' cost a month, then less today."""
    here, there = o.today.usd_per_month, o.then.usd_per_month if o.then is not None else None
    if here is None or there is None:
        return words.NONE
    return f"+{words.usd(there - here)}" if there > here else words.usd(there - here)


def whatif_pairs(bench: Workbench, o: WhatIfResult) -> tuple[Pair, ...]:
    """Today beside then."""
    today, then = o.today, o.then
    if then is None:
        return ()
    pairs = [
        Pair("node", _node(today), _node(then)),
        Pair("GPUs", _gpus(today), _gpus(then)),
        Pair("price/node-hour", _price(today.price), _price(then.price)),
        Pair("price of", _dated(today.price), _dated(then.price)),
        Pair("cost/month", words.usd(today.usd_per_month), words.usd(then.usd_per_month)),
    ]
    if o.time_ratio is not None:
        median = o.time_ratio.p50
        told = "slower" if median > NOTICED else "faster" if median < 1 / NOTICED else "the same"
        pairs += time_pairs(o.time_ratio, f" {told}")
    if today.load is not None:
        most = f"load, max {words.percent(bench.base.headroom)}"
        pairs.append(Pair(most, words.percent(today.load), words.percent(then.load)))
    if today.watts is not None:
        there = "unknown" if then.watts is None else f"{then.watts:.0f} W"
        pairs.append(Pair("W per busy GPU", f"{today.watts:.0f} W", there))
    return tuple(pairs)


def time_pairs(ratio: Interval, told: str = "") -> list[Pair]:
    """The time beside today's, and its interval."""
    style = "$warning" if ratio.p50 > NOTICED else ""
    return [
        Pair("time", "x1.00", f"x{ratio.p50:.2f}{told}", style),
        Pair("p10 to p90", "", f"x{ratio.p10:.2f} to x{ratio.p90:.2f}"),
    ]


def knob_words(bench: Workbench, o: WhatIfResult) -> Content:
    """What is chosen beside the node, each with its keys."""
    c = o.choice
    needed = o.then.gpus if o.then is not None else bench.base.gpus
    by = "as today" if bench.base.group.phase == "training" else "by demand"
    count = f"{needed}, {by}" if c.gpus is None else f"{c.gpus}"
    price = "catalog" if c.usd_per_hour is None else f"{words.usd(c.usd_per_hour)} entered"
    knobs = (
        ("GPUs", count, "- +"), ("slice", c.profile or "none", "m"), ("clock", f"{c.clock_share * 100:.0f} %", "< >"),
        ("price", price, "p"),
    )  # fmt: skip
    parts: list[Content] = []
    for name, value, keys in knobs:
        parts += [
            Content.styled(f"{name} ", "$foreground-muted"), Content.styled(value, "bold"),
            Content.styled(f" {keys}   ", "$primary"),
        ]  # fmt: skip
    return Content.assemble(*parts)


def answer_words(o: WhatIfResult, proposed: Recommendation | None) -> Content:
    """What it comes to, what stands against it, and what the dollars rest on."""
    told = [Content(""), *_comes_to(o)]
    if o.risk is not None:
        told.append(line(f"Risk of more than 10 % slower: {o.risk}; basis of the time: {o.basis}."))
    told += [line(f"Blocked: {one}.", "$warning") for one in o.blocked_by]
    told += [line(f"Unknown: {one}.", "$warning") for one in o.missing]
    told += [line(note) for note in o.notes]
    if proposed is not None:
        state = f", {words.decision_words(proposed.decision)}" if proposed.decision is not None else "; a accepts it"
        told.append(line(f"Recommended as {proposed.id}{state}.", "$success"))
    told += [line(f"{p.sku}, {p.region}: {words.price_words(p)}", "$foreground-muted") for p in o.prices]
    return lines(*told)


def _comes_to(o: WhatIfResult) -> list[Content]:
    saving = o.saving_usd_per_month
    told: list[Content] = []
    if saving is not None:
        dated = words.dated(o.prices)
        when = f" from {o.available_from}" if o.available_from else ""
        if saving.p50 > 0:
            cash = f"{words.usd(saving.p50)}/month{words.spread(saving)} in cash{when}"
            told.append(line(f"Saves {cash}, {dated}", "$success bold"))
        elif saving.p50 < 0:
            more = f"{words.usd(-saving.p50)}/month more{words.spread(saving)}"
            told.append(line(f"Costs {more}, {dated}", "$error bold"))
        else:
            told.append(line("Same cost", "bold"))
        if o.of_count_usd_per_month:
            told.append(line(f"Of this, from fewer GPUs of today's SKU: {words.usd(o.of_count_usd_per_month)}/month"))
    elif o.then is not None:
        told.append(line(f"No cash savings; the nodes' cost changes by {cost_change(o)}/month", "bold"))
    if o.freed_gpu_hours_per_month > 0:
        told.append(line(f"Frees {words.hours(o.freed_gpu_hours_per_month)}/month of capacity (not cash)"))
    return told


def _node(side: Side) -> str:
    return f"{side.nodes} x {(side.node or 'unknown').rpartition('/')[2]}"


def _gpus(side: Side) -> str:
    return f"{side.gpus} x {side.gpu or 'unknown'}"


def _price(price: Price | None) -> str:
    return "unknown" if price is None else f"{words.usd(price.usd_per_hour)} {price.region}"


def _dated(price: Price | None) -> str:
    return words.NONE if price is None else f"{price.as_of}, {price.basis}"
