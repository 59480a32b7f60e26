"""Which file is believed about which node: copies, files that speak for others, rows that cannot be."""

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.workloads.inventory import inventory_of
from skuwise.advisor.core.column_rows import WIDTH
from skuwise.advisor.core.frame import Frame, Window, blind_nodes
from skuwise.advisor.telemetry.prometheus.client.range_planner import Ask
from skuwise.advisor.telemetry.prometheus.promql import of_gpus
from skuwise.advisor.telemetry.prometheus.questions import short_asks
from skuwise.advisor.telemetry.queries import Query
from skuwise.advisor.telemetry.sqlite.database import CONTRADICTION, TWO_PLACES, Parts
from skuwise.advisor.telemetry.sqlite.reader import read_file, read_frame
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.model import Absence, FabricPort, Gpu, Node, ServingSample, Tick, Workload
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.snapshot import take_snapshot
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.rulebooks import rulebook

HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
GPU_COLUMNS = (
    "ts", "device", "observed_seconds", "gpu_util_mean", "gpu_util_p95", "gpu_util_max", "gpu_util_n",
    "sm_active_mean", "tensor_active_mean", "dram_active_mean", "mem_used_bytes_mean", "power_watts_mean",
)  # fmt: skip
PORT_COLUMNS = ("ts", "device", "observed_seconds", "util_mean", "util_max", "tx_bytes_per_second_mean")
MIB = 2.0**20


def put(writer: Writer, name: str, *, gpus: Sequence[str], seed: int, hours: int = 40, job: str = "") -> None:
    """A node with hours of GPUs and a port, held by one workload; what it measures hangs on the seed."""
    rng, sku = random.Random(seed), "azure/Standard_ND96isr_H100_v5"
    about = Node(name, "c", machine_id=f"machine of {name}", node_sku=sku, gpu_count=len(gpus))
    node = writer.for_node(about, T0)
    node.set_gpus([Gpu(uuid, n, "NVIDIA H100 80GB HBM3", "H100-SXM5", mem_total_bytes=80 * 2**30)
                   for n, uuid in enumerate(gpus)], T0)  # fmt: skip
    node.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], T0)
    for uuid in gpus:
        use = rng.uniform(0.3, 0.9)
        rows = [
            (T0 + (n + 1) * HOUR, uuid, HOUR, use, min(use * 1.1, 1), 1.0, 3600, use * rng.uniform(0.7, 0.9), 0.4, 0.3,
             rng.uniform(1, 70) * 1024 * MIB, rng.uniform(300, 600))
            for n in range(hours)
        ]  # fmt: skip
        node.put_rollups("gpu_hour", GPU_COLUMNS, rows)
        work = Workload(job or f"w-{name}", f"s-{job or name}", f"train-{job or name}", "slurm", user="ann")
        node.put_workload_use(work, uuid, T0, T0 + hours * HOUR, "allocation")
    ports = [(T0 + (n + 1) * HOUR, "mlx5_0/1", HOUR, 0.3, 0.6, 15e9) for n in range(hours)]
    node.put_rollups("fabric_hour", PORT_COLUMNS, ports)
    node.set_node(about, T0 + hours * HOUR)


def of(name: str) -> list[str]:
    return [f"GPU-{name}-{n}" for n in range(2)]


def make(path: Path, *names: str, seed: int = 0, **more: object) -> Path:
    with Writer.open(path) as writer:
        for name in names:
            put(writer, name, **{"gpus": of(name), "seed": seed + len(name), **more})
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fleet").mkdir()
    for n, name in enumerate(("n1", "n2", "n3")):
        make(tmp_path / "fleet" / f"{name}.db", name, seed=n)
    return tmp_path / "fleet"


def change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


ZERO = "UPDATE gpu_hour SET gpu_util_mean = 0, gpu_util_to_max = 0, sm_active_mean = 0, tensor_active_mean = 0"
TABLES = ("nodes", "gpus", "gpu", "fabric", "host", "workloads", "uses", "absences", "fabric_history")


def assert_same(entry: Frame, other: Frame, without: Sequence[str] = ()) -> None:
    """All but the notes is the same, of all nodes but these."""
    assert entry.window == other.window
    for name in TABLES:
        parts = []
        for frame in (entry, other):
            kept = frame.uses.loc[~frame.uses["node"].isin(without), "workload_id"]
            table = getattr(frame, name)
            is_kept = ~table["node"].isin(without) if "node" in table else table["workload_id"].isin(kept)
            parts.append(table[is_kept].reset_index(drop=True))
        pd.testing.assert_frame_equal(*parts, check_dtype=not parts[0].empty, obj=name)


