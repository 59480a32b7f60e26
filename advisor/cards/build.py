"""The card of a workload, from a judged window that holds its life, and the one thing to do next about it.

Verdicts on waste need 30 hours of a series; what is said here of a shorter job are facts of that job alone.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pandas as pd

from ..classify.features.rest import rested_since
from ..classify.judge import judge
from ..classify.types import NodeFacts, Verdicts
from ..core.advice_types import Advice
from ..core.card_types import COURSE_SPANS, Asked, Card, CardPrice, CardState, Compared, Course, Judged, Use
from ..core.coded_text import CodedText, coded
from ..core.formatting import price_words
from ..core.frame import Frame
from ..core.ids import Named
from ..core.scalars import known, records, text
from ..core.timestamps import minute, span
from ..core.verdict_types import WorkloadVerdict
from ..pipeline import Reasoned, reason_on
from ..rulebook import Rulebook
from ..state.cards import knows_less
from ..state.ledger import configuration_words
from ..telemetry.job_table import job_names

Earlier = Sequence[tuple[float, float | None]]  # GPU-hours and SM activity of earlier runs of a series
# Less than this much of a job's life, or of its data, is no evidence: for example one rollup of a minute.
ENOUGH_SECONDS, ENOUGH_OBSERVED = 300.0, 0.5
# Idle for so long at its end: a checkpoint, a download or an evaluation lasts less (rules/watch.yaml, limits of jobs).
_RESTS_SECONDS = 1800.0
# A bottleneck that takes half of the time is what to change first.
_MAIN_SHARE = 0.5
_UNUSED_SECONDS = 900.0
# Below these it fits on a fraction of its GPU, with room: the peak of its memory and its mean activity.
_SMALL_MEMORY, _SMALL_SM, _SMALL_SECONDS = 0.2, 0.15, 3600.0
_HOUR = 3600.0
# Telemetry that is older than this says nothing of what runs now.
_FRESH_SECONDS = _HOUR
# One seed for all runs: the same data give the same intervals.
_SEED = 20
# A run that was seen within so long of its node's newest data is taken to run on: two minutes of rollups and a tick.
RUNNING_SECONDS = 180.0
_NOT_REPORTED = "not reported by this source"
# Data that begin later than the job by more than a rollup were lost.
_CUT_SECONDS = 300.0

_BY_ACTION = {
    "reduce-gpus": "Reduce to {to}.", "mig-slice": "Move to MIG instances: {to}.", "move-sku": "Move to {to}.",
    "consolidate": "Consolidate on fewer nodes.", "schedule-off": "Release its GPUs when not in use.",
    "swap-placement": "Swap its place with other work.", "release": "Release its GPUs.",
    "lower-clock": "Lower the GPU clock.", "power-cap": "Set a power limit.",
}  # fmt: skip
_BY_BOTTLENECK = {
    "host-input": "Fix data loading first: waiting for input in {share:.0%} of its time.",
    "network": "Check the network first: limited by it in {share:.0%} of its time.",
    "straggler": "Find the slow rank first: the others wait for it in {share:.0%} of the time.",
    "throttled": "Fix power or cooling first: throttled in {share:.0%} of its time.",
    "pcie": "Reduce host-to-GPU copies: limited by PCIe in {share:.0%} of its time.",
    "latency": "Use larger batches or CUDA graphs: kernels too short for the GPU in {share:.0%} of its time.",
}
# Of what rests at its end: (code, text) by kind, or by whether it runs on.
_BY_REST = {
    "interactive": ("notebook-idle", "Stop the session when it is not in use: idle for the last {rest}."),
    "online-inference": ("service-idle", "Scale it down without requests: idle for the last {rest}."),
    "running": ("stopped", "Check whether it hangs: no GPU activity for {rest}."),
    "ended": ("held-after-work", "End the job with its work: GPUs idle for the last {rest}."),
}  # fmt: skip


def next_step(w: WorkloadVerdict, judged: Judged, use: Use, state: CardState, advice: Advice) -> CodedText:
    """What to do next."""
    seconds, total, unused = w.end - w.start, len(w.gpus), use.unused or 0
    life, is_long = span(seconds), seconds >= _UNUSED_SECONDS
    if w.features.get("fault_share", 0.0) > 0.0:
        text = "Fix telemetry first: signals contradict one another; run 'skuwise doctor'."
        return coded("card-telemetry-fault", text)
    if seconds < ENOUGH_SECONDS or use.observed < ENOUGH_OBSERVED:
        text = "Too little data: {observed:.0%} of {life} observed."
        return coded("card-too-little", text, observed=use.observed, life=life)
    if unused >= total > 0 and is_long:
        if state == "running":
            return coded("card-never-worked", "Cancel it or fix it: no GPU activity in {life}.", life=life)
        return coded("card-never-used", "Request no GPU: it never used one. Check that the program finds its GPUs.")
    if use.idle_since is not None and w.end - use.idle_since >= _RESTS_SECONDS:
        code, text = _BY_REST.get(w.kind.label) or _BY_REST["running" if state == "running" else "ended"]
        return coded(f"card-{code}", text, rest=span(w.end - use.idle_since))
    if unused and is_long and w.gpu_part >= 1:
        used, text = total - unused, "Reduce to {used} GPU{s}: {unused} of {all} did nothing."
        return coded("card-unused-gpus", text, used=used, s="" if used == 1 else "s", unused=unused, all=total)
    for r in advice.recommendations:
        if r.workload == w.id and r.action in _BY_ACTION and not r.blocked_by and r.decision is None:
            return coded(f"card-{r.action}", _BY_ACTION[r.action], to=configuration_words(r.target))
    share = judged.time_shares.get(judged.bottleneck, 0.0)
    if judged.bottleneck in _BY_BOTTLENECK and share >= _MAIN_SHARE:
        return coded(f"card-{judged.bottleneck}", _BY_BOTTLENECK[judged.bottleneck], share=share)
    for f in advice.findings:
        if f.workload == w.id:
            text = "Read the finding '{rule}': skuwise explain {finding}."
            return coded(f"card-finding-{f.rule}", text, rule=f.rule, finding=f.id)
    peak = use.mem_peak_bytes / use.mem_total_bytes if use.mem_peak_bytes is not None and use.mem_total_bytes else 1.0
    sm = 1.0 if use.sm_active is None else use.sm_active
    if seconds >= _SMALL_SECONDS and w.gpu_part >= 1 and peak <= _SMALL_MEMORY and sm <= _SMALL_SM:
        text = "Try a smaller GPU or a MIG instance: memory peak {share:.0%}, SM activity {sm:.0%}."
        return coded("card-small", text, share=peak, sm=sm)
    return coded("card-nothing", "Nothing to change.")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Times are Unix seconds. `jobs`: what its scheduler calls it, the id that its user knows last;
    `seen_until`: the newest data of its nodes; `places`: files that have rows of it (empty: the source is a server)."""

    id: str
    series_id: str
    name: str
    start: float
    end: float
    scheduler: str = "process"
    jobs: tuple[str, ...] = ()
    array_job_id: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    pod: str | None = None
    nodes: tuple[str, ...] = ()
    seen_until: float = 0.0
    places: tuple[str, ...] = ()

    @property
    def shown_job(self) -> str | None:
        """The id that its user knows: ``22_7`` of an array's task."""
        return self.jobs[-1] if self.jobs else None

    def named(self) -> Named:
        """For the resolver: jobs with their cluster and pods with their namespace as well."""
        job = f", job {self.shown_job}" if self.shown_job else ""
        pod = f", pod {self.namespace}/{self.pod}" if self.pod else ""
        aliases = [*self.jobs, *([self.pod, f"{self.namespace}/{self.pod}"] if self.pod else [])]
        if self.cluster:
            aliases += [alias for job in self.jobs for alias in (f"{self.cluster}/{job}", f"{job}@{self.cluster}")]
        when = f"{minute(self.start)} to {minute(self.end)}"
        return Named(self.id, f"{self.name or 'workload'}{job}{pod}", self.name, self.nodes, tuple(aliases), when)


