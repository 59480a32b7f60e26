# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""A node while its agent writes: what a look gives, what it never does, and what becomes of it when the file goes."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.show.series.device_series import MOMENTS, in_frame
from skuwise.advisor.show.series.fleet_map import nodes_with_gpus
from skuwise.advisor.show.series.live import BEHIND_SECONDS, LIVE_SECONDS, read_live
from skuwise.advisor.show.series.minutes import by_minute
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import FabricPort, Gpu, Node, Tick, Workload, WorkloadUse
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import SkuwiseError, StoreError, UsageError
from skuwise.rules.base.sanitize import clean
from skuwise.tests.support.fleet_on_screen import HOSTILE, NOW, HandLoader, fleet
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.data.kept_look import SUFFIX, KeptLooks
from skuwise.tui.data.loaders import Loader
from skuwise.tui.state import FINDINGS_WINDOW, WINDOWS, Loaded, Look

T0 = 1_790_002_800.0  # a full hour
SECONDS = 200
END = T0 + SECONDS


def ticks(first: float, count: int, every: float = 1.0, uuids: tuple[str, ...] = ("GPU-0", "GPU-1")) -> Iterator[Tick]:
    """The first GPU's SM activity is the moment's last two digits; the second tells no tensor activity."""
    for n in range(count):
        ts = first + n * every
        gpus = {uuid: {"sm_active": ts % 100 / 100, "power_watts": 300.0, "mem_used_bytes": 40e9} for uuid in uuids}
        if uuids[0] in gpus:
            gpus[uuids[0]]["tensor_active"] = 0.5
        yield Tick(
            ts, every, gpus, {"mlx5_0/1": {"tx_bytes_per_second": 5e9}}, {"mlx5_0/1": "ACTIVE"}, {"cpu_util": 0.1}
        )


def begin(path: Path, name: str = "n1", uuids: tuple[str, ...] = ("GPU-0", "GPU-1")):
    writer = Writer.open(path, now=lambda: T0)
    node = writer.for_node(Node(name), T0)
    gpus = [Gpu(uuid, n, "NVIDIA H100", "H100-SXM5", mem_total_bytes=80 << 30) for n, uuid in enumerate(uuids)]
    node.set_gpus(gpus, T0)
    node.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], T0)
    return writer, node


def begun(path: Path, count: int = SECONDS, **about) -> tuple:
    writer, node = begin(path, **about)
    node.put_ticks(ticks(T0 + 1, count, uuids=about.get("uuids", ("GPU-0", "GPU-1"))))
    writer.commit()
    return writer, node


def test_a_look_gives_the_newest_seconds_of_each_device_and_stays_behind_a_live_one(tmp_path: Path) -> None:
    writer, node = begun(tmp_path / "n1.db")
    work = Workload("w1", "s1", "chat", "process")
    node.set_workloads([work], [WorkloadUse("w1", "GPU-1", "process")], END)
    writer.commit()
    live = read_live(tmp_path / "n1.db", "n1", END + 1)
    assert live.ends[-1] == END + 1 - BEHIND_SECONDS and live.interval_seconds == 1.0 and len(live.ends) == MOMENTS
    first, second = live.of("gpu")
    assert [gauge.last for gauge in (first.gauge("SM active"), first.gauge("power"))] == [
        pytest.approx(live.ends[-1] % 100), 300.0,
    ]  # fmt: skip
    assert (first.gauge("tensor active").last, second.gauge("tensor active").last) == (50.0, None)
    assert (first.work, second.work) == ((), (("w1", "chat"),))
    (port,) = live.of("port")
    assert (port.key, port.about, port.gauge("sent").last) == ("mlx5_0/1", "compute InfiniBand", 5.0)
    gone = read_live(tmp_path / "n1.db", "n1", END + LIVE_SECONDS + 1)
    assert gone.ends[-1] == END
    writer.close()


