"""Histograms of latency in fixed bins: what two pages counted, added up, and percentiles of it."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.statistics.latency_bins import (
    LATENCY_EDGES,
    added,
    bucket_shares,
    decode,
    encode,
    percentile,
    spread,
    step_counts,
)

VLLM = {0.05: 10.0, 0.1: 90.0, 0.25: 100.0, 2.5: 100.0, inf: 100.0}


def test_counts_at_an_edge_of_ours_are_kept_add_up_and_percentiles_lie_within_their_bucket() -> None:
    counts, above = spread(VLLM) or (), spread({2.0: 1.0, inf: 10.0}) or (0.0,)
    assert sum(counts[: LATENCY_EDGES.index(0.1) + 1]) == pytest.approx(90.0)
    # Half of the bucket from 50 to 100 ms; what lies above every edge is told as the last of ours.
    found = [percentile(counts, 0.9), percentile(counts, 0.5), percentile(counts, 0.99), percentile(above, 0.9)]
    assert found == pytest.approx([0.1, 0.075, 0.235, LATENCY_EDGES[-1]])
    assert above[-1] == 9.0
    assert sum(added([counts, counts]) or ()) == pytest.approx(200.0) and added([]) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, VLLM),  # the first page alone
        (VLLM, VLLM),  # nothing was counted
        (VLLM, {0.05: 1.0, 0.1: 2.0, 2.5: 2.0, inf: 2.0}),  # it was started again
        (VLLM, {0.05: 50.0, 0.1: 95.0, 2.5: 120.0, inf: 120.0}),  # fewer up to 100 ms than up to 50 ms came on top
        ({inf: 5.0}, {inf: 9.0}),  # the whole alone
        ({2.5: 5.0}, {2.5: 9.0}),  # no whole
        ({0.1: 5.0, inf: 5.0}, {0.1: 9.0, inf: 10.0}),  # nothing is told of what took longer than 100 ms
        ({2.5: 0.0, inf: 0.0}, {2.5: 1e300, inf: 1e300}),  # no count
        ({2.5: 0.0, inf: 0.0}, {2.5: nan, inf: nan}),
    ],
)
def test_a_step_that_cannot_be_told_is_none(before: dict[float, float], now: dict[float, float]) -> None:
    assert step_counts(before, now) is None


def test_many_histograms_at_once_are_spread_as_one() -> None:
    edges = sorted(VLLM)
    per_bucket = [VLLM[edge] - before for edge, before in zip(edges, [0.0, *(VLLM[e] for e in edges)], strict=False)]
    shares = bucket_shares(edges)
    summed = [sum(n * share[i] for n, share in zip(per_bucket, shares, strict=True)) for i in range(len(shares[0]))]
    assert summed == pytest.approx(spread(VLLM))


@given(st.lists(st.integers(0, 10**6), min_size=len(LATENCY_EDGES) + 1, max_size=len(LATENCY_EDGES) + 1))
def test_what_is_kept_comes_back(counts: list[int]) -> None:
    back = decode(encode(counts))
    assert back == (tuple(map(float, counts)) if any(counts) else None)


@pytest.mark.parametrize("text", ["", "1,two", "nan", "-1,2", "inf", ",".join(["1"] * 40), "1" * 5000, None, 7, b"1,2"])
def test_a_text_that_is_none_of_ours_is_none(text: object) -> None:
    assert decode(text) is None
