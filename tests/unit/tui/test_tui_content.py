# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false, reportOptionalOperand=false
"""The figures that the pages draw: series of a node and a workload, the map, waste over time, what if, comparison."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.show.series import device_series as series
from skuwise.advisor.show.series.device_series import by_minute, in_frame, newest_database, read_live, timeline_of
from skuwise.advisor.show.series.fleet_map import NO_PORTS, nodes_with_gpus, waste_history
from skuwise.advisor.show.titles import fact_of, is_waste
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import FabricPort, Gpu, Node, Tick, Workload, WorkloadUse
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import SkuwiseError, StoreError, UsageError
from skuwise.rules.base.sanitize import clean
from skuwise.tests.support.fleet_on_screen import HOSTILE, HOURS, NOW, HandLoader, fleet
from skuwise.tests.support.frame_builder import DECODE, GIB, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.stored_rows import put_ticks
from skuwise.tests.support.tui_session import Session, drive
from skuwise.tui.cell_text import nice
from skuwise.tui.data.loaders import Loader
from skuwise.tui.screens.fleet import MEASURES, NO_OWNER, NO_WORKLOAD, FleetMap
from skuwise.tui.screens.skus import comparison_text
from skuwise.tui.screens.whatif import answer_words, knob_words, whatif_pairs

T0 = 1_790_002_800.0  # a full hour
SECONDS = 200
END = T0 + SECONDS
SM, FABRIC, MEMORY, POWER = (MEASURES[n] for n in (0, 4, 5, 6))


def ticks(first: float, count: int, every: float = 1.0, uuids: tuple[str, ...] = ("GPU-0", "GPU-1")) -> Iterator[Tick]:
    """The first GPU's SM activity is the moment's last two digits; the second has no tensor activity."""
    for n in range(count):
        ts = first + n * every
        gpus = {uuid: {"sm_active": ts % 100 / 100, "power_watts": 300.0, "mem_used_bytes": 40e9} for uuid in uuids}
        gpus.get("GPU-0", {})["tensor_active"] = 0.5
        ports = {"mlx5_0/1": {"tx_bytes_per_second": 5e9}}
        yield Tick(ts, every, gpus, ports, {"mlx5_0/1": "ACTIVE"}, {"cpu_util": 0.1})


def begin(path: Path, count: int = SECONDS, name: str = "n1", uuids: tuple[str, ...] = ("GPU-0", "GPU-1")):
    writer = Writer.open(path, now=lambda: T0)
    node = writer.for_node(Node(name), T0)
    gpus = [Gpu(uuid, n, "NVIDIA H100", "H100-SXM5", mem_total_bytes=80 << 30) for n, uuid in enumerate(uuids)]
    node.set_gpus(gpus, T0)
    node.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], T0)
    put_ticks(node, ticks(T0 + 1, count, uuids=uuids))
    writer.commit()
    return writer, node


def test_a_live_node_has_its_newest_seconds_and_stays_behind_now(tmp_path: Path) -> None:
    writer, node = begin(tmp_path / "n1.db")
    node.set_workloads([Workload("w1", "s1", "chat", "process")], [WorkloadUse("w1", "GPU-1", "process")], END)
    writer.commit()
    live = read_live(tmp_path / "n1.db", "n1", END + 1)
    assert (live.ends[-1], live.interval_seconds) == (END + 1 - series.BEHIND_SECONDS, 1.0)
    assert len(live.ends) == series.MOMENTS
    first, second = live.of("gpu")
    assert first.gauge("SM active").last == pytest.approx(live.ends[-1] % 100) and first.gauge("power").last == 300.0
    assert (first.gauge("tensor active").last, second.gauge("tensor active").last) == (50.0, None)
    assert (first.work, second.work) == ((), (("w1", "chat"),))
    (port,) = live.of("port")
    assert (port.key, port.about, port.gauge("sent").last) == ("mlx5_0/1", "compute InfiniBand", 5.0)
    assert read_live(tmp_path / "n1.db", "n1", END + series.LIVE_SECONDS + 1).ends[-1] == END
    writer.close()


def test_live_reading_leaves_nothing_open_and_does_not_block_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begin(path)
    read_live(path, "n1", END + 1)  # SQLite keeps one file open, because this process writes it, too
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        read_live(path, "n1", END + 1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    put_ticks(node, ticks(END + 1, 10))
    assert writer.commit()
    with closing(sqlite3.connect(path)) as checker:  # without a reader the log can be checkpointed whole
        assert checker.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    writer.close()


def test_a_vanished_replaced_or_damaged_file_is_an_error_and_a_new_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    begin(path)[0].close()
    before = read_live(path, "n1", END + 1)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        read_live(path, "n1", END + 2)
    begin(path, count=50, uuids=("GPU-9",))[0].close()
    live = read_live(path, "n1", T0 + 51)
    assert [device.key for device in live.of("gpu")] == ["GPU-9"] and live.ends[-1] < before.ends[-1]
    with pytest.raises(StoreError, match="No node n7"):
        read_live(path, "n7", T0 + 51)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(SkuwiseError):
        read_live(path, "n1", T0 + 51)


def test_a_short_window_is_drawn_by_the_minute_and_a_long_one_by_the_hour(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begin(path, count=9)
    put_ticks(node, ticks(T0 + 10, 12 * 36, 10.0))
    writer.close()
    RollupJob(path).run(T0 + 2 * 3600)
    hour, long = (read_frame([path], since_seconds=seconds) for seconds in (3600, 2 * 86400))
    fine = by_minute(hour, ("n1",))
    assert set(fine.gpu["interval_seconds"]) == {60.0} and fine.gpu["ts"].min() > hour.window.start
    assert not fine.gpu.duplicated(["gpu_uuid", "ts"]).any()
    assert by_minute(hour, ("n2",)) is hour and by_minute(long, ("n1",)) is long
    assert (newest_database(hour, "n1"), newest_database(hour, "n2")) == (path, None)


def test_the_node_page_moves_with_the_agent_and_keeps_what_it_had_when_the_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begin(path, name=HOSTILE)
    clock = [END + 1.0]

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press("2")
        await s.shows("mean over 14d")
        await s.press("enter")
        await s.shows("live, every 1 s")
        assert clean(HOSTILE)[:80] in s.screen
        for text in ("compute InfiniBand", "tensor active", "the last 2 min"):
            await s.shows(text)
        put_ticks(node, ticks(END + 1, 40))
        writer.commit()
        writer.close()
        clock[0] = END + 41.0
        await s.shows(f"{(clock[0] - series.BEHIND_SECONDS) % 100:.0f} %")
        for file in tmp_path.iterdir():
            file.unlink()
        await s.shows("does not exist")
        await s.shows("old, to ")
        assert "tensor active" in s.screen
        await s.press("escape")
        await s.shows("Fleet: SM active")

    loader = Loader(Databases((path,)), clock=lambda: clock[0])
    drive(steps, loader, size=(160, 50), clock=lambda: clock[0])


def test_a_node_has_the_newest_rows_of_the_frame_and_the_maxima_of_its_devices() -> None:
    node = in_frame(fleet().frame, "n1")
    assert (node.ends[-1], node.interval_seconds) == (NOW, HOUR)
    gpu, port = node.of("gpu")[0], node.of("port")[0]
    memory, sent = gpu.gauge("memory used"), port.gauge("sent")
    assert (gpu.name, gpu.about, gpu.work) == ("GPU 0", "H100-SXM5", (("w-serve", "chat"),))
    assert (memory.unit, memory.last, memory.top) == ("GiB", pytest.approx(DECODE["mem_used_bytes"] / GIB), 80.0)
    assert (sent.unit, sent.last, sent.top) == ("GB/s", pytest.approx(0.01), 50.0)
    assert node.of("host")[0].gauge("CPU").last is None and in_frame(fleet().frame, "nobody").ends == ()


def test_a_timeline_is_a_mean_weighted_by_observed_seconds_and_keeps_its_gaps() -> None:
    b = FrameBuilder(hours=3)
    b.node("n1", 2)
    b.use(TRAINING | {"sm_active": 0.2}, "n1", "GPU-n1-0", observed=1.0)
    b.use(TRAINING | {"sm_active": 0.8}, "n1", "GPU-n1-1", observed=0.5)
    b.use(TRAINING, "n1", "GPU-n1-0", start=0, end=0)
    for row in b.gpu_rows:
        if row["ts"] == START + 2 * HOUR:
            row["sm_active_mean"] = float("nan")
    b.work("w", [("n1", "GPU-n1-0"), ("n1", "GPU-n1-1")])
    w, book = fleet().advice.workloads[0], HandLoader().rulebook()
    timeline = timeline_of(b.frame(), replace(w, id="w", nodes=("n1",)), book.catalog.gpu("H100-SXM5"), book.rules)
    assert timeline.ends == tuple(START + n * HOUR for n in (1, 2, 3))
    (sm,) = [measure for measure in timeline.lines if measure.name == "SM active"]
    assert sm.unit == "%" and sm.values == (pytest.approx(40.0), None, pytest.approx(40.0))
    assert {level.of for level in timeline.levels} >= {"tensor active", "memory used", "NVLink sent", "power"}
    nothing = timeline_of(b.frame(), replace(w, id="nobody", nodes=("n1",)), None, book.rules)
    assert "fabric sent" not in {measure.name for measure in timeline.lines} and nothing.lines == nothing.ends == ()


def small():
    """Two nodes with a silent and a used fabric, and one with no more than its name and its count."""
    b = FrameBuilder(hours=4)
    b.node("n1", 2)
    b.node("n2", 1)
    b.nodes.append({"node": "n3", "gpu_count": 4, "first_seen": START, "last_seen": START})
    b.use(DECODE | {"sm_active": 0.2}, "n1", "GPU-n1-0", end=2)
    b.use(DECODE | {"sm_active": 0.8}, "n1", "GPU-n1-0", start=2, observed=0.5)
    b.use(TRAINING, "n2", "GPU-n2-0")
    b.port(0.5, "n2", "mlx5_0")
    b.port(0.1, "n2", "mlx5_1")
    b.port(0.9, "n2", "mlx5_9", role="storage")
    b.work("w-short", [("n1", "GPU-n1-0")], end=1, name="short")
    b.work("w-long", [("n1", "GPU-n1-0")], start=1, name="long")
    return b.frame()


def test_a_gpu_has_means_weighted_by_observed_seconds_and_its_longest_workload() -> None:
    n1, n2, n3 = nodes_with_gpus(small())
    first, second = n1.gpus
    assert first.values["sm_active"] == pytest.approx((0.2 * 2 + 0.8 * 1) / 3)
    assert (first.workload, second.workload) == ("w-long", None) and second.values == {}
    assert n2.gpus[0].values["fabric_util"] == pytest.approx(0.3)
    assert (n1.fabric, n2.fabric) == (NO_PORTS, "2 x 400 Gb/s InfiniBand")
    assert [gpu.key for gpu in n3.gpus] == [("n3", "")] * 4


def test_the_instances_of_a_split_gpu_are_shown_instead_of_it() -> None:
    b = FrameBuilder(hours=1)
    b.node("n1", 1)
    b.gpus += [
        b.gpus[0] | {"gpu_uuid": f"MIG-{n}", "kind": "mig", "parent_uuid": "GPU-n1-0", "mig_profile": "3g.40gb"}
        for n in (1, 2)
    ]
    b.use(DECODE, "n1", "MIG-1")
    (node,) = nodes_with_gpus(b.frame())
    instances = [("MIG-1", "3g.40gb"), ("MIG-2", "3g.40gb")]
    assert [(gpu.gpu_uuid, gpu.mig_profile) for gpu in node.gpus] == instances
    assert [device.key for device in in_frame(b.frame(), "n1").of("gpu")] == ["MIG-1", "MIG-2"]


def test_a_measure_has_a_unit_a_scale_and_a_word_for_what_is_missing() -> None:
    shown = FleetMap(nodes_with_gpus(small()), fleet().advice)
    first, second = shown.nodes[0].gpus
    texts = [measure.text(measure.of(first)) for measure in (SM, MEMORY, POWER, FABRIC)]
    assert texts == ["40 %", "92 %", "280 W", "not measured"]
    assert SM.of(second) is None and SM.of(shown.nodes[2].gpus[0]) is None
    assert (shown.top(SM), shown.top(POWER)) == (100.0, 1000.0)
    assert [nice(v) for v in (0.0, 0.03, 1.0, 1.2, 7.0, 201.0, math.nan)] == [1.0, 0.05, 1.0, 2.0, 10.0, 500.0, 1.0]


def test_nodes_are_grouped_by_sku_by_fabric_and_by_the_team_that_holds_most_of_them() -> None:
    advice = fleet().advice
    chat = next(w for w in advice.workloads if w.id == "w-serve")
    owned = replace(chat, owner=replace(chat.owner, team="search"))
    shown = FleetMap(nodes_with_gpus(fleet().frame), replace(advice, workloads=(owned,)))
    assert [(name, len(nodes)) for name, nodes in shown.grouped("SKU")] == [("azure/Standard_ND96isr_H100_v5", 2)]
    assert [name for name, _ in shown.grouped("fabric")] == ["1 x 400 Gb/s InfiniBand"]
    assert {name: nodes[0].node for name, nodes in shown.grouped("team")} == {"search": "n1", NO_OWNER: "n2"}
    bare = FleetMap(nodes_with_gpus(small()), replace(advice, workloads=()))
    assert [node.node for node in dict(bare.grouped("team"))[NO_WORKLOAD]] == ["n2", "n3"]
    assert bare.verdict(bare.nodes[2].gpus[0]) is None


@pytest.mark.parametrize("priced", [True, False])
def test_a_rule_wastes_what_its_findings_cost_in_the_hours_of_their_gpus(priced: bool) -> None:
    loaded = fleet()
    findings = tuple(f if priced else replace(f, cost_usd=None) for f in loaded.advice.findings)
    history = waste_history(loaded.frame, replace(loaded.advice, findings=findings))
    wanted: dict[str, float] = {}
    for f in findings:
        if is_waste(f.rule):
            wanted[fact_of(f.rule)] = wanted.get(fact_of(f.rule), 0.0) + (f.cost_usd if priced else f.gpu_hours)
    assert history.priced is priced
    lost = replace(loaded.advice, findings=tuple(replace(f, gpus=("GPU-gone",)) for f in findings))
    assert waste_history(loaded.frame, lost).rules == ()
    assert {rule.rule: rule.total for rule in history.rules} == pytest.approx(wanted)
    for rule in history.rules:
        assert math.fsum(rule.values) == pytest.approx(rule.total) and len(rule.values) == HOURS
        assert max(rule.values) == pytest.approx(rule.total / HOURS, rel=0.05)  # the service runs evenly


def test_an_answer_names_the_source_and_the_date_of_every_dollar_and_what_is_missing() -> None:
    bench = HandLoader().bench(fleet(), "w-serve", lambda _: None)
    first = bench.targets[0]
    text = answer_words(first, None).plain
    assert "Saves $7,177/month in cash, at list price, 2026-09-19" in text
    assert all(price.source in text and price.as_of in text for price in first.prices)
    pairs = {pair.name: (pair.first, pair.second) for pair in whatif_pairs(bench, first)}
    assert pairs["price/node-hour"] == ("$98.32 eastus", "$88.49 eastus") and pairs["node"][1] == "1 x ND96is_H100_v5"
    assert "8, by demand" in knob_words(bench, first).plain
    unknown = next(o for o in bench.targets if o.missing and o.then is None)
    assert f"Unknown: {unknown.missing[0]}." in answer_words(unknown, None).plain and whatif_pairs(bench, unknown) == ()
    dearer = replace(first, saving_usd_per_month=replace(first.saving_usd_per_month, p10=-3e3, p50=-2e3, p90=-1e3))
    assert "Costs $2,000/month more" in answer_words(dearer, None).plain


def test_a_comparison_has_the_times_of_the_command_and_the_sources_of_its_prices() -> None:
    catalog = HandLoader().rulebook().catalog
    text = comparison_text(catalog.gpus["H100-SXM5"], catalog.gpus["H100-PCIe"], catalog)
    assert "\ntraining: x" in text and "\nmixed: x" in text and "list price, 20" in text
    assert "NVLink bridge, pairs" in text and "H100-PCIe joins only pairs by its bridge" in text
    ib, ethernet = (catalog.nodes[f"azure/Standard_ND96{kind}_H100_v5"] for kind in ("isr", "is"))
    nodes = comparison_text(ib, ethernet, catalog)
    assert nodes.count("same time") == 4 and "98.32" in nodes and "88.49" in nodes
