"""How often verdicts and findings are right on the third generator, which the product was not made from.

60 s: a fleet of some 50 nodes through dcgm-exporter, node_exporter and kube-state-metrics in a real VictoriaMetrics
(Debian's `victoria-metrics`), read as `skuwise advise --prometheus` reads it; 1 s: some 80 workloads, each in its own
database. Each is judged as it is and with all that people wrote taken away. Workloads are found again by GPU and time.
Seeds below 1000 are for reporting and are never read one by one; nothing is fitted or tuned on any of them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.advice_types import Finding
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.plan.figures import Planner
from skuwise.advisor.plan.problem import PlanRequest
from skuwise.advisor.recommend.waiting import queue_of
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.rules.base.heap import no_garbage_collection

from ..engine import frame_of, is_installed, victoria
from ..generators.third.agent_fleet import plan_series
from ..generators.third.agent_store import write_node
from ..generators.third.exporters import observe
from ..generators.third.findings import RULES
from ..generators.third.fleet import plan
from ..generators.third.queues import Waits
from ..generators.third.series import lines
from ..generators.third.truth import Truth, truths_of
from ..scoring import (
    ABSTAINED,
    Answer,
    abstention,
    accuracy,
    balanced_accuracy,
    calibration_error,
    confusion,
    f1_by_label,
    given,
    macro_f1,
    recall_by_label,
)
from ..withheld import hidden
from .report import SURE, reliability, sure

END = 1_790_000_000.0 - 1_790_000_000.0 % 3600
BOOK = load_rulebook(None, None, END)
LEAST_OVERLAP = 1800.0


@dataclass
class Result:
    """What was said under one view. `findings`: rule -> found, missed, false, rightly silent; `waiting`: how many jobs
    wait, are in the table once with their GPUs and what they wait for (right), and are there without waiting so; GPUs
    that a plan gives to them (promised), and those of them that others hold (twice)."""

    kinds: list[Answer] = field(default_factory=list)
    limits: list[Answer] = field(default_factory=list)
    findings: dict[str, list[int]] = field(default_factory=lambda: {rule: [0, 0, 0, 0] for rule in RULES})
    waiting: Counter[str] = field(default_factory=Counter)

    def add(self, other: Result) -> None:
        self.kinds += other.kinds
        self.limits += other.limits
        for rule, counts in other.findings.items():
            self.findings[rule] = [a + b for a, b in zip(self.findings[rule], counts, strict=True)]
        self.waiting += other.waiting


def score(frame: Frame, truths: Sequence[Truth], seed: int) -> Result:
    """Judge a frame and compare it with its labels."""
    judged = judge(frame, BOOK)
    advice = reason_on(judged, BOOK, END, seed, source={}).advice
    out = Result()
    by_gpu = _by_gpu(judged.workloads)
    flagged = _flags(advice.findings, {w.id: w for w in judged.workloads})
    for truth in truths:
        kind, limit = _said(truth, by_gpu)
        if truth.kind is not None:
            out.kinds.append(Answer(truth.kind, *kind))
        if truth.bottleneck is not None:
            out.limits.append(Answer(truth.bottleneck, *limit))
        for rule, is_deserved in truth.findings.items():
            if is_deserved is not None:
                is_flagged = any(flag(truth) for flag in flagged[rule])
                out.findings[rule][2 * (not is_deserved) + (not is_flagged)] += 1
    return out


def waiting_counts(frame: Frame, truth: Sequence[Waits]) -> Counter[str]:
    """As of `Result.waiting`; none is right where no queue is known."""
    w = frame.waiting
    rows = Counter(zip(w["id"], w["jobs"], (w["gpus"] * w["jobs"]).round(6), w["blocked"].isna(), strict=True))
    wanted = Counter((t.id, t.jobs, round(t.gpus, 6), t.for_gpus) for t in truth)
    counts = {"jobs": wanted, "right": rows & wanted, "false": rows - wanted}
    return Counter({name: sum(key[1] * count for key, count in of.items()) for name, of in counts.items()})


def promised_counts(frame: Frame, truths: Sequence[Truth], seed: int) -> Counter[str]:
    """GPUs that a plan gives to waiting jobs today, and how many of them work holds in truth."""
    reasoned = reason_on(judge(frame, BOOK), BOOK, END, seed, source={}, queue=queue_of(frame))
    plan = Planner(reasoned, frame, None, time.monotonic).plan(PlanRequest(goal="capacity", reserve_nodes=0))
    running = (piece for truth in truths for piece in truth.pieces if piece.end > frame.window.end - 60.0)
    held = Counter(node for node, _ in {(piece.node, gpu) for piece in running for gpu in piece.gpus})
    given = Counter[str]()
    for node in (node for start in plan.starts if start.step is None for node in start.nodes):
        given[node.node] += node.gpus
    room = {n.node: n.gpu_count - held[n.node] for n in reasoned.fleet.verdicts.nodes}
    return Counter(promised=given.total(), twice=sum(max(gpus - room[node], 0) for node, gpus in given.items()))


Said = tuple[str, float]


def _said(truth: Truth, by_gpu: Mapping[str, Sequence[WorkloadVerdict]]) -> tuple[Said, Said]:
    """What was said of a workload for the most of its GPU time, and how sure; time without a verdict abstains."""
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    limits: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for piece in truth.pieces:
        for gpu in piece.gpus:
            covered = 0.0
            for v in (v for v in by_gpu.get(gpu, ()) if piece.node in v.nodes):
                seconds = _common(piece.start, piece.end, v.start, v.end)
                covered += seconds
                for said, verdict in ((kinds, v.kind), (limits, v.bottleneck)):
                    if seconds > 0:
                        said[verdict.label][0] += seconds
                        said[verdict.label][1] += seconds * verdict.confidence
            for said in (kinds, limits):
                said[ABSTAINED][0] += max(piece.end - piece.start - covered, 0.0)
    return _most(kinds), _most(limits)


def _most(said: Mapping[str, Sequence[float]]) -> Said:
    label = max(said, key=lambda label_name: said[label_name][0])
    seconds, sure = said[label]
    return label, sure / seconds if seconds else 0.0


def _common(a: float, b: float, c: float, d: float) -> float:
    return max(min(b, d) - max(a, c), 0.0)


def _flags(
    findings: Iterable[Finding], verdicts: Mapping[str, WorkloadVerdict]
) -> Mapping[str, list[Callable[[Truth], bool]]]:
    """By rule, whether one of its findings is about a workload: by GPU (or node, where it names none) and time."""
    out: dict[str, list[Callable[[Truth], bool]]] = defaultdict(list)
    for finding in findings:
        about = verdicts.get(finding.workload or "")
        start, end = (about.start, about.end) if about else (-np.inf, np.inf)
        nodes = {name for name in (*finding.nodes, finding.node) if name}

        def concerns(
            truth: Truth, gpus: frozenset[str] = frozenset(finding.gpus), nodes: set[str] = nodes,
            start: float = start, end: float = end, by_node: bool = finding.rule == "idle-fabric",
        ) -> bool:  # fmt: skip
            return any(
                _common(piece.start, piece.end, start, end) >= LEAST_OVERLAP
                and (piece.node in nodes if by_node or not gpus else bool(gpus & piece.gpus))
                for piece in truth.pieces
            )

        out[finding.rule].append(concerns)
    return out


def exporter_fleet(seed: int) -> tuple[Frame, list[Truth], Sequence[Waits]]:
    """What a server has of one fleet at 60 s, and what is true of it and of its queue."""
    fleet = plan(seed, END)
    end = fleet.start + fleet.seconds
    with tempfile.TemporaryDirectory() as folder:
        # Which labels are deserved is known only after all has run; that is needed each time.
        observed = observe(fleet)
        truths = truths_of(fleet)
        queue = Path(folder) / "squeue.json"
        queue.write_text(json.dumps({"errors": [], "jobs": fleet.queue.jobs}, indent=2))
        os.utime(queue, (end, end))
        with victoria(Path(folder), lines(observed)) as (url, _), no_garbage_collection():
            return frame_of(url, BOOK.catalog, fleet.start, end, queue=queue), truths, fleet.queue.truth


def agent_series(seed: int) -> tuple[Frame, list[Truth], Sequence[Waits]]:
    """What the agents of some eighty workloads stored at 1 s, and what is true of them."""
    fleets = plan_series(seed, END)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truths = [truth for fleet in fleets if (_ := write_node(fleet, folder)) for truth in truths_of(fleet)]
        end = fleets[0].start + fleets[0].seconds
        with no_garbage_collection():
            return read_frame([folder], Window(min(fleet.start for fleet in fleets), end)), truths, ()


def _by_gpu(verdicts: Iterable[WorkloadVerdict]) -> dict[str, list[WorkloadVerdict]]:
    out: dict[str, list[WorkloadVerdict]] = defaultdict(list)
    for verdict in verdicts:
        for gpu in verdict.gpus:
            out[gpu].append(verdict)
    return out


def one_seed(seed: int) -> dict[str, Result]:
    """Every view of one seed; of exporters none where the server that holds their series is not installed."""
    results: dict[str, Result] = {}
    for rate, made in (("60 s", exporter_fleet), ("1 s", agent_series)):
        if rate == "1 s" or is_installed():
            frame, truths, queue = made(seed)
            results[rate] = score(frame, truths, seed)
            results[rate].waiting = waiting_counts(frame, queue)
            results[rate].waiting += promised_counts(frame, truths, seed) if queue else Counter()
            results[f"{rate}, names hidden"] = score(hidden(frame), truths, seed)
    return results


def told(view: str, r: Result) -> Iterable[str]:
    """The figures of one view."""
    yield f"\n== {view}: {len(r.kinds)} workloads"
    for what, answers in (("kind", r.kinds), ("bottleneck", r.limits)):
        named = given(answers)
        yield (
            f"{what}: macro-F1 {macro_f1(answers):.3f}, balanced accuracy {balanced_accuracy(answers):.3f}, right "
            f"{accuracy(answers):.1%} of {len(answers)}, abstained {abstention(answers):.1%}, right of those given "
            f"{accuracy(named):.1%}, expected calibration error {calibration_error(answers):.3f}"
        )
        scores = f1_by_label(answers) if what == "kind" else recall_by_label(answers)
        yield f"  {'F1' if what == 'kind' else 'recall'} " + ", ".join(f"{k} {v:.2f}" for k, v in scores.items())
        yield confusion(answers)
    yield f"kinds said with {SURE:g} or more, right: {sure(r.kinds)}"
    yield from reliability(r.kinds)
    if jobs := r.waiting["jobs"]:
        right = r.waiting["right"]
        yield f"waiting jobs, each once and right: {right} of {jobs} ({right / jobs:.2%}), false {r.waiting['false']}"
        yield f"GPUs given to waiting jobs today: {r.waiting['promised']}, of them held: {r.waiting['twice']}"
    for rule, (right, missed, false, silent) in r.findings.items():
        recall = f"{right / (right + missed):.2f}" if right + missed else "-"
        precision = f"{right / (right + false):.2f}" if right + false else "-"
        yield (
            f"{rule:<14} recall {recall:>4} ({right} of {right + missed}), precision {precision:>4} "
            f"({false} false of {false + silent})"
        )