def test_a_look_leaves_nothing_open_and_nothing_in_the_way_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begun(path)
    read_live(path, "n1", END + 1)  # SQLite keeps one file open, because this process writes it, too
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        read_live(path, "n1", END + 1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    node.put_ticks(ticks(END + 1, 10))
    assert writer.commit()
    with closing(sqlite3.connect(path)) as checker:  # nobody reads: the log can be taken over whole
        assert checker.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    writer.close()


def test_a_file_that_vanished_was_replaced_or_is_locked_is_told_and_a_new_one_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    begun(path)[0].close()
    series = read_live(path, "n1", END + 1)
    for beside in tmp_path.iterdir():
        beside.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        read_live(path, "n1", END + 2)
    begun(path, count=50, uuids=("GPU-9",))[0].close()
    live = read_live(path, "n1", T0 + 51)
    assert [device.key for device in live.of("gpu")] == ["GPU-9"] and live.ends[-1] < series.ends[-1]
    with pytest.raises(StoreError, match="No node n7"):
        read_live(path, "n7", T0 + 51)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(SkuwiseError):
        read_live(path, "n1", T0 + 51)


def test_a_short_window_is_told_by_the_minute_and_a_long_one_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begin(path)
    node.put_ticks(ticks(T0 + 10, 12 * 36, 10.0))
    writer.commit()
    writer.close()
    RollupJob(path).run(T0 + 2 * 3600)
    hour = read_frame([path], since_seconds=3600)
    fine = by_minute(hour, ("n1",))
    assert set(fine.gpu["interval_seconds"]) == {60.0}
    assert fine.gpu.groupby("gpu_uuid")["ts"].count().tolist() == fine.gpu.groupby("gpu_uuid")["ts"].nunique().tolist()
    assert fine.gpu["ts"].min() > hour.window.start and by_minute(hour, ("n2",)) is hour
    long = read_frame([path], since_seconds=2 * 86400)
    assert by_minute(long, ("n1",)) is long


def test_a_reading_takes_the_file_as_it_is_with_one_sample_grown_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begun(path, count=1)
    loader = Loader(Databases((path,)), clock=lambda: END)
    one = loader.load(FINDINGS_WINDOW, None, lambda _: None)
    assert one.frame.gpu["observed_seconds"].tolist() == [1.0, 1.0]
    assert in_frame(one.frame, "n1").of("gpu")[0].gauge("power").values == (300.0,)
    node.put_ticks(ticks(T0 + 2, 50))
    writer.close()
    assert loader.load(FINDINGS_WINDOW, None, lambda _: None).frame.gpu["observed_seconds"].tolist() == [51.0, 51.0]
    for beside in tmp_path.iterdir():
        beside.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        loader.load(FINDINGS_WINDOW, None, lambda _: None)
    begun(path, name="n2", uuids=("GPU-9",))[0].close()
    other = loader.load(FINDINGS_WINDOW, None, lambda _: None)
    assert [(node.node, len(node.gpus)) for node in nodes_with_gpus(other.frame)] == [("n2", 1)]


def test_the_screen_moves_with_the_agent_and_keeps_what_it_had_when_the_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    writer, node = begun(path, name=HOSTILE)
    clock = [END + 1.0]

    async def steps(s: Session) -> None:
        await s.ready()
        await s.press("2")
        await s.shows("mean over 14d")
        await s.press("enter")
        await s.shows("live, every 1 s")
        assert clean(HOSTILE)[:80] in s.screen
        for told in ("compute InfiniBand", "tensor active", "GPUs: SM active, the last 2 min"):
            await s.shows(told)
        await s.press("m")
        await s.shows("GPUs: tensor active")
        node.put_ticks(ticks(END + 1, 40))
        writer.commit()
        writer.close()
        clock[0] = END + 41.0
        await s.shows(f"{(clock[0] - BEHIND_SECONDS) % 100:.0f} %")
        for beside in tmp_path.iterdir():
            beside.unlink()
        await s.shows("does not exist")
        await s.shows("old, to ")
        assert "tensor active" in s.screen
        await s.press("escape")
        await s.shows("Fleet: SM active")

    loader = Loader(Databases((path,)), clock=lambda: clock[0])
    drive(steps, loader, size=(160, 50), clock=lambda: clock[0])


UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
EARLIER_SECONDS = 7200.0


def earlier() -> Look:
    """What a run two hours ago saw: one workload less."""
    loaded = fleet()
    advice = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    return Look(FINDINGS_WINDOW, advice, advice, loaded.health, NOW - EARLIER_SECONDS)


def test_what_an_earlier_run_saw_is_there_while_the_source_is_read_and_nothing_is_decided_on_it() -> None:
    gate = Event()
    loader = HandLoader(gate=gate, earlier=earlier())

    async def steps(s: Session) -> None:
        await s.shows("reading 14d of telemetry ... · read 2.0 h ago")
        for told in ("Recoverable  $7,177/month", "idle-fabric", "Drawn when the telemetry has been read."):
            await s.shows(told)
        assert s.app.state.loaded is None
        await s.press(KEY["workloads"])
        await s.shows("1 of 1 workloads")
        await s.press(KEY["recommendations"])
        await s.shows("Before and after")
        await s.press("a")
        await s.until(
            lambda: any("decide when the source" in notification.message for notification in s.app._notifications)
        )
        assert len(s.app.screen_stack) == 1
        await s.press(KEY["workloads"])
        gate.set()
        await s.ready()
        await s.shows("2 of 2 workloads")
        await s.shows("window 14d · read 1 min ago")
        await s.press(KEY["overview"])
        await s.shows("Waste over time, 14d, by rule")
        assert s.app.state.earlier is None

    drive(steps, loader, size=(160, 50))
    assert loader.decided == []


def test_the_next_run_over_a_database_begins_with_what_this_one_read(tmp_path: Path) -> None:
    database, looks = tmp_path / "fleet.db", tmp_path / "looks"
    simulate("founding", database, days=2, seed=3, until=UNTIL)

    def loader(prices: Path | None = None) -> Loader:
        return Loader(
            Databases((database,)), looks=looks, prices=prices, clock=lambda: UNTIL + 60
        )  # fmt: skip

    read = loader().load(FINDINGS_WINDOW, None, lambda _: None)
    assert loader().recall(FINDINGS_WINDOW) is None
    loader().keep(read)
    kept = loader().recall(FINDINGS_WINDOW)
    assert kept == Look(read.window, read.advice, read.shown, read.health, read.at)
    assert read.advice.findings and read.advice.fleet is not None
    assert loader(tmp_path / "prices.yaml").recall(FINDINGS_WINDOW) is None

    # Another fleet, or nothing, at the same place: its own numbers come first, and nobody else's.
    whole = database.read_bytes()
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    assert loader().recall(FINDINGS_WINDOW) is None
    simulate("training", database, days=2, seed=3, until=UNTIL)
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole[:5000])
    assert loader().recall(FINDINGS_WINDOW) is None
    database.write_bytes(whole)
    assert loader().recall(FINDINGS_WINDOW) == kept
    for file in looks.iterdir():
        file.unlink()

    async def steps(s: Session) -> None:
        await s.ready()
        await s.until(lambda: any(looks.glob(f"*{SUFFIX}")))

    drive(steps, loader(), clock=lambda: UNTIL + 120)


