"""Averages of runs with a known bottleneck, judged as workloads."""

from pathlib import Path

import pytest
from skuwise.benchmarks.evaluation.points import judge_points, tell

LINES = """source,gpu,workload,bottleneck,gpus,gpu_util,sm_active,tensor_active,dram_active,power_watts
lab,NVIDIA A10G,saturated,compute,1,1.0,0.93,0.39,0.42,290
lab,NVIDIA H100 80GB HBM3,decode,compute,2,1.0,0.85,0.08,0.7,300
lab,NVIDIA A100-SXM4-80GB,use alone,compute,1,1.0,,,,300
lab,NVIDIA A10G,not known,,1,1.0,0.93,0.39,0.42,290
"""


def test_points_are_judged_and_told_by_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "points.csv"
    file.write_text(LINES)
    found = [(p.workload, p.said.label, p.is_full) for p in judge_points(file)]
    assert found == [("saturated", "compute", True), ("decode", "hbm-bandwidth", True), ("use alone", "unknown", False)]
    tell(file)
    assert "activity: bottleneck right 1 of 2, wrong 1" in capsys.readouterr().out
