"""Readings that cannot be measurements are missing and reported; rest and light work are no fault, ignorance no
rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.features import soundness as checks
from skuwise.advisor.classify.features.rest import at_rest
from skuwise.advisor.classify.features.soundness import BEYOND, BLANK, CLIPPED, CONTRADICTIONS, FROZEN, STUCK, examine
from skuwise.advisor.classify.features.utilization import measures, port_traffic
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import Doubt
from skuwise.advisor.classify.workloads.sku_lookup import index_gpus
from skuwise.advisor.core.frame import Frame
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, HELD, START, TRAINING, FrameBuilder, at_work
from skuwise.tests.support.rulebooks import rulebook

NAN = float("nan")
BLANKS = (0x7FFFFFF0, 2**31 - 1, 2**32 - 1, 2**47, 2**63, 0x7FFFFFFFFFFFFFF0, 2**64 - 1)


def sound(frame: Frame, **columns: object) -> tuple[Frame, tuple[Doubt, ...], set[tuple[str, str]]]:
    """What is left of the frame with these columns of its GPU rows, the doubts, and their metrics and codes."""
    soundness = examine(replace(frame, gpu=frame.gpu.assign(**columns)))  # type: ignore[arg-type]
    return soundness.frame, soundness.doubts, {(doubt.metric, doubt.code) for doubt in soundness.doubts}


@pytest.fixture(scope="module")
def training() -> Frame:
    """Made once: `sound` makes a new frame."""
    return at_work(TRAINING).frame()


@pytest.mark.parametrize("values", [FREE, TRAINING, DECODE, HELD])
def test_what_can_be_measured_is_left_as_it_is(values: Mapping[str, float]) -> None:
    soundness = examine(frame := at_work(values).frame())
    assert (soundness.frame, soundness.doubts) == (frame, ())


@pytest.mark.parametrize("blank", [base + more for base in BLANKS for more in (0, 1, 3)])
@pytest.mark.parametrize("scale", [1.0, 1024.0**2, 1e6])
def test_a_blank_in_any_unit_is_missing(blank: int, scale: float, training: Frame) -> None:
    value = float(blank) * scale
    metrics = {"power_watts", "dram_active", "sm_clock_hertz"}
    if value not in (2.0**31, 2.0**32):  # sizes that there are
        metrics |= {"mem_used_bytes", "pcie_tx_bytes_per_second"}
    clean, doubts, _ = sound(training, **{f"{metric}_mean": value for metric in metrics})
    assert clean.gpu[[f"{metric}_mean" for metric in metrics]].isna().all(axis=None), value
    assert {d.metric for d in doubts} == metrics and {d.code for d in doubts} <= {BLANK, BEYOND}
    assert [d.hours for d in doubts] == pytest.approx([48] * len(metrics))


@pytest.mark.parametrize(
    ("metric", "value"),
    [("power_watts", 0.0), ("power_watts", -3.0), ("power_watts", 9000.0), ("dram_active", -0.1),
     ("tensor_active", 46.31), ("gpu_util", 97.0), ("sm_clock_hertz", 0.0), ("mem_used_bytes", 200 * GIB)],
)  # fmt: skip
def test_what_no_gpu_can_report_is_missing(metric: str, value: float, training: Frame) -> None:
    clean, _, codes = sound(training, **{f"{metric}_mean": value})
    assert clean.gpu[f"{metric}_mean"].isna().all() and (metric, BEYOND) in codes


def test_activity_of_an_instance_above_one_counts_as_one() -> None:
    clean, _, codes = sound(at_work({**TRAINING, "sm_active": 2.6}).frame())
    assert (clean.gpu["sm_active_mean"] == 1.0).all() and codes == {("sm_active", CLIPPED)}


def test_a_repeated_value_is_not_measured(training: Frame) -> None:
    at = np.arange(48) >= 20
    power = np.where(at, 412.337, training.gpu["power_watts_mean"])
    clean, doubts, _ = sound(training, power_watts_mean=power, power_watts_p95=power)
    assert clean.gpu["power_watts_mean"].isna().to_list() == at.tolist()
    (doubt,) = doubts
    assert (doubt.metric, doubt.code, doubt.hours, doubt.start) == ("power_watts", FROZEN, 28, START + 20 * 3600)
    assert "the same value repeated to the last digit over 28.0 h from" in doubt.text


def test_counters_at_zero_beside_a_busy_engine_are_named_with_hours() -> None:
    b = FrameBuilder(hours=48)
    b.node()
    b.use(TRAINING, end=17)
    b.use({**FREE, "gpu_util": 0.97, "power_watts": 600.0}, start=17)
    soundness = examine(b.frame())
    assert soundness.contradicted.tolist() == [False] * 17 + [True] * 31
    (doubt,) = soundness.doubts
    assert doubt.code == checks.SILENT
    assert doubt.text.startswith("GPU_UTIL 97 % (mean), but other counters 0 over 31.0 h from ")
    assert soundness.frame.gpu["dram_active_mean"].isna().sum() == 31


@pytest.mark.parametrize(
    ("change", "metric", "code", "says"),
    [
        ({"dram_active": 0.0}, "dram_active", STUCK, ""),
        ({"gpu_util": 0.0}, "gpu_util", STUCK, "counters show 85 %"),
        # Tensor at zero shows the compute used only beside another pipe.
        ({"tensor_active": 0.0, "fp32_active": NAN, "fp64_active": NAN}, "tensor_active", checks.NO_PIPE, ""),
        ({"tensor_active": 0.0, "fp32_active": 0.4}, None, None, ""),
    ],
)
def test_one_counter_at_zero_while_the_engine_works_is_missing(change, metric, code, says: str) -> None:
    frame = at_work({name: v for name, v in {**TRAINING, **change}.items() if v == v}).frame()
    clean, doubts, codes = sound(frame)
    assert codes == ({(metric, code)} if metric and code else set())
    for name in ("dram_active", "gpu_util", "tensor_active"):
        gone = clean.gpu[f"{name}_mean"].isna()
        assert gone.all() if name == metric else not gone.any()
    assert not says or says in doubts[0].text


CATALOG = load_catalog()
WORKS = 0.05
METRICS = ("gpu_util", "sm_active", "tensor_active", "dram_active", "power_watts", "mem_used_bytes", "fp32_active")
BLANKED = 9223372036854775794.0


def measured(frame: Frame) -> pd.DataFrame:
    soundness = examine(frame)
    index = index_gpus(soundness.frame, CATALOG)
    rows, _ = measures(soundness.frame, index, port_traffic(soundness.frame, rulebook(CATALOG)), rulebook(CATALOG))
    return at_rest(soundness.frame, index, rows, rulebook(CATALOG), soundness.contradicted)[0]


def replaced(frame: Frame, metric: str, how: str) -> Frame:
    """The frame with one metric's values replaced, all along."""
    gpu = frame.gpu.copy()
    for name in {f"{metric}_mean", f"{metric}_p95", f"{metric}_max"} & set(gpu.columns):
        values = {"blank": BLANKED, "int-blank": float(0x7FFFFFF0), "zero": 0.0, "last": gpu[name].min(), "gone": NAN}
        gpu[name] = gpu[name].where(gpu[name].isna(), values[how])
    return replace(frame, gpu=gpu)


