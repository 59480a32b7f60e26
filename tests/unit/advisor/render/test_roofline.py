# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Rooflines: the place from measured shares, the roofs from the catalog, and why something is not drawn."""

from dataclasses import replace

import pytest
from skuwise.advisor.core.verdict_types import Coverage
from skuwise.advisor.views.roofline import Roofline, roof_of, roofline
from skuwise.tests.support.moves_builders import catalog, workload

H100, H200, L40S, L4, T4 = (catalog().gpus[name] for name in ("H100-SXM5", "H200-SXM", "L40S", "L4", "T4"))
DECODE = {"tensor_per_engine": 0.05, "hbm_per_engine": 0.7, "tensor_utilization": 0.04, "hbm_utilization": 0.56}


def drawn(features=DECODE, sku=H100, targets=(), **changes) -> Roofline:
    return roofline(workload("chat", features=features, **changes), sku, targets)


def test_the_place_is_the_shares_of_the_printed_peaks_while_the_engine_was_active() -> None:
    found = drawn()
    assert found.place.busy and found.place.flop_per_second == pytest.approx(0.05 * H100.dense_flops["bf16"])
    assert found.place.bytes_per_second == pytest.approx(0.7 * H100.mem_bandwidth_bytes_per_second)
    assert found.place.intensity_flop_per_byte == pytest.approx(
        found.place.flop_per_second / found.place.bytes_per_second
    )
    # Left of the ridge the sustained roof is the memory's, so the place stands at m / eta of it.
    assert found.use_of_sustained == pytest.approx(0.7 / H100.achieved.mem) and found.missing == ()


def test_compute_bound_work_is_held_against_the_compute_roof() -> None:
    found = drawn({"tensor_per_engine": 0.6, "hbm_per_engine": 0.3})
    assert found.use_of_sustained == pytest.approx(0.6 / H100.achieved.bf16_gemm)
    assert "of the compute roof" in " ".join(found.sentences())


def test_a_target_moves_the_roof_by_its_sustained_bandwidth_left_of_the_ridge() -> None:
    found = drawn(targets=[H200, H100])
    assert [roof.sku for roof in found.targets] == ["H200-SXM"]  # its own SKU is no target
    expected = (H200.mem_bandwidth_bytes_per_second * H200.achieved.mem) / (
        H100.mem_bandwidth_bytes_per_second * H100.achieved.mem
    )
    assert found.bound_on(found.targets[0]) == pytest.approx(expected)


def test_what_nobody_measured_has_no_sustained_roof_and_says_so() -> None:
    roof = roof_of(replace(L4, achieved=replace(L4.achieved, bf16_gemm=None)))
    assert roof.sustained_flop_per_second is None and roof.sustained_at(100.0) is None
    found = drawn(targets=[replace(L4, achieved=replace(L4.achieved, bf16_gemm=None))])
    assert found.bound_on(found.targets[0]) is None
    assert any("No published matrix rate that L4 sustains" in sentence for sentence in found.missing)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"hbm_per_engine": 0.5}, "Tensor activity is unknown: not on this GPU."),
        ({"tensor_per_engine": 0.5}, "DRAM activity is unknown"),
        ({"tensor_per_engine": 0.0, "hbm_per_engine": 0.5}, "Tensor activity is zero"),
        ({"tensor_per_engine": float("nan"), "hbm_per_engine": float("inf")}, "Tensor activity is unknown"),
        ({"tensor_per_engine": 0.5, "hbm_utilization": 0.5}, "unknown over the same time"),
        ({}, "Tensor activity is unknown"),
    ],
)
def test_without_a_place_the_reason_is_told(features, said) -> None:
    coverage = Coverage(1.0, 30.0, {"tensor_active": "not on this GPU."})
    found = drawn(features, coverage=coverage)
    assert found.place is None and any(said in sentence for sentence in found.missing)
    assert said.split(":")[0] in " ".join(found.sentences())


def test_no_roof_for_unknown_skus_and_for_instances() -> None:
    assert "not one SKU" in drawn(sku=None).missing[0]
    sliced = drawn(gpus=("MIG-1234",))
    assert sliced.source is None and "MIG instances" in sliced.missing[0]
    no_tensor = replace(H100, dense_flops={"fp32": 1e13})
    assert "no 16-bit tensor rate" in drawn(sku=no_tensor).missing[0]


def test_vector_work_that_is_not_counted_is_said() -> None:
    assert drawn().limits == ()
    assert any("vector pipes" in sentence for sentence in drawn({**DECODE, "vector_utilization": 0.4}).limits)
