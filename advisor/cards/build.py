"""The card of a workload, from a judged window that holds its life.

The one thing to do next about a job: from what it is recommended, from a finding, else from facts of its own life.

Verdicts on waste need 30 hours of a series; what is said here of a shorter job are facts of that job alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from ..classify.judge import judge
from ..classify.types import NodeFacts, Verdicts
from ..core.advice_types import Advice, Finding, Recommendation
from ..core.card_types import Asked, Card, CardPrice, CardState, Compared, Course, Judged, Use
from ..core.coded_text import CodedText, coded
from ..core.formatting import price_words
from ..core.frame import Frame
from ..core.scalars import known, records, text
from ..core.timestamps import span
from ..core.verdict_types import WorkloadVerdict
from ..recommend.energy_accounts import energy_accounts
from ..recommend.pricing import PriceBook, with_costs
from ..rulebook import Rulebook
from ..telemetry.job_table import job_names
from .measured import course_of, use_of
from .runs import RUNNING_SECONDS

# Less than this much of a job's life, or of its data, tells nothing of the rest: one rollup of a minute is no evidence.
ENOUGH_SECONDS = 300.0
ENOUGH_OBSERVED = 0.5
# Idle for so long at its end: a checkpoint, a download or an evaluation lasts less (rules/watch.yaml, limits of jobs).
_RESTS_SECONDS = 1800.0
# A bottleneck that takes half of the time is what to change first.
_MAIN_SHARE = 0.5
_UNUSED_SECONDS = 900.0
# Below these it fits on a fraction of its GPU, with room: the peak of its memory and its mean activity.
_SMALL_MEMORY, _SMALL_SM = 0.2, 0.15
_SMALL_SECONDS = 3600.0
# Telemetry that is older than this says nothing of what runs now.
_FRESH_SECONDS = 3600.0
_NOT_REPORTED = "not reported by this source"
# Data that begin later than the job by more than a rollup were lost.
_CUT_SECONDS = 300.0

_BY_ACTION = {
    "reduce-gpus": "Reduce to {count} GPUs.", "mig-slice": "Move to MIG instances of {sku}.",
    "move-sku": "Move to {sku}{node}.", "consolidate": "Consolidate on fewer nodes.",
    "schedule-off": "Release its GPUs when not in use.", "swap-placement": "Swap its place with other work.",
    "release": "Release its GPUs.", "lower-clock": "Lower the GPU clock.", "power-cap": "Set a power limit.",
}  # fmt: skip
_BY_BOTTLENECK = {
    "host-input": "Fix data loading first: waiting for input in {share:.0%} of its time.",
    "network": "Check the network first: limited by it in {share:.0%} of its time.",
    "straggler": "Find the slow rank first: the others wait for it in {share:.0%} of the time.",
    "throttled": "Fix power or cooling first: throttled in {share:.0%} of its time.",
    "pcie": "Reduce host-to-GPU copies: limited by PCIe in {share:.0%} of its time.",
    "latency": "Use larger batches or CUDA graphs: kernels too short for the GPU in {share:.0%} of its time.",
}
_BY_RULE = {
    "idle": "Release its GPUs: idle.", "held-idle": "Release its GPUs: memory held, nothing running.",
    "too-many-gpus": "Use fewer GPUs.", "memory-unused": "Use a GPU with less memory.",
    "under-tier": "Use a faster GPU.",
    "over-tier": "Use a cheaper GPU.", "idle-fabric": "Move to nodes without the fabric: it carries no traffic.",
    "idle-nvlink": "Move to GPUs without NVLink: it carries no traffic.",
}  # fmt: skip
# Of what rests at its end: (code, text) by kind, or by whether it runs on.
_BY_REST = {
    "interactive": ("notebook-idle", "Stop the session when it is not in use: idle for the last {rest}."),
    "online-inference": ("service-idle", "Scale it down without requests: idle for the last {rest}."),
    "running": ("stopped", "Check whether it hangs: no GPU activity for {rest}."),
    "ended": ("held-after-work", "End the job with its work: GPUs idle for the last {rest}."),
}  # fmt: skip


def next_step(
    w: WorkloadVerdict, judged: Judged, use: Use, *, state: CardState, elapsed_seconds: float,
    findings: Sequence[Finding] = (), recommendations: Sequence[Recommendation] = (),
) -> CodedText:  # fmt: skip
    """What to do next. `elapsed_seconds`: of its life; `findings`, `recommendations`: those of this workload alone."""
    life, total, unused = span(elapsed_seconds), len(w.gpus), use.unused or 0
    if w.features.get("fault_share", 0.0) > 0.0:
        return CodedText(
            "card-telemetry-fault", "Fix telemetry first: signals contradict one another; run 'skuwise doctor'."
        )
    if elapsed_seconds < ENOUGH_SECONDS or use.observed < ENOUGH_OBSERVED:
        text = "Too little data: {observed:.0%} of {life} observed."
        return coded("card-too-little", text, observed=use.observed, life=life)
    if unused >= total > 0 and elapsed_seconds >= _UNUSED_SECONDS:
        if state == "running":
            return coded("card-never-worked", "Cancel it or fix it: no GPU activity in {life}.", life=life)
        return CodedText("card-never-used", "Request no GPU: it never used one. Check that the program finds its GPUs.")
    if use.idle_since is not None and w.end - use.idle_since >= _RESTS_SECONDS:
        code, text = _BY_REST.get(w.kind.label) or _BY_REST["running" if state == "running" else "ended"]
        return coded(f"card-{code}", text, rest=span(w.end - use.idle_since))
    if unused and elapsed_seconds >= _UNUSED_SECONDS and w.gpu_part >= 1:
        text = "Reduce to {used} GPU{s}: {unused} of {all} did nothing."
        s = "" if total - unused == 1 else "s"
        return coded("card-unused-gpus", text, used=total - unused, s=s, unused=unused, all=total)
    if (step := _first_recommended(recommendations)) is not None:
        return step
    share = judged.time_shares.get(judged.bottleneck, 0.0)
    if judged.bottleneck in _BY_BOTTLENECK and share >= _MAIN_SHARE:
        return coded(f"card-{judged.bottleneck}", _BY_BOTTLENECK[judged.bottleneck], share=share)
    for finding in findings:
        if finding.rule in _BY_RULE:
            return CodedText(f"card-finding-{finding.rule}", _BY_RULE[finding.rule], {"finding": finding.id})
    if use.mem_peak_bytes is not None and use.mem_total_bytes and use.sm_active is not None and w.gpu_part >= 1:
        share = use.mem_peak_bytes / use.mem_total_bytes
        if elapsed_seconds >= _SMALL_SECONDS and share <= _SMALL_MEMORY and use.sm_active <= _SMALL_SM:
            text = "Try a smaller GPU or a MIG instance: memory peak {share:.0%}, SM activity {sm:.0%}."
            return coded("card-small", text, share=share, sm=use.sm_active)
    return CodedText("card-nothing", "Nothing to change.")


def _first_recommended(recommendations: Sequence[Recommendation]) -> CodedText | None:
    """The first that nothing blocks and nobody has decided on."""
    for one in recommendations:
        if one.action in _BY_ACTION and not one.blocked_by and one.decision is None:
            to = one.target
            same = to.gpu_sku == one.source.gpu_sku and to.node_sku is not None
            node = f" ({to.node_sku})" if to.node_sku and not same else ""
            sku = (to.node_sku if same else to.gpu_sku) or "another GPU"
            single = one.action == "reduce-gpus" and to.gpu_count == 1
            text = "Reduce to 1 GPU." if single else _BY_ACTION[one.action]
            return coded(f"card-{one.action}", text, count=to.gpu_count, sku=sku, node=node)
    return None


@dataclass(frozen=True)
class JudgedWindow:
    """A window that cards are made from. `advice`: None where no workload of it has data enough for recommendations;
    `now`: Unix seconds."""

    frame: Frame
    verdicts: Verdicts
    workloads: tuple[WorkloadVerdict, ...]
    prices: PriceBook
    advice: Advice | None
    now: float

    def workload(self, id_: str, job: str | None = None, start: float = 0.0) -> WorkloadVerdict | None:
        """The workload of this id; else the run of this Slurm job that began nearest to `start`: a job table gives its
        runs ids of their own."""
        for w in self.workloads:
            if w.id == id_:
                return w
        runs = [w for w in self.workloads if job and w.scheduled.name == "slurm" and job in _numbers(w)]
        return min(runs, key=lambda w: abs(w.start - start), default=None)


def judge_window(
    frame: Frame, book: Rulebook, now: float, *, seed: int, with_moves: bool | None = None
) -> JudgedWindow:
    """Judge what was read. `with_moves`: whether recommendations are made; None: where some workload has the data for
    them. `seed`: of their intervals."""
    verdicts = judge(frame, book)
    prices = PriceBook(book.catalog, tuple(book.own.prices), book.power, book.hourly)
    wanted = any(verdicts.waste_ready.values()) if with_moves is None else with_moves
    if wanted:
        from ..pipeline import AdviseOptions, advise_on  # noqa: PLC0415 - of a card most jobs do without

        advice = advise_on(verdicts, book, AdviseOptions(now), np.random.default_rng(seed), source=frame.source)
        return JudgedWindow(frame, verdicts, advice.workloads, prices, advice, now)
    energy = energy_accounts(verdicts, with_costs(verdicts, prices), prices, book.energy)
    return JudgedWindow(frame, verdicts, energy.workloads, prices, None, now)


def card_of(
    window: JudgedWindow,
    w: WorkloadVerdict,
    *,
    seen_until: float | None = None,
    life: tuple[float, float] | None = None,
    earlier: Sequence[tuple[float, float | None]] = (),
    course: Course | None = None,
) -> Card:
    """The card of one workload. `seen_until`: the newest data of its nodes (None: the window's end). `life`: its start
    and end where the window holds only a part. `earlier`: GPU-hours and SM activity of runs of its series. `course`:
    finer than the window tells."""
    start, end = life or (w.start, w.end)
    end = max(start, end)
    newest = window.frame.window.end if seen_until is None else seen_until
    scheduled, numbers = w.scheduled, _numbers(w)
    state: CardState = "running" if abs(window.now - newest) <= _FRESH_SECONDS else "unknown"
    running = (scheduled.state or "RUNNING").upper() in ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")
    if not running or end < newest - RUNNING_SECONDS:
        state = "ended"
    use = use_of(window.frame, window.verdicts, w)
    judged = Judged(
        w.kind.label, w.kind.confidence, w.bottleneck.label, w.bottleneck.confidence,
        {key: value for key, value in w.bottleneck.time_shares.items() if value > 0},
    )  # fmt: skip
    nodes = [n for name in w.nodes if (n := window.verdicts.node(name)) is not None]
    price = None
    for node in nodes:
        found, rate = window.prices.of(node), window.prices.per_gpu_hour(node)
        if found is not None and rate is not None:
            price = CardPrice(found.id, rate, found.basis, found.source, found.as_of, price_words(found))
            break
    advice, cost, idle = window.advice, w.cost_usd, use.idle_gpu_hours
    per_hour = cost / w.gpu_hours if cost is not None and w.gpu_hours > 0 else None
    return Card(
        id=w.id, series_id=w.series_id, name=w.name, cluster=next((n.cluster for n in nodes if n.cluster), None),
        scheduler=scheduled.name, job_id=numbers[-1] if numbers else None, namespace=w.owner.namespace,
        pod=_pod(window, w), owner=w.owner, generated_at=window.now, state=state, scheduler_state=scheduled.state,
        restarts=scheduled.restarts, start=start, end=end, elapsed_seconds=end - start, nodes=w.nodes,
        gpu_sku=w.gpu_sku, gpu_count=len(w.gpus), gpu_part=w.gpu_part, shared=w.shared, basis=w.basis,
        gpu_hours=w.gpu_hours, asked=_asked(window, w), judged=judged, use=use,
        course=course or course_of(window.verdicts, w), kwh=w.energy.kwh if w.energy else None,
        energy_basis=w.energy.basis if w.energy else None, cost_usd=cost,
        idle_usd=None if per_hour is None or idle is None else per_hour * idle, price=price,
        compared=compared_with(earlier, per_hour),
        next_step=next_step(
            w, judged, use, state=state, elapsed_seconds=w.end - w.start,
            findings=[f for f in advice.findings if f.workload == w.id] if advice else (),
            recommendations=[r for r in advice.recommendations if r.workload == w.id] if advice else (),
        ),
        missing=_missing(w, use, nodes, has_price=price is not None),
        data_since=w.start if w.start - start > _CUT_SECONDS else None,
    )  # fmt: skip


def compared_with(earlier: Sequence[tuple[float, float | None]], usd_per_gpu_hour: float | None) -> Compared | None:
    """Medians of earlier runs; their cost at this run's price, so that use is compared and not prices. None: there are
    none."""
    if not earlier:
        return None
    hours = median(one for one, _ in earlier)
    sm = [one for _, one in earlier if one is not None]
    cost = None if usd_per_gpu_hour is None else hours * usd_per_gpu_hour
    return Compared(len(earlier), hours, median(sm) if sm else None, cost)


def earlier_in(window: JudgedWindow, w: WorkloadVerdict) -> list[tuple[float, float | None]]:
    """Other runs of the same series in the window that began before this one."""
    return [
        (other.gpu_hours, other.features.get("sm_active"))
        for other in window.workloads
        if other.series_id == w.series_id and other.id != w.id and other.start < w.start and other.gpu_hours > 0
    ]


def with_kept(card: Card, kept: Sequence[Card]) -> Card:
    """The card compared with runs of its series that are kept, where telemetry has fewer of them."""
    others = [one for one in kept if one.id != card.id and one.series_id == card.series_id and one.start < card.start]
    if len(others) <= (card.compared.runs if card.compared else 0):
        return card
    rate = card.cost_usd / card.gpu_hours if card.cost_usd is not None and card.gpu_hours > 0 else None
    return replace(card, compared=compared_with([(one.gpu_hours, one.use.sm_active) for one in others], rate))


def _numbers(w: WorkloadVerdict) -> list[str]:
    s = w.scheduled
    return job_names({"job_id": s.job_id, "array_job_id": s.array_job_id, "array_task_id": s.array_task_id})


def _pod(window: JudgedWindow, w: WorkloadVerdict) -> str | None:
    rows = window.frame.workloads
    if rows.empty or "pod" not in rows:
        return None
    return next((text(pod) for pod in rows.loc[rows["workload_id"] == w.id, "pod"].dropna()), None)


def _asked(window: JudgedWindow, w: WorkloadVerdict) -> Asked:
    """What a job table, or the requests of its pods, say that it asked for."""
    jobs, requests = window.frame.jobs, window.frame.requests
    if w.scheduled.name == "slurm":
        wanted = set(_numbers(w))
        rows = [row for row in records(jobs) if wanted & set(job_names(row))]
        if not rows:
            return Asked(reason="not in the job table (run 'skuwise slurm import', or use --jobs)")
        row = min(rows, key=lambda row: abs((known(row.get("started_at")) or 0.0) - w.start))
        return Asked(known(row.get("gpus")), known(row.get("cpus")), known(row.get("mem_bytes")))
    pod = _pod(window, w)
    if pod and not requests.empty:
        rows = requests[(requests["pod"] == pod) & (requests["namespace"] == w.owner.namespace)]
        if len(rows):
            return Asked(gpus=float(rows.loc[rows["ts_end"] == rows["ts_end"].max(), "count"].sum()))
    if w.basis == "allocation":
        return Asked(gpus=float(len(w.gpus)))
    return Asked(reason="no scheduler reports a request")


def _missing(w: WorkloadVerdict, use: Use, nodes: Sequence[NodeFacts], *, has_price: bool) -> Mapping[str, str]:
    """Name of each figure that is missing -> why."""
    lacking = w.coverage.missing
    fabric = next((n.fabric.reason for n in nodes if n.fabric is not None and n.fabric.reason), None)
    if fabric is None and nodes and all(n.fabric is None for n in nodes):
        fabric = "no fabric port is reported"
    nvlink = lacking.get("nvlink_tx_bytes_per_second", "no NVLink counters")
    if nodes and all(n.without_nvlink for n in nodes):
        nvlink = "this GPU has no NVLink"
    fault = w.features.get("fault_share", 0.0) > 0.0
    kwh = w.energy.kwh if w.energy is not None else None
    energy = "its GPUs are shared" if w.shared else "no energy counter and no power reading is available"
    why = {
        "sm_active": (use.sm_active, lacking.get("sm_active", _NOT_REPORTED)),
        "tensor_active": (use.tensor_active, lacking.get("tensor_active", _NOT_REPORTED)),
        "mem_peak_bytes": (use.mem_peak_bytes, lacking.get("mem_used_bytes", _NOT_REPORTED)),
        "fabric": (use.fabric, fabric or "no counters of a compute fabric"),
        "nvlink": (use.nvlink, nvlink),
        "cpu": (use.cpu, "no host metrics in this source"),
        "disk": (use.disk_read_bytes_per_second, "no disk metrics in this source"),
        "idle_gpu_hours": (
            use.idle_gpu_hours, "the signals contradict one another" if fault else "GPU activity is not measured"
        ),
        "kwh": (kwh, energy),
        "cost_usd": (
            w.cost_usd, "its GPUs are shared" if w.shared and has_price else "no price for its nodes is known"
        ),
    }  # fmt: skip
    return {name: reason for name, (value, reason) in why.items() if value is None}
