"""Caution grows with ignorance: whatever is removed from a fleet, nothing more is claimed of the rest."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.tests.support.removals import advice_of, made_by_hand, removal, violations
from skuwise.tests.support.seeds import examples


@cache
def whole() -> tuple[Frame, Advice]:
    frame = made_by_hand()
    return frame, advice_of(frame)


def test_the_whole_fleet_has_claims_that_can_be_lost() -> None:
    _, advice = whole()
    claimed = {(r.action, r.realisation) for r in advice.recommendations if r.counts}
    assert {("release", "cash-now"), ("move-sku", "cash-now")} <= claimed
    assert (advice.summary.recoverable_usd_per_month or 0.0) > 1000


@settings(max_examples=examples(15))
@given(st.integers(0, 2**32 - 1))
@example(0)
@example(97802259)  # memory without its size, of a GPU that is held by what no label names
@example(6069)  # the region of some nodes of a service whose latency nobody measures
def test_what_is_removed_from_a_fleet_claims_nothing_new(seed: int) -> None:
    frame, advice = whole()
    one = removal(frame, np.random.default_rng(seed))
    assert violations(advice, advice_of(one.frame)) == [], one.name


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.integers(0, 2**32 - 1))
def test_what_is_removed_from_a_fleet_claims_nothing_new_in_many_cases(seed: int) -> None:
    frame, advice = whole()
    one = removal(frame, np.random.default_rng(seed))
    assert violations(advice, advice_of(one.frame)) == [], one.name
