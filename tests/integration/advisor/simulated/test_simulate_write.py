"""Simulated fleets in real databases: every view filled, the same bytes for the same seed, and the store agrees."""

import math
import sqlite3
from contextlib import closing

import pytest
from skuwise.advisor.cli.simulate import configure, run
from skuwise.advisor.demo import SCENARIOS as DEMO_SCENARIOS
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import UsageError

UNTIL = 1_763_683_200.0
VIEWS = (
    "nodes", "gpus", "workloads", "workload_gpus", "gpu_hours", "gpu_minutes", "fabric_hours", "fabric_minutes",
    "host_hours", "host_minutes", "gpu_samples", "fabric_samples", "host_samples", "absences",
)  # fmt: skip


def rows(path, sql):
    with closing(open_reader(path)) as connection:
        return connection.execute(sql).fetchall()


def columns(path, view):
    with closing(open_reader(path)) as connection:
        return connection.columns(view)


def count(path, view):
    return rows(path, f"SELECT count(*) FROM {view}")[0][0]


@pytest.fixture(scope="module")
def founding(tmp_path_factory):
    path = tmp_path_factory.mktemp("simulated") / "founding.db"
    lines = []
    report = simulate(
        "founding", path, days=2, seed=1, until=UNTIL + 1234, minutes_seconds=3600, samples_seconds=180,
        progress=lines.append,
    )  # fmt: skip
    return path, report, lines


@pytest.mark.parametrize("view", [v for v in VIEWS if v != "absences"])
def test_every_view_is_filled(founding, view):
    path, report, _ = founding
    assert count(path, view) > 0
    if view.endswith("_hours"):
        newest = rows(path, f"SELECT max(ts), min(ts) FROM {view}")[0]
        assert newest[0] == report.end == UNTIL


def test_hours_cover_the_window_and_account_for_the_time(founding):
    path, report, lines = founding
    assert len(lines) == len(report.nodes)
    hours = rows(path, "SELECT gpu_uuid, count(*), sum(observed_seconds) FROM gpu_hours GROUP BY gpu_uuid")
    assert len(hours) == report.gpu_count
    for _, number, seconds in hours:
        assert number <= 48
        assert seconds <= 48 * 3600
        assert seconds > 46 * 3600
    for energy, power in rows(
        path, "SELECT energy_joules_mean * energy_joules_n, power_watts_mean * observed_seconds FROM gpu_hours"
    ):
        assert energy == pytest.approx(power, rel=0.01)
    assert all(
        m is not None for row in rows(path, "SELECT sm_active_mean, duty, power_bins FROM gpu_hours") for m in row
    )


def test_the_founding_fabric_is_silent_in_every_bin(founding):
    path, _, _ = founding
    for util_max, idle, observed in rows(
        path, "SELECT util_max, idle_run_seconds, observed_seconds FROM fabric_hours WHERE role = 'compute'"
    ):
        assert util_max < 0.001
        assert idle == observed
    assert rows(path, "SELECT DISTINCT role, link_layer FROM fabric_hours ORDER BY role") == [
        ("compute", "InfiniBand"),
        ("storage", "Ethernet"),
    ]


def test_truth_stands_beside_the_workloads(founding):
    path, report, _ = founding
    assert rows(path, "SELECT workload_id FROM truth ORDER BY 1") == rows(
        path, "SELECT workload_id FROM workloads ORDER BY 1"
    )
    assert set(rows(path, "SELECT kind, bottleneck, waste FROM truth")) == {
        ("online-inference", "hbm-bandwidth", "idle-fabric")
    }
    assert len(report.truths) == count(path, "truth")
    uses = rows(path, "SELECT DISTINCT workload_id, node FROM workload_gpus")
    assert {node for _, node in uses} == set(report.nodes)


def test_minutes_are_what_the_store_makes_of_the_samples(founding, tmp_path):
    path, report, _ = founding
    check_minutes(path, report, tmp_path / "copy.db")


@pytest.mark.parametrize("scenario", ["single-gpu", "mig"])
def test_pages_and_instances_are_rolled_up_as_the_store_does(scenario, tmp_path):
    report = simulate(
        scenario, tmp_path / "x.db", days=2, seed=1, until=UNTIL, minutes_seconds=3600, samples_seconds=180
    )
    check_minutes(report.files[0], report, tmp_path / "copy.db")
    missing = rows(report.files[0], "SELECT DISTINCT reason FROM absences")
    assert {"single-gpu": ("not-exported",), "mig": ("mig",)}[scenario] in missing


def check_minutes(path, report, copy):
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    assert RollupJob(copy).run(report.end + 3600).minutes == 3 * len(report.nodes)
    for view, key in (("gpu_minutes", "gpu_uuid"), ("fabric_minutes", "device"), ("host_minutes", "node")):
        sql = f"SELECT * FROM {view} WHERE ts > {report.end - 180} ORDER BY ts, node, {key}"
        ours, theirs = rows(path, sql), rows(copy, sql)
        assert len(ours) == len(theirs)
        assert ours or view == "fabric_minutes"
        for place, name in enumerate(columns(path, view)):
            for mine, store in zip(ours, theirs, strict=True):
                close(name, mine[place], store[place])


