"""Readings that cannot be measurements become missing and are told; what can be one stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.doubts import Doubt
from skuwise.advisor.classify.features.soundness import BEYOND, BLANK, CLIPPED, FROZEN, NO_PIPE, SILENT, STUCK, examine
from skuwise.advisor.core.frame import Frame
from skuwise.tests.support.frame_builder import DECODE, FREE, GIB, HELD, START, TRAINING, FrameBuilder

NAN = float("nan")
BLANKS = [
    base + more
    for base in (0x7FFFFFF0, 2**31 - 1, 2**32 - 1, 2**47, 2**63, 0x7FFFFFFFFFFFFFF0, 2**64 - 1)
    for more in (0, 1, 3)
]


def sound(frame: Frame, **columns: object) -> tuple[Frame, tuple[Doubt, ...], set[tuple[str, str]]]:
    """What is left of the frame with these columns of its GPU rows, the doubts, and their metrics and codes."""
    found = examine(replace(frame, gpu=frame.gpu.assign(**columns)))  # type: ignore[arg-type]
    return found.frame, found.doubts, {(doubt.metric, doubt.code) for doubt in found.doubts}


def built(values: Mapping[str, float], *, hours: int = 48, **extra: object) -> Frame:
    b = FrameBuilder(hours=hours)
    (uuid,) = b.node()
    b.use(values, **extra)  # type: ignore[arg-type]
    b.work("w", [("n1", uuid)])
    return b.frame()


@pytest.fixture(scope="module")
def training() -> Frame:
    """Made once: `sound` makes a frame of its own."""
    return built(TRAINING)


@pytest.mark.parametrize("values", [FREE, TRAINING, DECODE, HELD])
def test_what_can_be_measured_is_left_as_it_is(values: Mapping[str, float]) -> None:
    frame = built(values)
    found = examine(frame)
    assert (found.frame, found.doubts) == (frame, ())


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize("scale", [1.0, 1024.0**2, 1e6])
def test_a_blank_in_any_unit_is_missing(blank: int, scale: float, training: Frame) -> None:
    value = float(blank) * scale
    metrics = {"power_watts", "dram_active", "sm_clock_hertz"}
    if value not in (2.0**31, 2.0**32):  # sizes that there are
        metrics |= {"mem_used_bytes", "pcie_tx_bytes_per_second"}
    clean, doubts, _ = sound(training, **{f"{metric}_mean": value for metric in metrics})
    assert clean.gpu[[f"{metric}_mean" for metric in metrics]].isna().all(axis=None), value
    assert {d.metric for d in doubts} == metrics
    assert {d.code for d in doubts} <= {BLANK, BEYOND}
    assert [d.hours for d in doubts] == pytest.approx([48] * len(metrics))


@pytest.mark.parametrize(
    ("metric", "value"),
    [("power_watts", 0.0), ("power_watts", -3.0), ("power_watts", 9000.0), ("dram_active", -0.1),
     ("tensor_active", 46.31), ("gpu_util", 97.0), ("sm_clock_hertz", 0.0), ("mem_used_bytes", 200 * GIB)],
)  # fmt: skip
def test_what_no_gpu_can_report_is_missing(metric: str, value: float, training: Frame) -> None:
    clean, _, codes = sound(training, **{f"{metric}_mean": value})
    assert clean.gpu[f"{metric}_mean"].isna().all()
    assert (metric, BEYOND) in codes


def test_activity_of_an_instance_above_one_counts_as_one() -> None:
    clean, _, codes = sound(built({**TRAINING, "sm_active": 2.6}))
    assert (clean.gpu["sm_active_mean"] == 1.0).all()
    assert codes == {("sm_active", CLIPPED)}


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
    found = examine(b.frame())
    assert found.contradicted.tolist() == [False] * 17 + [True] * 31
    (doubt,) = found.doubts
    assert doubt.code == SILENT
    assert doubt.text.startswith("GPU_UTIL 97 % (mean), but tensor, DRAM and SM activity 0 over 31.0 h from ")
    assert found.frame.gpu["dram_active_mean"].isna().sum() == 31


@pytest.mark.parametrize(
    ("change", "metric", "code", "says"),
    [
        ({"dram_active": 0.0}, "dram_active", STUCK, ""),
        ({"gpu_util": 0.0}, "gpu_util", STUCK, "GPU_UTIL 0 %, but SM activity 85 %"),
        # Tensor at zero tells the compute used only beside another pipe.
        ({"tensor_active": 0.0, "fp32_active": NAN, "fp64_active": NAN}, "tensor_active", NO_PIPE, ""),
        ({"tensor_active": 0.0, "fp32_active": 0.4}, None, None, ""),
    ],
)
def test_one_counter_at_zero_while_the_engine_works_is_missing(
    change: dict[str, float], metric: str | None, code: str | None, says: str
) -> None:
    clean, doubts, codes = sound(built({name: v for name, v in {**TRAINING, **change}.items() if v == v}))
    assert codes == ({(metric, code)} if metric and code else set())
    for name in ("dram_active", "gpu_util", "tensor_active"):
        gone = clean.gpu[f"{name}_mean"].isna()
        assert gone.all() if name == metric else not gone.any()
    assert not says or says in doubts[0].text
