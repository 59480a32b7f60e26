"""Contexts at rest and light work are no fault, seeded faults are, and ignorance never makes a GPU idle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.verdicts.features.port_traffic import port_traffic
from skuwise.advisor.verdicts.features.resting_power import at_rest, power_doubts
from skuwise.advisor.verdicts.features.soundness import CONTRADICTIONS, FROZEN, POWER, examine
from skuwise.advisor.verdicts.features.utilization import measures
from skuwise.advisor.verdicts.judge import judge
from skuwise.advisor.verdicts.workloads.sku_lookup import index_gpus
from skuwise.rules.base.errors import RulesError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.resting_power import load_resting_power
from skuwise.tests.support.frame_builder import FREE, HELD, FrameBuilder
from skuwise.tests.support.lightly_loaded import BOARDS, Way, drawn, one, place, rows, sliced
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.seeds import examples

CATALOG = load_catalog()
WORKS = 0.05
METRICS = ("gpu_util", "sm_active", "tensor_active", "dram_active", "power_watts", "mem_used_bytes", "fp32_active")
BLANK = 9223372036854775794.0


def measured(frame: Frame) -> pd.DataFrame:
    found = examine(frame)
    index = index_gpus(found.frame, CATALOG)
    rows, _ = measures(found.frame, index, port_traffic(found.frame, rulebook(CATALOG)), rulebook(CATALOG))
    return at_rest(found.frame, index, rows, rulebook(CATALOG), found.contradicted)[0]


def replaced(frame: Frame, metric: str, how: str) -> Frame:
    """The frame with one metric's values replaced, all along."""
    gpu = frame.gpu.copy()
    for name in (f"{metric}_mean", f"{metric}_p95", f"{metric}_max"):
        known = gpu[name].notna() if name in gpu.columns else None
        if known is None or not known.any():
            continue
        first = float(gpu.loc[known, name].min())
        value = {"blank": BLANK, "int-blank": float(0x7FFFFFF0), "zero": 0.0, "last": first, "gone": np.nan}[how]
        gpu.loc[known, name] = value
    return replace(frame, gpu=gpu)


WAYS = st.builds(
    lambda seed, kind: (seed, drawn(np.random.default_rng(seed), kind)),
    st.integers(0, 2**32 - 1), st.sampled_from(["rest", "light", "poll", "free"]),
)  # fmt: skip


@settings(deadline=None, max_examples=examples(12))
@given(WAYS)
def test_a_context_at_rest_and_light_work_are_never_faulty(drawn_way: tuple[int, Way]) -> None:
    seed, way = drawn_way
    frame = one(way, seed)
    found = measured(frame)
    assert not found["fault"].any()
    if way.busy == 0 and way.util:
        assert found["idle"].all()
    assert not examine(frame).doubts or way.busy > 0


@settings(deadline=None, max_examples=examples(15))
@given(WAYS, st.sampled_from(METRICS), st.sampled_from(["blank", "int-blank", "zero", "last", "gone"]))
def test_no_metric_that_is_replaced_makes_a_gpu_idle_that_worked(
    drawn_way: tuple[int, Way], metric: str, how: str
) -> None:
    seed, way = drawn_way
    if way.busy < 2 * WORKS or not way.util:
        way = replace(way, busy=2 * WORKS + way.busy, util=True, day=False)
    frame = one(way, seed)
    worked = (frame.gpu["gpu_util_mean"] >= WORKS).to_numpy()
    after = measured(replaced(frame, metric, how))
    assert not after["idle"].to_numpy(bool)[worked].any()
    assert not after["free"].to_numpy(bool)[worked].any()


@settings(deadline=None, max_examples=examples(12))
@given(WAYS, st.lists(st.sampled_from(METRICS), unique=True, max_size=3), st.sampled_from(["blank", "gone"]))
@example((211, drawn(np.random.default_rng(211), "light")), ["dram_active"], "blank")  # a trace that memory alone shows
@example((144, drawn(np.random.default_rng(144), "light")), ["gpu_util"], "blank")  # bursts that the engine alone shows
def test_less_data_never_makes_a_row_idle(drawn_way: tuple[int, Way], gone: list[str], how: str) -> None:
    seed, way = drawn_way
    frame = one(way, seed)
    before = measured(frame)["idle"].to_numpy(bool)
    for metric in gone:
        frame = replaced(frame, metric, how)
    after = measured(frame)["idle"].to_numpy(bool)
    assert not (after & ~before).any()