def test_phases_of_workloads_that_change_stand_in_a_table_of_their_own(tmp_path):
    report = simulate("phases", tmp_path / "p.db", days=1, until=UNTIL, minutes_seconds=3600)
    told = rows(
        report.files[0], "SELECT workload_id, ts_start, ts_end, kind, bottleneck FROM truth_phases ORDER BY 1, 2"
    )
    assert told == sorted(
        (t.workload_id, p.start, p.end, p.kind, p.bottleneck) for t in report.truths for p in t.phases
    )
    assert {kind for _, _, _, kind, _ in told} == {"training", "batch-inference", "online-inference"}


def close(name, ours, theirs):
    """Equal, but for the steps in which the samples that the store read are kept (64 and 1024 bytes, 1e-4, ...)."""
    if "period" in name:
        return  # a rounded sample can move a peak of noise above the bound or below it
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        step = 1024 if "bytes" in name else 0.05 if "correlation" in name else 0.01
        assert math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=step), name
    else:
        assert ours == theirs, name


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(tmp_path):
    made = {}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        path = tmp_path / f"{name}.db"
        simulate("fine-tuning", path, days=1, seed=seed, until=UNTIL, minutes_seconds=3600, samples_seconds=20)
        made[name] = {view: rows(path, f"SELECT * FROM {view}") for view in (*VIEWS, "truth")}
    assert made["a"] == made["b"]
    assert made["a"]["gpu_hours"] != made["c"]["gpu_hours"]
    assert made["a"]["truth"] != made["c"]["truth"]


def test_a_folder_holds_one_database_a_node_with_the_same_workloads(tmp_path):
    report = simulate("training", tmp_path / "fleet", days=1, seed=2, until=UNTIL, minutes_seconds=3600)
    assert [file.name for file in report.files] == [f"{node}.db" for node in report.nodes]
    told = [rows(file, "SELECT workload_id, series_id FROM workloads ORDER BY 1") for file in report.files]
    assert told[0]
    assert all(other == told[0] for other in told)
    for file, node in zip(report.files, report.nodes, strict=True):
        assert rows(file, "SELECT node FROM nodes") == [(node,)]
        assert rows(file, "SELECT count(*) FROM truth")[0][0] == len(told[0])


def test_bare_gpus_have_a_truth_of_their_own(tmp_path):
    report = simulate("idle", tmp_path / "idle.db", days=1, until=UNTIL, minutes_seconds=3600)
    bare = rows(report.files[0], "SELECT * FROM truth WHERE workload_id LIKE 'node:%'")
    assert bare == [("node:spare-01", "idle", "idle", "idle")]
    assert rows(report.files[0], "SELECT count(*) FROM workload_gpus WHERE node = 'spare-01'") == [(0,)]


def test_what_a_node_lacks_is_missing_with_its_reason(tmp_path):
    report = simulate("fine-tuning", tmp_path / "t.db", days=1, until=UNTIL, minutes_seconds=3600)
    path = report.files[0]
    assert count(path, "fabric_hours") == 0
    assert ("no-fabric",) in rows(path, "SELECT reason FROM absences")
    assert rows(path, "SELECT count(*) FROM gpu_hours WHERE tensor_fabric_correlation IS NOT NULL") == [(0,)]


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "kept.db"
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match="already exists"):
        simulate("decode", path, days=1, until=UNTIL)
    assert path.read_bytes() == b"mine"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "serve-01.db").write_bytes(b"mine")
    with pytest.raises(UsageError, match="already exists"):
        simulate("decode", tmp_path / "folder", days=1, until=UNTIL)


@pytest.mark.parametrize(("given", "says"), [({"days": 0}, "days"), ({"seed": -1}, "negative")])
def test_wrong_numbers_are_refused(tmp_path, given, says):
    with pytest.raises(UsageError, match=says):
        simulate("decode", tmp_path / "x.db", until=UNTIL, **given)
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_a_fleet_and_says_what(tmp_path, capsys):
    import argparse

    parser = argparse.ArgumentParser()
    configure(parser)
    assert all(f"  {name} " in str(parser.epilog) for name in DEMO_SCENARIOS)
    path = tmp_path / "d.db"
    options = parser.parse_args(
        ["founding", "--db", str(path), "--days", "0.25", "--until", "2025-11-21T00:30:00Z", "--minutes", "1h"]
    )
    assert run(options) == 0
    said = capsys.readouterr()
    assert "4 nodes, 32 GPUs" in said.out
    assert "2025-11-21T00:00:00Z" in said.out
    assert said.err == "simulating founding ...\n"
    assert count(path, "gpu_hours") == 6 * 32
