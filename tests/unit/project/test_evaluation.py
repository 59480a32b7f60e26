"""What the evaluation counts and prints, leave one owner out, and points."""

from pathlib import Path

import pytest
from skuwise.benchmarks.evaluation import report
from skuwise.benchmarks.evaluation.points import judge_points, tell
from skuwise.benchmarks.scoring import Answer, calibration, calibration_error, f1_by_label, macro_f1
from skuwise.rules.base.errors import UsageError

ANSWERS = [
    *[Answer("training", "training", 0.9, ("training", "fine-tuning"), owner="a", baseline="training")] * 6,
    *[Answer("fine-tuning", "training", 0.85, ("training", "fine-tuning"), owner="a", gpus=4, baseline="idle")] * 2,
    Answer("training", "online-inference", 0.95, owner="b", gpus=8, baseline="training", about="b run.csv"),
    Answer("online-inference", "idle", 0.55, owner="b", baseline="online-inference", about="b pod.csv"),
    Answer("idle", "unknown", 0.4, owner="c", baseline="idle", about="c rest.csv"),
    Answer("batch-inference", "online-inference", 0.6, ("batch-inference", "online-inference"), owner="c"),
]


def test_accepted_kinds_are_right_and_abstentions_neither_right_nor_wrong() -> None:
    assert [sum(a.is_right for a in ANSWERS), sum(a.is_wrong for a in ANSWERS)] == [9, 2]
    assert f1_by_label(ANSWERS)["fine-tuning"] == 1.0
    assert macro_f1(ANSWERS) == pytest.approx((2 * 6 / 13 + 1 + 0 + 0 + 1) / 5)
    bands = calibration(ANSWERS, report.BANDS)
    assert [(band.low, band.count) for band in bands] == [(0.0, 1), (0.6, 1), (0.8, 2), (0.9, 7)]
    assert bands[-1].error == pytest.approx((6 * 0.9 + 0.95) / 7 - 6 / 7)
    assert 0 < calibration_error(ANSWERS) < 0.2


def test_errors_that_matter_are_rates_of_what_they_can_happen_to() -> None:
    rates = {name: (rate.count, rate.total) for name, rate in report.errors_that_matter(ANSWERS).items()}
    assert list(rates.values()) == [(8, 9), (1, 9), (1, 1), (0, 1), (0, 1), (1, 1)]


HEAD = (
    "source,gpu,workload,bottleneck,gpus,gpu_util,sm_active,tensor_active,dram_active,power_watts,power_limit_watts\n"
)
LINES = """lab,NVIDIA A10G,saturated,compute,1,1.0,0.93,0.39,0.42,290,300
lab,NVIDIA H100 80GB HBM3,decode,compute,2,1.0,0.85,0.08,0.7,300,700
lab,NVIDIA A100-SXM4-80GB,use alone,compute,1,1.0,,,,300,400
lab,NVIDIA A10G,not known,,1,1.0,0.93,0.39,0.42,290,300
"""


def test_points_are_judged_and_told_by_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "points.csv"
    file.write_text(HEAD + LINES)
    found = [(p.answer.verdict, p.is_full) for p in judge_points(file)]
    assert found == [("compute", True), ("hbm-bandwidth", True), ("unknown", False)]
    tell(file)
    assert "of 2, abstained" in capsys.readouterr().out
    file.write_text(HEAD.replace("bottleneck", "limit") + LINES)
    with pytest.raises(UsageError, match="bottleneck"):
        judge_points(file)
