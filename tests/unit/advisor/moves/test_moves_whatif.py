# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false, reportOperatorIssue=false
"""What if: a chosen node, count, slice, clock and price, held against the ways out, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.advice_types import Recommendation
from skuwise.advisor.moves.base.workload_groups import groups_of
from skuwise.advisor.moves.context.move_context import baseline_for
from skuwise.advisor.moves.predict.clock_model import PowerAtWork
from skuwise.advisor.moves.whatif import survey, what_if
from skuwise.advisor.moves.whatif_result import WhatIfChoice, WhatIfResult
from skuwise.advisor.pipeline import move_context_of
from skuwise.advisor.views.whatif_session import workbench
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, fleet
from skuwise.tests.support.moves_builders import (
    END,
    PLAIN,
    advice_of,
    catalog,
    founding,
    gpus_of,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.rulebooks import rulebook

H200 = "azure/Standard_ND96isr_H200_v5"
DRAWN = PowerAtWork(watts=400.0, peak_watts=420.0, idle_watts=90.0, hours_per_month=5000.0)


def asked(given: Verdicts, choice: WhatIfChoice, prices=(), drawn: PowerAtWork | None = None) -> WhatIfResult:
    """The answer for the largest group of these verdicts."""
    scene = move_context_of(given.window, rulebook(catalog(), prices=prices), END, np.random.default_rng(1))
    scene, base = baseline_for(scene, groups_of(given)[0])
    return what_if(scene, base, choice, drawn)


def service(gpus: int = 8, **use) -> Verdicts:
    """Replicas of one GPU each on one node, which do not talk to one another."""
    names = gpus_of("n1", gpus)
    features = {"mem_flat": 0.0, "mem_max": 0.05, "cpu": 0.1}
    many = [workload("chat", gpus=(g,), id=f"w-{n}", features=features) for n, g in enumerate(names)]
    return verdicts([node()], many, uses=[usage(w, **{"memory": 0.05, **use}) for w in many])


def test_the_node_of_a_way_out_comes_to_what_the_way_out_says() -> None:
    (way,) = [r for r in advice_of(founding()).recommendations if r.target.node_sku == PLAIN]
    told = asked(founding(), WhatIfChoice(PLAIN))
    assert told.saving_usd_per_month == way.saving_usd_per_month
    assert (told.realisation, told.time_ratio, told.risk) == (way.realisation, way.time_ratio, way.risk)
    assert told.open
    assert told.is_that(way)
    assert {p.id for p in told.prices} == set(way.prices)
    assert told.today.usd_per_month - told.then.usd_per_month == pytest.approx(way.saving_usd_per_month.p50)


def test_a_price_that_was_typed_is_taken_and_told_as_such() -> None:
    told = asked(founding(), WhatIfChoice(PLAIN, usd_per_hour=50.0))
    assert told.saving_usd_per_month.p50 == pytest.approx(2 * (98.32 - 50.0) * 730)
    assert [(p.usd_per_hour, p.basis, p.source) for p in told.prices if p.sku == PLAIN] == [
        (50.0, "chosen", "entered here")
    ]
    same = asked(founding(), WhatIfChoice(usd_per_hour=90.0))
    assert same.saving_usd_per_month.p50 == pytest.approx(2 * (98.32 - 90.0) * 730)


def test_where_no_price_is_known_it_is_asked_for_and_nothing_is_claimed() -> None:
    told = asked(founding(), WhatIfChoice(H200))
    assert any("no price for azure/Standard_ND96isr_H200_v5 in eastus" in m.text for m in told.missing)
    assert told.saving_usd_per_month is None
    assert told.then.usd_per_month is None
    assert told.time_ratio.p50 < 1
    given = founding()
    nowhere = replace(given, nodes=tuple(replace(n, node_sku=None, region=None, provider=None) for n in given.nodes))
    told = asked(nowhere, WhatIfChoice(PLAIN))
    assert told.saving_usd_per_month is None
    assert any(m.code == "todays-price-unknown" for m in told.missing)


def test_fewer_gpus_are_held_against_the_demand_and_the_least() -> None:
    few = service(u_m=0.2)
    by_demand = asked(few, WhatIfChoice())
    assert (by_demand.then.gpus, by_demand.then.nodes) == (3, 1)
    assert by_demand.freed_gpu_hours_per_month == pytest.approx(5 * 730)
    assert by_demand.saving_usd_per_month is None  # no whole node falls free
    assert asked(few, WhatIfChoice(gpus=4)).blocked_by == ()
    assert any(b.code == "overloaded" for b in asked(few, WhatIfChoice(gpus=2)).blocked_by)
    assert any(b.code == "below-least-gpus" for b in asked(few, WhatIfChoice(gpus=1)).blocked_by)


def test_training_on_another_count_changes_its_time_and_its_cost() -> None:
    job = workload("train", kind="training")
    given = verdicts([node()], [job], uses=[usage(job, u_c=0.7, u_m=0.3, u_n=0.2, label="compute")])
    more = asked(given, WhatIfChoice(gpus=16))
    assert more.time_ratio.p50 < 1
    assert more.then.nodes == 2
    assert more.then.usd_per_month == pytest.approx(2 * 98.32 * 730 * more.time_ratio.p50)
    # Parallelism that changes is a guess: it may as well be slower, and the risk says so.
    assert more.risk == "medium"
    assert more.time_ratio.p90 > 1


def test_a_slice_for_each_gpu_and_why_there_is_none() -> None:
    light = service(u_c=0.02, u_m=0.05, g=0.3)
    told = asked(light, WhatIfChoice(profile="1g.10gb"))
    assert (told.then.gpus, told.blocked_by, told.missing) == (2, (), ())
    assert told.time_ratio.p50 > 1
    assert any("these have 8" in m.text for m in asked(founding(), WhatIfChoice(profile="3g.40gb")).missing)
    assert any("has no instance 9g.1gb" in m.text for m in asked(light, WhatIfChoice(profile="9g.1gb")).missing)
    assert any(m.code == "slice-of-another-gpu" for m in asked(light, WhatIfChoice(H200, profile="1g.10gb")).missing)


def test_a_lower_clock_tells_time_power_and_energy_and_no_dollars_where_power_is_in_the_price() -> None:
    told = asked(founding(), WhatIfChoice(clock_share=0.7), drawn=DRAWN)
    assert told.time_ratio.p50 > 1
    assert DRAWN.idle_watts < told.then.watts < told.today.watts
    assert told.energy_kwh_per_month > 0
    assert any("no dollar value" in note.text for note in told.notes)
    assert told.saving_usd_per_month is None
    assert any("clocks below" in m.text for m in asked(founding(), WhatIfChoice(clock_share=0.3), drawn=DRAWN).missing)
    assert any(m.code == "power-not-measured" for m in asked(founding(), WhatIfChoice(clock_share=0.9)).missing)
    assert any(m.code == "clock-of-another-gpu" for m in asked(founding(), WhatIfChoice(H200, clock_share=0.9)).missing)


def test_a_survey_begins_with_what_is_open_and_saves_most() -> None:
    given = founding()
    scene = move_context_of(given.window, rulebook(catalog()), END, np.random.default_rng(1))
    scene, base = baseline_for(scene, groups_of(given)[0])
    found = survey(scene, base, catalog().nodes.values())
    assert len(found) == len(catalog().nodes)
    opened = [o for o in found if o.open and o.saving_usd_per_month is not None]
    assert [o.saving_usd_per_month.p50 for o in opened] == sorted(
        (o.saving_usd_per_month.p50 for o in opened), reverse=True
    )
    assert [o.open for o in found] == sorted((o.open for o in found), reverse=True)
    assert all(o == what_if(scene, base, o.choice) for o in found[::20])


def ways() -> list[Recommendation]:
    return [r for r in fleet().advice.recommendations if r.workload == "w-serve"]


def test_a_bench_judges_only_the_nodes_of_its_series_and_agrees_with_the_advice() -> None:
    bench = HandLoader().bench(fleet(), "w-serve", lambda _: None)
    assert [n.node for n in bench.base.group.nodes] == ["n1"]
    move = next(r for r in ways() if r.action == "move-sku" and r.target.node_sku)
    told = bench.ask(WhatIfChoice(move.target.node_sku))
    assert told.is_that(move)
    assert told.saving_usd_per_month.p50 == pytest.approx(move.saving_usd_per_month.p50)
    assert bench.profiles[0] == "1g.10gb"
    mine = [o.choice.node.partition("/")[0] for o in bench.targets]
    assert mine == sorted(mine, key=lambda provider: provider != "azure")
    assert workbench(fleet().frame, fleet().advice.workloads, "nobody", HandLoader().rulebook(), NOW) is None
