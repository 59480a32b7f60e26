"""Minutes and hours are what the samples say, whenever the job runs and however often it is killed."""

import json
import math
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from math import sin, tau
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK, Metric
from skuwise.agent.model import Gpu, Tick
from skuwise.agent.statistics.rollup_stats import Samples, autocorrelation_peak, bin_seconds, roll_gpu
from skuwise.agent.store.codec import MEASURES
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.tests.support.stored_rows import GPU, HOUR, PORTS, put_ticks

T0 = HOUR + 0.4


def working(seconds: Sequence[int], seed: int = 1) -> Iterator[Tick]:
    """A GPU in steps of 6 s: work with links busy, then a wait; now and then a value is missing."""
    rng = random.Random(seed)
    for second in seconds:
        busy = second % 6 < 4
        level = rng.uniform(0.7, 0.9) if busy else rng.uniform(0.0, 0.04)
        shares = {"sm_active": 1.0, "sm_occupancy": 0.5, "tensor_active": 0.8, "dram_active": 1 / 3}
        gpu = {name: level * share for name, share in shares.items()}
        gpu |= {"gpu_util": 1.0, "mem_used_bytes": 40 * 2.0**30, "throttle_reasons": 1.0 if second % 10 else 4.0}
        gpu |= dict.fromkeys(("power_watts", "energy_joules"), 200 + 450 * level)
        gpu |= {"nvlink_tx_bytes_per_second": 3e11 * (1 - level), "nvlink_rx_bytes_per_second": 2e11 * (1 - level)}
        if second % 17 == 3:
            del gpu["dram_active"]
        rates = {"tx_bytes_per_second": 4e10 * level, "rx_bytes_per_second": 3e10 * level}
        fabric = {PORTS[0].key: rates, PORTS[1].key: {"tx_bytes_per_second": 0.0, "rx_bytes_per_second": 64.0}}
        host = {"cpu_util": rng.random(), "mem_used_bytes": 1e11, "mem_total_bytes": 2.0**40}
        states = {PORTS[0].key: "ACTIVE", PORTS[1].key: "ACTIVE" if second % 2 else "DOWN"}
        yield Tick(T0 + second, 1.0, {GPU.uuid: gpu}, fabric, states, host)


def table(path: Path, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql, parameters).fetchall()


def check(kind: str, row: sqlite3.Row, samples: Sequence[sqlite3.Row], metrics: Sequence[Metric]) -> int:
    """A plain reading of the definition: means to half of their step, p95 and max within a step of theirs, counts
    exactly."""
    checked = 0
    measures = {measure.name: measure for measure in MEASURES[kind]}
    for name in (metric.name for metric in metrics if metric.rolled_up):
        present = [(sample[name], sample["interval_seconds"]) for sample in samples if sample[name] is not None]
        assert row[f"{name}_n"] == len(present)
        if not present:
            assert row[f"{name}_mean"] is None
            continue
        ordered = sorted(value for value, _ in present)
        mean = sum(v * w for v, w in present) / sum(w for _, w in present)
        step, spread = 1 / measures[name].steps, measures[name].spread
        near = (0.51 if spread == 1 else spread + 0.51) * step
        assert row[f"{name}_mean"] == pytest.approx(mean, rel=0, abs=0.51 * step), name
        assert row[f"{name}_max"] == pytest.approx(ordered[-1], rel=0, abs=near), name
        assert row[f"{name}_p95"] == pytest.approx(ordered[math.ceil(0.95 * len(ordered)) - 1], rel=0, abs=near), name
        checked += 4
    return checked


