"""How often verdicts are right, on fleets that no rule was made from: `make evaluate`.

    python benchmarks/evaluate.py --seeds 0-14           the second generator, reported seeds
    python benchmarks/evaluate.py --seeds 1000-1004 --wrong    what is wrong, on seeds for development

Seeds below 1000 are for reporting and are never looked at one by one. Each fleet is judged at 1 s and from means of a
minute, with names and with everything that people wrote taken away; an abstention counts as wrong. Beside it stand two
baselines on GPU-Util, and a backtest: what is said after the first day, against the truth and against the second day.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from accuracy import hidden, parse_seeds
from scoring import (
    ABSTAINED,
    Answer,
    abstention,
    accuracy,
    calibration,
    calibration_error,
    confusion,
    f1_by_label,
    given,
    macro_f1,
    upper_bound,
)  # fmt: skip
from second.fleet import Truth, build
from second.measure import write
from skuwise.advisor.advice import advise_on
from skuwise.advisor.frame import Frame, Window
from skuwise.advisor.model import WorkloadVerdict
from skuwise.advisor.telemetry.sqlite import read_frame
from skuwise.advisor.verdicts.verdict import judge
from skuwise.rules.catalog_loader import load_catalog
from skuwise.rules.thresholds import load_waste_rules

END = 1_790_000_000.0 - 1_790_000_000.0 % 3600  # a fixed moment (2026-09-21): the same fleets every time
RESOLUTIONS = (1, 60)


@dataclass
class Score:
    """What was said, under one view of one fleet or of several."""

    kinds: list[Answer] = field(default_factory=list)
    limits: list[Answer] = field(default_factory=list)
    util_kinds: list[Answer] = field(default_factory=list)
    util_limits: list[Answer] = field(default_factory=list)
    fabric: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("right", "missed", "false", "negatives"), 0))
    light: int = 0
    light_idle: int = 0
    early: list[Answer] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        for name in ("kinds", "limits", "util_kinds", "util_limits", "early", "wrong"):
            getattr(self, name).extend(getattr(other, name))
        for name, count in other.fabric.items():
            self.fabric[name] += count
        self.light += other.light
        self.light_idle += other.light_idle


def util_kind(features: Mapping[str, float]) -> str:
    """The baseline of dashboards: busy is training, idle is idle, the rest serves."""
    util = features.get("g", 0.0)
    return "idle" if util < 0.05 else "training" if util >= 0.8 else "online-inference"


def util_limit(features: Mapping[str, float]) -> str:
    """The baseline of dashboards: a busy GPU is compute-bound, a less busy one waits for its host."""
    util = features.get("g", 0.0)
    return "idle" if util < 0.05 else "compute" if util >= 0.8 else "host-input"


def score(frame: Frame, truths: Iterable[Truth], seed: int, view: str) -> Score:
    """Judge a frame and hold it against its labels."""
    catalog = load_catalog()
    judged = judge(frame, catalog)
    advice = advise_on(judged, catalog, load_waste_rules(), (), generated_at=END, rng=np.random.default_rng(seed),
                       source={})  # fmt: skip
    silent = [f for f in advice.findings if f.rule == "idle-fabric"]
    nodes = {name for f in silent for name in (*f.nodes, f.node)}
    by_id = {w.id: w for w in judged.workloads}
    out = Score()
    for truth in truths:
        found = by_id.get(truth.workload_id)
        _one(out, truth, found, nodes, f"{seed} {view}")
    return out


def _one(out: Score, truth: Truth, found: WorkloadVerdict | None, silent: set[str | None], where: str) -> None:
    kind, limit = (found.kind.label, found.bottleneck.label) if found else (ABSTAINED, ABSTAINED)
    features = found.features if found else {}
    out.kinds.append(Answer(truth.kind, kind, found.kind.confidence if found else 0.0))
    out.util_kinds.append(Answer(truth.kind, util_kind(features), 1.0))
    if truth.bottleneck is not None:
        out.limits.append(Answer(truth.bottleneck, limit, found.bottleneck.confidence if found else 0.0))
        out.util_limits.append(Answer(truth.bottleneck, util_limit(features), 1.0))
    if truth.light:
        out.light += 1
        out.light_idle += kind == "idle"
    if truth.fabric_waste is not None:
        flagged = found is not None and bool(silent.intersection(found.nodes))
        out.fabric["right"] += truth.fabric_waste and flagged
        out.fabric["missed"] += truth.fabric_waste and not flagged
        out.fabric["false"] += not truth.fabric_waste and flagged
        out.fabric["negatives"] += not truth.fabric_waste
    if kind != truth.kind or (truth.bottleneck is not None and limit != truth.bottleneck):
        shown = {n: round(v, 2) for n, v in features.items()}
        shares = dict(found.bottleneck.time_shares) if found else {}
        others = [(a.label, a.confidence) for a in found.kind.alternatives] if found else []
        out.wrong.append(
            f"{where} {truth.archetype} {found.gpu_sku if found else ''}: {truth.kind}/{truth.bottleneck} judged "
            f"{kind} {others} / {limit} {shares}\n    {shown}"
        )


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
        views["1 s"].early = _backtest(folders[1], fleet.truths)
    return views


def _backtest(folder: Path, truths: Iterable[Truth]) -> list[Answer]:
    """Kinds as they would have been named after the first day, beside the truth of both."""
    day = read_frame([folder], Window(END - 48 * 3600, END - 24 * 3600))
    said = {w.id: w.kind for w in judge(day, load_catalog()).workloads}
    return [
        Answer(t.kind, said[t.workload_id].label, said[t.workload_id].confidence)
        for t in truths
        if t.workload_id in said
    ]


def told(view: str, s: Score) -> Iterable[str]:
    """The figures of one view."""
    yield f"\n== {view}: {len(s.kinds)} workloads"
    for what, answers, util in (("kind", s.kinds, s.util_kinds), ("bottleneck", s.limits, s.util_limits)):
        named = given(answers)
        yield (
            f"{what}: macro-F1 {macro_f1(answers):.3f}, right {accuracy(answers):.1%} of {len(answers)}, abstained "
            f"{abstention(answers):.1%}; of the verdicts given macro-F1 {macro_f1(named):.3f}, right "
            f"{accuracy(named):.1%}; GPU-Util thresholds: macro-F1 {macro_f1(util):.3f}, right {accuracy(util):.1%}"
        )
        yield "  F1 " + ", ".join(f"{label} {value:.2f}" for label, value in f1_by_label(answers).items())
        yield confusion(answers)
    yield f"calibration of kinds (expected error {calibration_error(s.kinds):.3f}):"
    for low, high, n, said, right in calibration(s.kinds):
        yield f"  confidence {low:.2f} to {min(high, 1.0):.2f}: n {n}, said {said:.2f}, right {right:.2f}"
    f = s.fabric
    positives = f["right"] + f["missed"]
    yield (
        f"idle-fabric: {f['missed']} missed of {positives} (95 % upper bound "
        f"{upper_bound(f['missed'], positives):.1%}), "
        f"{f['false']} false of {f['negatives']} negatives (95 % upper bound "
        f"{upper_bound(f['false'], f['negatives']):.1%})"
    )
    yield f"lightly loaded serving called idle: {s.light_idle} of {s.light}"
    if s.early:
        yield (
            f"backtest, kinds named after the first day: right {accuracy(s.early):.1%} of {len(s.early)}, abstained "
            f"{abstention(s.early):.1%}, macro-F1 {macro_f1(s.early):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-14")
    parser.add_argument("--wrong", action="store_true", help="print every workload that is judged wrong")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    total: dict[str, Score] = {}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for number, views in enumerate(pool.imap_unordered(one_seed, parse_seeds(options.seeds)), 1):
            for view, part in views.items():
                total.setdefault(view, Score()).add(part)
            print(f"{number} fleets judged", flush=True)
    for view, result in total.items():
        print("\n".join(told(view, result)))
        if options.wrong:
            print("\n".join(result.wrong))


if __name__ == "__main__":
    main()