# Healthy GPUs at rest and at light work, written from published levels of power (not from the simulator).
class Board(NamedTuple):
    """A kind of GPU: power at rest without a context, with one (lowest and highest), and its limit, in watts."""

    sku: str
    free: float
    low: float
    high: float
    limit: float
    mem_gib: float


# arXiv 2605.23918 (H100, A100, L40S), open-gpu-kernel-modules issue 874 (A40), ollama issue 8591 (V100); L4, T4 and
# A10G behave alike: the same range of shares of their limits.
BOARDS = (
    Board("H100-SXM5", 68, 71.8, 121.7, 700, 80), Board("A100-SXM4-80GB", 50, 53.7, 80.0, 400, 80),
    Board("L40S", 32, 35.6, 102.1, 350, 48), Board("A40", 28, 30, 110, 300, 48),
    Board("V100-SXM2-16GB", 25, 27, 40, 300, 16), Board("L4", 16, 18, 33, 72, 24), Board("T4", 9, 12, 30, 70, 16),
    Board("A10G", 18, 22, 90, 300, 24),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Way:
    """How a GPU is used. `busy`: its engine while it serves; `day`: whether it rests at night; `full`: SM_ACTIVE and
    the other pipes are exported; `util`: GPU_UTIL is."""

    seed: int
    board: Board
    context: float  # watts at rest with the context
    busy: float
    day: bool = False
    full: bool = True
    util: bool = True
    held: bool = True


def drawn(seed: int, kind: str) -> Way:
    """A way of use of this kind: rest, light, poll (probes alone), free."""
    rng = np.random.default_rng(seed)
    board = BOARDS[int(rng.integers(len(BOARDS)))]
    option = Way(seed, board, rng.uniform(board.low, board.high), 0.0, full=bool(rng.random() < 0.5))
    if kind == "light":
        return replace(option, busy=rng.uniform(0.05, 0.3), day=bool(rng.random() < 0.7), util=bool(rng.random() < 0.8))
    if kind == "poll":
        return replace(option, busy=rng.uniform(0.002, 0.04))
    return replace(option, held=False, context=board.free) if kind == "free" else option


def rows(option: Way) -> dict[str, list[float]]:
    """Hourly columns of a GPU in such use: what a profiler, the driver and the board would say of the same work."""
    rng, hours = np.random.default_rng(option.seed), 48
    level = np.full(hours, option.busy)
    if option.day:
        level = level * np.clip(0.6 + 0.8 * np.sin(2 * np.pi * np.arange(hours) / 24), 0, None)
    level = np.clip(level * (1 + 0.1 * rng.standard_normal(hours)), 0, 1)
    width = rng.uniform(0.2, 0.9)
    power = option.context + level * rng.uniform(0.2, 0.6) * option.board.limit + 0.6 * rng.standard_normal(hours) / 8
    columns = {
        "gpu_util": np.round(level, 4), "sm_active": level * width, "sm_occupancy": 0.4 * level * width,
        "tensor_active": level * rng.uniform(0.02, 0.3) * width, "dram_active": level * rng.uniform(0.05, 0.5),
        "fp32_active": 0.1 * level * width, "fp64_active": 0 * level, "power_watts": power,
        "sm_clock_hertz": np.full(hours, 1.5e9), "mem_clock_hertz": np.full(hours, 1.5e9),
        "mem_used_bytes": np.full(hours, (0.6 if option.held else 0.0005) * option.board.mem_gib * GIB),
    }  # fmt: skip
    gone = () if option.full else ("sm_active", "sm_occupancy", "fp32_active", "fp64_active")
    gone = gone if option.util else (*gone, "gpu_util")
    return {name: list(map(float, values)) for name, values in columns.items() if name not in gone}


def frame_of(option: Way, columns: Mapping[str, Sequence[float]]) -> Frame:
    """A frame of one GPU in such use alone on a node, held by a workload where it is held."""
    b, board = FrameBuilder(hours=48), option.board
    gpus = b.node(sku=board.sku, name_of_gpu=board.sku)
    memory = {"mem_total_bytes": board.mem_gib * GIB}
    b.gpus[0] |= {**memory, "power_limit_watts": board.limit, "nvlink_bytes_per_second": None}
    means: dict[str, Any] = {f"{name}_mean": values for name, values in columns.items()}
    b.use({}, **memory, power_watts_n=60.0, **means)
    if option.held:
        b.work("w", [("n1", uuid) for uuid in gpus])
    return b.frame()


WAYS = st.builds(drawn, st.integers(0, 2**32 - 1), st.sampled_from(["rest", "light", "poll", "free"]))


@given(WAYS)
def test_a_context_at_rest_and_light_work_are_never_faulty(pattern: Way) -> None:
    frame = frame_of(pattern, rows(pattern))
    result = measured(frame)
    assert not result["fault"].any()
    if pattern.busy == 0 and pattern.util:
        assert result["idle"].all()
    assert not examine(frame).doubts or pattern.busy > 0


@given(WAYS, st.sampled_from(METRICS), st.sampled_from(["blank", "int-blank", "zero", "last", "gone"]))
def test_no_metric_that_is_replaced_makes_a_gpu_idle_that_worked(pattern: Way, metric: str, how: str) -> None:
    if pattern.busy < 2 * WORKS or not pattern.util:
        pattern = replace(pattern, busy=2 * WORKS + pattern.busy, util=True, day=False)
    frame = frame_of(pattern, rows(pattern))
    worked = (frame.gpu["gpu_util_mean"] >= WORKS).to_numpy()
    after = measured(replaced(frame, metric, how))
    assert not after["idle"].to_numpy(bool)[worked].any()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.sku)
