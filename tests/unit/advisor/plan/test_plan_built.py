# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportOptionalMemberAccess=false
"""Plans of fleets that are built by hand, and of a fleet or a demand that is not today's."""

import json
import math
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.plan.build import as_today, reserve_of
from skuwise.advisor.plan.problem import (
    FleetChange,
    Layout,
    PlanNode,
    PlanOption,
    PlanRequest,
    PlanSeries,
    PlanUnit,
    Problem,
)
from skuwise.advisor.plan.result import Move, Plan
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.state import MONTH_SECONDS
from skuwise.advisor.plan.steps import sequence
from skuwise.advisor.show.pages.plan import plan_document
from skuwise.advisor.show.writers.text import document_text
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.tests.support.moves_builders import (
    END,
    PLAIN,
    START,
    bare,
    drawing,
    founding,
    node,
    price_of,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.plan_builders import busy, halves, plain_node, plan_of, planner, replica
from skuwise.tests.support.plan_checker import broken_rules, wrong_steps
from skuwise.tests.support.plan_fleets import small_problem
from skuwise.tests.support.schemas import validate

MONTH = 730.0
PLAIN_HOUR = 88.488


def names(plan: Plan) -> list[str]:
    return [node.name for node in plan.returned]


def test_half_empty_nodes_are_packed_and_one_comes_back_for_its_price():
    plan = plan_of(halves())
    assert len(plan.returned) == 1 and plan.returned[0].realisation == "cash-now"
    assert plan.cash[-1].saving_usd_per_month.p50 == pytest.approx(PLAIN_HOUR * MONTH) and plan.touched == 1
    moved = [m for s in plan.steps for m in s.moves]
    assert [(m.start, m.gpus) for m in moved] == [(names(plan)[0], 4)] and plan.solver.proven


def test_an_empty_node_comes_back_unless_it_left_or_pods_asked_for_its_gpus():
    given = verdicts([plain_node(f"n{n}") for n in (1, 2, 3)])
    nodes = dict(given.inventory.nodes)
    nodes["n1"] = replace(nodes["n1"], unaccounted_pods=("ml/worker-0",))
    nodes["n2"] = replace(nodes["n2"], end=END - 7200)
    plan = plan_of(replace(given, inventory=replace(given.inventory, nodes=nodes)))
    assert set(names(plan)) <= {"n3"} < {*names(plan_of(given)), "n3"}


@pytest.mark.parametrize(
    ("basis", "until", "how", "day"),
    [
        ("owned", None, "capacity-freed", None),
        ("reserved", None, "capacity-freed", None),
        ("committed", "2099-01-01", "cash-at", "2099-01-01"),
        ("committed", "2020-01-01", "cash-now", None),
        ("negotiated", None, "cash-now", None),
    ],
)
def test_a_commitment_says_when_a_node_is_cash(basis, until, how, day):
    plan = plan_of(halves(), (price_of(PLAIN, basis=basis, until=until),), goal="nodes")
    assert [(r.realisation, r.available_from) for r in plan.returned] == [(how, day)]
    first, last = plan.cash[0], plan.cash[-1]
    assert last.saving_usd_per_month.p50 == (0.0 if how == "capacity-freed" else 50.0 * MONTH)
    assert (first.date, last.date) == (None, day)
    # Before the date nothing is saved.
    assert how != "cash-at" or first.saving_usd_per_month.p50 == 0.0


def test_commitments_that_never_end_bring_no_cash_and_the_plan_says_so():
    plan = plan_of(halves(), (price_of(PLAIN, basis="owned"),))
    assert plan.returned == () and plan.steps == () and "plan-bound" in {note.code for note in plan.notes}
    ended = plan_of(halves(), (price_of(PLAIN, basis="owned"),), FleetChange(commitments_end=END + 30 * 86400))
    assert [r.realisation for r in ended.returned] == ["cash-at"]


def test_jobs_keep_the_nodes_that_their_peak_needs():
    nodes = [plain_node(f"n{i}") for i in range(1, 4)]
    spans = {1: (START + 86400, START + 3 * 86400), 2: (START + 86400, START + 3 * 86400), 9: (END - 86400, END - 3600)}
    about = {"kind": "training", "series_id": "s-job", "node_sku": PLAIN}
    runs = [workload("job", (f"n{k % 8}",), id=f"w-job-{k}", start=a, end=b, **about) for k, (a, b) in spans.items()]
    given = verdicts(nodes, runs, uses=[usage(w) for w in runs])
    plan = plan_of(given, goal="nodes")
    assert len(plan.returned) == 1  # two at once in the first week, one of three nodes was never used
    pool = plan.pools[0]
    assert (pool.gpus_needed, pool.nodes_after) == (16.0, 2) and pool.carries == pytest.approx(1.0)


def test_the_host_limits_what_a_node_takes():
    """Two services that use half of the host's cores each and more than a node allows together."""
    given = halves()
    hours = START + 3600.0 * np.arange(1, 336)
    about = {"ts": hours, "cpu_util_mean": 0.5, "mem_used_bytes_max": 1e11}
    host = pd.concat([pd.DataFrame({"node": node, **about}) for node in ("n1", "n2")])
    light = host.assign(cpu_util_mean=0.1)
    for used, count in ((host, 0), (light, 1), (light.assign(mem_used_bytes_max=1.2e12), 0)):
        plan = planner(given, host=used).plan(PlanRequest(goal="nodes", reserve_nodes=0))
        assert len(plan.returned) == count


def test_the_founding_case_moves_off_the_fabric():
    plan = plan_of(founding())
    assert len(plan.rented) == len(plan.returned) == 2 and {r.node_sku for r in plan.rented} == {PLAIN}
    assert plan.cash[-1].saving_usd_per_month.p50 == pytest.approx(2 * (98.32 - PLAIN_HOUR) * MONTH)
    step = next(s for s in plan.steps if s.recommendation is not None)
    assert (step.action, step.risk) == ("move-sku", "very-low")
    # For nodes, GPUs and energy no others are rented.
    assert plan_of(founding(), goal="nodes").rented == ()


@pytest.mark.parametrize("solver", [True, False])
def test_plan_and_reserve_and_the_rest_are_what_advise_counts(solver, monkeypatch):
    """An idle node is kept for failures: the plan says which, and that the sums agree."""
    if not solver:
        monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    pair = [workload("chat", ("n1",)), workload("chat", ("n2",), id="w-chat-2")]
    held = replica("a", "n8", range(8), of="search")
    uses = [busy(held), *(usage(w, u_n=0.2) for w in pair)]
    nodes = [node("n1"), node("n2"), plain_node("n8"), plain_node("n9")]
    idle = [bare("n9", i) for i in range(8)]
    given = drawing(verdicts(nodes, [*pair, held], uses=uses, bare_gpus=idle), tokens_a_joule=2.0)
    plan = plan_of(given, reserve_nodes=None)
    kept = ("n9", pytest.approx(PLAIN_HOUR * MONTH), "plan-reserve")
    assert [(r.node, r.usd_per_month, r.reason.code) for r in plan.reserve] == [kept]
    assert plan.advise_usd_per_month == pytest.approx(planner(given).reasoned.advice.summary.recoverable_usd_per_month)
    total = plan.plan_usd_per_month - plan.combined_usd_per_month + sum(r.usd_per_month for r in plan.reserve)
    total += sum(n.advise_usd_per_month or 0.0 for n in plan.not_in_plan)
    assert total == pytest.approx(plan.advise_usd_per_month, abs=0.01) and plan.plan_usd_per_month > 0
    assert ("plan-greedy" in {n.code for n in plan.notes}) is not solver
    assert plan.solver.proven is solver
    text = document_text(plan_document(plan, planner(given).reasoned.advice))
    assert f"Kept in reserve: n9 (${PLAIN_HOUR * MONTH:,.0f}/month)" in text and "recoverable in advise" in text


def test_limits_of_what_may_be_touched():
    given = halves(team="one")
    assert plan_of(given, max_moves=0).steps == ()
    only = plan_of(given, only=frozenset({"two"}))
    assert [s.team for s in only.steps] == ["two"] and names(only) == ["n2"]
    assert names(plan_of(given, exclude=frozenset({"n2"}))) == []  # it takes nothing either
    assert names(plan_of(given, exclude=frozenset({"chat"}))) == ["n2"]
    assert plan_of(given, exclude=frozenset({"chat", "search"})).steps == ()
    with pytest.raises(UsageError, match="Unknown team 'tow'"):
        plan_of(given, only=frozenset({"tow"}))
    with pytest.raises(UsageError, match="Unknown name 'n9'"):
        plan_of(given, exclude=frozenset({"n9"}))


def test_a_run_that_takes_a_whole_node_is_not_torn_into_what_is_free_on_several():
    """A run of 8 GPUs on a node with a silent fabric, and two nodes without one."""
    run = workload("train", ("n1",), kind="training")
    other = [replica("b", "n2", range(4), of="b"), replica("c", "n3", range(4), of="c")]
    uses = [usage(run, u_c=0.5, u_n=0.2, label="compute"), *[busy(w) for w in other]]
    nodes = [node("n1"), plain_node("n2"), plain_node("n3")]
    given = drawing(verdicts(nodes, [run, *other], uses=uses), tokens_a_joule=2.0)
    torn = plan_of(given, goal="nodes", exclude=frozenset({"b", "c"}))
    assert names(torn) == [] and torn.steps == ()
    # Where what runs there may move, it goes first and leaves a node to the run.
    plan = plan_of(given)
    assert (names(plan), plan.rented) == (["n1"], ())
    first, then = plan.steps
    assert (first.kind, then.kind, then.name) == ("relocate", "option", "train")
    assert then.moves == () and then.after == (first.number,) and sum(p.nodes_after for p in plan.pools) == 2


def test_what_runs_on_an_excluded_node_does_not_end():
    held = [workload("held", (n,), kind="idle", node_sku=PLAIN, id=f"w-{n}") for n in ("n1", "n2")]
    given = verdicts(
        [plain_node(n) for n in ("n1", "n2", "n3")], held,
        uses=[usage(w, u_c=0, u_m=0, g=0, label="idle") for w in held], idle_hours={w.id: 8 * 336.0 for w in held},
    )  # fmt: skip
    assert set(names(plan_of(given))) == {"n1", "n2", "n3"}
    plan = plan_of(given, exclude=frozenset({"n1"}))
    assert names(plan) == ["n3"] and [s.action for s in plan.steps] == [None]
    assert {n.why.code for n in plan.not_in_plan if n.action == "release"} == {"plan-node-excluded"}


def full(nodes: int = 2):
    """A service that fills one node, and nodes that are empty."""
    a = replica("a", "n1", range(8))
    return verdicts([plain_node(f"n{k + 1}") for k in range(nodes)], [a], uses=[busy(a)])


PAIR = [replica("a", "n1", range(8)), replica("b", "n2", range(8), of="search")]
BOTH_FULL = verdicts([plain_node("n1"), plain_node("n2")], PAIR, uses=[busy(w) for w in PAIR])
ONE, TWO = frozenset({"n1"}), frozenset({"n2"})
NODE_USD = PLAIN_HOUR * MONTH


@pytest.mark.parametrize(
    ("given", "change", "asked", "counts", "usd"),
    [
        # Both services fit one node.
        (halves(3, "one"), FleetChange(remove=ONE), {"goal": "nodes"}, (1, 0, 0), None),
        # Work that fits nowhere is missing or bought.
        (BOTH_FULL, FleetChange(remove=ONE), {}, (0, 1, 0), 0.0),
        (BOTH_FULL, FleetChange(remove=ONE, buy=True), {}, (0, 0, 1), -NODE_USD),
        # More demand fills what is free first; 80 GPUs on 24, where a replica stays apart from its likes.
        (halves(3, "one"), FleetChange(demand={("team", "one"): 2.0}), {"goal": "nodes"}, (1, 0, 0), None),
        (halves(3, "one"), FleetChange(demand={("all", "all"): 10.0}), {"goal": "nodes"}, (0, 7, 0), None),
        # Nodes that are added are not today's, not returned and not paid.
        (full(), FleetChange(add={PLAIN: 2}), {"goal": "cash"}, (1, 0, 0), NODE_USD),
        (full(), FleetChange(add={PLAIN: 2}), {"goal": "nodes"}, (1, 0, 0), NODE_USD),
        # A reserve that is lost is no missing node.
        (full(), FleetChange(remove=TWO), {"reserve_nodes": None}, (0, 0, 0), 0.0),
        (full(), FleetChange(remove=TWO, buy=True), {"reserve_nodes": None}, (0, 0, 0), 0.0),
        (full(3), FleetChange(remove=TWO), {"reserve_nodes": None}, (0, 0, 0), 0.0),
    ],
)
def test_a_fleet_or_a_demand_that_is_not_todays(given, change: FleetChange, asked: dict, counts, usd: float | None):
    plan = plan_of(given, change=change, **asked)
    assert (len(plan.returned), len(plan.missing), len(plan.rented)) == counts
    assert plan.nodes_today == len(given.nodes) - len(change.remove) and len(plan.changes) == 1
    assert {name for s in plan.steps for name in s.frees} <= set(names(plan))
    assert usd is None or plan.cash[-1].saving_usd_per_month.p50 == pytest.approx(usd)
    pool, added = plan.pools[0], sum(change.add.values())
    assert pool.gpus_after == 8 * (len(given.nodes) - len(change.remove) - counts[0] + counts[2] + added)
    if asked.get("reserve_nodes", 0) is None:
        assert (pool.reserve_gpus, pool.reserve_wanted_gpus) == (8 if len(given.nodes) > 2 else 0, 8)


def test_when_the_fleet_runs_out():
    growing, nodes = FleetChange(growth_per_month=0.10), frozenset({"n1", "n2", "n3"})
    pool = plan_of(halves(3, "one"), change=growing, max_moves=0, exclude=nodes).pools[0]
    assert pool.carries == pytest.approx(3.0)  # 8 of 24 GPUs
    months = math.log(3.0) / math.log(1.10)
    assert pool.runs_out_at == pytest.approx(END + months * MONTH_SECONDS)


def test_what_cannot_be_is_refused_in_a_sentence():
    for change, said in (
        (FleetChange(remove=frozenset({"n9"})), "Unknown node 'n9'"),
        (FleetChange(add={"B200": 1}), "Unknown node type 'B200'"),
        (FleetChange(demand={("team", "x"): 1.5}), "Unknown team 'x'"),
    ):
        with pytest.raises(UsageError, match=said):
            plan_of(halves(3, "one"), change=change)
    with pytest.raises(NothingToDo, match="All nodes"):
        plan_of(halves(1, "one"), change=FleetChange(remove=frozenset({"n1"})))


def test_the_founding_case_becomes_a_plan_in_a_file(founding, tmp_path, capsys):
    path, source = tmp_path / "plan.json", ("--db", str(founding), "--seconds", "2", "--no-ledger")
    assert main(["plan", *source, "--format", "json", "--output", str(path)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "reading telemetry" in said.err and f"written to {path}" in said.err
    document = json.loads(path.read_text())
    validate(document, "fleet-plan")
    assert len(document["returned"]) == len(document["rented"]) > 0
    assert document["cash"][-1]["saving_usd_per_month"]["p50"] > 0
    moved = [s for s in document["steps"] if s["action"] == "move-sku"]
    assert moved and all(s["recommendation"].startswith("r-") for s in moved)
    emptied = {name for s in document["steps"] for name in s["frees"]}
    assert emptied == {r["node"] for r in document["returned"]} and document["solver"]["proven"]


def test_the_ledger_knows_the_recommendations_of_a_plan(founding, tmp_path, capsys):
    ledger, where = tmp_path / "ledger.db", ("--db", str(founding), "--seconds", "2")
    assert main(["plan", *where, "--ledger", str(ledger)]) == 0
    id_, *_ = re.findall(r"ledger accept (r-[0-9a-f]+)", capsys.readouterr().out)
    assert main(["ledger", "dismiss", id_, "--why", "no", "--ledger", str(ledger)]) == 0
    capsys.readouterr()
    assert main(["plan", *where, "--ledger", str(ledger), "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert id_ not in {s["recommendation"] for s in plan["steps"]}
    assert next(n for n in plan["not_in_plan"] if n["recommendation"] == id_)["why"]["code"] == "plan-decided"


NOW = 1_790_000_000.0


def rule_node(name: str, **more: Any) -> PlanNode:
    return PlanNode(name, more.pop("pool", "p"), "gpu", "sku", more.pop("gpus", 8), more.pop("usd", 10.0), **more)


def service(name: str, places: Mapping[str, int], peak: float = 0.0, pool: str = "p", **more: Any) -> PlanSeries:
    """Replicas by node and GPUs. `more`: of each unit."""
    units = tuple(PlanUnit(f"{name}{i}", name, {at: gpus}, **more) for i, (at, gpus) in enumerate(places.items()))
    demand = np.array([0.0, peak])
    return PlanSeries(name, name, "team", pool, "online-inference", False, units, demand, np.zeros(2))


def fleet(nodes: list[PlanNode], series: list[PlanSeries], *options: PlanOption, **more: Any) -> Problem:
    return Problem(tuple(nodes), tuple(series), options, more.pop("goal", "cash"), NOW, **more)


def job(name: str, gpus: float, nodes: float) -> PlanSeries:
    hours = np.array([0.0, gpus]), np.array([0.0, nodes])
    return PlanSeries(name, name, "team", "p", "training", True, (), *hours)


FIXED = CodedText("fixed", "it may not move")
A, B, C = (rule_node(name) for name in "abc")
OWNED = [replace(n, bound_until=math.inf) for n in (A, B)]
SMALL = [service("s", {"a": 3}), service("t", {"b": 4})]
HALF = [service("s", {"a": 2}, fixed=FIXED), service("t", {"b": 2}, fixed=FIXED)]
THREE = [service("s", {"a": 4}), service("t", {"b": 3}), service("u", {"c": 1})]
FULL = [service("s", {"a": 8}), service("t", {"b": 5}), service("u", {"c": 3})]
RELEASE = PlanOption("r", "t", "release", None, 0, 0, "low", keeps_units=False)
AWAY = PlanOption("r", "s", "move-sku", "q", 1, 8, "low", keeps_units=False)
ELSEWHERE = [A, B, rule_node("x", pool="q", usd=1.0)]
RUN_AWAY = PlanOption("r", "j", "move-sku", "q", 1, 8, "low", node_gpus=8)
RUN_NODES = [rule_node("a", usd=40.0), rule_node("x", pool="q"), rule_node("y", pool="q")]
RUN, HELD = job("j", 8.0, 1.0), {"pool": "q", "fixed": FIXED}
PARTS = [RUN, service("x", {"x": 4}, **HELD), service("y", {"y": 4}, **HELD)]
WHOLE = [RUN, service("y", {"y": 8}, **HELD)]
BACK = replace(AWAY, pool="p", cpu_cores_each=4.0)


def at_hours(*demands: tuple[float, float]) -> list[PlanSeries]:
    return [replace(s, demand=np.array(hours)) for s, hours in zip(SMALL, demands, strict=True)]


def alike(cores: float) -> Problem:
    """Of two nodes that would do, that with jobs is kept, and none is rented."""
    a, b = replace(A, cpu_cores=cores), replace(B, cpu_cores=cores, drains=True)
    nodes = [a, b, rule_node("n", rented=True), rule_node("x", pool="q", usd=20.0)]
    return fleet(nodes, [service("s", {"x": 8}, pool="q")], BACK)


@pytest.mark.parametrize(
    ("problem", "kept"),
    [
        # A node bound for good is not cash, but it is a node.
        (fleet(OWNED, SMALL), "ab"), (fleet(OWNED, SMALL, goal="nodes"), 1),
        # Demand at its peak keeps a node; where the peaks are not at the same hour they share one.
        (fleet([A, B], at_hours((0, 6), (0, 4))), "ab"), (fleet([A, B], at_hours((6, 0), (0, 5))), "ab"),
        (fleet([A, B], at_hours((4, 0), (0, 5))), 1),
        # The reserve is where the largest unit could start again; nowhere are 8 free today, so 5 are enough.
        (fleet([A, B, C], THREE), 1), (fleet([A, B, C], THREE, reserve={"p": 4}), 2),
        (fleet([A, B, C], FULL, reserve={"p": 1}), "abc"),
        # What does not move keeps its node, and may end.
        (fleet([A, B], HALF), "ab"), (fleet([A, B], HALF, RELEASE), "a"),
        # A pool that all work leaves keeps no reserve; other work that stays there keeps it.
        (fleet(ELSEWHERE, [service("s", {"a": 8})], AWAY, reserve={"p": 8}), "x"),
        (fleet(ELSEWHERE, [service("s", {"a": 8}), service("t", {"b": 1}, fixed=FIXED)], AWAY, reserve={"p": 7}), "bx"),
        # Eight GPUs that are free in parts on two nodes start no run that takes eight of one.
        (fleet(RUN_NODES, PARTS, RUN_AWAY), "axy"), (fleet(RUN_NODES, WHOLE, RUN_AWAY), "xy"),
        (fleet(RUN_NODES, PARTS, replace(RUN_AWAY, node_gpus=0)), "xy"),
        (alike(64.0), "b"), (alike(1.0), "n"),
    ],
)  # fmt: skip
def test_a_plan_keeps_the_nodes_that_its_rules_need(problem: Problem, kept: str | int) -> None:
    layout = solve(problem, 5.0, time.perf_counter)
    assert broken_rules(problem, layout) == []
    assert layout.kept == set(kept) if isinstance(kept, str) else len(layout.kept) == kept
    # Runs are the scheduler's affair: no replica of a job has a node.
    assert not any(unit.startswith("j") for unit in layout.places)


def test_work_that_has_no_room_today_is_cut_down() -> None:
    """Of 16 GPUs services hold 12 and jobs had up to 5; a service needed 10 once and holds 8."""
    series = [service("s", {"a": 8}, peak=10.0), service("t", {"b": 4}), job("j", 5.0, 0.0)]
    cut, crowded = as_today(fleet([A, B], series))
    assert crowded == {"p": 3}
    assert (cut.by_series["j"].demand.max(), cut.by_series["s"].demand.max()) == (2.0, 9.0)
    wanted, kept = reserve_of(replace(cut, series=cut.series[:2]), PlanRequest(reserve_nodes=1))
    assert (wanted, kept) == ({"p": 8}, {"p": 3})


@pytest.mark.parametrize("number", [0, 2])
def test_the_same_fleet_has_the_same_plan_again(number: int) -> None:
    problem = small_problem(number)
    first, other = (solve(problem, None, time.perf_counter) for _ in range(2))
    assert (other.chosen, other.places, other.kept) == (first.chosen, first.places, first.kept)


def test_what_needs_room_comes_after_what_makes_it() -> None:
    nodes = [rule_node("a", usd=1.0), rule_node("b", usd=1.0), rule_node("c", usd=90.0)]
    places = {"s": {"a": 6}, "t": {"b": 2}, "u": {"c": 6}, "v": {"b": 2}}
    problem = fleet(nodes, [service(name, place) for name, place in places.items()])
    layout = solve(problem, 5.0, time.perf_counter)
    assert "c" not in layout.kept
    steps = sequence(problem, layout)
    assert wrong_steps(problem, layout, steps) == []
    last = max(i for i, step in enumerate(steps) if step.series == "u")
    assert steps[last].frees == ("c",) and steps[last].after
    assert all(steps[number - 1].series in ("t", "v") for number in steps[last].after)


def test_a_swap_needs_capacity_for_a_moment() -> None:
    problem = fleet([A, B], [service("s", {"a": 8}), service("t", {"b": 8})])
    swapped = Layout({}, {"s0": "b", "t0": "a"}, frozenset({"a", "b"}))
    steps = sequence(problem, swapped)
    assert [step.staging is not None for step in steps] == [True, False]
    assert wrong_steps(problem, swapped, steps) == []


def test_what_is_replaced_stops_after_what_replaces_it() -> None:
    other = replace(AWAY, gpus_each=4)
    problem = fleet([rule_node("a", pool="q"), C], [service("s", {"c": 4})], other)
    (step,) = sequence(problem, Layout({"s": other}, {"r#0": "a"}, frozenset({"a"})))
    assert step.moves == (Move("r#0", None, "a", 4), Move("s0", "c", None, 4))
