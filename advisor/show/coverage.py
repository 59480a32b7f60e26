"""How much of a window was observed and judged, in words, and sums over an advice.

What was not observed is named and never counts as zero.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ..core import formatting as words
from ..core.advice_types import Advice, Finding, Recommendation, Summary, Unobserved
from ..core.scalars import sum_if_all
from ..core.timestamps import day, minute
from ..core.worth import Worth
from .titles import fact_of, is_waste, waste_of

NO_WORKLOAD, DRAINED, NOT_OBSERVED = "no workload", "drained", "not observed"
HEADS = ("node", "GPUs", "reason", "cost")
# Above this share of the hours nothing is missing: clocks and scrapes differ by the rest.
WHOLE_MIN = 0.999
_SHORT_HOURS = 48.0  # shorter windows are given in hours
# What settles a verdict that a rule could not give, by the reason's code.
_JOB_NAMES = "names of its jobs (pod labels, the Slurm prolog)"
_SETTLED_BY = {
    "may-train": _JOB_NAMES,
    "training-there": "an exception or a swap, once it is known that its training stays on single nodes",
    "kind-unknown": f"{_JOB_NAMES}, or metrics of its engine",
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


def window_words(advice: Advice) -> str:
    """``2026-11-02 to 2026-11-16 UTC (7 of 14 days observed, 168 of 336 h)``."""
    return f"{day(advice.start)} to {day(advice.end)} UTC ({observed_time(advice)})"


def observed_time(advice: Advice) -> str:
    """``14 of 14 days observed``, with the hours where some are missing; the length alone where unknown. Rounded down,
    so that a window with gaps never reads as complete."""
    observed, window = advice.summary.observed_hours, (advice.end - advice.start) / 3600

    def down(hours: float, unit: float = 1.0) -> str:
        return f"{math.floor(hours / unit * 10 + 1e-6) / 10:,.12g}"

    if observed is None:
        return f"{down(window)} h" if window < _SHORT_HOURS else f"{down(window, 24)} days"
    observed = window if observed >= WHOLE_MIN * window else observed
    hours = f"{down(observed)} of {down(window)} h"
    if observed < _SHORT_HOURS:
        return f"{hours} observed"
    return f"{down(observed, 24)} of {down(window, 24)} days observed{f', {hours}' if observed < window else ''}"


def share_words(share: float) -> str:
    """``98 %``, ``99.4 %``; a hundred percent of everything alone."""
    return f"{min(share * 100, 99.9):.1f} %" if 0.99 < share < 1 else words.percent(share)


def extent_sentence(s: Summary) -> str:
    """On how many GPUs waste was judged, where not on all."""
    judged = f"Waste was {judged_of(s)}." if s.partly_judged else ""
    return why_not_judged(s) if s.nothing_judged and s.gpu_count else judged


def size_words(summary: Summary) -> str:
    """``70 GPUs, 62 observed, 8 not observed; 23,520 GPU-hours, 48 % observed``; ``all 16 GPUs, 5,376 GPU-hours``."""
    gpus, hours, observed = gpus_words(summary), words.hours(summary.gpu_hours), summary.observed_gpu_hours
    if observed is not None and summary.gpu_hours > 0 and observed < 0.995 * summary.gpu_hours:
        share = observed / summary.gpu_hours
        return f"{gpus}; {hours}, {'under 1' if 0 < share < 0.01 else math.floor(share * 100)} % observed"
    return f"{gpus}; {hours}" if summary.unobserved else f"{gpus.removesuffix(' observed')}, {hours}"


def gpus_words(summary: Summary) -> str:
    """``70 GPUs, 62 observed, 8 not observed``; ``all 16 GPUs observed``."""
    count, dark = summary.gpu_count, summary.unobserved_gpu_count
    gpus = words.counted(count, "GPU")
    if summary.observed_hours is None or not count:
        return gpus
    if not dark:
        return f"all {gpus} observed" if count > 1 else f"{gpus} observed"
    return f"{gpus}, {max(count - dark, 0):,} observed, {dark:,} not observed"


def waiting_words(summary: Summary) -> str:
    """``12 GPUs idle while 9 jobs wait for 16 GPUs``: the queue beside what is at rest; empty where no queue is known,
    or no job waits for GPUs."""

    def gpus(count: float) -> str:
        figure = f"{count:,.1f}".removesuffix(".0")  # MIG instances are parts of GPUs
        return "no GPU" if count <= 0 else f"{figure} {'GPU' if figure == '1' else 'GPUs'}"

    w = summary.waiting
    if w is None or not w.jobs:
        return ""
    wait = f"{words.counted(w.jobs, 'job')} {'waits' if w.jobs == 1 else 'wait'} for {gpus(w.gpus)}"
    return wait if w.idle_gpus is None else f"{gpus(w.idle_gpus)} idle while {wait}"


def short_words(advice: Advice) -> str:
    """What is missing, for a subject line; empty where everything was observed."""
    s, parts = advice.summary, []
    if s.observed_hours is not None and s.observed_hours < WHOLE_MIN * (advice.end - advice.start) / 3600:
        parts.append(observed_time(advice).partition(",")[0])
    if s.unobserved:
        parts.append(f"{s.unobserved_gpu_count:,} of {s.gpu_count:,} GPUs not observed")
    return ", ".join(parts)


def not_judged(summary: Summary) -> str:
    """``not judged yet; possible from 2026-11-10 09:00 UTC``."""
    return f"not judged yet; possible from {minute(summary.judged_from)}" if summary.judged_from else "not judged"


def judged_of(summary: Summary) -> str:
    """``judged on 12 of 40 GPUs``."""
    return f"judged on {summary.judged_gpu_count:,} of {summary.gpu_count:,} GPUs"


def judged_nodes(advice: Advice) -> tuple[frozenset[str], int]:
    """Nodes with a GPU that was observed long enough to judge waste, and the number of all nodes."""
    return frozenset(standing.node for standing in advice.standings if standing.judged), len(advice.standings)


def observed_fabrics(advice: Advice) -> tuple[frozenset[str], frozenset[str]]:
    """Nodes whose compute fabric was observed, and all nodes with one (by their type, or by a port)."""
    return frozenset(f.node for f in advice.fabrics if f.unseen is None), frozenset(f.node for f in advice.fabrics)


def extent_words(advice: Advice) -> str:
    """On how many GPUs and nodes waste was judged, and fabrics were observed; `skuwise doctor` prints it too."""
    (judged, nodes), (observed, fabrics) = judged_nodes(advice), observed_fabrics(advice)
    s, parts = advice.summary, []
    if s.nothing_judged:
        parts.append(why_not_judged(s))
    elif s.judged_gpu_count is not None:
        of_nodes = f", {len(judged):,} of {words.counted(nodes, 'node')}" if nodes else ""
        parts.append(f"Waste {judged_of(s)}{of_nodes}.")
    if fabrics:
        of_fabrics = f"{len(observed):,} of {words.counted(len(fabrics), 'node')} with one"
        parts.append(f"Compute fabric observed on {of_fabrics}.")
    return " ".join(parts)


def why_not_judged(summary: Summary) -> str:
    """That no GPU was observed for long enough, and when one will have been."""
    floor = f" for the {summary.floor_hours:g} h that it takes" if summary.floor_hours is not None else " long enough"
    later = f" A verdict is possible from {minute(summary.judged_from)}." if summary.judged_from is not None else ""
    return f"Waste was not judged: no GPU was observed{floor}.{later}"


def open_verdicts(advice: Advice, most: int = 2) -> tuple[str, ...]:
    """What the waste rules could not judge, the most at stake first, each with what settles it; the rest is counted.
    Empty: all was judged, or nothing (see `why_not_judged`)."""
    if advice.summary.nothing_judged:
        return ()
    undecided, lines = [n for n in advice.not_judged if is_waste(n.rule)], list[str]()
    for n in sorted(undecided, key=lambda n: (-(n.usd_per_month or 0.0), -n.gpu_count, n.rule, n.reason.code)):
        subjects = words.counted(len(n.workloads), "workload") if n.workloads else words.counted(len(n.nodes), "node")
        price = f", {words.usd(n.usd_per_month)}/month at stake" if n.usd_per_month else ""
        settled = _SETTLED_BY.get(n.reason.code, _PROFILING if "measured" in n.reason.code else "")
        remedy = f"; settled by {settled}" if settled else ""
        lines.append(f"{fact_of(n.rule)}: {subjects} ({n.reason.text}{price}{remedy})")
    lines[most:] = [f"{len(lines) - most} more (see advise --all)"] if len(lines) > most else []
    return tuple(lines)


def nothing_found_words(advice: Advice) -> str:
    """No finding, in sentences that claim no more than was judged."""
    s, undecided = advice.summary, open_verdicts(advice)
    if s.nothing_judged and s.gpu_count:
        return why_not_judged(s)
    rest = " The other GPUs were not observed long enough." if s.partly_judged else ""
    return nothing_found_short(advice) + rest + (f" Not judged: {'; '.join(undecided)}." if undecided else "")


def nothing_found_short(advice: Advice) -> str:
    """`nothing_found_words` in one sentence."""
    s = advice.summary
    if s.nothing_judged and s.gpu_count:
        return f"Waste is {not_judged(s)}."
    if s.partly_judged:
        return f"No waste was found ({judged_of(s)})."
    if open_verdicts(advice):
        return "Not all was judged; no waste was found in the rest."
    return f"No waste found{'; the notes list what could not be evaluated' if advice.notes else ' in this window'}."


def unobserved_rows(summary: Summary) -> tuple[tuple[str, ...], ...]:
    """Rows under `HEADS`: nodes with the same reason together, the most GPUs first."""
    groups: dict[str, list[Unobserved]] = {}
    for node in summary.unobserved:
        groups.setdefault(node.reason, []).append(node)
    rows = []
    for reason, same in groups.items():
        nodes, gpus = list(dict.fromkeys(u.node for u in same)), sum(len(u.gpus) for u in same)
        usd, hours = sum_if_all(u.cost_usd for u in same), sum_if_all(u.gpu_hours for u in same)
        cost = words.hours(hours) if usd is None else words.usd(usd)
        rows.append((-gpus, nodes[0], (words.listed(nodes), f"{gpus:,}", reason, cost)))
    return tuple(row for *_, row in sorted(rows))


class IdleGpus(NamedTuple):
    """Idle GPUs of an owner (None: no workload held them). `names`: of workloads or nodes; `cost_usd` None: unknown."""

    owner: str | None
    names: tuple[str, ...]
    gpus: int
    gpu_hours: float
    cost_usd: float | None


def hours_by_kind(advice: Advice) -> dict[str, float]:
    """GPU-hours by kind, then those of no workload. Shared GPUs count for each workload that shares them."""
    return _summed(((w.kind.label, w.gpu_hours) for w in advice.workloads), advice)


def hours_by_bottleneck(advice: Advice) -> dict[str, float]:
    """GPU-hours by bottleneck, by the shares of each workload's time, then those of no workload."""
    shares = ((w, w.bottleneck.time_shares or {w.bottleneck.label: 1.0}) for w in advice.workloads)
    return _summed(((label, share * w.gpu_hours) for w, parts in shares for label, share in parts.items()), advice)


