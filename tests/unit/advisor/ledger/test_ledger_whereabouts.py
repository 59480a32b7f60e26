# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOptionalSubscript=false, reportOperatorIssue=false, reportAttributeAccessIssue=false
"""Where each kind of move stands by the telemetry, and what it brought."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Configuration, SavingsBaseline
from skuwise.advisor.ledger.entries import LedgerEntry, LedgerEvent
from skuwise.advisor.ledger.realised_savings import realised
from skuwise.advisor.ledger.records import EventFigures
from skuwise.advisor.ledger.transitions import ledger_events
from skuwise.advisor.recommend.progress import Measure, MoveState, Observation, PredictionSnapshot
from skuwise.advisor.recommend.recommendation_kinds import KINDS
from skuwise.tests.support.ledger_builders import DAY, L40S, RATIO, ground, moved_run, proposal, seen
from skuwise.tests.support.moves_builders import END, IB, PLAIN, START, workload


def state_of(action: str, own: PredictionSnapshot, now: Observation) -> MoveState | None:
    return KINDS[action].state(own, now, False)


# ---- where other actions stand


def test_fewer_gpus_are_seen_by_their_count_and_measured_by_the_nodes_that_are_gone() -> None:
    fell, month = START + 4 * DAY, pytest.approx(98.32 * 730)
    runs = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-2", end=fell)]
    own, now = ground(), seen(runs, (("n1", END), ("n2", fell)))
    stand = state_of("reduce-gpus", own, now)
    assert (stand.place, stand.since, stand.hours) == ("target", fell, pytest.approx((END - fell) / 3600))
    told = realised("reduce-gpus", own, stand, now)
    assert (told.saving_usd_per_month, told.usd_per_month_after) == (month, month)
    back = state_of("reduce-gpus", own, seen([*runs, workload("chat", ("n3",), id="w-3", start=END - 2 * DAY)]))
    assert (back.place, back.since) == ("source", END - 2 * DAY)
    assert state_of("reduce-gpus", own, seen([workload("chat", ("p1",), node_sku=PLAIN)])) is None


def test_a_job_is_measured_over_a_week_by_the_time_it_held_its_nodes() -> None:
    nights = [
        workload("train", ("n1",), kind="training", id=f"w-{n}", series_id="s-chat", node_sku=PLAIN,
                 start=START + n * DAY, end=START + n * DAY + 6 * 3600)
        for n in range(4, 15)
    ]  # fmt: skip
    # The price of the proposal, not today's.
    own = ground(serving=False, target=Configuration("H100-SXM5", PLAIN, 8), usd_per_hour={IB: 90.0},
                 yardstick=SavingsBaseline(98.32 * 730 / 4))  # fmt: skip
    now = seen(nights, (("n1", END),))
    told = realised("move-sku", own, MoveState("target", START + 4 * DAY, 60.0, ""), now)
    assert told.usd_per_month_after == pytest.approx(90.0 * 730 / 4, rel=0.02)
    short = realised("move-sku", own, MoveState("target", END - 5 * DAY, 30.0, ""), now)
    assert short.saving_missing == "a job needs at least a week of data"


FREED = {
    "series_id": None, "target": Configuration(None, None, 0), "source": Configuration("H100-SXM5", IB, 8),
    "yardstick": SavingsBaseline(98.32 * 730, nodes=("n1",)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("last_seen", "runs", "place", "left"),
    [
        (END - 4 * DAY, (), "target", 0.0),  # gone for good
        (END - 2 * DAY, (), "source", None),  # silent, and perhaps back tomorrow
        (END, (), "source", 98.32 * 730),
        (END, ("batch",), "target", 98.32 * 730),  # put to use: no cash came back
    ],
)
def test_a_node_is_given_back_when_it_is_gone_or_put_to_use(last_seen, runs, place, left) -> None:
    own, now = ground(**FREED), seen([workload(n, ("n1",), start=END - 5 * DAY) for n in runs], (("n1", last_seen),))
    stand = state_of("release", own, now)
    told = realised("release", own, stand, now)
    assert (stand.place, told.usd_per_month_after) == (place, None if left is None else pytest.approx(left))
    assert ("stopped reporting recently" in (told.saving_missing or "")) is (left is None)


NODES = [(f"m{n}", END) for n in range(9)]


@pytest.mark.parametrize(
    ("proposed_in", "fleet", "nodes", "source", "acts"),
    [
        ("fleet.db", 0, (), "fleet.db", ["done"]),
        ("fleet.db", 0, (), "other.db", []),  # what another source does not show is not gone
        ("fleet.db, n1.db", 0, (), "fleet.db", []),
        ("fleet.db, n1.db", 0, (), "n1.db, fleet.db", ["done"]),
        ("fleet.db", 10, NODES[:3], "fleet.db, more.db", []),  # nor what a part of the same fleet does not show
        ("fleet.db", 10, NODES, "fleet.db, more.db", ["done"]),
    ],
)
def test_what_a_source_does_not_show_is_gone_only_where_it_shows_the_fleet(proposed_in, fleet, nodes, source, acts):
    made = proposal(action="release", about="n1", ground=ground(**FREED, fleet=fleet), source=proposed_in)
    entry = LedgerEntry(made, START, START, (LedgerEvent("accepted", START, "ann"),))
    assert [e.act for _, e in ledger_events([entry], seen([], nodes, source=source), END)] == acts


def test_a_pool_is_packed_when_as_many_nodes_are_empty_as_were_to_be() -> None:
    h100 = Configuration("H100-SXM5", IB, 24)
    yardstick = SavingsBaseline(3 * 98.32 * 730, nodes=("n1", "n2", "n3"))
    pool = ground(series_id=None, source=h100, target=replace(h100, gpu_count=16), yardstick=yardstick)
    nodes = (("n1", END), ("n2", END), ("n3", END))
    runs = [workload(f"app{n}", (f"n{n}",), end=END if n < 3 else END - 2 * DAY) for n in (1, 2, 3)]
    stand = state_of("consolidate", pool, seen(runs, nodes))
    assert (stand.place, stand.since) == ("target", END - 2 * DAY)
    told = realised("consolidate", pool, stand, seen(runs, nodes))
    assert (told.saving_usd_per_month, told.confounders) == (
        pytest.approx(0.0), ("1 of n1, n2 and n3 is still present.",),
    )  # fmt: skip
    gone = (*nodes[:2], ("n3", END - 4 * DAY))
    assert realised("consolidate", pool, stand, seen(runs[:2], gone)).saving_usd_per_month == pytest.approx(98.32 * 730)
    busy = [replace(run, end=END) for run in runs]
    assert state_of("consolidate", pool, seen(busy, nodes)).place == "source"


CLOCKED = SavingsBaseline(500.0, clock_share=0.8, usd_per_kwh=0.1)
RESTED = SavingsBaseline(500.0, usd_per_kwh=0.1, rest_watts=72.0)


@pytest.mark.parametrize(
    ("action", "other", "yardstick", "before", "after", "saves", "undone"),
    [
        # Seen by the clock and measured by the power: 100 W less at $0.10 a kWh.
        ("lower-clock", "power-cap", CLOCKED, {"clock_ratio": 0.95, "watts": 600.0},
         {"clock_ratio": 0.76, "power_watts": 500.0}, 0.1 * 16 * 730 * 0.1, {"clock_ratio": 0.94}),
        ("rest-clocks", "rest-clocks", RESTED, {"rest_watts": 120.0}, {"rest_watts": 74.0}, 500.0 * (1 - 74 / 120),
         {"rest_watts": 119.0}),
    ],
)  # fmt: skip
def test_changed_clocks_are_seen_and_measured_by_the_power(
    action, other, yardstick, before, after, saves, undone
) -> None:
    own = ground(yardstick=yardstick, before=Measure(16.0, 16 * 730.0, **before))
    run = workload("chat", ("n1", "n2"), features=after)
    stand = state_of(action, own, seen([run]))
    told = realised(action, own, replace(stand, since=START), seen([run]))
    assert (stand.place, told.saving_usd_per_month) == ("target", pytest.approx(saves))
    assert state_of(other, own, seen([replace(run, features=undone)])).place == "source"
    assert state_of(action, own, seen([replace(run, features={})])) is None
    unknown = replace(own, before=replace(own.before, rest_watts=None))
    assert (state_of(action, unknown, seen([run])) is None) is (action == "rest-clocks")


# ---- time and load


BEFORE = Measure(8.0, 5840.0, busy=0.5, busy_seconds_per_token=0.002, tokens_per_second=2000.0, period_seconds=4.0)
BUSIER = "Load is x1.50 of the load before, so the change in time and cost is not due to this change alone."


@pytest.mark.parametrize(
    ("serving", "features", "ratio", "load", "said"),
    [
        (True, {"engine_active": 0.6, "generated_tokens": 2000.0 * 4 * DAY}, 0.6 * 8 / 2000 / 0.002, 1.0, ()),
        (True, {"engine_active": 0.6, "generated_tokens": 3000.0 * 4 * DAY}, 0.6 * 8 / 3000 / 0.002, 1.5, (BUSIER,)),
        (False, {"period_seconds": 5.0, "period_share": 0.9}, 1.25, None, ()),
        (False, {"period_seconds": 5.0, "period_share": 0.2}, None, None, ()),
    ],
)
def test_time_is_measured_by_the_tokens_of_a_service_and_the_steps_of_a_job(serving, features, ratio, load, said):
    own = ground(serving=serving, target=L40S, time_ratio=RATIO, before=BEFORE, yardstick=SavingsBaseline())
    told = realised("move-sku", own, MoveState("target", END - 4 * DAY, 96.0, ""), seen([moved_run(**features)]))
    assert (told.time_ratio, told.load_ratio) == (ratio and pytest.approx(ratio), load and pytest.approx(load))
    assert told.confounders == said
    assert told.time_missing == (None if ratio else "no steps detected in its load")


def test_a_move_that_is_far_slower_than_predicted_regresses() -> None:
    own = ground(target=L40S, time_ratio=RATIO, before=BEFORE, yardstick=SavingsBaseline(), saving_usd_per_month=None)
    accepted = LedgerEvent("accepted", START, "ann")
    entry = LedgerEntry(proposal(saving_usd_per_month=None, ground=own), START, START, (accepted,))

    def after(g: float, entry: LedgerEntry) -> list[LedgerEvent]:
        run = moved_run(engine_active=g, generated_tokens=2000.0 * 4 * DAY)
        return [e for _, e in ledger_events([entry], seen([run]), END)]

    (done,) = after(0.5, entry)
    assert done.act == "done"
    since = replace(done, figures=EventFigures(replace(done.figures.realised, until=END - DAY)))
    entry = replace(entry, events=(*entry.events, since))
    (slow,) = after(0.8, entry)  # x1.60, and 1.25 was the 90th percentile
    assert (slow.act, slow.why[:30]) == ("regressed", "Time for the same work: x1.60,")
    assert after(0.65, entry) == []  # x1.30: past it by less than a tenth
