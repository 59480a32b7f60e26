# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""What energy comes to: by the hour of the day, with PUE, and nothing where the site said nothing."""

from dataclasses import replace

import pytest
from skuwise.rules.catalog.site_energy import SiteEnergy, SiteFigure
from skuwise.rules.catalog.types import PowerPrice
from skuwise.tests.support.moves_builders import advice_of, drawing, founding, node, verdicts, workload

NIGHT = tuple(0.05 if hour < 6 else 0.20 for hour in range(24))
SITE = SiteEnergy(
    SiteFigure(NIGHT, "bill", "2026-11-01"), SiteFigure((1.5,), "meter", "2026-10-01"),
    SiteFigure((400.0,), "grid", "2026-11-01"),
)  # fmt: skip
# 16 GPUs at 300 W for 14 days.
KWH = 16 * 0.3 * 14 * 24


def test_dollars_and_carbon_follow_the_hours_of_the_day_and_the_pue():
    advice = advice_of(founding(), energy=SITE)
    e = advice.summary.energy
    assert e.usd == pytest.approx(KWH * 1.5 * (6 * 0.05 + 18 * 0.20) / 24)
    assert e.co2_kg == pytest.approx(KWH * 1.5 * 0.4)
    assert [(f.name, f.value, len(f.by_hour_utc)) for f in e.figures] == [
        ("usd_per_kwh", None, 24), ("pue", 1.5, 0), ("co2_grams_per_kwh", 400.0, 0),
    ]  # fmt: skip
    # They are in no other dollar: the nodes' cost is what it was.
    assert advice.summary.cost_usd == advice_of(founding()).summary.cost_usd
    assert sum(w.energy.usd or 0 for w in advice.workloads) == pytest.approx(e.usd)
    assert sum(n.usd or 0 for n in advice.node_energy) == pytest.approx(e.usd)


def test_the_price_files_power_of_the_nodes_region_stands_in():
    power = [PowerPrice("eastus", 0.08, "bill", "2026-11-01"), PowerPrice("westeurope", 0.3, "bill", "2026-11-01")]
    given = drawing(verdicts([node("n1", region="eastus"), node("n2", region="westeurope"), node("n3", region="mars")],
                             [workload("chat", ("n1",))]))  # fmt: skip
    e = advice_of(given, power=power)
    by_node = {n.node: n.usd for n in e.node_energy}
    each = 8 * 0.3 * 14 * 24
    assert by_node == {"n1": pytest.approx(each * 0.08), "n2": pytest.approx(each * 0.3), "n3": None}
    assert [(f.region, f.value) for f in e.summary.energy.figures] == [("eastus", 0.08), ("westeurope", 0.3)]


def test_what_was_not_measured_is_none_and_counted():
    given = founding()
    blind = replace(given, energy=given.energy.assign(measured_hours=0.0, joules=0.0, counted_joules=0.0), tokens={})
    e = advice_of(blind, energy=SITE).summary.energy
    assert (e.kwh, e.counted_kwh, e.idle_kwh, e.usd, e.co2_kg, e.basis, e.by_use) == (None,) * 7
    assert e.measured_gpu_hours == 0 and e.unmeasured_gpu_hours == pytest.approx(16 * 14 * 24)


def test_tokens_idle_hours_and_phases_of_a_workload():
    (one, _) = advice_of(founding()).workloads
    e = one.energy
    assert e.joules_per_token == pytest.approx(0.5) and e.tokens_per_second_per_watt == pytest.approx(2.0)
    assert e.kwh_per_busy_gpu_hour == pytest.approx(0.3) and e.idle_kwh == 0
    assert [(p.phase, p.cost_usd) for p in e.phases] == [("decode", pytest.approx(one.cost_usd))]
    held = verdicts([node()], [workload("left", ("n1",))], idle_hours={"w-left": 8 * 24.0})
    (one,) = advice_of(drawing(held, 100.0)).workloads
    assert one.energy.idle_kwh == pytest.approx(8 * 24 * 0.1)
    assert {p.phase for p in one.energy.phases} == {"idle", "decode"} and one.energy.joules_per_token is None
