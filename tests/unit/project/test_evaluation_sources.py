"""What the evaluation prints of its sources: real series first, and what confidence was worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from skuwise.benchmarks.evaluation import real, sources
from skuwise.benchmarks.evaluation.labelled import Judged, Label, read_labels
from skuwise.benchmarks.scoring import Answer
from skuwise.tests.support.moves_builders import workload

ANSWERS = {
    "real": [*[Answer("training", "training", 0.9)] * 8, *[Answer("training", "idle", 0.85)] * 2],
    "third": [*[Answer("idle", "idle", 0.6)] * 5, *[Answer("idle", "unknown", 0.3)] * 5],
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
    assert {path.name for path in real.REAL.glob("*.csv.gz")} == {label.file.name for label in labels}


def test_real_series_are_told_by_part_beside_the_baseline() -> None:
    label = Label("labels.csv:2", Path("s.csv"), "online-inference", None, None, None, None, "", "judge", "")
    busy = {"engine_active": 0.01}
    found = [
        Judged(label, workload(kind="idle", features=busy), "a pod"),
        Judged(label, workload(kind="online-inference", features=busy), "another pod"),
        Judged(replace(label, part="fit"), workload(kind="interactive", features=busy), "a third"),
        Judged(label, None, "a fourth"),
    ]
    scores = real.parts(found)
    assert {part: len(score.kinds) for part, score in scores.items()} == {"not fitted on": 3, "fitted on": 1, "all": 4}
    lines = list(real.table(scores))
    rows = [line.split() for line in lines if line.startswith(("not fitted on", "all", "  GPU-use"))]
    assert rows[0] == ["not", "fitted", "on", "3", "33.3%", "33.3%", "0.500", "3", "1", "1", "0"]
    assert rows[1] == ["GPU-use", "thresholds", "3", "0.0%", "0.0%", "0.000", "3", "0", "3", "0"]
    assert rows[3] == ["all", "4", "25.0%", "25.0%", "0.400", "4", "1", "1", "1"]


def test_a_line_a_source_says_what_confidence_was_worth() -> None:
    told = list(sources.table(ANSWERS))
    assert told[-2].split() == ["real", "10", "80.0%", "0.0%", "10", "80.0%", "0.250"]
    assert told[-1].split() == ["third", "10", "50.0%", "50.0%", "0", "none", "0.400"]