def test_power_that_only_work_explains_is_a_fault(board) -> None:
    option = Way(1, board, context=(board.low + board.high) / 2, busy=0.0)
    columns = rows(option)
    columns["power_watts"][10:40] = [0.85 * board.limit + n / 100 for n in range(30)]
    frame = frame_of(option, columns)
    result = measured(frame)
    assert result["fault"].tolist() == [False] * 10 + [True] * 30 + [False] * 8
    verdicts = judge(frame, rulebook(CATALOG))
    (doubt,) = [d for d in verdicts.doubts if d.code in CONTRADICTIONS]
    assert (doubt.code, doubt.hours) == (checks.POWER, pytest.approx(30))
    assert doubt.text.startswith(f"Power {0.85 * board.limit + 0.145:.0f} W (mean), at most ")
    assert "counters at rest over 30.0 h from" in doubt.text


@pytest.mark.parametrize("gpu", ["NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"])
@pytest.mark.parametrize(
    ("power", "util", "memory", "rests"),
    [
        (110.0, 0.0, 40.0, True),
        (14.0, 0.0, 0.0, True),
        (110.0, 0.002, 40.0, False),  # a heartbeat
        (190.0, 0.0, 40.0, False),  # above any rest: the counter is stuck
        (110.0, 0.0, None, False),  # GB10 shows no memory, and its utilization sticks at 0
        (14.0, 0.0, None, True),  # far below what its like draws at work
    ],
)
def test_without_the_profiler_rest_is_no_use_at_a_steady_low_power(gpu, power, util, memory, rests) -> None:
    shown = {} if memory is None else {"mem_used_bytes": memory * GIB}
    b = FrameBuilder(hours=48)
    b.node(gpus=2, sku=None, name_of_gpu=gpu)
    for row in b.gpus:
        row["power_limit_watts"] = None
    total = 80 * GIB if shown else NAN
    b.use({"gpu_util": util, "power_watts": power, **shown}, uuid="GPU-n1-0", mem_total_bytes=total)
    b.use({"gpu_util": 0.9, "power_watts": 300.0, "mem_used_bytes": 40 * GIB}, uuid="GPU-n1-1")
    assert set(measured(b.frame())["idle"].to_numpy(bool)[:48]) == {rests}