@pytest.mark.parametrize("gone", [("p95",), ("p95", "max")])
def test_bursts_that_a_mean_hides_are_work_though_nobody_told_the_percentile(gone: tuple[str, ...]) -> None:
    """Replicas that answer probes: an hour's mean is 2 %, and a twentieth of its seconds worked and
    without the percentiles they were sold once."""
    b = FrameBuilder(hours=48)
    b.node(gpus=2)
    b.use({**HELD, "gpu_util": 0.02, "sm_active": 0.01}, gpu_util_p95=0.3, gpu_util_max=0.9, sm_active_p95=0.2,
          sm_active_max=0.6)  # fmt: skip
    b.use({**HELD, "gpu_util": 0.0005, "sm_active": 0.0}, uuid="GPU-n1-1", gpu_util_p95=0.0, gpu_util_max=0.4)
    frame = b.frame()
    assert measured(frame)["idle"].tolist() == [False] * 48 + [True] * 48
    for name in gone:
        nothing = {f"{metric}_{name}": np.nan for metric in ("gpu_util", "sm_active")}
        frame = replace(frame, gpu=frame.gpu.assign(**nothing))
    # A mean so low leaves no room for a percentile of work.
    assert measured(frame)["idle"].tolist() == [False] * 48 + [True] * 48


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.sku)
def test_power_that_only_work_explains_is_a_fault_with_both_signals_named(board) -> None:
    way = Way(board, context=(board.low + board.high) / 2, busy=0.0)
    columns = rows(np.random.default_rng(1), way, hours=48)
    columns["power_watts"][10:40] = [0.85 * board.limit + n / 100 for n in range(30)]
    frame = one(way, 1, columns=columns)
    found = measured(frame)
    assert found["fault"].tolist() == [False] * 10 + [True] * 30 + [False] * 8
    verdicts = judge(frame, rulebook(CATALOG))
    (doubt,) = [d for d in verdicts.doubts if d.code in CONTRADICTIONS]
    assert (doubt.code, doubt.hours) == (POWER, pytest.approx(30))
    assert doubt.text.startswith(f"Power {0.85 * board.limit + 0.145:.0f} W (mean), at most ")
    assert "GPU_UTIL 0 %" in doubt.text and "over 30.0 h from" in doubt.text


def test_an_hour_of_it_at_least() -> None:
    b = FrameBuilder(hours=1)
    (uuid,) = b.node()
    b.use({**FREE, "power_watts": 500.0}, interval=60.0, end=0)
    b.use({**FREE, "power_watts": 500.0}, interval=60.0)
    b.gpu_rows = b.gpu_rows[:30]
    b.work("w", [("n1", uuid)])
    found = measured(b.frame())
    assert not found["fault"].any() and not found["idle"].any()


def test_the_level_is_the_gpus_own_apart_with_memory_and_without() -> None:
    b = FrameBuilder(hours=48)
    b.node(gpus=2)
    b.use({**FREE, "power_watts": 68.0}, end=24)
    b.use({**HELD, "power_watts": 131.0}, start=24)
    b.use({**HELD, "power_watts": 90.0}, uuid="GPU-n1-1")
    found = measured(b.frame())
    assert found["rest_free_power"].iloc[0] == pytest.approx(68)
    assert found["rest_power"].iloc[0] == pytest.approx(131)
    assert found["rest_power"].iloc[-1] == pytest.approx(90)
    assert np.isnan(found["rest_free_power"].iloc[-1])
    assert found["rest_watts"].iloc[0] == pytest.approx(1.25 * 131)
    assert found["rest_watts"].iloc[-1] == pytest.approx(1.25 * 121.7)
    assert found["idle"].all()


def test_one_source_of_activity_alone_tells_no_rest_of_a_gpu_that_is_held() -> None:
    driver = {name: HELD[name] for name in ("gpu_util", "power_watts", "mem_used_bytes")}
    b = FrameBuilder(hours=48)
    b.node(gpus=3)
    b.use({**driver, "power_watts": 110.0}, uuid="GPU-n1-0")
    b.use({**driver, "power_watts": 75.0}, uuid="GPU-n1-1")
    b.use({**driver, "mem_used_bytes": 0.0}, uuid="GPU-n1-2")
    idle = measured(b.frame())["idle"].to_numpy(bool)
    assert not idle[:48].any()
    assert idle[48:].all()


@settings(deadline=None, max_examples=examples(15))
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_instances_are_not_judged_by_their_parents_power(seed: int, repeated: bool) -> None:
    rng = np.random.default_rng(seed)
    board = BOARDS[int(rng.integers(2))]
    ways = [replace(drawn(rng, "light"), day=False), drawn(rng, "rest"), drawn(rng, "rest")]
    ways[0] = replace(ways[0], busy=0.9)
    frame = sliced(Way(board, board.high, 0.0), ways, seed, repeated=repeated)
    found = measured(frame)
    assert not found["fault"].any()
    assert not found.loc[frame.gpu["gpu_uuid"] == "GPU-n1-0", "idle"].any()
    assert not found.loc[frame.gpu["gpu_uuid"] == "MIG-n1-0", "idle"].any()


