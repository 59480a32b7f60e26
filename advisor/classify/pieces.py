"""What a piece of a workload's time is: its features, then its kind, then what holds it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS, TRAINING_KINDS, KindLabel
from ..core.coded_text import CodedText, Scalar, coded
from ..core.column_rows import ColumnRows, Columns, columns_of
from ..core.formatting import clause, percent
from ..core.frame import Frame
from ..core.segments import Ints
from ..core.verdict_types import INFERRED, Alternative, BottleneckVerdict, KindVerdict
from ..rulebook import Rulebook
from .bottlenecks.evidence import figures_behind, say, signatures, unsettled
from .bottlenecks.links import suspect
from .features.course import PieceRows, RowTables
from .features.features import features
from .kinds.clues import Clue, metadata_clues
from .kinds.kinds import judge_kind
from .types import NodeFacts
from .workloads.attribution import Attribution
from .workloads.session import EngineFacts, Session, engine_facts
from .workloads.sku_lookup import GpuIndex

# Idle for so much of the time: that is what it is, whatever the rest was.
IDLE_SHARE_MIN = 0.95


def ruling(shares: Mapping[str, float], dominant: float) -> str:
    """The label of a workload with these shares of its time; `dominant`: share of the busy time that a label needs."""
    if shares.get("idle", 0.0) >= IDLE_SHARE_MIN:
        return "idle"
    busy = {label: share for label, share in shares.items() if label != "idle"}
    total = sum(busy.values())
    if total <= 0:
        return "unknown"
    label = leading(busy)
    if busy[label] >= dominant * total:
        return label
    return "mixed" if total - busy.get("unknown", 0.0) >= 0.5 * total else "unknown"


def leading(weights: Mapping[str, float]) -> str:
    """The label of the largest weight; of those that differ only by rounding, the first by name."""
    most = max(weights.values())
    return min(label for label, weight in weights.items() if weight >= most - 2e-6)


# What an engine that rests looks like while it works: the host shows in none of these.
_MASKS_HOST = ("compute", "hbm-bandwidth", "mixed", "latency", "unknown")
_ALWAYS = ("host-input", "idle", "latency", "unknown")
# What a person works in rests while they think: from half of its time on that is what it mostly does.
_PERSON_RESTS = 0.5
# A second label is worth naming from this share of the busy time on.
_WORTH_NAMING = 0.1
# Confidence where use is relative to an assumed efficiency, and where samples are longer than what they should show.
# Judgements, not measurements: one in five such verdicts is expected to be wrong.
_ASSUMED, _COARSE = 0.8, 0.8
# The same where NVLink is named for what collectives of small tensors take: it was not seen busy for this share of the
# seconds, or at this level (`nvlink_share`, `link_level` of rules/bottlenecks.yaml).
_INDIRECT, _BUSY_MIN, _LEVEL_MIN = 0.8, 0.1, 0.4
_NAMES = {
    "compute": "Compute-bound",
    "hbm-bandwidth": "Memory-bandwidth-bound",
    "nvlink": "NVLink-bound",
    "network": "Bound by the network between nodes",
    "pcie": "PCIe-bound",
    "host-input": "Waiting for the host or its input",
    "straggler": "Waiting in collectives",
    "latency": "Bound by kernel launches and dependencies",
    "throttled": "Throttled",
    "mixed": "Bound by compute and memory bandwidth",
    "unknown": "Unknown bottleneck",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, or a part of its time, whose bottleneck is asked for. `kind`: what it is, or, where nothing is said
    of that, what it is likelier to be, unless `clues` (what people and schedulers say of it) say otherwise.
    `coverage`: share of its time that was observed."""

    rows: ColumnRows
    kind: KindVerdict
    clues: Sequence[Clue]
    coverage: float

    def likely(self, kinds: tuple[KindLabel, ...]) -> bool:
        """Whether it is of one of these kinds, or likelier to be than not where its kind is open."""
        if self.kind.label != "unknown":
            return self.kind.label in kinds
        labels = (*JOB_KINDS, *ON_DEMAND_KINDS)
        said = {label: sum(clue.weights.get(label, 0.0) for clue in self.clues) for label in labels}
        if max(said.values()) > max(said[kind] for kind in kinds):
            return False
        return sum(other.confidence for other in self.kind.alternatives if other.label in kinds) > 0.5


