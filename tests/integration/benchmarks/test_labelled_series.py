"""Evaluating `--labelled` folders: series read strictly, stored and judged as an agent's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.benchmarks.evaluation import evaluate
from skuwise.benchmarks.evaluation.labelled import judged
from skuwise.rules.base.errors import UsageError

EXAMPLE = Path(__file__).parents[3] / "tests/data/labelled"
LABELS = "file,kind,bottleneck,start,end,gpu\n"
LABEL = "s.csv,training,compute,,,\n"
HEADER = "ts,node,gpu_index,dram_active\n"


def test_series_are_judged_and_what_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--labelled", str(EXAMPLE), "--wrong"]) == 0
    told = capsys.readouterr().out
    assert "2 workloads" in told
    assert "bottleneck: macro-F1 1.000, right 100.0% of 2, abstained 0.0%" in told


@pytest.mark.parametrize(
    ("labels", "series", "said"),
    [
        (None, None, "No labels.csv in"),
        ("kind\n", None, "labels.csv:1: column 'file'"),
        ("file,kind,colour\n", None, "labels.csv:1: column 'colour'"),
        (LABELS + "s.csv,unknown,,,,\n", None, "labels.csv:2: kind is 'unknown'"),
        (LABELS + "s.csv,training,slow,,,\n", None, "labels.csv:2: bottleneck is 'slow'"),
        (LABELS + "../s.csv,training,,,,\n", None, "labels.csv:2: '../s.csv' is no CSV file"),
        (LABELS + "s.csv,training,,2030-01-01,,\n", None, "labels.csv:2: no data in s.csv for that time span"),
        (LABELS + "s.csv,training,,,,Z9000\n", None, "labels.csv:2: unknown GPU 'Z9000'"),
        (LABELS + LABEL, HEADER, "No rows in s.csv"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,50\n", "s.csv:2: dram_active is '50'"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,nan\n", "s.csv:2: dram_active is 'nan'"),
        (LABELS + LABEL, HEADER + "1790000060,n,,0.5\n", "s.csv:2: neither gpu_uuid nor gpu_index"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,0.5\n" * 2, "s.csv:3: ts of GPU-0 does not increase"),
        (LABELS + LABEL, HEADER + "1790000060,n,0\n", "s.csv:2: cells do not fit"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,0.5\n", "A series of one row"),
        (LABELS + LABEL, "ts,node,\xff\n", "s.csv cannot be read"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, labels: str | None, series: str | None, said: str) -> None:
    if labels is not None:
        (tmp_path / "labels.csv").write_text(labels)
    text = series if series is not None else HEADER + "1790000060,n,0,0.5\n1790000120,n,0,0.5\n"
    (tmp_path / "s.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        list(judged(tmp_path))
    assert str(refused.value).startswith(said)