def test_a_parent_whose_instances_are_all_silent_under_power_is_faulty() -> None:
    board = BOARDS[0]
    way = Way(board, board.high, 0.0)
    frame = sliced(Way(board, 500.0, 0.0), [way, way], 3)
    found = measured(frame)
    parent = (frame.gpu["gpu_uuid"] == "GPU-n1-0").to_numpy()
    assert found["fault"].to_numpy(bool).tolist() == parent.tolist()
    assert not found["idle"].any()


def seeded(rng: np.random.Generator, way: Way, kind: str) -> dict[str, list[float]]:
    """Hours of a GPU at work whose telemetry is wrong in this way."""
    columns = rows(rng, way, hours=48)
    zero: dict[str, tuple[str, ...]] = {"silent": ("sm_active", "tensor_active", "dram_active", "fp32_active")}
    zero["all-silent"] = (*zero["silent"], "gpu_util")
    columns |= {name: [0.0] * 48 for name in zero.get(kind, ()) if name in columns}
    if kind == "all-silent":
        columns["power_watts"] = [float(w) for w in rng.uniform(0.6, 0.95) * way.board.limit + 0.01 * np.arange(48)]
    if kind == "frozen":
        columns["power_watts"] = [0.4637 * way.board.limit] * 48
    return columns


def test_how_many_healthy_workloads_are_called_faulty_and_how_many_faults_are_found(
    seed_of: Callable[[int], int],
) -> None:
    rng = np.random.default_rng(seed_of(12))
    b = FrameBuilder(hours=48)
    for n in range(300):
        way = drawn(rng, ("rest", "light", "poll")[n % 3])
        place(b, way.board, rows(rng, way, hours=48), node=f"n{n}", uuid=f"GPU-{n}")
    frame = b.frame()
    faulty = measured(frame)["fault"].groupby(frame.gpu["gpu_uuid"]).mean()
    wrong, checked = int((faulty >= 0.05).sum()), len(faulty)
    for n in range(20):
        board = BOARDS[n % 2]
        ways = [drawn(rng, kind) for kind in ("light", "rest", "poll")]
        found = measured(sliced(Way(board, rng.uniform(board.low, board.high), 0.0), ways, n))
        wrong, checked = wrong + bool(found["fault"].any()), checked + 3
    b, kinds = FrameBuilder(hours=48), {}
    for n in range(120):
        way = replace(drawn(rng, "light"), busy=rng.uniform(0.3, 0.95), day=False, util=True)
        kinds[f"GPU-{n}"] = ("silent", "all-silent", "frozen")[n % 3]
        place(b, way.board, seeded(rng, way, kinds[f"GPU-{n}"]), node=f"n{n}", uuid=f"GPU-{n}")
    frame = b.frame()
    found = measured(frame)
    doubts = (*(told := examine(frame)).doubts, *power_doubts(told.frame, found, told.contradicted))
    named = {(d.gpu_uuid, "frozen" if d.code == FROZEN else "fault") for d in doubts}
    caught = sum((uuid, "frozen" if kind == "frozen" else "fault") in named for uuid, kind in kinds.items())
    print(f"healthy called faulty: {wrong} of {checked}; seeded faults found: {caught} of {len(kinds)}")  # noqa: T201
    assert wrong < 0.005 * checked
    assert caught >= 0.98 * len(kinds)
    assert not found["idle"].any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shares: {low: 0.4, high: 0.1, source: a, as_of: 2026-11-22}\ngpus: {}\n", "'low' is above 'high'"),
        ("gpus: {}\n", "'shares' is missing"),
        ("shares: {low: 0.1, high: 0.4, source: a, as_of: 2026-11-22}\ngpus: {T4: {watts: {low: 9, high: 20}}}\n",
         "'basis' is missing"),
        ("shares: {low: 0.1, high: 0.4, source: a, as_of: 2026-11-22}\ngpus: {}\nmore: 1\n", "unknown key 'more'"),
    ],
)  # fmt: skip
def test_the_table_is_read_strictly(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "resting_power.yaml"
    file.write_text(text)
    with pytest.raises(RulesError, match=said):
        load_resting_power(file)


def test_the_table_knows_gpus_of_the_catalog_alone() -> None:
    table = load_resting_power()
    assert set(table.gpus) <= set(CATALOG.gpus)
    assert all(one.high_watts <= 0.5 * CATALOG.gpus[name].tdp_watts for name, one in table.gpus.items())
