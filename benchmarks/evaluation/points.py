"""Published averages of single runs ("points"), each judged as a workload that does this and nothing else.

    python -m skuwise.benchmarks.evaluation.evaluate --points FILE

A line of the file is one run: `gpu` as the driver calls it, `gpus` (of one node), `source`, `workload`, `bottleneck`
where it is known, and the means of what was measured (`_COLUMNS`; an empty cell is missing).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from skuwise.advisor.advise import load_rulebook
from skuwise.rules.base.errors import UsageError

from ..scoring import Answer, abstention, accuracy, confusion
from .judged_series import JudgedSeries, judge_stored
from .labelled import NO_FABRIC, Label, LabelledSeries

# Column of the file -> metrics of the agent and what one of its unit is in base units.
_COLUMNS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "gpu_util": (("gpu_util",), 1.0), "sm_active": (("sm_active",), 1.0), "tensor_active": (("tensor_active",), 1.0),
    "dram_active": (("dram_active",), 1.0), "sm_occupancy": (("sm_occupancy",), 1.0),
    "power_watts": (("power_watts",), 1.0), "power_limit_watts": (("power_limit_watts",), 1.0),
    "mem_used_gib": (("mem_used_bytes",), 1024.0**3), "sm_clock_mhz": (("sm_clock_hertz",), 1e6),
    "throttle_mask": (("throttle_reasons",), 1.0),
    "nvlink_tx_gb_per_s": (("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"), 1e9),
}  # fmt: skip
# What distinguishes compute, memory and waiting: only of lines with all of them an answer is expected.
NEEDED = ("sm_active", "tensor_active", "dram_active")
_END, _STEP, _TICKS = 1_790_000_000.0 // 3600 * 3600, 30.0, 240
_NOISE = 0.01  # a value that repeats to the last digit was not measured


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A line with a known bottleneck; `is_full`: with all of `NEEDED`."""

    answer: Answer
    is_full: bool


def judge_points(path: Path) -> list[Point]:
    """Every line with a known bottleneck, with the verdict of the rules that ship. Raises UsageError."""
    table = pd.read_csv(path, dtype={"gpu": str, "source": str, "workload": str, "bottleneck": str})
    if missing := sorted({"gpu", "bottleneck"} - set(table.columns)):
        raise UsageError(f"{path.name}:1: column {missing[0]!r} is missing.", "Correct the header.")
    rows = [row for _, row in table.iterrows() if isinstance(row["bottleneck"], str)]
    judged = judge_stored((_series(n, row) for n, row in enumerate(rows)), load_rulebook(None, None, _END))
    return [Point(answer, _is_full(row)) for row, answer in zip(rows, _answers(judged), strict=True)]


def _answers(judged: Iterator[JudgedSeries]) -> Iterator[Answer]:
    for judged_series in judged:
        if (answer := judged_series.bottleneck) is not None:
            yield answer


def _is_full(row: pd.Series) -> bool:
    return all(name in row and pd.notna(row[name]) for name in NEEDED)


def _series(number: int, row: pd.Series) -> LabelledSeries:
    """The line's means over its time, with a little noise, on each of its GPUs."""
    ticks = np.arange(1, _TICKS + 1)
    noise = 1 - _NOISE * (1 + np.sin(ticks)) / 2
    values = {
        name: row[column] * scale * (1.0 if name in ("throttle_reasons", "power_limit_watts") else noise)
        for column, (names, scale) in _COLUMNS.items()
        if column in row and pd.notna(row[column])
        for name in names
    }
    rows = pd.DataFrame(
        {"ts": _END + (ticks - _TICKS) * _STEP, "interval_seconds": _STEP, "node": f"n{number}", **values}
    )
    gpus = range(int(row["gpus"]) if pd.notna(row.get("gpus")) else 1)
    label = Label(
        where=f"line {number + 2}", file=Path(f"point-{number}"), kind=str(row.get("kind", "")), kinds=(),
        bottleneck=row["bottleneck"], bottlenecks=(row["bottleneck"],), owner=str(row.get("source", "")),
        gpu=row["gpu"], start=None, end=None, source="", licence="", work=str(row.get("workload", "")), is_steady=True,
    )  # fmt: skip
    gpu = pd.concat([rows.assign(gpu_index=at, gpu_uuid=f"GPU-{number}-{at}") for at in gpus], ignore_index=True)
    return LabelledSeries(label, gpu, NO_FABRIC)


def tell(path: Path) -> None:
    """Print how often bottlenecks of the lines are right, those with all counters first, and what is wrong."""
    points = judge_points(path)
    for view, is_full in (("SM, tensor and DRAM activity", True), ("GPU use and power alone", False)):
        answers = [p.answer for p in points if p.is_full is is_full]
        print(
            f"\n== points with {view}: bottleneck right {accuracy(answers):.1%} of {len(answers)}, "
            f"abstained {abstention(answers):.1%}"
        )
        print(confusion(answers))
        for answer in answers:
            if answer.is_wrong:
                print(f"wrong: {answer.truth}, judged {answer.verdict}: {answer.about.splitlines()[0]}")