def workload_of(run: Run, workloads: Sequence[WorkloadVerdict]) -> WorkloadVerdict | None:
    """The workload of a run: by its id, else the run of the same Slurm job that began nearest: a job table gives its
    runs ids of their own."""
    runs = [w for w in workloads if w.id == run.id] or [
        w for w in workloads if w.scheduled.name == "slurm" and run.shown_job in _numbers(w)
    ]
    return min(runs, key=lambda w: abs(w.start - run.start), default=None)


def judged_at(now: float, frame: Frame, book: Rulebook) -> Reasoned:
    """What was read, judged at `now` (Unix seconds)."""
    return reason_on(judge(frame, book), book, now, _SEED, source=frame.source)


def card_of(
    frame: Frame, reasoned: Reasoned, w: WorkloadVerdict, run: Run | None = None, *, earlier: Earlier | None = None,
    course: Course | None = None,
) -> Card:  # fmt: skip
    """The card of one workload. `reasoned`: the frame, judged. `run`: the whole of it, of which the frame may hold only
    a part. `earlier`: None: those of the frame. `course`: finer than that of the frame."""
    is_cut = run is not None and run.start < w.start <= frame.window.start + _HOUR
    start = run.start if run is not None and is_cut else w.start
    newest = run.seen_until if run is not None and run.seen_until else frame.window.end
    scheduled, numbers = w.scheduled, _numbers(w)
    advice, verdicts, book = reasoned.advice, reasoned.fleet.verdicts, reasoned.fleet.book
    now = advice.generated_at
    state: CardState = "running" if abs(now - newest) <= _FRESH_SECONDS else "unknown"
    running = (scheduled.state or "RUNNING").upper() in ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")
    if not running or w.end < newest - RUNNING_SECONDS:
        state = "ended"
    rows = frame.workloads
    pods = rows.loc[rows["workload_id"] == w.id, "pod"] if "pod" in rows else ()
    pod = next((name for name in map(text, pods) if name), None)
    use = _use_of(frame, verdicts, w)
    judged = Judged(
        w.kind.label, w.kind.confidence, w.bottleneck.label, w.bottleneck.confidence,
        {key: value for key, value in w.bottleneck.time_shares.items() if value > 0},
    )  # fmt: skip
    nodes = [n for name in w.nodes if (n := verdicts.node(name)) is not None]
    prices = [(book.of(node), book.per_gpu_hour(node)) for node in nodes]
    price = next((
        CardPrice(p.id, rate, p.basis, p.source, p.as_of, price_words(p))
        for p, rate in prices if p is not None and rate is not None
    ), None)  # fmt: skip
    cost, idle = w.cost_usd, use.idle_gpu_hours
    per_hour = cost / w.gpu_hours if cost is not None and w.gpu_hours > 0 else None
    return Card(
        id=w.id, series_id=w.series_id, name=w.name, cluster=next((n.cluster for n in nodes if n.cluster), None),
        scheduler=scheduled.name, job_id=numbers[-1] if numbers else None, namespace=w.owner.namespace, pod=pod,
        owner=w.owner, generated_at=now, state=state, scheduler_state=scheduled.state,
        restarts=scheduled.restarts, start=start, end=w.end, elapsed_seconds=w.end - start, nodes=w.nodes,
        gpu_sku=w.gpu_sku, gpu_count=len(w.gpus), gpu_part=w.gpu_part, shared=w.shared, basis=w.basis,
        gpu_hours=w.gpu_hours, asked=_asked(frame, w, pod), judged=judged, use=use,
        course=course or course_of(w.start, w.end, verdicts.usage_of([w.id], "ts", "seconds", "sm", "c")),
        kwh=w.energy.kwh if w.energy else None, energy_basis=w.energy.basis if w.energy else None, cost_usd=cost,
        idle_usd=None if per_hour is None or idle is None else per_hour * idle, price=price,
        compared=_compared(earlier_in(advice.workloads, w) if earlier is None else earlier, per_hour),
        next_step=next_step(w, judged, use, state, advice),
        missing=_missing(w, use, nodes, has_price=price is not None),
        data_since=w.start if w.start - start > _CUT_SECONDS else None,
    )  # fmt: skip


