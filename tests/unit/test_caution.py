"""Caution grows with ignorance: whatever is removed from a fleet, nothing more is claimed of the rest."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skuwise.advisor.frame import Frame
from skuwise.advisor.model import Advice
from skuwise.tests.caution import advice_of, removal, violations
from skuwise.tests.frames import DECODE, FREE, HELD, TRAINING, FrameBuilder

PLACE = {"provider": "azure", "region": "eastus", "node_sku": "azure/Standard_ND96isr_H100_v5"}


def fleet() -> FrameBuilder:
    """Two nodes of a service on a silent fabric, one that trains over its own, one that nobody uses, one that is held
    by what never works, and one half of which works for nobody that a label names."""
    b = FrameBuilder(hours=40)
    decode = dict(DECODE) | {"tensor_active": 0.04, "dram_active": 0.3, "gpu_util": 0.5, "mem_used_bytes": 60e9}
    loads = {"serve-1": decode, "serve-2": decode, "train": TRAINING, "spare": FREE, "held": HELD, "odd": FREE}
    for n, (name, load) in enumerate(loads.items()):
        uuids = b.node(name, gpus=8)
        b.nodes[-1] |= PLACE
        for k, uuid in enumerate(uuids):
            b.use(DECODE if name == "odd" and k < 4 else load, name, uuid, wave="dram_active" if n < 2 else "")
        for port in range(2):
            b.port(0.3 if name == "train" else 0.0003, name, f"mlx5_{port}")
        b.host_rows += [
            {"node": name, "ts": row["ts"], "interval_seconds": row["interval_seconds"], "observed_seconds": 3600.0,
             "cpu_util_mean": 0.1, "io_wait_mean": 0.0, "disk_write_bytes_per_second_mean": 1e5}
            for row in b.gpu_rows if row["gpu_uuid"] == uuids[0]
        ]  # fmt: skip
    for name, kind in (("serve-1", "vllm serve"), ("serve-2", "vllm serve"), ("train", "torchrun train.py"),
                       ("held", "sleep")):  # fmt: skip
        own = [(name, f"GPU-{name}-{k}") for k in range(8)]
        b.work(f"w-{name}", own, name=name.split("-")[0], series=name.split("-")[0], command=kind)
    return b


@cache
def whole() -> tuple[Frame, Advice]:
    frame = fleet().frame()
    return frame, advice_of(frame)


def test_the_whole_fleet_has_claims_that_can_be_lost() -> None:
    _, advice = whole()
    claimed = {(r.action, r.realisation) for r in advice.recommendations if r.counts}
    assert {("release", "cash-now"), ("move-sku", "cash-now")} <= claimed
    assert (advice.summary.recoverable_usd_per_month or 0.0) > 1000


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
@example(0)
def test_what_is_removed_from_a_fleet_claims_nothing_new(seed: int) -> None:
    frame, advice = whole()
    one = removal(frame, np.random.default_rng(seed))
    assert violations(advice, advice_of(one.frame)) == [], one.name


@pytest.mark.slow
@settings(max_examples=600)
@given(st.integers(0, 2**32 - 1))
def test_what_is_removed_from_a_fleet_claims_nothing_new_in_many_cases(seed: int) -> None:
    frame, advice = whole()
    one = removal(frame, np.random.default_rng(seed))
    assert violations(advice, advice_of(one.frame)) == [], one.name
