"""How much of a window was observed and judged, in words: what was not observed is named, and is no zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core import formatting as words
from ..core.advice_types import Advice, Summary, Unobserved
from ..core.timestamps import day, minute
from .titles import fact_of, is_waste

NOT_OBSERVED = "Not observed"
HEADS = ("node", "GPUs", "reason", "cost")
# Below this share of the hours something is missing, and it is said; what is left is what clocks and scrapes differ by.
WHOLE_MIN = 0.999
_SHORT_HOURS = 48.0  # shorter windows are told in hours


def window_words(advice: Advice) -> str:
    """``2026-11-02 to 2026-11-16 UTC (7 of 14 days observed, 168 of 336 h)``."""
    return f"{day(advice.start)} to {day(advice.end)} UTC ({observed_time(advice)})"


def observed_time(advice: Advice) -> str:
    """``14 of 14 days observed``; where hours are missing with the hours; the length alone where nothing is told."""
    seen = advice.summary.observed_hours
    window = (advice.end - advice.start) / 3600
    short = window < _SHORT_HOURS
    if seen is None:
        return f"{_down(window, 1)} h" if short else f"{_down(window / 24, 1)} days"
    if seen >= WHOLE_MIN * window:
        seen = window
    in_hours = f"{_down(seen, 1)} of {_down(window, 1)} h"
    if short or seen < _SHORT_HOURS:
        return f"{in_hours} observed"
    told = f"{_down(seen / 24, 1)} of {_down(window / 24, 1)} days observed"
    return told if seen >= window else f"{told}, {in_hours}"


def sentences(advice: Advice) -> str:
    """What was observed, and of how much of it waste was judged."""
    s = advice.summary
    told = f"{observed_time(advice)}; {size_words(s)}."
    if s.nothing_judged and s.gpu_count:
        return f"{told} {why_not_judged(s)}"
    return f"{told} Waste was {judged_of(s)}." if s.partly_judged else told


def size_words(summary: Summary) -> str:
    """``70 GPUs, 62 observed, 8 not observed; 23,520 GPU-hours, 48 % observed``; ``all 16 GPUs, 5,376 GPU-hours`` where
    nothing is missing."""
    gpus, hours, seen = gpus_words(summary), words.hours(summary.gpu_hours), summary.observed_gpu_hours
    if seen is not None and summary.gpu_hours > 0 and seen < 0.995 * summary.gpu_hours:
        share = seen / summary.gpu_hours
        return f"{gpus}; {hours}, {'under 1' if 0 < share < 0.01 else math.floor(share * 100)} % observed"
    return f"{gpus}; {hours}" if summary.unobserved else f"{gpus.removesuffix(' observed')}, {hours}"


def gpus_words(summary: Summary) -> str:
    """``70 GPUs, 62 observed, 8 not observed``; ``all 16 GPUs observed``."""
    count, dark = summary.gpu_count, summary.unobserved_gpu_count
    gpus = "1 GPU" if count == 1 else f"{count:,} GPUs"
    if summary.observed_hours is None or not count:
        return gpus
    if not dark:
        return f"all {gpus} observed" if count > 1 else f"{gpus} observed"
    return f"{gpus}, {max(count - dark, 0):,} observed, {dark:,} not observed"


def short_words(advice: Advice) -> str:
    """What is missing, for a subject line; empty where everything was observed."""
    s = advice.summary
    parts = []
    window = (advice.end - advice.start) / 3600
    if s.observed_hours is not None and s.observed_hours < WHOLE_MIN * window:
        parts.append(observed_time(advice).partition(",")[0])
    if s.unobserved:
        parts.append(f"{s.unobserved_gpu_count:,} of {s.gpu_count:,} GPUs not observed")
    return ", ".join(parts)


def not_judged(summary: Summary) -> str:
    """``not judged yet; possible from 2026-11-10 09:00 UTC``."""
    if summary.judged_from is None:
        return "not judged"
    return f"not judged yet; possible from {minute(summary.judged_from)}"


def judged_of(summary: Summary) -> str:
    """``judged on 12 of 40 GPUs``."""
    return f"judged on {summary.judged_gpu_count:,} of {summary.gpu_count:,} GPUs"


def judged_nodes(advice: Advice) -> tuple[frozenset[str], int]:
    """Nodes with a GPU that was observed long enough to judge waste, and how many nodes there are."""
    return frozenset(standing.node for standing in advice.standings if standing.judged), len(advice.standings)


def observed_fabrics(advice: Advice) -> tuple[frozenset[str], frozenset[str]]:
    """Nodes whose compute fabric was observed, and all that have one by their type or show a port of one."""
    return frozenset(f.node for f in advice.fabrics if f.unseen is None), frozenset(f.node for f in advice.fabrics)


def extent_words(advice: Advice) -> str:
    """On how many GPUs and nodes waste was judged, and fabrics were observed: `skuwise advise` and `skuwise doctor`
    say it alike."""
    (judged, nodes), (seen, fabrics) = judged_nodes(advice), observed_fabrics(advice)
    s = advice.summary
    told = why_not_judged(s) if s.nothing_judged else f"Waste {judged_of(s)}" if s.judged_gpu_count is not None else ""
    if nodes and not s.nothing_judged:
        told += f", {len(judged):,} of {words.counted(nodes, 'node')}"
    of_fabric = f"Compute fabric observed on {len(seen):,} of {words.counted(len(fabrics), 'node')} with one."
    return " ".join(part for part in (told and f"{told.rstrip('.')}.", of_fabric if fabrics else "") if part)


def why_not_judged(summary: Summary) -> str:
    """A sentence: no GPU was observed for long enough, and when one will have been."""
    floor = f" for the {summary.floor_hours:g} h that it takes" if summary.floor_hours is not None else " long enough"
    later = f" A verdict is possible from {minute(summary.judged_from)}." if summary.judged_from is not None else ""
    return f"Waste was not judged: no GPU was observed{floor}.{later}"


# What settles what a rule could not judge, by the reason's code; of others that were not measured, the metric.
_SETTLED_BY = {
    "may-train": "names of its jobs (pod labels, the Slurm prolog)",
    "training-there": "an exception or a swap, once it is known that its training stays on single nodes",
    "kind-unknown": "names of its jobs (pod labels, the Slurm prolog), or metrics of its engine",
    "seen-too-short": "more hours of data",
    "work-seen-too-short": "more hours of data",
    "partly-observed": "data for the whole window",
    "fabric-not-observed": "port counters (node_exporter --collector.infiniband, or the agent)",
    "counters-unreadable": "port counters that can be read, of active ports",
    "signals-contradict": "counters that agree (restart DCGM and its exporter)",
    "gpus-shared": "whole GPUs of its own",
    "no-price": "a price (--prices)",
}
_PROFILING = "profiling metrics (dcgm-exporter, or the agent)"


def open_verdicts(advice: Advice, most: int = 2) -> tuple[str, ...]:
    """What the waste rules gave no verdict on, the most at stake first, each with what settles it; the rest is counted.
    Empty: all was judged, or nothing, which stands elsewhere."""
    if advice.summary.nothing_judged:
        return ()
    told = []
    own = [one for one in advice.not_judged if is_waste(one.rule)]
    for one in sorted(own, key=lambda n: (-(n.usd_per_month or 0.0), -n.gpu_count, n.rule, n.reason.code)):
        what, of = ("workload", one.workloads) if one.workloads else ("node", one.nodes)
        price = f", {words.usd(one.usd_per_month)}/month at stake" if one.usd_per_month else ""
        settled = _SETTLED_BY.get(one.reason.code, _PROFILING if "measured" in one.reason.code else "")
        then = f"; settled by {settled}" if settled else ""
        told.append(f"{fact_of(one.rule)}: {words.counted(len(of), what)} ({one.reason.text}{price}{then})")
    more = len(told) - most
    return (*told[:most], *((f"{more} more in the JSON (not_judged)",) if more > 0 else ()))


def _nothing_found(advice: Advice) -> str:
    if advice.notes:
        return "No waste found; the notes list what could not be evaluated."
    return "No waste found in this window."


def nothing_found_words(advice: Advice) -> str:
    """No finding, in sentences that do not claim more than was judged."""
    s, open_ = advice.summary, open_verdicts(advice)
    if s.nothing_judged and s.gpu_count:
        return why_not_judged(s)
    if s.partly_judged:
        told = (
            f"No waste was found on the {s.judged_gpu_count:,} of {s.gpu_count:,} GPUs that were judged; the others "
            "were not observed long enough."
        )
    elif not open_:
        return _nothing_found(advice)
    else:
        told = "Not all was judged; no waste was found in the rest."
    return f"{told} Not judged: {'; '.join(open_)}." if open_ else told


def nothing_found_short(advice: Advice) -> str:
    """`nothing_found_words` for a narrow place."""
    s = advice.summary
    if s.nothing_judged and s.gpu_count:
        return not_judged_short(s)
    if s.partly_judged:
        return f"No waste was found ({judged_of(s)})."
    return "Not all was judged; no waste was found in the rest." if open_verdicts(advice) else (_nothing_found(advice))


def not_judged_short(summary: Summary) -> str:
    """``Not judged yet; possible from 2026-11-10 09:00 UTC.``"""
    told = not_judged(summary)
    return f"{told[:1].upper()}{told[1:]}."


def idleness(summary: Summary) -> str:
    """No idle GPU was found, in a sentence that says of how many that is known."""
    judged, count = summary.judged_gpu_count, summary.gpu_count
    if judged is None or not count:
        return "No GPU was idle or held without use, of those that were observed long enough."
    if judged == 0:
        later = f"; it is possible from {minute(summary.judged_from)}" if summary.judged_from is not None else ""
        return f"Idleness was not judged on any of the {count:,} GPUs{later}."
    if judged < count:
        return (
            f"Idleness was judged on {judged:,} of {count:,} GPUs: none of these was idle or held without use. The "
            "other GPUs: no data."
        )
    return "No GPU was idle or held without use."


def unobserved_rows(summary: Summary) -> tuple[tuple[str, ...], ...]:
    """Rows under `HEADS`: nodes with the same reason together, the most GPUs first."""
    groups: dict[str, list[Unobserved]] = {}
    for one in summary.unobserved:
        groups.setdefault(one.reason, []).append(one)
    ordered = sorted(groups.items(), key=lambda item: (-_gpus(item[1]), item[1][0].node))
    return tuple(
        (words.listed(list(dict.fromkeys(u.node for u in same))), f"{_gpus(same):,}", reason, _cost(same))
        for reason, same in ordered
    )


def _gpus(same: Sequence[Unobserved]) -> int:
    return sum(len(one.gpus) for one in same)


def _cost(same: Sequence[Unobserved]) -> str:
    """Dollars where every price is known, else GPU-hours."""
    costs = [one.cost_usd for one in same if one.cost_usd is not None]
    if len(costs) == len(same):
        return words.usd(sum(costs))
    hours = [one.gpu_hours for one in same if one.gpu_hours is not None]
    return words.hours(sum(hours)) if len(hours) == len(same) else words.usd(None)


def _down(value: float, places: int) -> str:
    """Rounded down: whoever rounds up to all of it hides that something is missing."""
    scale = 10**places
    return f"{math.floor(value * scale + 1e-6) / scale:,g}" if value < 1e5 else f"{value:,.0f}"
