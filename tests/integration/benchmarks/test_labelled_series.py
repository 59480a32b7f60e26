"""The figures that docs/method.md states, computed anew, and the evaluation of `--labelled` folders."""

import json
from pathlib import Path

import pytest
from skuwise.benchmarks.evaluation import evaluate, left_out
from skuwise.benchmarks.evaluation.judged_series import read_folder
from skuwise.benchmarks.fit.real_series import read_rows
from skuwise.benchmarks.fit.train_kinds import fit_rows
from skuwise.rules.base.errors import UsageError

EXAMPLE = Path(__file__).parents[3] / "tests/data/labelled"
LABELS = "file,kind,bottleneck,start,end,gpu\n"
LABEL = "s.csv,training,compute,,,\n"
HEADER = "ts,node,gpu_index,dram_active\n"


def test_series_are_judged_beside_the_baseline_and_mistakes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--labelled", str(EXAMPLE), "--wrong"]) == 0
    told = capsys.readouterr().out
    assert "2 series of 1 owners" in told
    assert "bottleneck: right 100.0% of 2, abstained 0.0%" in told


@pytest.mark.parametrize(
    ("labels", "series", "said"),
    [
        (None, None, "No labels.csv in"),
        ("kind\n", None, "labels.csv:1: column 'file' is missing"),
        ("file,kind,kind_accept\ns.csv,training,training|tuning\n", None, "labels.csv:2: kind_accept is 'tuning'"),
        (LABELS + "../s.csv,training,,,,\n", None, "labels.csv:2: '../s.csv' is no CSV file"),
        (LABELS + "s.csv,training,,2030-01-01,,\n", None, "labels.csv:2: no data in s.csv for that time span"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,full\n", "s.csv:2: dram_active is 'full'"),
        (LABELS + LABEL, HEADER + "1790000060,n,,0.5\n", "s.csv:2: neither gpu_uuid nor gpu_index"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,0.5\n" * 2, "s.csv:3: ts of a GPU does not increase"),
        (LABELS + LABEL, "ts,node,\xff\n", "s.csv cannot be read"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, labels: str | None, series: str | None, said: str) -> None:
    if labels is not None:
        (tmp_path / "labels.csv").write_text(labels)
    text = series if series is not None else HEADER + "1790000060,n,0,0.5\n1790000120,n,0,0.5\n"
    (tmp_path / "s.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        read_folder(tmp_path)
    assert str(refused.value).startswith(said)


TOLERANCE = 0.01  # of each share: two series of 191


def test_kinds_of_owners_left_out_are_right_as_often_as_stated() -> None:
    judged = list(left_out.leave_owners_out(read_rows(), fit_rows, left_out.judge_features))
    stated = json.loads(left_out.FIGURES.read_text())
    found = left_out.figures_by_window(judged)
    assert found.keys() == stated.keys()
    for window, figures in stated.items():
        assert found[window] == pytest.approx(figures, abs=TOLERANCE), window
