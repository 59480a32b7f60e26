"""Rates from counters: what is a rate, what is a gap, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.sources.counters import CounterRates, NoRate


def test_the_first_value_gives_no_rate():
    assert CounterRates(10.0).rate("a", 5.0, 100.0) == NoRate("first-reading")


def test_a_rate_is_the_delta_over_the_measured_time():
    rates = CounterRates(10.0)
    rates.rate("a", 1000.0, 100.0)
    assert rates.rate("a", 1600.0, 100.5) == pytest.approx(1200.0)
    assert rates.rate("a", 1600.0, 102.5) == 0.0


def test_a_counter_that_goes_back_is_a_gap_and_the_next_delta_counts_from_there():
    rates = CounterRates(10.0)
    rates.rate("a", 1000.0, 0.0)
    assert rates.rate("a", 10.0, 1.0) == NoRate("counter-reset")
    assert rates.rate("a", 30.0, 2.0) == pytest.approx(20.0)


def test_a_long_silence_is_a_gap_and_its_limit_still_is_not():
    rates = CounterRates(10.0)
    rates.rate("a", 0.0, 0.0)
    assert rates.rate("a", 100.0, 10.0) == pytest.approx(10.0)
    assert rates.rate("a", 200.0, 20.001) == NoRate("long-gap")
    assert rates.rate("a", 300.0, 21.001) == pytest.approx(100.0)


def test_counters_do_not_touch_one_another_and_can_be_forgotten():
    rates = CounterRates(10.0)
    rates.rate(("GPU-1", "tx"), 0.0, 0.0)
    rates.rate(("GPU-2", "tx"), 0.0, 0.0)
    rates.forget(("GPU-1", "tx"))
    rates.forget("never seen")
    assert rates.rate(("GPU-1", "tx"), 50.0, 1.0) == NoRate("first-reading")
    assert rates.rate(("GPU-2", "tx"), 50.0, 1.0) == pytest.approx(50.0)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.floats(0.001, 9.0)), min_size=2, max_size=30))
def test_rates_times_their_intervals_give_back_what_was_counted(steps):
    rates, now, counted = CounterRates(10.0), 0.0, 0.0
    value = 0
    rates.rate("a", 0.0, 0.0)
    for step, seconds in steps:
        value, before, now = value + step, now, now + seconds
        rate = rates.rate("a", float(value), now)
        assert isinstance(rate, float)
        assert rate >= 0
        counted += rate * (now - before)
    assert counted == pytest.approx(value, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.001, 9.0)), min_size=1, max_size=30), st.floats(1e6, 1e11))
def test_a_counter_of_32_bits_gives_the_true_rate_or_none(steps, most_per_second):
    rates, now, counted = CounterRates(10.0), 0.0, 0
    rates.rate("a", 0.0, 0.0)
    for share, seconds in steps:
        delta, before, now = int(share * most_per_second * seconds), now, now + seconds
        counted += delta
        rate = rates.rate("a", float(counted % 2**32), now, 0.999 * 2**32 / most_per_second)
        if isinstance(rate, NoRate):
            assert rate.reason in ("counter-wrap", "counter-reset")
        else:
            assert rate * (now - before) == pytest.approx(delta, rel=1e-6, abs=1e-6)