def frame_parts(frame: Frame) -> Callable[[WorkloadVerdict], Frame]:
    """Gives of a frame what the card of a workload reads: rows of its nodes and of its job. Searching all rows for each
    card makes 10,000 cards a matter of hours."""
    places = {name: getattr(frame, name).groupby("node", sort=False).indices for name in ("host", "gpus")}
    jobs = defaultdict[str, list[int]](list)
    for n, row in enumerate(records(frame.jobs)):
        for job in job_names(row):
            jobs[job].append(n)

    def part_of(w: WorkloadVerdict) -> Frame:
        rows = {name: [n for node in w.nodes for n in at.get(node, ())] for name, at in places.items()}
        rows["jobs"] = list({n for job in _numbers(w) for n in jobs[job]})
        return replace(frame, **{name: getattr(frame, name).iloc[sorted(at)] for name, at in rows.items()})

    return part_of


def _compared(earlier: Earlier, usd_per_gpu_hour: float | None) -> Compared | None:
    """Medians of earlier runs; their cost at this run's price, so that use is compared and not prices. None: there are
    none."""
    if not earlier:
        return None
    hours = median(gpu_hours for gpu_hours, _ in earlier)
    sm = [level for _, level in earlier if level is not None]
    cost = None if usd_per_gpu_hour is None else hours * usd_per_gpu_hour
    return Compared(len(earlier), hours, median(sm) if sm else None, cost)