@dataclass(frozen=True)
class RowLabels:
    """The labels of rows as numbers. `names` in order; `labels`, `hostless`: of each row of the frame's `gpu`, with and
    without regard to the host."""

    names: tuple[str, ...]
    labels: Ints
    hostless: Ints

    @classmethod
    def of(cls, measures: Columns) -> RowLabels:
        row_labels, hostless = measures["label"], measures["hostless"]
        codes, names = pd.factorize(np.concatenate([np.array(_ALWAYS, dtype=object), row_labels, hostless]), sort=True)
        codes = codes[len(_ALWAYS) :].astype(np.intp)
        return cls(tuple(str(name) for name in names), codes[: len(row_labels)], codes[len(row_labels) :])

    def code(self, name: str) -> int:
        return self.names.index(name)

    def by_kind(self, rows: PieceRows, cases: Sequence[Case]) -> Ints:
        """The label of each row of the cases, as work of their kinds has it."""
        whole = np.concatenate([np.empty(0, dtype=np.bool_), *(case.rows["whole"] for case in cases)])
        labels, hostless = self.labels[rows.at], self.hostless[rows.at]
        job = np.array([case.likely(JOB_KINDS) for case in cases], dtype=np.bool_)
        asked = ~job & np.array([case.likely(ON_DEMAND_KINDS) for case in cases], dtype=np.bool_)
        has_kind = asked & np.array([case.kind.label != "unknown" for case in cases], dtype=np.bool_)
        job, asked, has_kind = (rows.segments.spread(mask) for mask in (job, asked, has_kind))
        host, latency, unknown = (self.code(name) for name in ("host-input", "latency", "unknown"))
        masked = np.isin(labels, [n for n, name in enumerate(self.names) if name in _MASKS_HOST])
        # In a row that it began or ended in, the engine also rested because it was not there.
        labels = np.where(job & whole & rows.flags("starved") & masked, host, labels)
        labels = np.where(has_kind & (labels == host), hostless, labels)
        # Only its busy time counts: how seldom it is asked says nothing of what limits it then.
        labels = np.where(asked & (labels == unknown) & rows.flags("thin"), latency, labels)
        return np.where((labels == host) & ~whole, hostless, labels)


def judge_bottlenecks(
    cases: Sequence[Case], tables: RowTables, labels: RowLabels, dominant: float
) -> list[BottleneckVerdict]:
    """The verdict on each case. `dominant`: share of the busy time that a label needs to rule."""
    rows = PieceRows.of(tables, [case.rows for case in cases])
    codes = labels.by_kind(rows, cases)
    shares = _shares(codes, rows, labels.names)
    first = [_first_verdict(case, held, dominant) for case, held in zip(cases, shares, strict=True)]
    busy = [{name: share for name, share in held.items() if name != "idle"} for held in shares]
    # What most of the busy time carries, where a case is open: its evidence is of these rows.
    open_ = [not bottleneck_verdict.evidence for bottleneck_verdict in first]
    leads = np.array([labels.code(leading(b)) if o else -1 for b, o in zip(busy, open_, strict=True)], dtype=np.intp)
    chosen = rows.where(codes == rows.segments.spread(leads))
    trains = np.array([case.kind.label in TRAINING_KINDS for case in cases], dtype=np.bool_)
    signs = signatures(rows.where(rows.segments.spread(leads >= 0) & (codes != labels.code("idle"))), trains)
    doubts = _doubts(chosen, [bottleneck_verdict.label for bottleneck_verdict in first])

    @cache
    def means(name: str) -> list[float]:
        return chosen.mean(name).tolist()

    out: list[BottleneckVerdict] = []
    for n, (case, bottleneck_verdict) in enumerate(zip(cases, first, strict=True)):
        if not open_[n]:
            out.append(bottleneck_verdict)
            continue
        worked, lead = sum(busy[n].values()), labels.names[leads[n]]
        of_busy = {name: share / worked for name, share in busy[n].items()}
        evidence = [
            *_shares_told(of_busy, lead, dominant),
            *figures_behind(bottleneck_verdict.label, lambda name, n=n: means(name)[n]),
        ]
        if bottleneck_verdict.label == "straggler":
            job_rows = slice(rows.segments.bounds[n], rows.segments.bounds[n + 1])
            evidence.extend(suspect(ColumnRows(tables.measures, rows.at[job_rows]), rows.seconds[job_rows]))
        evidence.extend(signs[n])
        if bottleneck_verdict.label == "unknown":
            job_rows = slice(chosen.segments.bounds[n], chosen.segments.bounds[n + 1])
            evidence.extend(unsettled(set(map(str, tables.measures["lacks"][chosen.at[job_rows]])), means("g")[n]))
        doubt, said = doubts[n]
        confidence = round(doubt * _confidence(of_busy[lead], case.coverage), 3)
        out.append(replace(bottleneck_verdict, confidence=confidence, evidence=(*evidence, *said)))
    return out


