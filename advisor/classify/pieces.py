"""What a piece of a workload's time is: its features, then its kind, then what holds it back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..core.coded_text import coded
from ..core.column_rows import ColumnRows, columns_of, rows_of
from ..core.frame import Frame
from ..core.verdict_types import INFERRED, Alternative, BottleneckVerdict, KindVerdict
from ..rulebook import Rulebook
from .bottlenecks.bottleneck_verdict import Case, RowLabels, judge_bottlenecks
from .features.features import Observed, features
from .features.piece_rows import RowTables
from .kinds.clues import metadata_clues
from .kinds.kinds import judge_kind
from .types import NodeFacts
from .workloads.attribution import Attribution
from .workloads.engine_facts import EngineFacts, engine_facts
from .workloads.session import Session
from .workloads.sku_lookup import GpuIndex

# Of the gangs found on simulated fleets some nine in ten are a job with exactly its GPUs.
INFERRED_SHARE = 0.9
BATCH_ROWS = 20_000
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
        """The inputs, their columns taken out once: every workload takes its rows from them. `rows`: the measures, with
        the label of each."""
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
    """Each workload with all of its rows."""
    rows = rows_of(attribution.workload_rows)
    by_id, nothing = rows.groups("workload_id"), rows.taken(np.empty(0, dtype=np.intp))
    return [Piece(session, by_id.get(session.workload_id, nothing)) for session in attribution.sessions]


def judge_pieces(pieces: Iterable[Piece], inputs: JudgementInputs, batch_rows: int = BATCH_ROWS) -> list[Judgement]:
    """One judgement for each piece, in their order. `batch_rows`: judged at a time, so that the memory in which they
    are judged does not grow with the fleet."""
    every = list(pieces)
    batch = np.cumsum([len(piece.rows) for piece in every]) // batch_rows
    groups = itertools.groupby(zip(batch, every, strict=True), key=lambda pair: pair[0])
    return [judged for _, some in groups for judged in _judge_batch([piece for _, piece in some], inputs)]


def _judge_batch(pieces: Sequence[Piece], inputs: JudgementInputs) -> list[Judgement]:
    book = inputs.book
    observed = [Observed(piece.session, piece.rows, inputs.nodes_of(piece.session)) for piece in pieces]
    all_features = features(observed, inputs.frame.window, inputs.tables, inputs.index, book.kinds)
    cases = []
    for piece, seen, piece_features in zip(pieces, observed, all_features, strict=True):
        session = piece.session
        begin = min((node.first_seen for node in seen.nodes), default=session.start)
        # What was before its nodes were first observed is no gap.
        held = session.held_seconds - max(begin - session.start, 0.0) * len(session.gpus)
        since_seen = min(1.0, piece.seconds / held) if held > 0 else 1.0
        facts = inputs.engines.get(session.workload_id)
        clues = tuple(metadata_clues(session, piece_features, facts, book.kind_priors))
        kind = judge_kind(clues, piece_features, book.kinds, book.kind_model, since_seen)
        cases.append(Case(piece.rows, kind, clues, piece.observed_share))
    dominant = book.bottlenecks["dominant_share_min"].value
    limits = judge_bottlenecks(cases, inputs.tables, inputs.labels, dominant)
    out = [
        Judgement(piece_features, case.kind, limit)
        for piece_features, case, limit in zip(all_features, cases, limits, strict=True)
    ]
    for n, piece in enumerate(pieces):
        if piece.session.basis == INFERRED:  # less sure; a kind that becomes too unsure is unknown
            kind, limit = out[n].kind, out[n].bottleneck
            confidence = round(kind.confidence * INFERRED_SHARE, 3)
            kind_verdict = replace(kind, confidence=confidence, evidence=(*kind.evidence, _FROM_ACTIVITY))
            if kind.label != "unknown" and confidence < book.kinds["abstain_below"].value:
                others = (Alternative(kind.label, confidence), *kind.alternatives)
                kind_verdict = replace(kind_verdict, label="unknown", alternatives=others)
            limit = replace(limit, confidence=round(limit.confidence * INFERRED_SHARE, 3))
            out[n] = Judgement(out[n].features, kind_verdict, limit)
    return out