def bare(look: Look) -> Look:
    """A look without the telemetry behind it."""
    return Look(look.window, look.advice, look.shown, look.health, look.at)


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path / "looks", ("a",))
    assert looks.get(loaded.window) is None
    looks.put(loaded)
    back = looks.get(loaded.window)
    assert back == bare(loaded) and back is not None and not isinstance(back, Loaded)
    assert back.shown is back.advice  # one window: nothing says that another one was judged
    # What the contract's JSON has not is there, too.
    first = max(loaded.advice.workloads, key=lambda w: len(w.features))
    kept = next(w for w in back.advice.workloads if w.id == first.id)
    assert first.features and kept.features == first.features and kept.framework == first.framework
    assert back.advice.standings == loaded.advice.standings != ()


def test_a_window_that_is_not_the_findings_keeps_both(tmp_path: Path) -> None:
    loaded, looks = fleet(), KeptLooks(tmp_path, ("a",))
    shown = replace(loaded.advice, workloads=loaded.advice.workloads[:1])
    week = replace(loaded, window=WINDOWS[2], shown=shown)
    looks.put(week)
    back = looks.get(WINDOWS[2])
    assert back == bare(week) and back is not None and back.shown is not back.advice and looks.get(WINDOWS[-1]) is None


def test_another_source_or_other_options_are_another_look(tmp_path: Path) -> None:
    options = (("source", None, Path("prices.yaml")), ("source", Path("prices.yaml"), None), ("other", None, None))
    KeptLooks(tmp_path, ("a",), most_bytes=1000).put(fleet())
    assert list(tmp_path.iterdir()) == []  # what is too large is not kept
    KeptLooks(tmp_path, options[0]).put(fleet())
    assert [KeptLooks(tmp_path, basis).get(fleet().window) is not None for basis in options] == [True, False, False]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"at": NaN}', "[" * 100_000, '{"at": 1, "advice": {}, "shown": null, "health": 2}'],
)
def test_a_whole_file_that_holds_no_look_is_none(tmp_path: Path, content: str) -> None:
    """As it would be if somebody with the owner's rights wrote it, digest and all."""
    looks = KeptLooks(tmp_path, ("a",))
    looks.put(fleet())
    (file,) = tmp_path.iterdir()
    form = file.read_bytes().partition(b"\n")[0] + b"\n"
    whole = file.read_bytes()
    file.write_bytes(form + hashlib.sha256(content.encode()).digest() + content.encode())
    assert looks.get(fleet().window) is None
    file.write_bytes(form + b"9\n" + whole.removeprefix(form))  # of another version
    assert looks.get(fleet().window) is None
