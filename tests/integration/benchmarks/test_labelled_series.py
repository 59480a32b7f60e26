"""Evaluating `--labelled` folders: series read strictly, judged as an agent's own and behind a Prometheus."""

from pathlib import Path

import numpy as np
import pytest
from skuwise.benchmarks.evaluation import evaluate
from skuwise.benchmarks.evaluation.judged_series import judge_series, read_folder
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.prometheus_engines import needed

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


def _write_folder(folder: Path, minutes: int) -> None:
    (folder / "series").mkdir()
    (folder / "labels.csv").write_text(
        "file,group,kind,kind_accept,bottleneck,gpu,steady,hours\n"
        "a.csv,someone/project,fine-tuning,training|fine-tuning,,NVIDIA GeForce GTX 1080 Ti,yes,0.5\n"
    )
    rng, rows, ports = np.random.default_rng(4), [], []
    for n in range(2 * minutes):
        ts = 1_730_000_000 + 30 * n
        use = 0.9 + 0.08 * rng.random()
        for gpu in (0, 1):
            rows.append(
                f"{ts},{gpu},{use - 0.01 * gpu:.4f},0.4,{5.5e9 + 1e6 * (n % 7):.0f},11811160064,{180 + 40 * use:.1f}"
            )
        ports.append(f"{ts + 0.5},mlx5_0,50000000000,2.5e8,2.4e8")
    header = "ts_seconds,gpu,gpu_util,mem_util,mem_used_bytes,mem_total_bytes,power_watts\n"
    (folder / "series/a.csv").write_text(header + "\n".join(rows) + "\n")
    header = "ts_seconds,device,line_rate_bytes_per_second,tx_bytes_per_second,rx_bytes_per_second\n"
    (folder / "series/a.fabric.csv").write_text(header + "\n".join(ports) + "\n")


def test_a_database_and_a_prometheus_give_the_same_features(tmp_path: Path) -> None:
    needed("prometheus", "promtool")
    _write_folder(tmp_path, 45)
    series = read_folder(tmp_path)
    (stored,), (served,) = (list(judge_series(series, behind_prometheus=b)) for b in (False, True))
    assert stored.verdict is not None and served.verdict is not None
    assert stored.kind.verdict == served.kind.verdict
    for name in ("engine_active", "mem_level", "power_watts", "elapsed_hours", "hours", "gpus"):
        assert served.verdict.features[name] == pytest.approx(stored.verdict.features[name], rel=0.12), name