def _shares(codes: Ints, rows: PieceRows, names: Sequence[str]) -> list[dict[str, float]]:
    width, count = len(names), len(rows.segments)
    slot = rows.segments.number * width + codes
    sums = np.bincount(slot, weights=rows.seconds, minlength=count * width).reshape(count, width)
    occurs = np.bincount(slot, minlength=count * width).reshape(count, width) > 0
    order = np.argsort(-sums, axis=1, kind="stable")
    totals = sums.sum(axis=1)
    return [
        {names[int(code)]: float(label_seconds[code] / total) for code in ranked[there[ranked]]} if total > 0 else {}
        for label_seconds, total, ranked, there in zip(sums, totals, order, occurs, strict=True)
    ]


def _first_verdict(case: Case, exact: Mapping[str, float], dominant: float) -> BottleneckVerdict:
    if not exact:
        return BottleneckVerdict("unknown", 0.0, {"unknown": 1.0}, (say("nothing-observed"),))
    shares = {label: round(value, 4) for label, value in exact.items()}
    ruled = ruling(exact, dominant)
    # Interactive work mostly waits for its user: no limit of the GPU slows it down.
    at_rest = case.kind.label == "interactive" and exact.get("idle", 0.0) >= _PERSON_RESTS
    if case.kind.label == "idle" or ruled == "idle" or at_rest:
        share = shares.get("idle", 0.0)
        return BottleneckVerdict("idle", _confidence(share, case.coverage), shares, (say("idle-share", share=share),))
    if sum(value for label, value in exact.items() if label != "idle") <= 0:
        return BottleneckVerdict("unknown", 0.0, shares, (say("never-at-work"),))
    return BottleneckVerdict(ruled, 0.0, shares, ())  # type: ignore[arg-type]


def _shares_told(busy: Mapping[str, float], lead: str, dominant: float) -> list[CodedText]:
    """What it waits for in its busy time. `busy`: shares of that by label; `lead`: the largest."""

    def told(code: str, words: str, shares: Mapping[str, Scalar]) -> CodedText:
        names = ", ".join(f"{clause(_NAMES[label])} {percent(share)}" for label, share in shares.items())  # type: ignore[arg-type]
        return CodedText(code, f"{words}: {names}.", shares)

    share = busy[lead]
    if share < dominant:
        return [told("no-single-limit", "No single bottleneck in its busy time", busy)]
    said = [coded(f"limited-by-{lead}", f"{_NAMES[lead]}: {{share:.0%}} of its busy time.", share=share)]
    others = {label: value for label, value in busy.items() if label != lead and value >= _WORTH_NAMING}
    return [*said, told("other-limits", "Other bottlenecks", others)] if others else said


def _confidence(share: float, coverage: float) -> float:
    return round(min(0.99, share * (0.5 + 0.5 * min(1.0, coverage))), 3)


def _doubts(rows: PieceRows, labels: Sequence[str]) -> list[tuple[float, list[CodedText]]]:
    """Of each case a factor on its confidence, and a sentence for each reason, by the `rows` that carry its label:
    whether efficiencies were assumed, samples longer than the parts of a step, or a link was hardly seen busy."""
    segments = rows.segments
    flags = ("assumed_c", "assumed_m", "coarse")
    assumed_c, assumed_m, coarse = (segments.any(rows.flags(name)).tolist() for name in flags)
    seconds = segments.median(rows.measured("sample_seconds")).tolist()
    shares, levels = (segments.mean(rows.measured(name)).tolist() for name in ("n_share", "u_n"))
    out = []
    for n, label in enumerate(labels):
        factor, said = 1.0, list[CodedText]()
        for what, assumed in (("compute", assumed_c[n]), ("memory bandwidth", assumed_m[n])):
            if assumed and label in _MASKS_HOST:
                factor = _ASSUMED
                said.append(say("efficiency-assumed", what=what))
        if label == "nvlink" and not (shares[n] >= _BUSY_MIN or levels[n] >= _LEVEL_MIN):
            factor *= _INDIRECT
            said.append(say("waits-in-collectives"))
        if coarse[n] and label not in ("idle", "throttled"):
            factor *= _COARSE
            said.append(say("samples-are-means", seconds=seconds[n]))
        out.append((factor, said))
    return out


# Of the gangs found on simulated fleets some nine in ten are a job with exactly its GPUs.
INFERRED_SHARE = 0.9
_FROM_ACTIVITY = coded(
    "inferred-from-activity",
    "Inferred from GPU activity: run times and GPUs are estimates. No scheduler, label or process names this workload.",
)


