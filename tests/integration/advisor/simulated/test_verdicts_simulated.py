"""From a simulated database, through the store, to verdicts that agree with the truth it carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import Verdicts, judge
from skuwise.benchmarks.generators.first import SimulationReport, simulate
from skuwise.tests.support.rulebooks import rulebook

UNTIL = 1_790_000_000.0


def _made(path: Path, scenario: str, days: float, seed: int) -> tuple[SimulationReport, Verdicts]:
    report = simulate(scenario, path, days=days, seed=seed, until=UNTIL)
    return report, judge(read_frame([path]), rulebook())


def test_the_founding_case_is_seen_as_serving_on_a_silent_fabric(tmp_path: Path) -> None:
    report, verdicts = _made(tmp_path / "f.db", "founding", 4, 3)
    assert len(verdicts.workloads) == len(report.truths)
    for workload in verdicts.workloads:
        assert workload.kind.label == "online-inference"
        assert workload.bottleneck.label == "hbm-bandwidth"
        assert verdicts.waste_ready[workload.id]
    for node in verdicts.nodes:
        assert node.fabric is not None
        assert node.fabric.readable
        assert node.fabric.util_p995 is not None
        assert node.fabric.util_p995 < 0.01


def test_every_gpu_hour_of_a_simulated_node_has_its_place(tmp_path: Path) -> None:
    _, verdicts = _made(tmp_path / "t.db", "fine-tuning", 3, 101)
    sums = verdicts.occupancy.groupby("node")["gpu_hours"].sum()
    for node in verdicts.nodes:
        assert sums[node.node] == pytest.approx(node.gpu_count * node.span_hours, rel=1e-9)
    held = verdicts.occupancy[verdicts.occupancy["workload_id"].notna()]["gpu_hours"].sum()
    assert held == pytest.approx(sum(w.gpu_hours for w in verdicts.workloads), rel=1e-6)


def test_nine_of_ten_verdicts_on_a_fleet_are_right(tmp_path: Path) -> None:
    report, verdicts = _made(tmp_path / "small.db", "small", 14, 105)
    truth = {t.workload_id: t for t in report.truths}
    kinds = [w.kind.label == truth[w.id].kind for w in verdicts.workloads]
    limits = [w.bottleneck.label == truth[w.id].bottleneck for w in verdicts.workloads]
    assert sum(kinds) >= 0.9 * len(kinds)
    assert sum(limits) >= 0.9 * len(limits)