def earlier_in(workloads: Sequence[WorkloadVerdict], w: WorkloadVerdict) -> Earlier:
    """Other runs of the same series that began before this one."""
    return [
        (other.gpu_hours, other.features.get("sm_active"))
        for other in workloads
        if other.series_id == w.series_id and other.id != w.id and other.start < w.start and other.gpu_hours > 0
    ]


def with_kept(card: Card, kept: Iterable[Card]) -> Card:
    """The card compared with kept runs of its series, where telemetry has fewer of them; the kept card of the same run
    where that was made of more of the job's life."""
    others: dict[str, Card] = {}
    for other in kept:
        if other.id == card.id and card.state == "ended" and knows_less(card, other):
            return other
        if other.id != card.id and other.series_id == card.series_id and other.start < card.start:
            others[other.id] = other
    if len(others) <= (card.compared.runs if card.compared else 0):
        return card
    rate = card.cost_usd / card.gpu_hours if card.cost_usd is not None and card.gpu_hours > 0 else None
    return replace(card, compared=_compared([(run.gpu_hours, run.use.sm_active) for run in others.values()], rate))


def _numbers(w: WorkloadVerdict) -> list[str]:
    s = w.scheduled
    return job_names({"job_id": s.job_id, "array_job_id": s.array_job_id, "array_task_id": s.array_task_id})


def _asked(frame: Frame, w: WorkloadVerdict, pod: str | None) -> Asked:
    if w.scheduled.name == "slurm":
        wanted = set(_numbers(w))
        jobs = [row for row in records(frame.jobs) if wanted & set(job_names(row))]
        if not jobs:
            return Asked(reason="not in the job table (run 'skuwise slurm import', or use --jobs)")
        job = min(jobs, key=lambda row: abs((known(row.get("started_at")) or 0.0) - w.start))
        return Asked(known(job.get("gpus")), known(job.get("cpus")), known(job.get("mem_bytes")))
    requests = frame.requests
    if pod and len(requests):
        rows = requests[(requests["pod"] == pod) & (requests["namespace"] == w.owner.namespace)]
        if len(rows):
            return Asked(gpus=float(rows.loc[rows["ts_end"] == rows["ts_end"].max(), "count"].sum()))
    if w.basis == "allocation":
        return Asked(gpus=float(len(w.gpus)))
    return Asked(reason="no scheduler reports a request")


def _missing(w: WorkloadVerdict, use: Use, nodes: Sequence[NodeFacts], *, has_price: bool) -> Mapping[str, str]:
    reasons, shared = w.coverage.missing, "its GPUs are shared"
    ports = [n.fabric.reason or "no counters of a compute fabric" for n in nodes if n.fabric]
    nvlink = "this GPU has no NVLink" if nodes and all(n.without_nvlink for n in nodes) else "no NVLink counters"
    is_faulty = w.features.get("fault_share", 0.0) > 0.0
    idle = "the signals contradict one another" if is_faulty else "GPU activity is not measured"
    power = shared if w.shared else "no energy counter and no power reading is available"
    why = {
        "sm_active": (use.sm_active, reasons.get("sm_active", _NOT_REPORTED)),
        "tensor_active": (use.tensor_active, reasons.get("tensor_active", _NOT_REPORTED)),
        "mem_peak_bytes": (use.mem_peak_bytes, reasons.get("mem_used_bytes", _NOT_REPORTED)),
        "fabric": (use.fabric, ports[0] if ports else "no fabric port is reported"),
        "nvlink": (use.nvlink, reasons.get("nvlink_tx_bytes_per_second", nvlink)),
        "cpu": (use.cpu, "no host metrics in this source"),
        "disk": (use.disk_read_bytes_per_second, "no disk metrics in this source"),
        "idle_gpu_hours": (use.idle_gpu_hours, idle),
        "kwh": (w.energy and w.energy.kwh, power),
        "cost_usd": (w.cost_usd, shared if w.shared and has_price else "no price for its nodes is known"),
    }
    return {name: reason for name, (value, reason) in why.items() if value is None}


