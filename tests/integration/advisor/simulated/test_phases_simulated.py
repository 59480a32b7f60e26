"""From simulated work that changes what it does, through the store and the reader, to phases that are true."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from skuwise.advisor.advise import read_and_advise
from skuwise.advisor.render import render
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.advisor.views.document.page_options import PageOptions
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.rulebooks import rulebook

UNTIL = 1_790_000_000.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("phases") / "phases.db"
    simulate("phases", path, days=2, seed=3, until=UNTIL)
    return path


def test_phases_are_those_of_the_truth(made: Path) -> None:
    verdicts = judge(read_frame([made]), rulebook())
    with sqlite3.connect(made) as connection:
        truth = connection.execute(
            "SELECT workload_id, ts_start, ts_end, kind, bottleneck FROM truth_phases"
        ).fetchall()
    workloads = {w.id: w for w in verdicts.workloads}
    changing = {row[0] for row in truth}
    assert len(changing) == 2
    agreed = {}
    for workload_id in changing:
        total = right = 0.0
        for _, start, end, kind, bottleneck in (row for row in truth if row[0] == workload_id):
            for phase in workloads[workload_id].phases:
                common = max(0.0, min(end, phase.end) - max(start, phase.start))
                total += common
                right += common * (
                    phase.bottleneck == bottleneck and (phase.kind == "training") == (kind == "training")
                )
        # An evaluation of half an hour does not rule its hour, and hours are all that is kept.
        assert right >= 0.85 * total > 0
        assert len(workloads[workload_id].phases) > 1
        agreed[workload_id] = right / total
        assert workloads[workload_id].kind.label == "training"
    assert max(agreed.values()) >= 0.95  # by day and by night: turns of hours
    assert {len(w.phases) for w in verdicts.workloads if w.id not in changing} == {1}


def test_text_and_json_tell_the_phases(made: Path) -> None:
    _, advice = read_and_advise([made], rulebook(), now=UNTIL)
    text = render(advice, "table", width=160, color=False, page=PageOptions(whole=True))
    assert "training (compute) in" in text
    told = json.loads(render(advice, "json", width=100, color=False))
    several = [w for w in told["workloads"] if len(w["phases"]) > 1]
    assert len(several) == 2
    for workload in several:
        phases = workload["phases"]
        assert all(a["end"] == b["start"] for a, b in itertools.pairwise(phases))
        assert all(a["start"] < a["end"] for a in phases)
        assert phases[-1]["end"] == workload["end"]


def test_the_same_database_twice_changes_no_verdict(made: Path, tmp_path: Path) -> None:
    shutil.copy(made, tmp_path / "copy.db")
    once, twice = (judge(read_frame(paths), rulebook()) for paths in ([made], [made, tmp_path / "copy.db"]))
    assert [(w.id, w.kind.label, w.bottleneck.label, w.phases) for w in twice.workloads] == [
        (w.id, w.kind.label, w.bottleneck.label, w.phases) for w in once.workloads
    ]
    assert [w.gpu_hours for w in twice.workloads] == pytest.approx([w.gpu_hours for w in once.workloads])