@pytest.mark.parametrize(("period", "seconds", "view"), [("minute", 60, "minutes"), ("hour", 3600, "hours")])
def test_a_rollup_is_what_plain_python_makes_of_the_samples(
    path: Path, node: NodeWriter, period: str, seconds: int, view: str
) -> None:
    put_ticks(node, working(range(seconds + 5)))
    RollupJob(path).run(HOUR + 4000)
    span = "ts > ? AND ts <= ?"
    for kind, metrics in (("gpu", GPU_METRICS), ("fabric", FABRIC_METRICS[:2]), ("host", HOST_METRICS)):
        where = "WHERE device = 'mlx5_0' AND " if kind == "fabric" else "WHERE "
        samples = table(path, f"SELECT * FROM {kind}_samples {where}{span} ORDER BY ts", (HOUR, HOUR + seconds))
        row = table(path, f"SELECT * FROM {kind}_{view} {where}ts = ?", (HOUR + seconds,))[0]
        assert len(samples) == seconds
        assert row["observed_seconds"] == pytest.approx(seconds)
        assert check(kind, row, samples, metrics) >= 4 * 2
    gpu = table(path, f"SELECT * FROM gpu_{view} WHERE ts = ?", (HOUR + seconds,))[0]
    samples = table(path, f"SELECT * FROM gpu_samples WHERE {span} ORDER BY ts", (HOUR, HOUR + seconds))
    assert gpu["duty"] == pytest.approx(sum(s["sm_active"] >= 0.05 for s in samples) / seconds, abs=1e-4)
    assert gpu["idle_run_seconds"] == 2.0
    throttled = sum(bool(int(s["throttle_reasons"]) & THROTTLE_MASK) for s in samples)
    assert gpu["throttled_fraction"] == pytest.approx(throttled / seconds, abs=1e-4)
    assert gpu["period_seconds"] == pytest.approx(6, abs=0.2)
    assert gpu["period_strength"] > 0.8
    assert gpu["tensor_nvlink_correlation"] == pytest.approx(-1, abs=0.01)
    assert gpu["tensor_fabric_correlation"] == pytest.approx(1, abs=0.01)
    assert gpu["sm_active_cv"] > 0.5
    storage = table(path, f"SELECT * FROM fabric_{view} WHERE device = 'mlx5_1' AND ts = ?", (HOUR + seconds,))[0]
    assert storage["active_fraction"] == pytest.approx(0.5, abs=0.01)
    assert storage["idle_run_seconds"] == pytest.approx(seconds)
    if period == "hour":
        whole = {"sm_active": 1.0, "mem_used_bytes": 80 << 30, "power_watts": 700, "nvlink_tx_bytes_per_second": 450e9}
        for name, bins in zip(whole, ("sm_active", "mem_used", "power", "nvlink"), strict=True):
            expected = [0] * len(BIN_EDGES)
            for sample in samples:
                expected[max(i for i, edge in enumerate(BIN_EDGES) if edge <= sample[name] / whole[name])] += 1
            assert json.loads(gpu[f"{bins}_bins"]) == expected, name
        assert sum(json.loads(storage["util_bins"])) == 3600


def test_a_minute_waits_for_its_end_and_for_a_later_tick(path: Path, node: NodeWriter) -> None:
    job = RollupJob(path)
    put_ticks(node, working(range(59)))
    assert job.run(HOUR + 64.9) == {"minute": 0, "hour": 0}
    assert job.run(HOUR + 70) == {"minute": 0, "hour": 0}  # the rest of the minute may still be on its way to the file
    put_ticks(node, working(range(59, 70)))
    assert job.run(HOUR + 70) == {"minute": 1, "hour": 0}
    assert job.run(HOUR + 70) == {"minute": 0, "hour": 0}
    assert job.run(HOUR + 120 + 1000) == {"minute": 1, "hour": 0}  # no writer any more
    rows = table(path, "SELECT ts, sm_active_n, observed_seconds FROM gpu_minutes ORDER BY ts")
    assert [tuple(row) for row in rows] == [(HOUR + 60, 60, 60.0), (HOUR + 120, 10, 10.0)]


def test_the_mean_is_weighted_by_time_but_energy_adds_up(path: Path, node: NodeWriter) -> None:
    ticks = (1.0, 1.0, 100.0, 100.0), (4.0, 3.0, 500.0, 1500.0)
    put_ticks(node, (Tick(HOUR + end, s, {GPU.uuid: {"power_watts": w, "energy_joules": j}}) for end, s, w, j in ticks))
    RollupJob(path).run(HOUR + 5000)
    row = table(path, "SELECT * FROM gpu_minutes")[0]
    assert row["power_watts_mean"] == pytest.approx(400)
    assert row["energy_joules_mean"] * row["energy_joules_n"] == pytest.approx(1600)


def test_what_is_missing_stays_missing(path: Path, node: NodeWriter) -> None:
    watts = [300.0 + 200 * (second % 8 < 4) for second in range(3600)]
    put_ticks(node, (Tick(T0 + s, 1.0, {GPU.uuid: {"gpu_util": 0.5, "power_watts": w}}) for s, w in enumerate(watts)))
    RollupJob(path).run(HOUR + 20_000)
    row = table(path, "SELECT * FROM gpu_hours")[0]
    for name in ("duty", "idle_run_seconds", "sm_active_cv", "sm_active_bins", "tensor_active_mean", "nvlink_bins"):
        assert row[name] is None, name
    assert row["sm_active_n"] == 0
    assert row["tensor_nvlink_correlation"] is None
    assert row["throttled_fraction"] is None
    assert row["period_seconds"] == pytest.approx(8, abs=0.1)  # of power, where tensor activity is missing
    assert table(path, "SELECT * FROM host_hours") == []
    assert table(path, "SELECT * FROM fabric_hours") == []


