"""What somebody may ask of a plan on the terminal, and what cannot be meant."""

from __future__ import annotations

import pytest
from skuwise.advisor.plan.limits import NO_CHANGE, RISKS, FleetChange
from skuwise.advisor.plan.problem import GOALS as KNOWN_GOALS
from skuwise.rules.base.errors import UsageError
from skuwise.tui.content.plan_question import GOALS, PlanQuestion, parse_change, parse_moves


def test_a_change_has_the_meaning_of_the_options_of_the_command() -> None:
    got = parse_change("+4xH100-SXM5, -gpu-07 , +1xH100-SXM5,team=search x1.5, all x1.2, commit-ends 2027-01-01, buy")

    assert got == FleetChange(
        add={"H100-SXM5": 5},
        remove=frozenset({"gpu-07"}),
        demand={("team", "search"): 1.5, ("all", "all"): 1.2},
        commitments_end=1_798_761_600.0,
        buy=True,
    )


def test_nothing_is_today() -> None:
    assert parse_change("") == parse_change(" , ") == NO_CHANGE
    assert PlanQuestion().change.nothing


def test_a_name_with_a_comma_is_told_with_semicolons() -> None:
    assert parse_change("team=a, b x2; buy") == FleetChange(demand={("team", "a, b"): 2.0}, buy=True)
    assert parse_change("team=a, b x2;").demand == {("team", "a, b"): 2.0}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("4xH100", "'4xH100'"),
        ("+H100", "'H100'"),
        ("+0xH100", "'0xH100'"),
        ("-", "'-'"),
        ("team=search", "'team=search'"),
        ("team=search x0", "'team=search x0'"),
        ("all x2, all x3", "twice"),
        ("commit-ends soon", "'soon'"),
        ("commit-ends", "Invalid time"),
        ("[red]x[/] \x1b[2J", "'[red]x[/] \\x1b[2J'"),
    ],
)
def test_what_cannot_be_meant_is_told_with_a_remedy(text: str, named: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_change(text)

    assert named in str(raised.value)
    assert raised.value.remedy


def test_goals_and_risks_come_round() -> None:
    asked = PlanQuestion(whatif="buy", max_moves=3)
    goals, risks = [asked.goal], [asked.risk]
    for _ in range(3):
        asked = asked.next_goal.next_risk
        goals.append(asked.goal)
        risks.append(asked.risk)

    assert GOALS == KNOWN_GOALS and tuple(goals) == GOALS
    assert sorted(risks, key=RISKS.index) == list(RISKS)
    assert (asked.next_goal.goal, asked.whatif, asked.max_moves) == (GOALS[0], "buy", 3)
    assert asked.request.max_moves == 3 and asked.request.goal == GOALS[-1]


@pytest.mark.parametrize(("text", "moves"), [("", None), ("0", 0), ("12", 12), ("1000000", 1_000_000)])
def test_the_most_workloads_to_touch(text: str, moves: int | None) -> None:
    assert parse_moves(text) == (moves,)


@pytest.mark.parametrize("text", ["-1", "a", "1.5", "1000001", "9" * 400, "²"])
def test_what_is_no_number_of_workloads(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moves(text)
