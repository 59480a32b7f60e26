"""Series as files of a user: a verdict is right or there is none; and the figures that docs/method.md states."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.benchmarks.evaluation import evaluate, left_out
from skuwise.benchmarks.evaluation.judged_series import judge_series, read_folder
from skuwise.benchmarks.fit.real_series import read_rows
from skuwise.benchmarks.fit.train_kinds import fit_rows
from skuwise.rules.base.errors import UsageError
from skuwise.rules.policy.thresholds import load_levels

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Rows = Mapping[str, Floats]

MONDAY = 1_789_948_800  # 2026-09-21 00:00 UTC
GB = 1e9
TOTAL = 85_899_345_920


def training(rng: np.random.Generator, hours: float, step: int) -> Rows:
    engine = np.clip(rng.normal(0.97, 0.02, int(hours * 3600 / step)), 0, 1)
    engine[rng.random(len(engine)) < 0.01] = 0.2  # it writes a checkpoint
    return {"gpu_util": engine, "mem_used_bytes": 60 * GB + rng.normal(0, 0.05 * GB, len(engine))}


def service(rng: np.random.Generator, hours: float, step: int) -> Rows:
    hour = np.arange(int(hours * 3600 / step)) * step / 3600
    load = 0.25 + 0.2 * np.sin(2 * np.pi * (hour - 9) / 24)
    util = np.clip(load * rng.gamma(2, 0.5, len(hour)), 0, 1)
    return {"gpu_util": util, "mem_used_bytes": np.full(len(hour), 76 * GB)}


def notebook(rng: np.random.Generator, hours: float, step: int, first_hour: float = 0.0) -> Rows:
    hour = first_hour + np.arange(int(hours * 3600 / step)) * step / 3600
    engine, memory = np.zeros(len(hour)), np.zeros(len(hour))
    for day in range(int(hour[-1] // 24) + 1):
        if day % 7 >= 5:
            continue
        begin = 8 + rng.uniform(0, 2)
        sits = (hour // 24 == day) & (hour % 24 > begin) & (hour % 24 < begin + rng.uniform(6, 9))
        works = sits & (rng.random(len(hour)) < 0.15)
        engine[works] = rng.uniform(0.1, 0.9, works.sum())
        taken = np.where(works & (rng.random(len(hour)) < 0.3), rng.uniform(-0.1, 0.3, len(hour)), 0.0)
        cells = np.exp(np.cumsum(taken))
        memory[sits] = np.minimum(2 * GB * cells[sits], 70 * GB)  # what the cells left
    return {"gpu_util": engine, "mem_used_bytes": memory}


MAKERS: Mapping[str, Callable[[np.random.Generator, float, int], Rows]] = {
    "training": training, "online-inference": service, "interactive": notebook,
}  # fmt: skip


def judged(folder: Path, rows: Rows, step: int, kept: Mask | None = None) -> WorkloadVerdict:
    """The verdict on a series whose rows have their interval. `kept`: the rows that were scraped."""
    lines = [",".join(("ts", "interval_seconds", "node", "gpu_index", "mem_total_bytes", *rows))]
    for n, values in enumerate(zip(*rows.values(), strict=True)):
        if kept is None or kept[n]:
            cells = ",".join(f"{max(value, 0.0):.6g}" for value in values)
            lines.append(f"{MONDAY + (n + 1) * step},{step},n,0,{TOTAL},{cells}")
    (folder / "s.csv").write_text("\n".join(lines) + "\n")
    (folder / "labels.csv").write_text("file,kind,gpu\ns.csv,training,H100-SXM5\n")
    (judged_series,) = judge_series(read_folder(folder))
    assert judged_series.verdict is not None
    return judged_series.verdict


def is_right_or_abstains(verdict: WorkloadVerdict, kind: str) -> bool:
    """Training and fine-tuning differ by length and size alone."""
    if verdict.kind.label != "unknown":
        return verdict.kind.label == kind or {verdict.kind.label, kind} == {"training", "fine-tuning"}
    return verdict.kind.confidence < load_levels("kinds.yaml").abstain_below


@pytest.mark.parametrize("kind", MAKERS)
def test_six_hours_make_a_modest_verdict_or_none(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(31)
    rows = notebook(rng, 6, 60, first_hour=9.0) if kind == "interactive" else MAKERS[kind](rng, 6, 60)
    verdict = judged(tmp_path, rows, 60)
    assert is_right_or_abstains(verdict, kind)
    assert verdict.kind.confidence <= 0.95
    assert verdict.features["elapsed_hours"] == pytest.approx(6.0, abs=0.1)
    shows_days = {"working_hours_share", "day_before"}
    assert not shows_days & set(verdict.features)
    assert not any("weekend" in said.text or "day before" in said.text for said in verdict.kind.evidence)


@pytest.mark.parametrize("kind", MAKERS)
def test_nine_tenths_of_gaps_leave_a_right_verdict_or_none(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(33)
    rows = MAKERS[kind](rng, 168, 60)
    # One hour in ten was seen, and that whole.
    kept = np.repeat(rng.random(168 + 1) < 0.1, 60)[: 168 * 60]
    verdict = judged(tmp_path, rows, 60, kept)
    assert is_right_or_abstains(verdict, kind)
    assert verdict.kind.label != "idle"
    seen = kept.sum() / 60
    assert verdict.features["hours"] == pytest.approx(seen, rel=0.1)  # hours that were seen, and no others
    assert verdict.coverage.fraction < 0.2
    assert verdict.kind.confidence <= 0.95  # below a day of samples
    share = verdict.bottleneck.time_shares
    assert sum(share.values()) == pytest.approx(1.0, abs=0.01) or not share


EXAMPLE = Path(__file__).parents[3] / "tests/data/labelled"
LABELS = "file,kind,bottleneck,start,end,gpu\n"
LABEL = "s.csv,training,compute,,,\n"
HEADER = "ts,node,gpu_index,dram_active\n"


def test_series_are_judged_beside_the_baseline_and_mistakes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--labelled", str(EXAMPLE), "--wrong"]) == 0
    output = capsys.readouterr().out
    assert "2 series of 1 owners" in output and "bottleneck: right 100.0% of 2, abstained 0.0%" in output


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
    measured = left_out.figures_by_window(judged)
    assert measured.keys() == stated.keys()
    for window, figures in stated.items():
        assert measured[window] == pytest.approx(figures, abs=TOLERANCE), window
