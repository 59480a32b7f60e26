"""What the evaluation prints of its sources: real series first, what confidence was worth, and workloads explained."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from skuwise.advisor.core.coded_text import coded
from skuwise.advisor.core.verdict_types import Alternative, KindVerdict
from skuwise.advisor.labelled.judged import Judged
from skuwise.advisor.labelled.labels import Label, read_labels
from skuwise.benchmarks.evaluation import evaluate, explained, real, sources
from skuwise.benchmarks.evaluation.explained import Case
from skuwise.benchmarks.scoring import Answer
from skuwise.tests.support.moves_builders import workload

ANSWERS = {
    "real": [*[Answer("training", "training", 0.9)] * 8, *[Answer("training", "idle", 0.85)] * 2],
    "second": [*[Answer("idle", "idle", 0.6)] * 5, *[Answer("idle", "unknown", 0.3)] * 5],
}


def test_every_real_series_is_on_one_side_and_no_model_or_pod_on_both() -> None:
    labels = read_labels(real.REAL)
    assert len(labels) == 68
    sides: dict[str, set[str | None]] = {}
    for label in labels:
        sides.setdefault(label.group, set()).add(label.part)
    assert all(side in ({"fit"}, {"judge"}) for side in sides.values())
    judging = [label.kind for label in labels if label.part == "judge"]
    assert {kind: judging.count(kind) for kind in set(judging)} == {
        "online-inference": 25, "batch-inference": 2, "training": 2,
    }  # fmt: skip
    files = {path.name for path in real.REAL.glob("*.csv.gz")}
    assert files == {label.file.name for label in labels if label.file is not None}
    assert sum(path.stat().st_size for path in real.REAL.iterdir()) < 640 * 1024


def test_real_series_are_told_by_part_beside_the_baseline() -> None:
    label = Label("labels.csv:2", None, Path("s.csv"), "online-inference", None, None, None, None, "", "judge", "")
    busy = {"engine_active": 0.01}
    found = [
        Judged(label, workload(kind="idle", features=busy), "a pod", "a"),
        Judged(label, workload(kind="online-inference", features=busy), "another pod", "b"),
        Judged(replace(label, part="fit"), workload(kind="interactive", features=busy), "a third", "c"),
        Judged(label, None, "a fourth", "d"),
    ]
    scores = real.parts(found)
    assert {part: len(score.kinds) for part, score in scores.items()} == {"not fitted on": 3, "fitted on": 1, "all": 4}
    lines = list(real.table(scores))
    rows = [line.split() for line in lines if line.startswith(("not fitted on", "all", "  GPU-use"))]
    assert rows[0] == ["not", "fitted", "on", "3", "33.3%", "33.3%", "0.500", "3", "1", "1", "0"]
    assert rows[1] == ["GPU-use", "thresholds", "3", "0.0%", "0.0%", "0.000", "3", "0", "3", "0"]
    assert rows[3] == ["all", "4", "25.0%", "25.0%", "0.400", "4", "1", "1", "1"]
    assert [case.about for case in real.cases(found)] == ["a pod", "another pod"]


def test_generators_stand_newest_first() -> None:
    assert list(evaluate.GENERATORS) == ["third generator", "second generator"]
    assert "second generator" in evaluate.generators()


def test_a_line_a_source_says_what_confidence_was_worth() -> None:
    told = list(sources.table(ANSWERS))
    assert told[-2].split() == ["real", "10", "80.0%", "0.0%", "10", "80.0%", "0.250"]
    assert told[-1].split() == ["second", "10", "50.0%", "50.0%", "0", "none", "0.400"]


def test_answers_are_kept_and_told_again(tmp_path: Path, capsys) -> None:
    kept = tmp_path / "out/answers.csv"
    sources.keep(ANSWERS, kept)
    assert sources.kept(kept) == ANSWERS
    with kept.open() as file:
        assert next(csv.reader(file)) == ["source", "truth", "verdict", "confidence"]
    assert sources.main([str(kept)]) == 0
    assert "confidence, source by source" in capsys.readouterr().out


def test_workloads_are_explained_half_right_half_wrong_across_kinds() -> None:
    def case(n: int, truth: str, said: str) -> Case:
        reason = coded("made-up", "It was seen {n} times.", n=n)
        verdict = KindVerdict(said, 0.7, (reason,), (Alternative("idle", 0.2),))  # type: ignore[arg-type]
        return Case(truth, f"made {n} \x1b[31m", replace(workload(f"w{n}"), kind=verdict))

    every = [case(n, ("training", "idle", "interactive")[n % 3], "training") for n in range(30)]
    found = explained.chosen(every, 10)
    assert sum(one.right for one in found) == 5
    assert sorted(one.truth for one in found if not one.right) == [*["idle"] * 3, *["interactive"] * 2] or sorted(
        one.truth for one in found if not one.right
    ) == [*["idle"] * 2, *["interactive"] * 3]
    assert explained.chosen(every[::-1], 10) == found
    assert len(explained.chosen(every[:1], 10)) == 1
    told = "\n".join(explained.told(found))
    assert "10 workloads explained: 5 right" in told
    assert "called training, confidence 0.70 (wrong)" in told
    assert "else idle 0.20" in told
    assert "- It was seen" in told
    assert "\x1b" not in told
