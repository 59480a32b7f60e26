"""Verdicts on fleets of the second generator (benchmarks/generators/second), which no rule was made from.

Each fleet is judged at 1 s and from means of a minute, with names and with everything that people wrote taken away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge

from ..generators.second.fleet import Truth, build
from ..generators.second.write_db import write
from ..scoring import Answer, Score
from ..withheld import hidden
from .explained import Case

END = 1_790_000_000.0 - 1_790_000_000.0 % 3600  # a fixed moment (2026-09-21): the same fleets every time
BOOK = load_rulebook(None, None, END)
RESOLUTIONS = (1, 60)


def score(frame: Frame, truths: Iterable[Truth], seed: int, view: str) -> Score:
    """Judge a frame and hold it against its labels."""
    judged = judge(frame, BOOK)
    advice = advise_on(judged, BOOK, AdviseOptions(END), np.random.default_rng(seed), source={})
    silent = [f for f in advice.findings if f.rule == "idle-fabric"]
    nodes = {name for f in silent for name in (*f.nodes, f.node)}
    by_id = {w.id: w for w in judged.workloads}
    out = Score()
    for truth in truths:
        found = by_id.get(truth.workload_id)
        _one(out, truth, found, nodes, f"{seed} {view}")
    return out


def _one(out: Score, truth: Truth, found: WorkloadVerdict | None, silent: set[str | None], where: str) -> None:
    out.count(truth.kind, truth.bottleneck, found, f"{where} {truth.archetype}")
    if truth.light:
        out.light += 1
        out.light_idle += found is not None and found.kind.label == "idle"
    if truth.fabric_waste is not None:
        flagged = found is not None and bool(silent.intersection(found.nodes))
        out.fabric["right"] += truth.fabric_waste and flagged
        out.fabric["missed"] += truth.fabric_waste and not flagged
        out.fabric["false"] += not truth.fabric_waste and flagged
        out.fabric["negatives"] += not truth.fabric_waste


def one_seed(seed: int) -> dict[str, Score]:
    """Every view of one fleet of the second generator."""
    fleet = build(seed, start=END - 48 * 3600)
    views: dict[str, Score] = {}
    with tempfile.TemporaryDirectory() as name:
        folders = {resolution: Path(name) / f"{resolution}s" for resolution in RESOLUTIONS}
        for folder in folders.values():
            folder.mkdir()
        write(fleet, folders, seed)
        for resolution, folder in folders.items():
            frame = read_frame([folder])
            views[f"{resolution} s"] = score(frame, fleet.truths, seed, f"{resolution} s")
            views[f"{resolution} s, names hidden"] = score(hidden(frame), fleet.truths, seed, f"{resolution} s hidden")
        views["1 s"].early = _after_a_day(folders[1], fleet.truths)
    return views


def cases(seed: int) -> list[Case]:
    """Every workload of one fleet at 60 s with names hidden, with its label and its verdict."""
    fleet = build(seed, start=END - 48 * 3600)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(fleet, {60: folder}, seed)
        found = {w.id: w for w in judge(hidden(read_frame([folder])), BOOK).workloads}
    return [
        Case(t.kind, f"second generator, seed {seed}, 60 s, names hidden: {t.archetype}", found[t.workload_id])
        for t in fleet.truths
        if t.workload_id in found
    ]


def _after_a_day(folder: Path, truths: Iterable[Truth]) -> list[Answer]:
    """Kinds as they would have been named after the first day, beside the truth of both."""
    day = read_frame([folder], Window(END - 48 * 3600, END - 24 * 3600))
    said = {w.id: w.kind for w in judge(day, BOOK).workloads}
    return [
        Answer(t.kind, said[t.workload_id].label, said[t.workload_id].confidence)
        for t in truths
        if t.workload_id in said
    ]
