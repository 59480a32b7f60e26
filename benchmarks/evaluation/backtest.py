"""A backtest on two weeks of the first simulator: what is said on day 7, scored on what followed until day 14.

A finding of waste holds where the second week, measured anew, shows the same: an idle GPU was still idle, a holder
that was still there still did nothing, a silent fabric carried nothing. A holder that ended is counted apart: its
finding was right when it was given, and nothing is left to act on. Recommendations: `backtest_moves.py`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.advice_types import Finding
from skuwise.advisor.core.frame import Window
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import simulate

from ..scoring import ABSTAINED, Answer, Score, abstention, accuracy, confusion, given, rate
from .backtest_moves import Followed, follow

SCENARIO = "fleet"
UNTIL = 1_790_000_000.0 - 1_790_000_000.0 % 3600
BOOK = load_rulebook(None, None, UNTIL)
WEEK = 7 * 86400.0
RULES = ("idle", "held-idle", "idle-fabric")
# A GPU or a holder that was active for this share of the second week was no waste any more.
ACTIVE_SHARE_MAX = 0.1


@dataclass
class Backtest:
    """`outcomes` counts (rule, outcome), outcome one of holds, broke, gone; `kinds` has the first week's kind as the
    verdict and the second's as the truth, of workloads seen in both; `early` the first week's beside the real truth;
    `moves` what became of the first week's recommendations."""

    fleets: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: list[Answer] = field(default_factory=list)
    early: list[Answer] = field(default_factory=list)
    broke: list[str] = field(default_factory=list)
    moves: Followed = field(default_factory=Followed)

    def add(self, other: Backtest) -> None:
        self.fleets += other.fleets
        self.outcomes += other.outcomes
        self.kinds += other.kinds
        self.early += other.early
        self.broke += other.broke
        self.moves.add(other.moves)

    def told(self) -> Iterator[str]:
        """The figures, for people."""
        yield f"\n== backtest: {self.fleets} fleets of 14 days, judged on day 7, scored on days 7 to 14"
        for rule in RULES:
            holds, broke, gone = (self.outcomes[rule, outcome] for outcome in ("holds", "broke", "gone"))
            yield f"{rule}: {rate(broke, holds + broke, 'no longer true')}; {gone} more ended before they could be seen"
        yield from self.broke
        yield from self.moves.told()
        both = [a for a in given(self.kinds) if a.truth != ABSTAINED]
        yield (
            f"kinds of workloads seen in both weeks: {len(self.kinds)}, the second week abstains on "
            f"{sum(a.truth == ABSTAINED for a in self.kinds)}, the first on {abstention(self.kinds):.1%}; where both "
            f"name one they agree in {accuracy(both):.1%} of {len(both)}"
        )
        yield confusion([a for a in both if a.truth != a.verdict]) if accuracy(both) < 1 else "  they never disagree"
        yield (
            f"kinds named on day 7 against the truth: right {accuracy(self.early):.1%} of {len(self.early)}, abstained "
            f"{abstention(self.early):.1%}"
        )


def two_weeks(seed: int) -> tuple[Score, Backtest]:
    """One fleet of the first simulator: its whole-window score, and the backtest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fleet"
        truths = {t.workload_id: t for t in simulate(SCENARIO, folder, days=14, seed=seed, until=UNTIL).truths}
        judged = [
            judge(read_frame([folder], window), BOOK)
            for window in (
                Window(UNTIL - 2 * WEEK, UNTIL), Window(UNTIL - 2 * WEEK, UNTIL - WEEK), Window(UNTIL - WEEK, UNTIL)
            )
        ]  # fmt: skip
    whole, early, late = judged
    score, found = Score(), Backtest(fleets=1)
    by_id = {w.id: w for w in whole.workloads}
    for truth in truths.values():
        if not truth.workload_id.startswith("node:"):
            limit = None if truth.bottleneck == ABSTAINED else truth.bottleneck
            score.count(truth.kind, limit, by_id.get(truth.workload_id), f"first {seed}")
    later = {w.id: w.kind for w in late.workloads}
    for w in early.workloads:
        found.early.append(Answer(truths[w.id].kind, w.kind.label, w.kind.confidence))
        if w.id in later:
            found.kinds.append(Answer(later[w.id].label, w.kind.label, w.kind.confidence))
    advice, next_advice = (
        advise_on(judged, BOOK, AdviseOptions(at), np.random.default_rng(seed), source={})
        for judged, at in ((early, UNTIL - WEEK), (late, UNTIL))
    )  # fmt: skip
    found.moves = follow(advice, next_advice)
    for finding in advice.findings:
        if finding.rule in RULES:
            outcome = follow_up(finding, early, late)
            found.outcomes[finding.rule, outcome] += 1
            if outcome == "broke":
                found.broke.append(f"  seed {seed}: {finding.rule} on {', '.join(finding.nodes) or finding.node}")
    return score, found


def follow_up(finding: Finding, early: Verdicts, late: Verdicts) -> str:
    """What became of a finding in the second week: holds, broke, or gone where nothing of it is left to look at."""
    if finding.rule == "idle-fabric":
        facts = [late.node(name) for name in (finding.nodes or (finding.node or "",))]
        fabrics = [fact.fabric for fact in facts if fact is not None and fact.fabric is not None]
        known = [fabric.util_p995 for fabric in fabrics if fabric.util_p995 is not None]
        limit = BOOK.rules["idle-fabric"].value("util_p995_max")
        return "gone" if not known else "holds" if max(known) <= limit else "broke"
    if finding.rule == "idle":
        return _of_share(_bare_activity(finding, late))
    return _of_share(_held_activity(finding, early, late))


def _of_share(active: float | None) -> str:
    return "gone" if active is None else "broke" if active > ACTIVE_SHARE_MAX else "holds"


def _bare_activity(finding: Finding, late: Verdicts) -> float | None:
    """Share of the second week in which the GPUs found idle worked, held by a workload or by nobody."""
    hours = sum(b.hours - b.idle_hours for b in late.bare if b.gpu_uuid in finding.gpus)
    span = sum(b.hours for b in late.bare if b.gpu_uuid in finding.gpus)
    mine = late.usage.where(np.isin(late.usage["gpu_uuid"], finding.gpus))
    hours += mine.where(~mine.flags("idle")).sum("seconds") / 3600
    span += mine.sum("seconds") / 3600
    return hours / span if span > 0 else None


def _held_activity(finding: Finding, early: Verdicts, late: Verdicts) -> float | None:
    """Share of the second week in which the same series, where it still held GPUs, was active on them."""
    series: Mapping[str, str] = {w.id: w.series_id for w in (*early.workloads, *late.workloads)}
    own = series.get(finding.workload or "")
    mine = late.used(w.id for w in late.workloads if w.series_id == own)
    total = mine.sum("seconds")
    return mine.where(~mine.flags("idle")).sum("seconds") / total if total > 0 else None
