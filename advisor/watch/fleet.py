"""A reading with its signs, as every rule of the watch gets it; how a sighting is made of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...rules.base.sanitize import clean
from ...rules.policy.thresholds import Levels
from ..classify.features.rest import rested_since
from ..core.advice_types import Evidence, Severity
from ..core.coded_text import coded
from ..core.formatting import listed
from ..core.ids import stable_id
from ..core.incident_types import Hold, HolderKind, IncidentKind, Mask, Recent, Sighting, Spans, Subject
from ..core.timestamps import minute, span
from ..rulebook import Rulebook
from .signs import gpu_signs, hold_signs, last_true, observed_from, of_holds

MINUTE, HOUR = 60.0, 3600.0
_NAME_MAX = 80


@dataclass(frozen=True)
class Criteria:
    """What a reading is judged by. `limits`: how long each kind of holder may hold GPUs without using them, seconds;
    `rules`: thresholds (rules/watch.yaml); `book`: what rest is."""

    limits: Callable[[HolderKind], float]
    rules: Levels
    book: Rulebook


class WatchedFleet:
    """A reading with its signs. `end`: of the newest span. `fresh`: nodes whose data reach it. `sharers`: how many
    workloads hold each GPU. `is_stale`: the newest data of the whole source are old: nothing else can be judged."""

    def __init__(self, recent: Recent, criteria: Criteria) -> None:
        self.recent, self.criteria, self.rules = recent, criteria, criteria.rules
        self.spans, self.end = recent.spans, recent.spans.end
        self.gpus = gpu_signs(recent, criteria.book, self.rules)
        self.holds = hold_signs(recent, self.gpus, self.rules)
        self.nodes = {node.node: node for node in recent.nodes}
        self.sharers = Counter(gpu for hold in recent.holds for gpu in hold.gpus)
        fresh_seconds = self.rules.fresh_minutes * MINUTE
        self.fresh = frozenset(n.node for n in recent.nodes if self.end - (n.last_seen or 0.0) <= fresh_seconds)
        self.is_stale = recent.now - self.end > fresh_seconds

    def is_fresh(self, hold: Hold) -> bool:
        """Whether the data of all nodes of a workload reach the end."""
        return all(self.recent.gpus[gpu].node in self.fresh for gpu in hold.gpus)

    def subject_of(self, hold: Hold, holder: HolderKind | None = None) -> Subject:
        """A workload as the subject of a sighting. Of a shared GPU it holds a part."""
        gpus = [self.recent.gpus[n] for n in hold.gpus]
        nodes = tuple(dict.fromkeys(gpu.node for gpu in gpus))
        skus, node_skus = {gpu.sku for gpu in gpus}, {self.nodes[node].sku for node in nodes}
        return Subject(
            key=f"workload:{hold.workload_id}", name=hold.name, nodes=nodes, gpus=tuple(gpu.uuid for gpu in gpus),
            gpu_count=sum(self.recent.gpus[n].part / self.sharers[n] for n in hold.gpus),
            gpu_sku=skus.pop() if len(skus) == 1 else None, node_sku=node_skus.pop() if len(node_skus) == 1 else None,
            workload_id=hold.workload_id, series_id=hold.series_id, holder=holder or hold.holder,
            scheduler=hold.scheduler, job_id=hold.job_id, pod=hold.pod, owner=hold.owner,
        )  # fmt: skip

    def gpu_subject(self, place: int) -> Subject:
        """One GPU as the subject of a sighting, with the workload that holds it alone."""
        gpu = self.recent.gpus[place]
        holder = next((hold for hold in self.recent.holds if place in hold.gpus and not hold.shared), None)
        return replace(
            self.subject_of(holder) if holder else Subject("", ""), key=f"gpu:{gpu.node}/{gpu.uuid}",
            name=f"{f'GPU {gpu.index}' if gpu.index is not None else gpu.uuid} of {gpu.node}", nodes=(gpu.node,),
            gpus=(gpu.uuid,), gpu_count=gpu.part, gpu_sku=gpu.sku, node_sku=self.nodes[gpu.node].sku,
        )  # fmt: skip

    def sighting(
        self, kind: IncidentKind, code: str, subject: Subject, text: str, step: tuple[str, str], *, severity: Severity,
        since: float, gpus: Sequence[int], evidence: tuple[Evidence, ...], last_work: float | None = None,
        wasted_seconds: float = 0.0, **fields: str | float | None,
    ) -> Sighting:  # fmt: skip
        """A sighting with its hours and dollars. `text`: the finding in one sentence; `step`: code and sentence of the
        one thing to do. Both may use `fields`, `who`, `gpus`, `name` and `node` of the subject, `since`, and `lasted`,
        the time since then. `wasted_seconds`: for which each of `gpus` did nothing. Costs are None where a GPU has no
        price."""
        parts = [self.recent.gpus[n].part / max(self.sharers[n], 1) for n in gpus]
        homes = [self.nodes[self.recent.gpus[n].node] for n in gpus]
        rates = [part * (node.usd_per_gpu_hour or 0.0) for part, node in zip(parts, homes, strict=True)]
        is_priced = bool(gpus) and all(node.usd_per_gpu_hour is not None for node in homes)
        facts = {
            "who": who(subject), "gpus": gpus_of(subject), "name": named(subject.name), "since": minute(since),
            "node": named(subject.nodes[0]) if subject.nodes else "its node", "lasted": span(self.end - since),
            **fields,
        }  # fmt: skip
        return Sighting(
            id=stable_id("s", kind, subject.key), kind=kind, code=code, severity=severity, subject=subject,
            since=since, last_work=last_work, gpu_hours=sum(parts) * wasted_seconds / HOUR,
            usd_per_hour=sum(rates) if is_priced else None,
            cost_usd=sum(rates) * wasted_seconds / HOUR if is_priced else None,
            price_source="; ".join(sorted({node.price_source or "" for node in homes})) if is_priced else None,
            evidence=evidence, text=coded(code, text, **facts), do_next=coded(*step, **facts),
        )  # fmt: skip


def named(text: str) -> str:
    """A name from outside, fit for a sentence."""
    return clean(text)[:_NAME_MAX]


def gpus_of(subject: Subject) -> str:
    """``8 H100-SXM5 on gpu-009``; of a MIG instance its part of a GPU."""
    count = subject.gpu_count
    number = f"{count:.0f}" if abs(count - round(count)) < 1e-6 else f"{count:.2g}"
    sku = named(subject.gpu_sku) if subject.gpu_sku else ("GPU" if number == "1" else "GPUs")
    return f"{number} {sku} on {listed([named(node) for node in subject.nodes])}"


def who(subject: Subject) -> str:
    """The holder with its owner: ``job 4711 (train-7b, alice)``."""
    is_slurm, owner = subject.scheduler == "slurm", subject.owner
    kind = "job" if subject.holder == "allocation" and is_slurm else subject.holder or "workload"
    name = (subject.job_id if is_slurm else None) or subject.name
    about = (subject.name, owner.user or owner.namespace or owner.account)
    inside = [named(part) for part in about if part and part != name]
    return f"{kind} {named(name)}" + (f" ({', '.join(inside)})" if inside else "")


# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5


@dataclass(frozen=True, slots=True)
class Rest:
    """`since`: Unix seconds; `at_least`: the data begin there, and the rest may have begun before. `last_work`: None
    where there was none within view. `idle_seconds`: observed at rest since then. `in_view`: whether the workload began
    within view. `free`: it held no memory since then."""

    since: float
    at_least: bool
    last_work: float | None
    idle_seconds: float
    in_view: bool
    free: bool


def given_time(fleet: WatchedFleet) -> Mask:
    """Spans in which hosts of a workload prepared something for it, up to some hours after its last work."""
    spans, holds = fleet.spans, fleet.holds
    worked = np.nan_to_num(last_true(holds.work, spans), nan=-np.inf)[:, None]
    # A stretch of preparation: hosts that are busy, and were for half of the minutes before.
    busy = np.zeros((len(holds.host), len(spans.seconds) + 1))
    np.cumsum(holds.host * spans.seconds, axis=1, out=busy[:, 1:])
    first = np.searchsorted(spans.ends, spans.ends - _SUSTAINED_SECONDS, side="right")
    is_long = busy[:, 1:] - busy[:, first] >= _SUSTAINED_SHARE * _SUSTAINED_SECONDS - 1e-3
    after = holds.host & is_long & ~holds.work & (spans.ends > worked)
    return after & (np.cumsum(after * spans.seconds, axis=1) <= fleet.rules.host_time_hours * HOUR)


def rests(fleet: WatchedFleet, least_seconds: float = 0.0) -> dict[int, Rest]:
    """The rests of all workloads that last for `least_seconds` or longer, by place in `Recent.holds`.

    A workload whose data end early, or are too thin since its last work, is not in it.
    """
    holds, gap = fleet.holds, fleet.rules.gap_minutes * MINUTE
    spans, active, rest = _with_past(fleet)
    (count, width), last_work = active.shape, last_true(holds.work, fleet.spans)
    ends, seconds = np.tile(spans.ends, count), np.tile(spans.seconds, count)
    judged = rested_since(
        np.repeat(np.arange(count), width), ends - seconds, ends, active=active.ravel(), rests=rest.ravel(),
        count=count, gap_seconds=gap,
    )  # fmt: skip
    by_hold: dict[int, Rest] = {}
    for n, hold in enumerate(fleet.recent.holds):
        since = max(float(judged.since[n]), hold.since)
        after = spans.since(since)
        idle = min(float(spans.seconds[rest[n] & after].sum()), fleet.end - since)
        # The newest minutes may be late; a longer gap may hide work.
        is_known = fleet.end - judged.newest[n] <= gap and fleet.is_fresh(hold)
        if is_known and fleet.end - since >= max(least_seconds, 1.0) and (
            idle >= fleet.rules.observed_min * (fleet.end - since)
        ):  # fmt: skip
            by_hold[n] = Rest(
                since, bool(judged.at_least[n]) and since > hold.since,
                float(last_work[n]) if np.isfinite(last_work[n]) else None, idle, hold.since >= spans.start,
                bool((holds.free[n] | ~fleet.spans.since(since)).all()),
            )  # fmt: skip
    return by_hold


def _with_past(fleet: WatchedFleet) -> tuple[Spans, Mask, Mask]:
    """The spans, with the hours before them where these were read, in which each workload worked, and rested."""
    recent, spans, active, rest = fleet.recent, fleet.spans, fleet.holds.work | given_time(fleet), fleet.holds.rest
    if recent.past is None:
        return spans, active, rest
    (hours, measures), begins, start = recent.past, recent.past[0].ends - recent.past[0].seconds, observed_from(recent)
    before, ends = begins < start, np.minimum(hours.ends, start)
    gpus = gpu_signs(replace(recent, spans=hours, gpu=measures), fleet.criteria.book, fleet.rules)
    worked = of_holds(recent, gpus.work | gpus.spin, np.any)[:, before]
    rested = of_holds(recent, gpus.rest, np.all)[:, before]
    line = [np.concatenate(pair) for pair in ((ends[before], spans.ends), ((ends - begins)[before], spans.seconds))]
    return Spans(*line), np.concatenate([worked, active], axis=1), np.concatenate([rested, rest], axis=1)
