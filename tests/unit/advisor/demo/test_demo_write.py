"""Simulated fleets in real databases: every view filled, and the store agrees with the rollups."""

from __future__ import annotations

import argparse
from contextlib import closing

import pytest
from skuwise.advisor.cli.simulate import configure, run
from skuwise.advisor.demo import SCENARIOS, simulate
from skuwise.agent.store.reading.reader import open_reader
from skuwise.benchmarks.generators import first
from skuwise.rules.base.errors import UsageError

UNTIL = 1_763_683_200.0
VIEWS = (
    "nodes", "gpus", "workloads", "workload_gpus", "gpu_hours", "gpu_minutes", "fabric_hours", "fabric_minutes",
    "host_hours", "host_minutes",
)  # fmt: skip


def rows(path, sql):
    with closing(open_reader(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def founding(tmp_path_factory):
    path = tmp_path_factory.mktemp("simulated") / "founding.db"
    lines = []
    report = simulate("founding", path, days=1, seed=1, until=UNTIL + 1234, minutes_seconds=3600, progress=lines.append)
    return path, report, lines


def test_every_view_is_filled_and_hours_account_for_the_time(founding):
    path, report, lines = founding
    assert [view for view in VIEWS if not rows(path, f"SELECT count(*) FROM {view}")[0][0]] == []
    assert len(lines) == len(report.fleet.nodes)
    hours = rows(path, "SELECT gpu_uuid, max(ts), sum(observed_seconds) FROM gpu_hours GROUP BY gpu_uuid")
    assert len(hours) == sum(len(node.sim.gpus) for node in report.fleet.nodes)
    for _, newest, seconds in hours:
        assert newest == report.end == UNTIL
        assert 22 * 3600 < seconds <= 24 * 3600
    sql = "SELECT energy_joules_mean * energy_joules_n, power_watts_mean * observed_seconds, duty FROM gpu_hours"
    for energy, power, duty in rows(path, sql):
        assert energy == pytest.approx(power, rel=0.01) and duty is not None


def test_truth_stands_beside_the_workloads(founding):
    path, report, _ = founding
    truth = rows(path, "SELECT workload_id, kind, bottleneck, waste FROM truth ORDER BY 1")
    assert [row[:1] for row in truth] == rows(path, "SELECT workload_id FROM workloads ORDER BY 1")
    assert {row[1:] for row in truth} == {("online-inference", "hbm-bandwidth", "idle-fabric")}
    assert len(report.truths) == len(truth)


def test_a_folder_holds_one_database_a_node_with_the_same_workloads(tmp_path):
    report = first.simulate("training", tmp_path / "fleet", days=1, seed=2, until=UNTIL, minutes_seconds=3600)
    names = [node.sim.node.node for node in report.fleet.nodes]
    assert [file.name for file in report.files] == [f"{node}.db" for node in names]
    told = [rows(file, "SELECT workload_id, series_id FROM workloads ORDER BY 1") for file in report.files]
    assert told[0] and all(other == told[0] for other in told)
    for file, node in zip(report.files, names, strict=True):
        assert rows(file, "SELECT node FROM nodes") == [(node,)]


def test_what_a_node_lacks_is_missing_with_its_reason_and_bare_gpus_have_a_truth(tmp_path):
    first.simulate("idle", tmp_path / "i.db", days=0.25, until=UNTIL, minutes_seconds=0)
    assert ("no-fabric",) in rows(tmp_path / "i.db", "SELECT reason FROM absences WHERE node = 'left-01'")
    bare = rows(tmp_path / "i.db", "SELECT * FROM truth WHERE workload_id LIKE 'node:%'")
    assert bare == [("node:spare-01", "idle", "idle", "idle")]
    assert rows(tmp_path / "i.db", "SELECT count(*) FROM workload_gpus WHERE node = 'spare-01'") == [(0,)]


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "folder").mkdir()
    for path, file in ((tmp_path / "kept.db", "kept.db"), (tmp_path / "folder", "folder/serve-01.db")):
        (tmp_path / file).write_bytes(b"mine")
        with pytest.raises(UsageError, match="already exists"):
            simulate("founding", path, days=1, until=UNTIL)
        assert (tmp_path / file).read_bytes() == b"mine"


@pytest.mark.parametrize(("given", "says"), [({"days": 0}, "days"), ({"seed": -1}, "negative")])
def test_wrong_numbers_are_refused(tmp_path, given, says):
    with pytest.raises(UsageError, match=says):
        simulate("founding", tmp_path / "x.db", until=UNTIL, **given)
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_a_fleet_and_says_what(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    configure(parser)
    assert list(SCENARIOS) == ["founding", "small", "fleet"]
    assert all(f"  {name} " in str(parser.epilog) for name in SCENARIOS)
    path = tmp_path / "d.db"
    options = parser.parse_args(
        ["founding", "--db", str(path), "--days", "0.25", "--until", "2025-11-21T00:30:00Z", "--minutes", "1h"]
    )
    assert run(options) == 0
    said = capsys.readouterr()
    assert "4 nodes, 32 GPUs" in said.out and "2025-11-21T00:00:00Z" in said.out
    assert said.err == "simulating founding ...\n"
    assert rows(path, "SELECT count(*) FROM gpu_hours") == [(6 * 32,)]
