"""Evaluating `--labelled` folders: real series by path, read strictly, stored and judged as an agent's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from skuwise.advisor.labelled.judged import judged_folder
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.writing.writer import Writer
from skuwise.benchmarks.evaluation import evaluate
from skuwise.benchmarks.evaluation.recordings import Label, Made, RecordingHeader, write_recording
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.rulebooks import rulebook

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "tests/data/labelled"
LABELS = "file,workload,kind,bottleneck,start,end,gpu,source\n"
LABEL = "s.csv,,training,compute,,,,\n"
HEADER = "ts,node,gpu_index,dram_active\n"
ROWS = "1790000060,n,0,0.5\n1790000120,n,0,0.5\n"


def test_csv_series_databases_and_recordings_are_judged_and_what_is_wrong_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "own"
    shutil.copytree(EXAMPLE, folder)
    labels = folder / "labels.csv"
    labels.write_text(labels.read_text() + ",nobody,idle,idle,,,,a workload that no database holds\n")
    work = {"gpu_util": 0.99, "sm_active": 0.8, "tensor_active": 0.06, "dram_active": 0.66, "power_watts": 300.0}
    gpu = Gpu("GPU-r", 0, "NVIDIA H100 80GB HBM3", mem_total_bytes=85_520_809_984, power_limit_watts=700.0)
    ticks = [Tick(1_790_000_000.0 + n, 1.0, {"GPU-r": work}) for n in range(1, 90)]
    made = Made("simulated", "a test", "2026-09-21T00:00:00Z")
    header = RecordingHeader(
        Label("online-inference", "hbm-bandwidth", "a gemv \x1b[31m"), made, Node("r"), (gpu,), 1.0
    )
    write_recording(folder / "gemv.jsonl.gz", header, ticks)
    with Writer.open(folder / "node.db", now=lambda: 1_790_000_100.0) as writer:
        own = writer.for_node(Node("d", "c"), 1_790_000_000.0)
        own.set_gpus([gpu], 1_790_000_000.0)
        own.put_ticks(ticks)
    assert evaluate.main(["--labelled", str(folder), "--wrong"]) == 0
    told = capsys.readouterr().out
    assert "4 workloads" in told
    assert "bottleneck: macro-F1 0.667, right 75.0% of 4, abstained 25.0%" in told
    assert "nobody a workload that no database holds not seen: idle/idle judged unknown" in told
    assert "\x1b" not in told


def test_a_wrong_folder_ends_with_one_sentence_and_its_status(tmp_path, capsys) -> None:
    assert evaluate.main(["--labelled", str(tmp_path / "none")]) == 2
    assert evaluate.main(["--labelled", str(tmp_path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "is not a folder" in first
    assert "No labels.csv and no recording in" in second


@pytest.mark.parametrize(
    ("labels", "series", "said"),
    [
        ("kind\ntraining\n", None, "labels.csv:2: a label needs either a workload or a file"),
        (LABELS + "s.csv,w,training,,,,,\n", None, "labels.csv:2: a label needs either a workload or a file"),
        (LABELS + "s.csv,,unknown,,,,,\n", None, "labels.csv:2: kind is 'unknown'"),
        (LABELS + "s.csv,,,,,,,\n", None, "labels.csv:2: kind is ''"),
        (LABELS + "s.csv,,training,slow,,,,\n", None, "labels.csv:2: bottleneck is 'slow'"),
        (LABELS + "s.csv,,training,,yesterday,,,\n", None, "labels.csv:2: invalid start: 'yesterday' is not a time"),
        (LABELS + "s.csv,,training,,2026-09-22,2026-09-21,,\n", None, "labels.csv:2: end is not after start"),
        (LABELS + LABEL + LABEL, None, "labels.csv:3: another label of s.csv covers the same time"),
        (LABELS + "../s.csv,,training,,,,,\n", None, "labels.csv:2: invalid file '../s.csv'"),
        (LABELS + "labels.csv,,training,,,,,\n", None, "labels.csv:2: invalid file 'labels.csv'"),
        (LABELS + "s\0.csv,,training,,,,,\n", None, "labels.csv"),
        (LABELS + "s.csv,,training,,2030-01-01,,,\n", None, "labels.csv:2: no data in s.csv for that time span"),
        (LABELS + "s.csv,,training,,,,Z9000,\n", None, "labels.csv:2: unknown GPU 'Z9000'"),
        (LABELS + ",w,training,,,,,\n", None, "labels.csv:2: no node database in the folder"),
        ("kind,colour\n", None, "labels.csv:1: unknown column 'colour'"),
        ("kind,kind\n", None, "labels.csv:1: duplicate column 'kind'"),
        ("file\n", None, "labels.csv:1: missing column kind"),
        ("", None, "labels.csv:1: no header"),
        (LABELS + LABEL, HEADER, "No rows in s.csv"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,50\n", "s.csv:2: invalid dram_active: 50 is not between 0 and 1.5"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,nan\n", "s.csv:2: invalid dram_active: 'nan' is not a number"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,1e999\n", "s.csv:2: invalid dram_active: '1e999' is not a number"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,-0.1\n", "s.csv:2: invalid dram_active: -0.1"),
        (LABELS + LABEL, HEADER + "1790000060000,n,0,0.1\n", "s.csv:2: invalid ts: 1.79e+12"),
        (LABELS + LABEL, HEADER + "1790000060,n,,0.1\n", "s.csv:2: neither gpu_uuid nor gpu_index"),
        (LABELS + LABEL, HEADER + "1790000060,,0,0.1\n", "s.csv:2: node is empty"),
        (LABELS + LABEL, HEADER + ",n,0,0.1\n", "s.csv:2: ts is empty"),
        (LABELS + LABEL, HEADER + "1790000060,n,0\n", "s.csv:2: 3 cells under 4 columns"),
        (LABELS + LABEL, HEADER + ROWS + ROWS, "s.csv:4: ts of GPU-0 does not increase"),
        (LABELS + LABEL, HEADER + "1790000060,n,0,0.1\n", "s.csv:2: unknown interval length"),
        (LABELS + LABEL, HEADER + f"1790000060,{'n' * 5000},0,0.1\n", "s.csv:2: a cell is longer"),
        (LABELS + LABEL, HEADER + '1790000060,"n,0,0.1\n', "s.csv is not valid CSV"),
        (LABELS + LABEL, "ts,node,watts\n", "s.csv:1: unknown column 'watts'"),
        (LABELS + LABEL, b"\xff\xfe\x00", "s.csv is not UTF-8 text"),
    ],
)  # fmt: skip
def test_what_does_not_keep_to_the_format_is_refused_with_file_and_line(tmp_path, labels, series, said):
    (tmp_path / "labels.csv").write_text(labels)
    (tmp_path / "s.csv").write_bytes(series if isinstance(series, bytes) else (series or HEADER + ROWS).encode())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(UsageError) as refused:
        list(judged_folder(tmp_path, scratch, rulebook()))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1790000060,m,mlx5_0,compute,1\n", "s.fabric.csv:2: the node 'm' has no GPU rows"),
        ("1790000061,n,mlx5_0,compute,1\n", "s.fabric.csv:2: no GPU row of this node has this ts"),
        ("1790000060,n,mlx5_0,fast,1\n", "s.fabric.csv:2: role is 'fast'"),
        ("1790000060,n,mlx5_0,compute,1\n1790000120,n,mlx5_0,storage,1\n", "s.fabric.csv:3: mlx5_0/1 changes"),
    ],
)
def test_a_fabric_file_keeps_to_its_gpus(tmp_path, row, said):
    (tmp_path / "labels.csv").write_text(LABELS + LABEL)
    (tmp_path / "s.csv").write_text(HEADER + ROWS)
    (tmp_path / "s.fabric.csv").write_text("ts,node,device,role,tx_bytes_per_second\n" + row)
    with pytest.raises(UsageError) as refused:
        list(judged_folder(tmp_path, tmp_path, rulebook()))
    assert str(refused.value).startswith(said)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret.csv").write_text(HEADER + ROWS)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "labels.csv").write_text(LABELS + LABEL)
    (folder / "s.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(UsageError, match="expected a CSV file in this folder"):
        list(judged_folder(folder, tmp_path, rulebook()))
