"""A fleet or a demand that is not today's: what is missing, what is bought, when the fleet runs out."""

import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.plan.problem import FleetChange
from skuwise.advisor.plan.worth import MONTH_SECONDS
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.tests.support.moves_builders import END, PLAIN, verdicts
from skuwise.tests.support.plan_builders import busy, halves, plain_node, plan_of, replica
from skuwise.tests.support.schemas import validate


def test_a_node_that_goes_leaves_its_work_to_the_others():
    plan = plan_of(halves(3, "one"), change=FleetChange(remove=frozenset({"n1"})), goal="nodes")
    assert plan.missing == () and plan.rented == () and plan.nodes_today == 2
    assert len(plan.returned) == 1  # both services fit one node
    assert [c.code for c in plan.changes] == ["whatif-removed"]


def test_work_that_fits_nowhere_is_told_missing_or_bought():
    pair = [replica("a", "n1", range(8)), replica("b", "n2", range(8), of="search")]
    full = verdicts([plain_node("n1"), plain_node("n2")], pair, uses=[busy(w) for w in pair])
    gone = frozenset({"n1"})
    missing = plan_of(full, change=FleetChange(remove=gone))
    assert [m.gpus for m in missing.missing] == [8] and missing.rented == ()
    bought = plan_of(full, change=FleetChange(remove=gone, buy=True))
    assert bought.missing == () and [r.node_sku for r in bought.rented] == [PLAIN]
    assert bought.cash[-1].saving_usd_per_month.p50 == pytest.approx(-88.488 * 730)


def test_more_demand_fills_what_is_free_first():
    grown = plan_of(halves(3, "one"), change=FleetChange(demand={("team", "one"): 2.0}), goal="nodes")
    assert grown.missing == () and sum(m.gpus for s in grown.steps for m in s.moves if m.start is None) == 4
    much = plan_of(halves(3, "one"), change=FleetChange(demand={("all", "all"): 10.0}), goal="nodes")
    # 80 GPUs of demand on 24; a replica of four stays apart from its likes, as today: one a node.
    assert len(much.missing) >= 7


def full(nodes: int = 2, **changes):
    """A service that fills one node, and nodes that are empty."""
    a = replica("a", "n1", range(8))
    return verdicts([plain_node(f"n{k + 1}", **changes) for k in range(nodes)], [a], uses=[busy(a)])


@pytest.mark.parametrize("goal", ["cash", "nodes"])
def test_nodes_that_are_added_are_neither_todays_nor_returned_nor_paid(goal):
    plan = plan_of(full(), change=FleetChange(add={PLAIN: 2}), goal=goal)
    assert plan.nodes_today == 2 and [r.node for r in plan.returned] == ["n2"]
    assert plan.cash[-1].saving_usd_per_month.p50 == pytest.approx(88.488 * 730)
    pool = plan.pools[0]
    assert (pool.nodes_today, pool.gpus_after, pool.rented) == (2, 24, 0)
    assert plan.rented == () and plan.missing == () and {name for s in plan.steps for name in s.frees} <= {"n2"}


@pytest.mark.parametrize("buy", [False, True])
def test_a_reserve_that_is_lost_is_a_note_and_no_missing_node(buy):
    plan = plan_of(full(), change=FleetChange(remove=frozenset({"n2"}), buy=buy), reserve_nodes=None)
    assert plan.missing == () and plan.rented == () and plan.steps == ()
    assert "8 GPUs fewer than today" in next(n for n in plan.notes if n.code == "plan-reserve-lost").text
    assert (plan.pools[0].reserve_gpus, plan.pools[0].reserve_wanted_gpus) == (0, 8)
    kept = plan_of(full(3), change=FleetChange(remove=frozenset({"n2"})), reserve_nodes=None)
    assert kept.missing == () and "plan-reserve-lost" not in {n.code for n in kept.notes}
    assert kept.pools[0].reserve_gpus == 8


def test_when_the_fleet_runs_out():
    plan = plan_of(
        halves(3, "one"), change=FleetChange(growth_per_month=0.10), max_moves=0, exclude=frozenset({"n1", "n2", "n3"})
    )
    pool = plan.pools[0]
    assert pool.carries == pytest.approx(3.0)  # 8 of 24 GPUs
    months = math.log(3.0) / math.log(1.10)
    assert pool.runs_out_at == pytest.approx(END + months * MONTH_SECONDS)


def test_what_cannot_be_is_refused_in_a_sentence():
    for change, said in (
        (FleetChange(remove=frozenset({"n9"})), "Unknown node 'n9'"),
        (FleetChange(add={"B200": 1}), "No node of the fleet is 'B200'"),
        (FleetChange(demand={("team", "x"): 1.5}), "No work in the plan has team 'x'"),
    ):
        with pytest.raises(UsageError, match=said):
            plan_of(halves(3, "one"), change=change)
    with pytest.raises(NothingToDo, match="All nodes"):
        plan_of(halves(1, "one"), change=FleetChange(remove=frozenset({"n1"})))


PAYLOAD = "\x1b[2J\u202e[red]x[/red]<script>alert(1)</script>|=cmd|' /C calc'!A0[a](javascript:b)`x`"


def plan(*arguments: str, capsys) -> tuple[int, str, str]:
    status = main(["plan", *arguments, "--seconds", "2", "--no-ledger"])
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err, said.err
    return status, said.out, said.err


def test_the_founding_case_becomes_a_plan_in_a_file(founding, tmp_path, capsys):
    path = tmp_path / "plan.json"
    status, out, err = plan("--db", str(founding), "--format", "json", "--output", str(path), capsys=capsys)
    assert (status, out) == (0, "") and "reading telemetry" in err and f"written to {path}" in err
    document = json.loads(path.read_text())
    validate(document, "fleet-plan")
    assert len(document["returned"]) == len(document["rented"]) > 0
    assert document["cash"][-1]["saving_usd_per_month"]["p50"] > 0
    moved = [s for s in document["steps"] if s["action"] == "move-sku"]
    assert moved and all(s["recommendation"].startswith("r-") for s in moved)
    emptied = {name for s in document["steps"] for name in s["frees"]}
    assert emptied == {r["node"] for r in document["returned"]} and document["solver"]["proven"]


def test_hostile_names_have_no_effect(founding: Path, tmp_path, capsys):
    path = tmp_path / "crafted.db"
    path.write_bytes(founding.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE workload SET name = ?, namespace = ?, user = ?", (PAYLOAD, PAYLOAD, PAYLOAD))
        connection.execute("UPDATE node SET node = node || ?", (PAYLOAD,))
    status, out, _ = plan("--db", str(path), capsys=capsys)
    assert status == 0 and "\x1b" not in out and "\u202e" not in out
    for text in ("Nodes to return", "Steps", "Fleet before and after", "How good this plan is"):
        assert text in out


def test_the_ledger_knows_the_recommendations_of_a_plan(founding, tmp_path, capsys):
    ledger, where = tmp_path / "ledger.db", ("--db", str(founding), "--seconds", "2")
    assert main(["plan", *where, "--ledger", str(ledger)]) == 0
    found = re.findall(r"ledger accept (r-[0-9a-f]+)", capsys.readouterr().out)
    assert found
    assert main(["ledger", "dismiss", found[0], "--why", "no", "--ledger", str(ledger)]) == 0
    capsys.readouterr()
    assert main(["plan", *where, "--ledger", str(ledger), "--format", "json"]) == 0
    assert found[0] not in {s["recommendation"] for s in json.loads(capsys.readouterr().out)["steps"]}