def refused(frame: Frame) -> dict[str, str]:
    return {
        str(note.fields["node"]): note.code.removeprefix("databases-")
        for note in frame.notes
        if note.code in (f"databases-{CONTRADICTION}", f"databases-{TWO_PLACES}")
    }


def test_a_file_does_not_speak_for_nodes_that_have_files_of_their_own(folder: Path) -> None:
    honest = read_frame([folder])
    make(folder / "n0.db", "n1", "n2", "n3", seed=9)
    change(folder / "n0.db", ZERO)
    frame = read_frame([folder])
    assert_same(honest, frame)
    assert any("n0.db also reports on n1, n2 and n3" in note.text for note in frame.notes) and not refused(frame)


TRICKS: dict[str, str] = {
    "all": ZERO,
    "one value": "UPDATE gpu_hour SET sm_active_mean = 0 WHERE id = (SELECT min(id) FROM gpu_hour)",
    "a silent fabric": "UPDATE fabric_hour SET util_mean = 0, util_to_max = 0, tx_bytes_per_second_mean = 0",
    "the machine": "UPDATE node SET machine_id = 'another'",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_only_the_node_of_copies_that_contradict_one_another_is_refused(folder: Path, trick: str) -> None:
    honest = read_frame([folder])
    take_snapshot(folder / "n2.db", folder / "copy.db")
    change(folder / "copy.db", TRICKS[trick])
    frame = read_frame([folder])
    assert refused(frame) == {"n2": CONTRADICTION}
    assert_same(honest, frame, without=["n2"])
    (note,) = [note for note in frame.notes if note.code == "databases-contradicting-copies"]
    assert "copy.db" in note.text and "n2.db" in note.text and "n2: none of them is used" in note.text
    inventory = inventory_of(frame, lambda _: 8, blind_nodes(frame.absences))
    (dark,) = [gpus for gpus in inventory.unobserved if (gpus.node, gpus.code) == ("n2", CONTRADICTION)]
    assert list(dark.gpus) == of("n2") and "contradict" in dark.reason
    assert inventory.nodes["n2"].gpu_count == 8 and not inventory.nodes["n2"].observed
    assert frame.uses[frame.uses["node"] == "n2"].empty


def test_rows_of_a_coverage_that_cannot_be_are_left_out_and_counted_by_file_and_node(folder: Path) -> None:
    honest = read_frame([folder])
    change(folder / "n3.db", "UPDATE gpu_hour SET unobserved_seconds = -1000000 WHERE id / 4096 % 2 = 0",
           "UPDATE fabric_hour SET util_mean = -5, tx_bytes_per_second_mean = 1e15",
           "UPDATE node SET gpu_count = -3")  # fmt: skip
    frame = read_frame([folder])
    assert_same(honest, frame, without=["n3"])
    assert len(frame.gpu[frame.gpu["node"] == "n3"]) == len(honest.gpu[honest.gpu["node"] == "n3"]) // 2
    ports = frame.fabric[frame.fabric["node"] == "n3"]
    assert ports[["util_mean", "tx_bytes_per_second_mean"]].isna().all(axis=None)
    assert frame.nodes.loc[frame.nodes["node"] == "n3", "gpu_count"].isna().all()
    (note,) = [note for note in frame.notes if note.code == "implausible-rows"]
    assert int(str(note.fields["rows"])) > 80 and "n3.db" in note.text and "of n3" in note.text


def test_a_gpu_on_two_nodes_at_once_refuses_both_and_one_against_many_refuses_the_one(folder: Path) -> None:
    honest = read_frame([folder])
    make(folder / "zz.db", "zz", gpus=of("n1"), seed=5)
    frame = read_frame([folder])
    assert refused(frame) == {"n1": TWO_PLACES, "zz": TWO_PLACES}
    assert_same(honest, frame, without=["n1", "zz"])
    (folder / "zz.db").unlink()
    make(folder / "zz.db", "zz", gpus=[*of("n1"), *of("n2"), *of("n3")], seed=5)
    frame = read_frame([folder])
    assert refused(frame) == {"zz": TWO_PLACES}
    assert_same(honest, frame, without=["zz"])


def test_one_file_that_is_newer_than_all_others_does_not_move_their_window(folder: Path) -> None:
    honest = read_frame([folder])
    make(folder / "n9.db", "n9", seed=7, hours=41)
    frame = read_frame([folder], now=T0 + 40.2 * HOUR)
    assert_same(honest, frame, without=["n9"])
    for name in ("n1", "n2"):
        (folder / f"{name}.db").unlink()
    assert read_frame([folder]).window.end == T0 + 41 * HOUR


def test_work_on_several_nodes_is_one_with_what_any_file_knows(folder: Path) -> None:
    make(folder / "n9.db", "n9", seed=7, job="w-n1")
    change(folder / "n9.db", "UPDATE workload SET name = 'renamed', user = NULL, last_seen = last_seen + 60")
    frame = read_frame([folder])
    reported = frame.workloads.set_index("workload_id")
    assert len(reported) == 3 and list(reported.loc["w-n1", ["name", "user"]]) == ["renamed", "ann"]
    assert set(frame.uses.loc[frame.uses["workload_id"] == "w-n1", "node"]) == {"n1", "n9"}


def node_of(writer: Writer, ts: float = T0) -> NodeWriter:
    node = writer.for_node(Node("n1", "c", machine_id="machine of n1", gpu_count=1), ts)
    node.set_gpus([Gpu("GPU-n1", 0, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30)], ts)
    return node


def one_gpu(folder: Path, name: str) -> Path:
    return make(folder / f"{name}.db", name, gpus=[f"GPU-{name}"], hours=48, job="w")


def gpu_hours(frame: Frame) -> float:
    return float(frame.gpu["observed_seconds"].sum()) / HOUR


def test_a_snapshot_beside_the_live_file_adds_nothing(tmp_path: Path) -> None:
    live = one_gpu(tmp_path, "n1")
    reported = {"kv_cache_usage": 0.5, "generation_tokens_per_second": 7.0}
    with Writer.open(live) as writer:
        node = writer.for_node(Node("n1", "c", machine_id="machine of n1", gpu_count=1), T0 + 48 * HOUR)
        node.add_serving(ServingSample(T0 + 60, 60.0, "http://n1:8000/metrics", "vllm", reported, workload_id="w"))
    alone = read_frame([live])
    assert float(alone.serving["generated_tokens"].sum()) == pytest.approx(420)
    take_snapshot(live, tmp_path / "copy.db")
    shutil.copy(live, tmp_path / "another.db")
    both = read_frame([tmp_path])
    assert gpu_hours(both) == gpu_hours(alone) == 48
    pd.testing.assert_frame_equal(both.serving, alone.serving, check_dtype=False)
    assert any("96 GPU rows appear in more than one database" in note.text for note in both.notes)
    assert len(both.nodes) == len(both.gpus) == len(both.uses) == len(both.workloads) == 1
    verdicts, other = (judge(frame, rulebook()) for frame in (alone, both))
    assert verdicts.workloads == other.workloads and verdicts.occupancy.equals(other.occupancy)


def test_a_copy_made_in_the_middle_of_a_minute_and_of_an_absence_knows_less(tmp_path: Path) -> None:
    live = tmp_path / "live.db"
    absence = Absence("gpu", "GPU-n1", "*", "drained", "It is out of service.", "")

    with Writer.open(live) as writer:
        node = node_of(writer)
        for second in range(1, 61):
            node.add_tick(Tick(T0 + second, 1.0, {"GPU-n1": {"sm_active": 0.5}}))
            if second == 30:
                node.set_absences([absence], T0 + 10)
                writer.commit()
                # Read first: its name comes before that of the live file.
                take_snapshot(live, tmp_path / "early.db")
        node.set_absences([], T0 + 20)
    frame = read_frame([tmp_path])
    assert float(frame.gpu["observed_seconds"].sum()) == pytest.approx(60)
    assert frame.absences[["since", "until"]].to_numpy().tolist() == [[T0 + 10, T0 + 20]]


@pytest.mark.parametrize("table", ["gpu_hour", "hour"])
def test_a_file_that_is_broken_within_is_named_and_the_others_are_judged(tmp_path: Path, table: str) -> None:
    one_gpu(tmp_path, "good")
    broken = one_gpu(tmp_path, "broken")
    with closing(sqlite3.connect(broken)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with broken.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    frame = read_frame([tmp_path])
    assert frame.nodes["node"].tolist() == ["good"] and gpu_hours(frame) == 48
    (note,) = [note for note in frame.notes if note.code == "file-left-out"]
    assert "broken.db" in note.text and "malformed" in note.text
    with pytest.raises(StoreError, match="malformed"):
        read_frame([broken])


def test_where_too_many_hours_are_cut_those_of_the_shortest_workloads_are_read_by_the_minute(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    with Writer.open(path) as writer:
        node = node_of(writer)
        for table, seconds in (("gpu_hour", HOUR), ("gpu_minute", 60.0)):
            rows = [(T0 + seconds * (n + 1), "GPU-n1", seconds, 0.8) for n in range(int(48 * HOUR / seconds))]
            columns = ("ts", "device", "observed_seconds", "sm_active_mean")
            node.put_rollups(table, columns, rows)  # type: ignore[arg-type]
        for name, start, end in (("long", 0.5, 30.5), ("short", 40.5, 41.5)):
            node.put_workload_use(Workload(name, name, name, "slurm"), "GPU-n1", T0 + start * HOUR, T0 + end * HOUR,
                                  "allocation")  # fmt: skip
    file = read_file(path, (Window(T0, T0 + 48 * HOUR), 2, HOUR, None))
    assert isinstance(file, Parts)
    gpu = pd.concat(file.rows["gpu"], ignore_index=True)
    by_minute = gpu.loc[gpu["interval_seconds"] == 60, "ts"]
    assert sorted({(ts - T0 - 1) // HOUR for ts in by_minute}) == [40, 41]
    assert float(gpu["observed_seconds"].sum()) == 48 * HOUR


QUERY = Query("", ("node",), ("ts",), ("x_bins",))
_BAD = ("[]", "[1]", "", "x", "[1,2", '{"a": 1}', "[" + ",".join(["-1"] * WIDTH) + "]", "[" + ",".join(["NaN"] * WIDTH)
        + "]", "[" + ",".join(["1"] * WIDTH) + "]\n[" + ",".join(["1"] * WIDTH) + "]", '"', "#", "1e999")  # fmt: skip
_GOOD = st.lists(st.integers(0, 3600) | st.sampled_from((0.5, 7.5)), min_size=WIDTH, max_size=WIDTH)


@given(st.lists(st.none() | _GOOD, max_size=8), st.sampled_from(_BAD) | st.integers() | st.binary(max_size=4))
def test_cells_are_all_missing_beside_a_bad_one(cells: list[list[float] | None], bad: object) -> None:
    reported = [str(cell).replace(" ", "") if cell else None for cell in cells]
    got = to_table([("n", 1.0, cell) for cell in reported], QUERY)["x_bins"].tolist() if cells else []
    assert [None if seconds is None else seconds.tolist() for seconds in got] == cells
    assert to_table([("n", 1.0, cell) for cell in [*reported, bad]], QUERY)["x_bins"].isna().all()


MINUTE, FIVE = "[59s999ms]", "[299s999ms]"


@pytest.mark.parametrize(
    ("name", "query", "step", "wanted"),
    [
        # A row of a minute looks back for 2.5 scrapes, a rate for 4.
        ("gpu_util_mean", f"avg_over_time(DCGM_FI_X{MINUTE})", 60, "avg_over_time(DCGM_FI_X[149s999ms])"),
        ("fabric tx_mean", f"rate(node_x{MINUTE})", 60, "rate(node_x[239s999ms])"),
        ("fabric active", "avg_over_time((node_x == bool 4)[60s:5m])", 60, None),
        ("power_watts_mean", f"avg_over_time(a{FIVE})", 300, f"avg_over_time(a{FIVE})"),
        ("pcie_tx_bytes_per_second_mean", f"avg_over_time(a{FIVE})", 300, None),
        ("sm_active_p95", f"quantile_over_time(0.95, a{MINUTE})", 60, None),
        ("vllm time_to_first_token buckets", f"increase(a{MINUTE})", 60, None),
        ("sm_active", f"increase(a_bucket{MINUTE})", 60, None),
    ],
)  # fmt: skip
def test_an_ask_gets_a_range_that_scrapes_fill_or_is_left_out(name, query, step, wanted):
    asked = short_asks(step, 60.0)(Ask(name, query, ()))
    assert (asked and asked.query) == wanted


def test_some_gpus_are_chosen_by_id_where_that_needs_no_escaping():
    assert of_gpus(("GPU-b", "GPU-a/gi1")) == ('UUID=~"GPU-a|GPU-b"',) and of_gpus(('GPU".*',)) == ()
