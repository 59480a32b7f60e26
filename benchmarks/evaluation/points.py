"""Published averages of single runs ("points"), each judged as a workload that does this and nothing else.

    python -m skuwise.benchmarks.evaluation.evaluate --points FILE

A line of the file is one run: `gpu` as the driver calls it, `gpus` (of one node), `source`, `workload`, `bottleneck`
where it is known, and the means of what was measured (`_COLUMNS`; an empty cell is missing). Of every line with a known
bottleneck the agent's database gets a node with that many GPUs and one workload on all of them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import Gpu, Node, Tick, Workload
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.writer import Writer

from ..scoring import ABSTAINED, Answer, confusion, given
from .labelled_csv import Row, rows_of

# Column of the file -> metric of the agent and what one of its unit is in base units.
_COLUMNS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "gpu_util": (("gpu_util",), 1.0), "sm_active": (("sm_active",), 1.0), "tensor_active": (("tensor_active",), 1.0),
    "dram_active": (("dram_active",), 1.0), "sm_occupancy": (("sm_occupancy",), 1.0),
    "power_watts": (("power_watts",), 1.0), "mem_used_gib": (("mem_used_bytes",), 1024.0**3),
    "sm_clock_mhz": (("sm_clock_hertz",), 1e6), "throttle_mask": (("throttle_reasons",), 1.0),
    "nvlink_tx_gb_per_s": (("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"), 1e9),
}  # fmt: skip
_ABOUT = {
    "source", "gpu", "workload", "kind", "kind_accept", "bottleneck", "reason", "licence", "gpus", "power_limit_watts",
    "requests_running", "decode_tokens_per_s", "prefill_tokens_per_s", "mem_util", "note", "ib_tx_gb_per_s",
    "pcie_rx_gb_per_s", "part",
}  # fmt: skip
# What tells compute, memory and waiting apart: only of lines with all of them an answer is expected.
NEEDED = ("sm_active", "tensor_active", "dram_active")
_END, _STEP, _TICKS = 1_790_000_000.0 // 3600 * 3600, 30.0, 240
_NOISE = 0.01  # a value that repeats to the last digit was not measured


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A line with a known bottleneck (`truth`) and what was said of it; `is_full`: with all of `NEEDED`."""

    source: str
    gpu: str
    workload: str
    truth: str
    is_full: bool
    said: BottleneckVerdict


def judge_points(path: Path) -> list[Point]:
    """Every line with a known bottleneck, with the verdict of the rules that ship. Raises UsageError."""
    rows = [row for row in rows_of(path, _ABOUT | set(_COLUMNS), {"gpu", "bottleneck"}) if row.text("bottleneck")]
    book = load_rulebook(None, None, _END)
    start = _END - _TICKS * _STEP
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "points.db"
        with Writer.open(database, now=lambda: _END) as writer:
            for n, row in enumerate(rows):
                sku = book.catalog.gpu(row.text("gpu"))
                limit = row.number("power_limit_watts", 1e5) or (sku.tdp_watts if sku else None)
                gpus = [
                    Gpu(f"GPU-{n}-{at}", at, row.text("gpu"), sku=sku.name if sku else None,
                        mem_total_bytes=sku.mem_bytes if sku else None, power_limit_watts=limit,
                        nvlink_bytes_per_second=sku.nvlink_bytes_per_second if sku else None)
                    for at in range(int(row.number("gpus", 1024) or 1))
                ]  # fmt: skip
                own = writer.for_node(Node(f"n{n}", "points", gpu_count=len(gpus)), start)
                own.set_gpus(gpus, start)
                own.put_ticks(tuple(_ticks(row, gpus, start)))
                for gpu in gpus:
                    own.put_workload_use(
                        Workload(f"w{n}", f"s{n}", f"point-{n}", "process"), gpu.uuid, start, _END, "allocation"
                    )
        RollupJob(database).run(_END + 86400.0)
        found = {w.id: w.bottleneck for w in judge(read_frame([database], Window(start, _END)), book).workloads}
    return [
        Point(row.text("source"), row.text("gpu"), row.text("workload"), row.text("bottleneck"),
              all(row.text(name) for name in NEEDED), found[f"w{n}"])
        for n, row in enumerate(rows)
    ]  # fmt: skip


def _ticks(row: Row, gpus: list[Gpu], start: float) -> Iterator[Tick]:
    """The line's means over its time, with a little noise."""
    means = {
        name: value * scale
        for column, (names, scale) in _COLUMNS.items()
        if (value := row.number(column, 1e12)) is not None
        for name in names
    }
    for n in range(1, _TICKS + 1):
        noise = 1 - _NOISE * (1 + math.sin(n)) / 2
        values = {name: value if name == "throttle_reasons" else value * noise for name, value in means.items()}
        yield Tick(start + n * _STEP, _STEP, {gpu.uuid: values for gpu in gpus})


def tell(path: Path) -> None:
    """Print how often bottlenecks of the lines are right, those with all counters first, and what is wrong."""
    points = judge_points(path)
    for view, is_full in (("SM, tensor and DRAM activity", True), ("GPU use and power alone", False)):
        answers = {p: Answer(p.truth, p.said.label, p.said.confidence) for p in points if p.is_full is is_full}
        right = sum(a.truth == a.verdict for a in answers.values())
        named = len(given(answers.values()))
        print(f"\n== points with {view}: bottleneck right {right} of {len(answers)}, wrong {named - right}")
        print(confusion(list(answers.values())))
        for p, answer in answers.items():
            if answer.verdict not in (answer.truth, ABSTAINED):
                print(f"wrong: {p.source}, {p.gpu}, {p.workload}: {p.truth}, judged {answer.verdict}")