def test_power_that_moves_is_no_rest_without_the_profiler() -> None:
    driver = {"gpu_util": 0.0, "power_watts": 80.0, "mem_used_bytes": 20 * GIB}
    b = at_work(driver, name="NVIDIA GeForce RTX 4090", wave="power_watts")
    b.gpus[-1]["power_limit_watts"] = None
    assert not measured(b.frame())["idle"].to_numpy(bool)[24:].all()


def of_minutes(**columns: object) -> Frame:
    """Four hours of minutes of an unknown GPU with a driver's counters alone: 0 % in every sample, 22 W, repeated."""
    values = {"gpu_util": 0.0, "power_watts": 22.0, "mem_used_bytes": 30 * GIB}
    b = at_work(values, hours=4, name="NVIDIA RTX A6000", interval=60.0)
    b.gpus[0]["power_limit_watts"] = None
    frame = b.frame()
    return replace(frame, gpu=frame.gpu.assign(**{**all_of("power_watts", 22.0), **columns}))


def all_of(metric: str, value: float) -> dict[str, Any]:
    return {f"{metric}_{column}": value for column in ("mean", "p95", "max")}


ONE = np.arange(240) == 120


@pytest.mark.parametrize(
    ("columns", "idle"),
    [
        ({}, 240),
        ({"mem_used_bytes_mean": 78 * GIB}, 240),
        ({"gpu_util_max": np.where(ONE, 1.5, 0.0), "gpu_util_mean": np.where(ONE, 1.5 / 60, 0.0)}, 240),
        ({"power_watts_mean": np.where(ONE, 2.0**63, 22.0)}, 239),
        (all_of("power_watts", NAN), 0),  # held, by one source alone
        ({**all_of("power_watts", NAN), "mem_used_bytes_mean": 1e7}, 240),
        (all_of("gpu_util", NAN), 0),  # no activity metric
        (all_of("gpu_util", 0.4), 0),
    ],
    ids=["held", "nearly full", "above 1", "blank", "no power, held", "no power, free", "no activity", "in use"],
)  # fmt: skip
def test_all_zero_use_at_steady_power_is_rest_whatever_the_catalog_knows(columns: dict, idle: int) -> None:
    result = measured(of_minutes(**columns))
    assert int(result["idle"].sum()) == int(result["rests"].sum()) == idle


def test_a_trace_of_work_counts_as_idle_time_and_ends_a_rest() -> None:
    heartbeat = {"gpu_util_max": np.where(ONE, 0.3, 0.0), "gpu_util_p95": 0.0, "sm_active_mean": 0.0}
    result = measured(of_minutes(**heartbeat, dram_active_mean=0.0))
    assert result["idle"].all() and result["rests"].tolist() == (~ONE).tolist()
