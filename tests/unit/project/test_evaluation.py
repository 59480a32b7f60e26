"""What the evaluation counts and prints, leave one owner out, and points."""

import json
from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import KindVerdict
from skuwise.benchmarks.evaluation import left_out, report
from skuwise.benchmarks.evaluation.points import judge_points, tell
from skuwise.benchmarks.fit.real_series import Row, read_rows, write_rows
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


def test_each_owner_is_judged_by_what_was_fitted_on_the_others(tmp_path: Path) -> None:
    rows = [
        Row(f"{owner}-{n}.csv", "whole", "real", owner, "", "MIT", kind, (kind,), {"engine_active": use, "gpus": 1.0})
        for owner, kind, use in (("a", "training", 0.95), ("b", "idle", 0.0), ("c", "training", 0.5))
        for n in range(2)
    ]
    write_rows(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows
    fitted: list[set[str]] = []

    def fit(rows: object) -> float:
        fitted.append({row.owner for row in rows})  # type: ignore[attr-defined]
        return 0.4

    judged = list(
        left_out.leave_owners_out(
            rows, fit, lambda f, least: KindVerdict("training" if f["engine_active"] > least else "idle", 0.9)
        )
    )
    assert fitted == [{"b", "c"}, {"a", "c"}, {"a", "b"}]
    assert [answer.is_right for _, answer in judged] == [True] * 6
    assert [answer.baseline for _, answer in judged] == ["training"] * 2 + ["idle"] * 2 + ["online-inference"] * 2
    found = left_out.figures([answer for _, answer in judged])
    assert json.loads(json.dumps(found)) == {
        "right": 1.0, "wrong": 0.0, "sure_right": 1.0, "training_called_service": 0.0, "idle_found": 1.0,
        "calibration_error_max": 0.0,
    }  # fmt: skip


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