def _summed(parts: Iterable[tuple[str, float]], advice: Advice) -> dict[str, float]:
    """The sums by label, then GPU-hours of no workload; less than a tenth of a percent is a rounding difference."""
    sums: dict[str, float] = defaultdict(float)
    for label, hours in parts:
        sums[label] += hours
    by_size = dict(sorted(sums.items(), key=lambda label_hours: -label_hours[1]))
    if (uses := advice.summary.gpu_hours_by_use) is not None:
        rest = {NO_WORKLOAD: uses.unallocated, DRAINED: uses.drained, NOT_OBSERVED: uses.unobserved}
        least = 0.001 * advice.summary.gpu_hours
        by_size |= {name: hours for name, hours in rest.items() if hours is not None and hours > least}
    return by_size


def holdings(advice: Advice) -> tuple[IdleGpus, ...]:
    """Idle GPUs by owner, the highest cost first."""
    workloads = {w.id: w for w in advice.workloads}
    by_owner: dict[str | None, list[tuple[str, Finding]]] = {}
    for f in advice.findings:
        if waste_of(f.rule) == "unused":
            w = workloads.get(f.workload or "")
            owner = (words.owner_words(w.owner) or "owner unknown") if w is not None else None
            by_owner.setdefault(owner, []).append((w.name if w is not None else ", ".join(f.nodes), f))
    rows = []
    for owner, held in by_owner.items():
        names, findings = dict.fromkeys(name for name, _ in held), [f for _, f in held]
        gpus, hours = sum(len(f.gpus) for f in findings), sum(f.gpu_hours for f in findings)
        rows.append(IdleGpus(owner, tuple(names), gpus, hours, sum_if_all(f.cost_usd for f in findings)))
    return tuple(sorted(rows, key=lambda h: (-(h.cost_usd or 0.0), -h.gpu_hours, h.owner or "")))


