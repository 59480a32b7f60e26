"""Simulated fleets: layouts, truth, rollups as the store makes them, and files."""

import itertools

import pytest
from skuwise.__main__ import main
from skuwise.advisor import demo
from skuwise.advisor.core.fleet_identity import is_simulated
from skuwise.advisor.demo import simulate
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.stored_rows import rows

END = 1_763_683_200.0
DAY = 86400.0
WINDOW = {"start": END - 14 * DAY, "end": END}


@pytest.mark.parametrize(("scenario", "seed"), [("small", 0), ("small", 1), ("fleet", 0)])
def test_nobody_shares_a_gpu_and_nothing_runs_beyond_the_window(scenario, seed, seed_of):
    fleet = demo.plan_fleet(scenario, seed=seed_of(seed), **WINDOW)
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for p in fleet.placed:
        for node, gpus in p.nodes.items():
            for gpu in gpus:
                spans.setdefault((node, gpu), []).extend(p.runs)
        hours = sum(stop - begin for begin, stop in p.runs) / 3600
        assert p.truth.kind != "fine-tuning" or (len(p.nodes) == 1 and hours < 24)
        assert p.truth.kind != "training" or len(p.nodes) > 1 or hours > 24
    for runs in spans.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(runs)))
        assert all(begin < stop <= END and stop > END - 14 * DAY for begin, stop in runs)


def test_two_simulated_fleets_have_no_gpu_and_so_no_ledger_in_common():
    week = {"start": END - 7 * DAY, "end": END + 7 * DAY}
    fleets = [demo.plan_fleet(scenario, seed=seed, **window) for scenario, seed, window in (
        ("small", 0, WINDOW), ("small", 1, WINDOW), ("small", 0, week), ("founding", 0, WINDOW), ("fleet", 0, WINDOW),
    )]  # fmt: skip
    gpus = [(g.uuid, n.sim.node.node, g.index) for fleet in fleets for n in fleet.nodes for g in n.sim.gpus]
    assert len({uuid for uuid, _, _ in gpus}) == len(gpus) > 300 and all(is_simulated(*gpu) for gpu in gpus)
    assert not is_simulated("GPU-5e1e1c2a-7d3b-4c0f-9a55-0123456789ab", "n1", 0)
    again = demo.plan_fleet("small", seed=0, **WINDOW)
    assert [g.uuid for n in again.nodes for g in n.sim.gpus] == [uuid for uuid, _, _ in gpus[:104]]


def test_the_small_fleet_holds_the_commonest_kinds_and_a_partner_for_a_swap():
    fleet = demo.plan_fleet("small", seed=0, **WINDOW)
    kinds = {(p.truth.kind, p.truth.bottleneck) for p in fleet.placed}
    assert kinds - {("fine-tuning", "host-input")} == {
        *(("training", limit) for limit in ("compute", "network", "pcie")),
        ("fine-tuning", "compute"),
        *(("online-inference", limit) for limit in ("hbm-bandwidth", "latency")),
        ("idle", "idle"),
    }
    assert (len(fleet.nodes), len(fleet.bare)) == (13, 1)
    places = {node.sim.node.node: (node.sim.node.provider, node.sim.node.region) for node in fleet.nodes}
    silent = {places[n] for p in fleet.placed if "idle-fabric" in p.truth.waste for n in p.nodes}
    starved = {places[n] for p in fleet.placed if p.truth.bottleneck == "network" and p.truth.waste for n in p.nodes}
    assert starved & silent == {("azure", "eastus")}


def test_a_seed_gives_one_fleet_and_another_seed_another():
    first, same, other = (demo.plan_fleet("small", seed=seed, **WINDOW).placed for seed in (5, 5, 6))
    assert first == same != other


VIEWS = (
    "nodes", "gpus", "workloads", "workload_gpus", "gpu_hours", "gpu_minutes", "fabric_hours", "fabric_minutes",
    "host_hours", "host_minutes",
)  # fmt: skip


def test_every_view_is_filled_and_hours_account_for_the_time(tmp_path):
    path, steps = tmp_path / "founding.db", []
    about = {"days": 1, "seed": 1, "until": END + 1234, "minutes_seconds": 3600}
    report = simulate("founding", path, **about, steps=lambda *done: steps.append(done))
    assert [view for view in VIEWS if not rows(path, f"SELECT count(*) FROM {view}")[0][0]] == []
    assert len(steps) == len(report.fleet.nodes)
    hours = rows(path, "SELECT gpu_uuid, max(ts), sum(observed_seconds) FROM gpu_hours GROUP BY gpu_uuid")
    assert len(hours) == sum(len(node.sim.gpus) for node in report.fleet.nodes)
    for _, newest, seconds in hours:
        assert newest == report.end == END and 22 * 3600 < seconds <= 24 * 3600
    sql = "SELECT energy_joules_mean * energy_joules_n, power_watts_mean * observed_seconds, duty FROM gpu_hours"
    for energy, power, duty in rows(path, sql):
        assert energy == pytest.approx(power, rel=0.01) and duty is not None
    truth = rows(path, "SELECT workload_id, kind, bottleneck, waste FROM truth ORDER BY 1")
    assert [row[:1] for row in truth] == rows(path, "SELECT workload_id FROM workloads ORDER BY 1")
    assert {row[1:] for row in truth} == {("online-inference", "hbm-bandwidth", "idle-fabric")}


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "folder").mkdir()
    for path, file in ((tmp_path / "kept.db", "kept.db"), (tmp_path / "folder", "folder/serve-01.db")):
        (tmp_path / file).write_bytes(b"mine")
        with pytest.raises(UsageError, match="already exists"):
            simulate("founding", path, days=1, until=END)
        assert (tmp_path / file).read_bytes() == b"mine"


@pytest.mark.parametrize(("given", "says"), [("--days=0", "400 days"), ("--seed=-1", "0 or more")])
def test_wrong_numbers_are_refused(tmp_path, capsys, given, says):
    assert main(["simulate", "founding", "--db", str(tmp_path / "x.db"), given]) == 2
    assert says in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_the_command_makes_a_fleet_and_describes_it(tmp_path, capsys):
    path = tmp_path / "d.db"
    window = ["--days", "0.25", "--until", "2025-11-21T00:30:00Z", "--minutes", "1h"]
    assert main(["simulate", "founding", "--db", str(path), *window]) == 0
    assert "4 nodes, 32 GPUs" in (out := capsys.readouterr().out) and "2025-11-21T00:00:00Z" in out
    assert rows(path, "SELECT count(*) FROM gpu_hours") == [(6 * 32,)]
