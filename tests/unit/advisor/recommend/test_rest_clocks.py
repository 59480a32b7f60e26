# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false
"""Clocks at rest: what a month saves, what blocks it, and where nothing is said."""

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import RestLevel
from skuwise.advisor.recommend.moves.rest_clocks import RECOVERED
from skuwise.tests.support.frame_builder import DECODE, FREE, HELD, FrameBuilder
from skuwise.tests.support.moves_builders import DAYS, advice_of, gpus_of, node, usage, verdicts, ways, workload
from skuwise.tests.support.rulebooks import rulebook

DRIVER = "580.105.08"
KIND = "rest-clocks"


def resting(w, share=0.75, held=122.0):
    """Use of a service that stands idle in the first `share` of every day."""
    table = usage(w)
    idle = (table["ts"] - 1) % 86400 < share * 86400
    table["bottleneck"] = np.where(idle, "idle", table["bottleneck"])
    table["power_watts"] = np.where(idle, held, table["power_watts"])
    for name in ("u_c", "u_m", "c", "m", "g"):
        table[name] = np.where(idle, 0.0, table[name])
    return table


def levels(name="n1", count=8, held=122.0, free=72.0, held_clock=1.08, free_clock=0.19, sku="H100-SXM5"):
    return tuple(RestLevel(name, gpu, sku, held, free, held_clock, free_clock) for gpu in gpus_of(name, count))


def advice(rest, *, driver=DRIVER, share=0.75, prices=(), power=(), kind="online-inference", nodes=(), **changes):
    w = workload(kind=kind, **changes)
    given = verdicts([node(driver_version=driver), *nodes], [w], uses=[resting(w, share)])
    rules = {"power": power} if power else {}
    return advice_of(replace(given, rest_levels=tuple(rest)), prices, **rules)


def test_the_difference_of_its_own_levels_over_its_rest_is_what_a_month_saves():
    (way,) = ways(advice(levels()), KIND)
    hours = 8 * 730 * 0.75 * (DAYS * 24 - 1) / (DAYS * 24)
    most = 50.0 * hours / 1000
    kwh = way.energy_saving_kwh_per_month
    assert RECOVERED[0] * most * 0.99 <= kwh.p10 <= kwh.p50 <= kwh.p90 <= most * 1.01
    assert (way.blocked_by, way.realisation, way.saving_usd_per_month) == ((), "energy", None)
    assert "CUDA_DISABLE_PERF_BOOST=1" in way.text
    (late,) = [one for one in way.would_change_if if one.code == "first-request-after-rest"]
    assert late.fields == {"extra_seconds_low": 0.15, "extra_seconds_high": 0.22}


@pytest.mark.parametrize(
    ("driver", "seen", "code"),
    [
        (None, {}, "driver-unknown"),
        ("abc", {}, "driver-unknown"),
        ("535", {}, "driver-unknown"),
        ("580.95.05", {}, "driver-too-old"),
        (DRIVER, {"free": None, "free_clock": None}, "rest-level-not-seen"),
        # A level without memory held whose clocks are up is a context all the same.
        (DRIVER, {"free": 118.0, "free_clock": 1.0}, "rest-level-not-seen"),
        (DRIVER, {"held_clock": None}, "rest-clock-not-measured"),
    ],
)
def test_what_is_not_known_and_a_driver_without_the_variable_block_it(driver, seen, code):
    (way,) = ways(advice(levels(**seen), driver=driver), KIND)
    assert [one.code for one in way.blocked_by] == [code]
    assert way.energy_saving_kwh_per_month is None


def test_free_gpus_of_its_kind_stand_for_one_that_was_never_free():
    sister = levels("n2", free=72.0)
    (own,) = ways(advice(levels()), KIND)
    (other,) = ways(advice((*levels(free=None, free_clock=None), *sister), nodes=[node("n2")]), KIND)
    assert "on other nodes" in other.text
    a, b = own.energy_saving_kwh_per_month, other.energy_saving_kwh_per_month
    assert b.p50 == pytest.approx(a.p50, rel=0.03)
    assert b.p90 - b.p10 > a.p90 - a.p10
    alien = levels("n2", sku="L40S")
    (none,) = ways(advice((*levels(free=None, free_clock=None), *alien), nodes=[node("n2")]), KIND)
    assert [one.code for one in none.blocked_by] == ["rest-level-not-seen"]


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        ((), {}),  # power at rest was not measured
        (levels(held=None), {}),
        (levels(count=7), {}),  # of one of its GPUs nothing is known
        (levels(held_clock=0.18, held=73.0), {}),  # its clocks are down already
        (levels(held=72.5), {}),  # nothing to gain
        (levels(), {"share": 0.4}),  # at work most of the time
        (levels(), {"kind": "training"}),
        (levels(), {"shared": True}),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_gain_or_to_tell(rest, changes):
    assert not ways(advice(rest, **changes), KIND)


def test_frames_tell_levels_clocks_and_drivers():
    made = FrameBuilder(hours=60)
    a, b = made.node(gpus=2, driver=DRIVER)
    idle = {"sm_clock_hertz": 0.345e9}
    made.use(DECODE, uuid=a, end=10)
    made.use(HELD, uuid=a, start=10)
    made.use(FREE | idle, uuid=b)
    made.work("w", [("n1", a)], framework="vllm", command="vllm serve x")
    told = judge(made.frame(), rulebook())
    assert told.node("n1").driver_version == DRIVER
    held, free = told.rest_levels
    assert (held.free_watts, held.held_watts) == (None, pytest.approx(110.0, rel=0.01))
    assert (free.held_watts, free.free_watts) == (None, pytest.approx(70.0, rel=0.01))
    assert free.free_clock_ratio < 0.25 < 1 < held.held_clock_ratio
    assert told.workloads[0].features["rest_watts"] == pytest.approx(110.0, rel=0.01)