@dataclass(frozen=True)
class JudgementInputs:
    """What every piece is judged on. `nodes`: by name; `tables`: the columns of the frame's `gpu` and of its measures;
    `labels`: of the same rows; `engines`: what the inference engines within workloads reported, by workload."""

    frame: Frame
    index: GpuIndex
    nodes: Mapping[str, NodeFacts]
    book: Rulebook
    tables: RowTables
    labels: RowLabels
    engines: Mapping[str, EngineFacts]

    @classmethod
    def of(
        cls, frame: Frame, index: GpuIndex, rows: pd.DataFrame, nodes: Iterable[NodeFacts], book: Rulebook
    ) -> JudgementInputs:
        """The inputs, their columns taken out once. `rows`: the measures, with the label of each."""
        uuid = pd.factorize(frame.gpu["gpu_uuid"], sort=True)[0].astype(np.intp)
        tables = RowTables(columns_of(frame.gpu), columns_of(rows), uuid)
        labels, engines = RowLabels.of(tables.measures), engine_facts(frame.serving)
        return cls(frame, index, {node.node: node for node in nodes}, book, tables, labels, engines)

    def nodes_of(self, session: Session) -> list[NodeFacts]:
        return [self.nodes[node] for node in session.nodes if node in self.nodes]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a workload that are judged together, of `Attribution.workload_rows`. `session`: the workload, as if it
    had lasted as long as they do."""

    session: Session
    rows: ColumnRows

    @property
    def seconds(self) -> float:
        """GPU-seconds observed."""
        return float(self.rows["seconds"].sum())

    @property
    def observed_share(self) -> float:
        """Share of what it held that was observed; a part of the rows is taken for as well observed as the whole."""
        held = self.session.held_seconds
        return min(1.0, self.seconds / held) if held > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a piece is."""

    features: Mapping[str, float]
    kind: KindVerdict
    bottleneck: BottleneckVerdict


def pieces_of(attribution: Attribution) -> list[Piece]:
    table = attribution.workload_rows
    rows = ColumnRows(columns_of(table), np.arange(len(table)))
    by_id, nothing = rows.groups("workload_id"), rows.taken(np.empty(0, dtype=np.intp))
    return [Piece(session, by_id.get(session.workload_id, nothing)) for session in attribution.sessions]


def judge_pieces(pieces: Sequence[Piece], inputs: JudgementInputs) -> list[Judgement]:
    """One judgement for each piece, in their order."""
    if not pieces:
        return []
    book = inputs.book
    each = [(piece.session, piece.rows) for piece in pieces]
    all_features = features(each, inputs.frame.window, inputs.tables, inputs.index, book.kinds)
    cases = []
    for piece, piece_features in zip(pieces, all_features, strict=True):
        session, nodes = piece.session, inputs.nodes_of(piece.session)
        begin = min((node.first_seen for node in nodes), default=session.start)
        # What was before its nodes were first observed is no gap.
        held = session.held_seconds - max(begin - session.start, 0.0) * len(session.gpus)
        since_seen = min(1.0, piece.seconds / held) if held > 0 else 1.0
        facts = inputs.engines.get(session.workload_id)
        clues = tuple(metadata_clues(session, piece_features, facts, book.kind_priors))
        kind = judge_kind(clues, piece_features, book.kinds, book.kind_model, since_seen)
        cases.append(Case(piece.rows, kind, clues, piece.observed_share))
    dominant = book.bottlenecks.dominant_share_min
    limits = judge_bottlenecks(cases, inputs.tables, inputs.labels, dominant)
    every = zip(all_features, cases, limits, strict=True)
    out = [Judgement(piece_features, case.kind, limit) for piece_features, case, limit in every]
    for n, piece in enumerate(pieces):
        if piece.session.basis == INFERRED:  # less sure; a kind that becomes too unsure is unknown
            kind, limit = out[n].kind, out[n].bottleneck
            confidence = round(kind.confidence * INFERRED_SHARE, 3)
            kind_verdict = replace(kind, confidence=confidence, evidence=(*kind.evidence, _FROM_ACTIVITY))
            if kind.label != "unknown" and confidence < book.kinds.abstain_below:
                others = (Alternative(kind.label, confidence), *kind.alternatives)
                kind_verdict = replace(kind_verdict, label="unknown", alternatives=others)
            limit = replace(limit, confidence=round(limit.confidence * INFERRED_SHARE, 3))
            out[n] = Judgement(out[n].features, kind_verdict, limit)
    return out
