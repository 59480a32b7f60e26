"""What a piece of a workload's time is: its features, then its kind, then what holds it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...core.coded_text import coded
from ...core.column_rows import Columns, columns_of
from ...core.frame import Frame
from ...core.verdict_types import INFERRED, Alternative, BottleneckVerdict, KindVerdict, Scheduled
from ...rulebook import Rulebook
from ..features.features import Observed, features
from ..features.piece_rows import RowTables
from ..kinds.kind_metadata import metadata_clues
from ..kinds.kinds import judge_kind
from ..types import NodeFacts
from ..workloads.attribution import Attribution
from ..workloads.engine_facts import EngineFacts, engine_facts
from ..workloads.session import Session
from ..workloads.sku_lookup import GpuIndex
from ..workloads.work_rows import WorkRows, rows_by_workload
from .bottleneck_verdict import Case, RowLabels, judge_bottlenecks

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
    `labels`: of the same rows; `engines`: what the inference engines within workloads told, by workload."""

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
        by_name = {node.node: node for node in nodes}
        told = engine_facts(frame.serving)
        uuid = pd.factorize(frame.gpu["gpu_uuid"], sort=True)[0].astype(np.intp)
        tables = RowTables(columns_of(frame.gpu), columns_of(rows), uuid)
        return cls(frame, index, by_name, book, tables, RowLabels.of(tables.measures), told)

    @property
    def gpu_columns(self) -> Columns:
        return self.tables.gpu

    @property
    def row_columns(self) -> Columns:
        return self.tables.measures

    def nodes_of(self, session: Session) -> list[NodeFacts]:
        return [self.nodes[node] for node in session.nodes if node in self.nodes]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a workload that are judged together. `session`: the workload, as if it
    had lasted as long as they do. `by_shape`: whether it is judged by its shape alone, too."""

    session: Session
    rows: WorkRows
    by_shape: bool = False

    @property
    def observed_share(self) -> float:
        """Share of what it held that was observed; a part of the rows is taken for as well observed as the whole."""
        held = self.session.held_seconds
        return min(1.0, float(self.rows.seconds.sum()) / held) if held > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a piece is. `by_shape`: the same, had nobody named it; None: nobody asked."""

    features: Mapping[str, float]
    kind: KindVerdict
    bottleneck: BottleneckVerdict
    by_shape: Judgement | None = None


def pieces_of(attribution: Attribution) -> list[Piece]:
    """Each workload with all of its rows."""
    groups, table = rows_by_workload(attribution.workload_rows), attribution.workload_rows
    nothing = WorkRows.of(table.iloc[:0])
    return [Piece(session, groups.get(session.workload_id, nothing)) for session in attribution.sessions]


def judge_pieces(pieces: Iterable[Piece], inputs: JudgementInputs, batch_rows: int = BATCH_ROWS) -> list[Judgement]:
    """One judgement for each piece, in their order. `batch_rows`: judged at a time, so that the memory in which they
    are judged does not grow with the fleet."""
    return [judged for some in _batches(pieces, batch_rows) for judged in _judge_batch(some, inputs)]


def _batches(pieces: Iterable[Piece], most_rows: int) -> Iterator[list[Piece]]:
    """The pieces by so many rows; one that has more of them is by itself."""
    batch, rows = list[Piece](), 0
    for piece in pieces:
        if batch and rows + len(piece.rows) > most_rows:
            yield batch
            batch, rows = [], 0
        batch.append(piece)
        rows += len(piece.rows)
    if batch:
        yield batch


def _judge_batch(pieces: Sequence[Piece], inputs: JudgementInputs) -> list[Judgement]:
    observed = [Observed(piece.session, piece.rows, inputs.nodes_of(piece.session)) for piece in pieces]
    told = features(observed, inputs.frame.window, inputs.tables, inputs.index, inputs.book.kinds)
    cases, of_piece = [], []
    for n, (piece, one, own) in enumerate(zip(pieces, observed, told, strict=True)):
        found = _cases(piece, one.nodes, own, inputs)
        cases += found
        of_piece += [n] * len(found)
    dominant = inputs.book.bottlenecks["dominant_share_min"].value
    bottlenecks = judge_bottlenecks(cases, inputs.tables, inputs.labels, dominant)
    out: list[Judgement | None] = [None] * len(pieces)
    for n, case, held_back in zip(of_piece, cases, bottlenecks, strict=True):
        verdicts = case.kind, held_back
        if pieces[n].session.basis == INFERRED:
            verdicts = _less_sure(*verdicts, inputs.book.kinds["abstain_below"].value)
        out[n] = Judgement(told[n], *verdicts, by_shape=out[n])
    return [judged for judged in out if judged is not None]


def _cases(piece: Piece, nodes: Iterable[NodeFacts], told: Mapping[str, float], inputs: JudgementInputs) -> list[Case]:
    """The piece with its kind; before that, where it is asked for, with the kind of its shape alone."""
    session, book = piece.session, inputs.book
    begin = min((node.first_seen for node in nodes), default=session.start)
    # What was before its nodes were first observed is no gap.
    held = session.held_seconds - max(begin - session.start, 0.0) * len(session.gpus)
    since_seen = min(1.0, float(piece.rows.seconds.sum()) / held) if held > 0 else 1.0
    asked = [(session, inputs.engines.get(session.workload_id))]
    if piece.by_shape:
        asked.insert(0, (_nameless(session), None))
    out = []
    for own, facts in asked:
        clues = tuple(metadata_clues(own, told, facts, book.kind_priors))
        kind = judge_kind(clues, told, book.kinds, book.kind_model, since_seen)
        out.append(Case(piece.rows, kind, clues, piece.observed_share))
    return out


def _less_sure(
    kind: KindVerdict, bottleneck: BottleneckVerdict, abstain_below: float
) -> tuple[KindVerdict, BottleneckVerdict]:
    """The verdicts on work whose GPUs and times were inferred, with the confidence that is left, and what they rest on.
    A kind that becomes too unsure is unknown."""
    confidence = round(kind.confidence * INFERRED_SHARE, 3)
    told = replace(kind, confidence=confidence, evidence=(*kind.evidence, _FROM_ACTIVITY))
    if kind.label != "unknown" and confidence < abstain_below:
        others = (Alternative(kind.label, confidence), *kind.alternatives)
        told = replace(told, label="unknown", alternatives=others)
    return told, replace(bottleneck, confidence=round(bottleneck.confidence * INFERRED_SHARE, 3))


def _nameless(session: Session) -> Session:
    """The session without what anybody says of it."""
    return replace(
        session, name="", scheduler="process", namespace=None, pod=None, framework=None, command=None, shared=False,
        scheduled=Scheduled(),
    )  # fmt: skip
