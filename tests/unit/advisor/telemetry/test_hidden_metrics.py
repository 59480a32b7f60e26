"""Hiding a metric never raises a claim: no new cash, no more of it, no lower risk, and no working GPU called idle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice, Recommendation
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.histogram_array import BinsArray
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook

RISKS = ("very-low", "low", "medium", "high")
PLACE = {"provider": "azure", "region": "eastus", "node_sku": "azure/Standard_ND96isr_H100_v5"}
SERVED = dict(DECODE) | {"tensor_active": 0.04, "dram_active": 0.3, "gpu_util": 0.5, "mem_used_bytes": 60e9}
BOOK = rulebook()


def told(frame: Frame) -> Advice:
    return advise(frame, BOOK, AdviseOptions(frame.window.end), np.random.default_rng(20))


@pytest.fixture(scope="module")
def frame() -> Frame:
    """A node that serves on a silent fabric, one that trains over its own, a free one and one held for nothing."""
    builder = FrameBuilder(hours=40)
    for name, load in {"serve": SERVED, "train": TRAINING, "spare": FREE, "held": HELD}.items():
        uuids = builder.node(name, gpus=8)
        builder.nodes[-1] |= PLACE
        for uuid in uuids:
            builder.use(load, name, uuid, wave="dram_active" if name == "serve" else "")
        for port in range(2):
            builder.port(0.3 if name == "train" else 0.0003, name, f"mlx5_{port}")
        builder.host_rows += [
            {"node": name, "ts": row["ts"], "interval_seconds": 3600.0, "observed_seconds": 3600.0,
             "cpu_util_mean": 0.1, "io_wait_mean": 0.0, "disk_write_bytes_per_second_mean": 1e5}
            for row in builder.gpu_rows if row["gpu_uuid"] == uuids[0]
        ]  # fmt: skip
        if name != "spare":
            held, framework = [(name, uuid) for uuid in uuids], "vllm" if name == "serve" else None
            builder.work(f"w-{name}", held, name=name, series=name, framework=framework)
    return builder.frame()


@pytest.fixture(scope="module")
def whole(frame: Frame) -> Advice:
    advice = told(frame)
    assert {one.action for one in advice.recommendations if claims(one)} >= {"release", "move-sku"}
    return advice


def claims(one: Recommendation) -> bool:
    saving = one.saving_usd_per_month
    return (
        one.realisation in {"cash-now", "cash-at"} and not one.blocked_by and saving is not None and saving.p50 > 0
    )  # fmt: skip


def idle_gpus(advice: Advice) -> set[str]:
    found = {gpu for one in advice.findings if one.rule in {"idle", "held-idle"} for gpu in one.gpus}
    return found | {gpu for one in advice.workloads if one.kind.label == "idle" for gpu in one.gpus}


@pytest.mark.parametrize(
    "hidden",
    [
        ("gpu_util",), ("sm_active",), ("tensor_active",), ("dram_active",), ("mem_used_bytes",), ("mem_total_bytes",),
        ("power_watts",), ("sm_clock_hertz",), ("gpu_util", "sm_active"), ("tensor_active", "dram_active"),
        ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
        ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"), ("fabric",), ("bins",), ("names",),
    ],
    ids=",".join,
)  # fmt: skip
def test_hiding_a_metric_never_raises_a_claim(frame: Frame, whole: Advice, hidden: tuple[str, ...]) -> None:
    part = told(without(frame, hidden))
    claimed = {one.id for one in whole.recommendations if claims(one)}
    assert not {one.id for one in part.recommendations if claims(one)} - claimed
    assert (part.summary.recoverable_usd_per_month or 0) <= (whole.summary.recoverable_usd_per_month or 0) + 0.01
    risks = {one.id: one.risk for one in whole.recommendations}
    for one in part.recommendations:
        assert RISKS.index(one.risk) >= RISKS.index(risks.get(one.id, "very-low")), one.text
    working = {gpu for one in whole.workloads if one.kind.label not in {"idle", "unknown"} for gpu in one.gpus}
    assert not (idle_gpus(part) - idle_gpus(whole)) & working


def without(frame: Frame, hidden: tuple[str, ...]) -> Frame:
    """The frame as if these were never measured."""
    match hidden:
        case ("fabric",):
            return replace(frame, fabric=frame.fabric.iloc[:0])
        case ("names",):
            return replace(frame, uses=frame.uses.iloc[:0], workloads=frame.workloads.iloc[:0])
        case ("bins",):
            none = BinsArray.of([None] * len(frame.gpu))
            return replace(
                frame, gpu=frame.gpu.assign(**{one: none for one in map(str, frame.gpu) if one.endswith("_bins")})
            )
    columns = [f"{name}_{part}" for name in hidden for part in ("mean", "p95", "max")]
    return replace(frame, gpu=frame.gpu.assign(**{one: np.nan for one in columns if one in frame.gpu}))