def test_a_job_goes_on_where_the_one_before_it_ended(path: Path, writer: Writer, node: NodeWriter) -> None:
    put_ticks(node, working(range(600)))
    writer.close()
    whole = path.with_name("whole.db")
    whole.write_bytes(path.read_bytes())
    assert RollupJob(whole).run(HOUR + 5000)["minute"] == 10

    rolled = 0
    for minute in range(30):
        rolled += RollupJob(path).run(HOUR + 60 * minute + 6, periods=("minute",))["minute"]
    assert rolled == 10
    for view in ("gpu_minutes", "fabric_minutes", "host_minutes"):
        rows = [tuple(row) for row in table(path, f"SELECT * FROM {view} ORDER BY 1, 4")]
        assert rows == [tuple(row) for row in table(whole, f"SELECT * FROM {view} ORDER BY 1, 4")]
        assert rows


SECONDS = 3600
ENDS = [float(second) for second in range(1, SECONDS + 1)]


def on_page(value: float, every: int = 30, missed: frozenset[int] = frozenset()) -> list[float | None]:
    """`value` on each `every`-th tick, but not on the pages that were missed."""
    return [
        value if second % every == 0 and second // every not in missed else None for second in range(1, SECONDS + 1)
    ]  # fmt: skip


def hour(**values: Sequence[float | None]) -> dict[str, object]:
    return roll_gpu(Samples(ENDS, [1.0] * SECONDS, values), Gpu("", 0, ""), "hour")


def test_an_hour_of_pages_covers_the_hour_and_an_idle_one_is_one_run() -> None:
    row = hour(sm_active=on_page(0.3), gpu_util=[0.3] * SECONDS)
    assert row["sm_active_n"] == 120 and row["sm_active_mean"] == pytest.approx(0.3)
    assert sum(row["sm_active_bins"]) == sum(row["gpu_util_bins"]) == row["observed_seconds"] == SECONDS  # type: ignore[arg-type]
    broken = on_page(0.0)
    broken[30 * 60 - 1] = 0.9  # the sixtieth page: half an hour in
    missed = on_page(0.0, missed=frozenset({40, 41}))  # without an absence
    for pages, idle, seen in ((on_page(0.0), SECONDS, 3600), (broken, 1800, 3600), (missed, 79 * 30, 118 * 30)):
        row = hour(sm_active=pages)
        assert (row["idle_run_seconds"], sum(row["sm_active_bins"])) == (idle, seen)  # type: ignore[arg-type]
    assert row["duty"] == 0.0


def test_means_over_half_a_minute_tell_nothing_of_seconds() -> None:
    wave = [0.5 + 0.4 * sin(tau * second / 10) for second in ENDS]
    by_page = [value if index % 30 == 7 or index % 30 == 11 else None for index, value in enumerate(wave)]
    power = [300 + 100 * value for value in wave]
    links = {"nvlink_tx_bytes_per_second": power, "nvlink_rx_bytes_per_second": power}
    row = hour(sm_active=by_page, tensor_active=by_page, power_watts=power, **links)
    assert "sm_active_cv" not in row and row["tensor_nvlink_correlation"] is None
    assert row["period_seconds"] == pytest.approx(10.0, abs=0.1)  # power is there each second
    whole = hour(sm_active=list(wave), tensor_active=list(wave), **links)
    assert whole["sm_active_cv"] is not None and whole["tensor_nvlink_correlation"] == pytest.approx(1.0)


RATIOS = st.lists(st.floats(0, 2), min_size=1, max_size=60)


@given(RATIOS, RATIOS)
def test_a_bin_holds_its_ratio_and_bins_merge_by_addition(first: list[float], second: list[float]) -> None:
    for ratio in first:
        index = (bin_seconds([ratio], [1.0]) or []).index(1.0)
        assert BIN_EDGES[index] <= ratio and ratio < (*BIN_EDGES, math.inf)[index + 1]
    a, b = bin_seconds(first, [1.0] * len(first)), bin_seconds(second, [1.0] * len(second))
    assert a is not None and b is not None
    assert [x + y for x, y in zip(a, b, strict=True)] == bin_seconds(first + second, [1.0] * len(first + second))


def test_noise_and_trends_have_hardly_ever_a_period(seed_of: Callable[[int], int]) -> None:
    """Of a minute of noise 0.4 % have one by chance (4,000 drawn), nearly all at lags of which few pairs are left."""
    rng = random.Random(seed_of(0))
    noise = [autocorrelation_peak([rng.random() for _ in range(60)], 2, 30) for _ in range(400)]
    trends = [autocorrelation_peak([i / 60 + rng.gauss(0, 0.01) for i in range(60)], 2, 30) for _ in range(10)]
    assert sum(peak is not None for peak in noise) <= 0.02 * len(noise)
    assert trends == [None] * 10