def _use_of(frame: Frame, verdicts: Verdicts, w: WorkloadVerdict) -> Use:
    def share(key: str) -> float | None:
        value = w.features.get(key)
        return None if value is None or not math.isfinite(value) else min(max(float(value), 0.0), 1.0)

    def disk(name: str) -> float | None:
        """Bytes per second of each of its nodes while it ran."""
        rows = host[during & host[name].notna() & (host["observed_seconds"] > 0)]
        return float(np.average(rows[name], weights=rows["observed_seconds"])) if len(rows) else None

    host, total = frame.host, known(frame.gpus.loc[frame.gpus["gpu_uuid"].isin(w.gpus), "mem_total_bytes"].max())
    during = (host["ts"] > w.start) & (host["ts"] - host["interval_seconds"] < w.end) & host["node"].isin(w.nodes)
    top = share("mem_max")
    if top is None:
        top = known(verdicts.usage_of([w.id], "mem_used_ratio")["mem_used_ratio"].max())
    return Use(
        min(1.0, max(0.0, w.coverage.fraction)), share("sm_active"), share("tensor_utilization"),
        share("engine_active"), None if top is None or total is None else min(top, 1.0) * total, total,
        share("fabric_utilization"), share("nvlink_utilization"), share("cpu"), share("io_wait"),
        disk("disk_read_bytes_per_second_mean"), disk("disk_write_bytes_per_second_mean"), *rests_of(verdicts, w),
    )  # fmt: skip


def rests_of(verdicts: Verdicts, w: WorkloadVerdict) -> tuple[float | None, float | None, int | None]:
    """GPU-hours of rest, since when it has rested without a trace of work (Unix seconds; None: it works), and how many
    GPUs never worked. All None: not measured, or signals contradict one another."""
    rows = verdicts.usage_of([w.id], "idle", "rests", "g", "seconds", "gpu_uuid", "ts")
    rows = rows[rows["idle"] | rows["g"].notna()]
    if rows.empty or w.features.get("fault_share", 0.0) > 0.0:
        return None, None, None
    idle, rest = rows["idle"].to_numpy(bool), rows["rests"].to_numpy(bool)
    seconds, end = rows["seconds"].to_numpy(float), rows["ts"].to_numpy(float)
    # A row at rest ends a work that may have lasted until it began.
    judged = rested_since(np.zeros(len(rows), dtype=np.intp), end - seconds, end, active=~rest, rests=rest, count=1)
    since = float(judged.since[0])
    return (
        float(seconds[idle].sum()) / 3600 * w.gpu_part,
        max(since, w.start) if since < end.max() - 1.0 else None,
        len(set(w.gpus) - set(rows["gpu_uuid"][~idle])),
    )


def course_of(start: float, end: float, rows: pd.DataFrame) -> Course:
    """SM and tensor activity of a life (Unix seconds) in spans of a minute or longer, from rows with their end `ts`,
    their `seconds`, `sm` and `c`."""
    if rows.empty or end <= start:
        return Course(start, 0.0)
    count = min(COURSE_SPANS, max(1, round((end - start) / 60.0)))
    step = (end - start) / count
    edges, ends = start + step * np.arange(count + 1), rows["ts"].to_numpy(float)[:, None]
    begins = ends - np.maximum(rows["seconds"].to_numpy(float), 1.0)[:, None]
    shared = np.maximum(np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins), 0.0)
    levels = []
    for name in ("sm", "c"):
        measured = rows[name].notna().to_numpy()
        total, weight = rows.loc[measured, name].to_numpy(float) @ shared[measured], shared[measured].sum(axis=0)
        means = [float(part / whole) if whole > 0 else None for part, whole in zip(total, weight, strict=True)]
        levels.append(tuple(None if mean is None else round(min(max(mean, 0.0), 1.0), 2) for mean in means))
    return Course(start, step, *levels)