def observed_share(advice: Advice) -> float | None:
    """Share of the workloads' GPU time that was observed; None without workloads."""
    hours = sum(w.gpu_hours for w in advice.workloads)
    # A workload's GPU-hours are observed hours; it held its GPUs longer by what its coverage lacks.
    held = sum(w.gpu_hours / w.coverage.fraction for w in advice.workloads if w.coverage.fraction > 0)
    return min(hours / held, 1.0) if held > 0 else 0.0 if advice.workloads else None


def blind_spots(advice: Advice) -> tuple[tuple[str, str, int], ...]:
    """A metric that workloads lack, why, and how many of them, those of the most workloads first."""
    counts = Counter(missing for w in advice.workloads for missing in w.coverage.missing.items())
    return tuple((*spot, count) for spot, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def answered_findings(advice: Advice) -> list[tuple[Finding, Recommendation | None]]:
    """Findings, each with the first recommendation that gains something: those whose GPUs jobs wait for, then in the
    order of the recommendations, then by cost."""
    worth, best = Worth(advice), dict[str, Recommendation]()
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        if not r.blocked_by and not r.set_aside and worth.usd(r).p50 > 0:
            for finding in r.findings:
                best.setdefault(finding, r)

    def order(f: Finding) -> tuple[object, ...]:
        r, severity = best.get(f.id), ("high", "medium", "low").index(f.severity)
        return not f.is_waited_for, r is None, r.rank if r else (), severity, -(f.cost_usd or 0.0), f.id

    return [(f, best.get(f.id)) for f in sorted(advice.findings, key=order)]
