# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false, reportAttributeAccessIssue=false
"""The pages of the plan and of incidents: what they show, what may be asked of them, how decisions are kept."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import pytest
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.incident_types import Advance, Incident
from skuwise.advisor.plan.problem import NO_CHANGE, FleetChange, PlanRequest
from skuwise.advisor.plan.result import Move, Plan, PlanStep
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import commit, listed
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.tests.support.fleet_on_screen import HOSTILE, NOW, HandLoader, fleet, planner
from skuwise.tests.support.incident_builders import HOSTILE as HOSTILE_WORKLOAD
from skuwise.tests.support.incident_builders import HOUR, opened, renamed, sighting
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.screens.plan import parse_change, parse_moves
from skuwise.tui.screens.whatif import price_of
from skuwise.tui.widgets.table import ItemTable
from textual.widgets import Input

HEAD = "return 1 of 2 nodes, rent 1 (saves $7,177/month)"
PROVEN = "Best plan within: risk low"


def solved(**request) -> Plan:
    return planner(fleet()).plan(PlanRequest(**request))


@dataclass
class FakePlanner:
    """Answers with plans or errors, the last again and again, and keeps the questions. `gate`: the first awaits it."""

    plans: list[Plan | Exception]
    gate: Event | None = None
    asked: list[tuple[PlanRequest, FleetChange]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def plan(self, request: PlanRequest, change: FleetChange = NO_CHANGE, on_first: object = None) -> Plan:
        number = len(self.asked)
        self.asked.append((request, change))
        answer = self.plans[min(number, len(self.plans) - 1)]
        if isinstance(answer, Exception):
            raise answer
        if self.gate is not None and number == 0:
            self.gate.wait(60)
        self.ended.append(number)
        return answer


async def at_the_page(s: Session, text: str = PROVEN) -> None:
    await s.ready()
    await s.press(KEY["plan"])
    await s.until(lambda: s.app.current_page == "plan")
    await s.shows(text)
    await s.still()


def test_keys_ask_for_another_goal_risk_and_number_of_moves() -> None:
    fake = FakePlanner([solved()])

    async def asks(s: Session, *keys: str, **request) -> None:
        count = len(fake.asked)
        await s.press(*keys)
        await s.until(lambda: len(fake.asked) == count + 1)
        assert fake.asked[-1][0] == PlanRequest(**request)

    async def steps(s: Session) -> None:
        await at_the_page(s)
        await asks(s, "g", goal="nodes")
        await asks(s, "r", goal="nodes", risk="medium")
        await s.press("m", "x", "enter")
        await s.shows("Invalid number 'x'.")
        await asks(s, "backspace", "3", "enter", goal="nodes", risk="medium", max_moves=3)
        await s.shows("workloads: at most 3")
        await asks(s, "x", goal="nodes")

    drive(steps, HandLoader(plans=fake), size=(120, 40))


def test_what_if_asks_for_another_fleet_and_names_what_is_wrong_with_a_question() -> None:
    async def asks(s: Session, text: str, *shown: str) -> None:
        if not s.app.screen.query(Input):
            await s.press("w")
            await s.until(lambda: bool(s.app.screen.query(Input)))
        await s.enter(text, *shown)

    async def steps(s: Session) -> None:
        await at_the_page(s)
        await asks(s, "chat x2", "Invalid change 'chat x2'.")
        await asks(s, "workload=chat x2", "demand of workload chat x2", "what if: workload=chat x2", "Missing nodes")
        # An unknown node is an error; the plan before remains.
        await asks(s, "-n9", "Unknown node 'n9' in this window.", "what if: workload=chat x2", "Missing nodes")
        await asks(s, "", "what if: as today", HEAD, PROVEN)

    drive(steps, size=(160, 50))


def test_what_is_asked_meanwhile_counts_and_the_older_answer_is_not_shown() -> None:
    gate = Event()
    stale = replace(solved(), steps=(), returned=(), rented=(), nodes_today=8642)
    fake = FakePlanner([stale, solved(max_moves=0)], gate)

    async def steps(s: Session) -> None:
        await at_the_page(s, "Planning ...")
        await s.until(lambda: len(fake.asked) == 1)
        await s.press("g")
        await s.shows("Plan: nothing to change")
        gate.set()
        await s.until(lambda: 0 in fake.ended)
        await s.pilot.pause()
        assert "goal: nodes" in s.screen and "8642" not in s.screen.replace(",", "")
        page = s.app.screen
        page._take(page._question, stale, searching=True)  # a first answer that arrives after the last one
        assert "First answer" not in s.told("#plan-quality")

    drive(steps, HandLoader(plans=fake), size=(120, 40))


def test_a_step_is_accepted_and_the_plan_is_made_anew() -> None:
    loader = HandLoader()

    async def steps(s: Session) -> None:
        await at_the_page(s)
        await s.press("a")
        await s.until(lambda: any("only rents nodes" in notification.message for notification in s.app._notifications))
        s.app.screen.query_one("#steps").focus()
        await s.press("down")
        await s.shows("Alone: saves $7,177/month")
        await s.press("a")
        await s.shows("Accept: will be done")
        await s.press("enter")
        await s.until(lambda: bool(loader.decided) and len(loader.windows) == 2)
        await s.until(lambda: s.app.screen.selected.recommendation.decision is not None)
        await s.shows(PROVEN)
        await s.press("i")
        await s.until(lambda: len(s.app.screen_stack) == 3)
        await s.shows("Today and after")

    drive(steps, loader, size=(160, 50))
    ((id_, act, _, _),) = loader.decided
    assert act == "accepted" and id_ == solved().steps[1].recommendation


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NothingToDo("No node with GPUs in this window.", "Use another source."), "No node with GPUs in this window."),
        (RuntimeError(f"broken {HOSTILE}"), "Planning failed: unexpected RuntimeError: broken [red]x[/red]"),
    ],
)
def test_what_cannot_be_planned_is_told_in_a_sentence(error: Exception, said: str) -> None:
    async def steps(s: Session) -> None:
        await s.ready()
        await s.press(KEY["plan"])
        await s.shows(said)
        assert "Planning ..." not in s.told("#plan-quality") and "\x1b[2J" not in s.screen

    drive(steps, HandLoader(plans=FakePlanner([error])), size=(160, 50))


def test_names_that_mean_harm_are_text() -> None:
    plan = solved()
    step = PlanStep(
        number=1, kind="relocate", action=None, recommendation=None, series="s", workload=None, name=HOSTILE,
        team=HOSTILE, moves=(Move(HOSTILE, HOSTILE, HOSTILE, 8),), frees=(HOSTILE,), rents=(HOSTILE,), after=(),
        risk="low", staging=CodedText("x", HOSTILE, {}),
    )  # fmt: skip
    bad = replace(
        plan,
        steps=(step,),
        returned=tuple(replace(r, name=HOSTILE, node_sku=HOSTILE) for r in plan.returned),
        rented=tuple(replace(r, node_sku=HOSTILE) for r in plan.rented),
        missing=tuple(replace(r, node_sku=HOSTILE) for r in plan.rented),
        pools=tuple(replace(p, node_sku=HOSTILE, region=HOSTILE, short_gpus=2) for p in plan.pools),
        kept_nodes={HOSTILE: CodedText("x", HOSTILE, {})},
        notes=(CodedText("x", HOSTILE, {}),),
        changes=(CodedText("x", HOSTILE, {}),),
    )

    async def steps(s: Session) -> None:
        await at_the_page(s)
        await s.shows("[red]x[/red]")
        for key in ("enter", "escape", "tab", "tab", "tab", "enter"):
            await s.press(key)
            assert "\x1b[2J" not in s.screen and "\u202e" not in s.screen

    drive(steps, HandLoader(plans=FakePlanner([bad])), size=(160, 50))


SHRUNK = FleetChange(add={"H100-SXM5": 5}, remove=frozenset({"gpu-07"}))


@pytest.mark.parametrize(
    ("read", "fine", "wrong"),
    [
        (parse_change, {
            "+4xH100-SXM5, -gpu-07 , +1xH100-SXM5": SHRUNK, "": NO_CHANGE, " , ": NO_CHANGE,
            "team=search x1.5, all x1.2": FleetChange(demand={("team", "search"): 1.5, ("all", "all"): 1.2}),
            "commit-ends 2027-01-01, buy": FleetChange(commitments_end=1_798_761_600.0, buy=True),
            # A name with a comma needs semicolons.
            "team=a, b x2; buy": FleetChange(demand={("team", "a, b"): 2.0}, buy=True),
            "team=a, b x2;": FleetChange(demand={("team", "a, b"): 2.0}),
        }, {
            "4xH100": "'4xH100'", "+H100": "'H100'", "+0xH100": "'0xH100'", "-": "'-'", "team=search": "'team=search'",
            "team=search x0": "'team=search x0'", "all x2, all x3": "twice", "commit-ends soon": "'soon'",
            "commit-ends": "Invalid time", "[red]x[/] \x1b[2J": "'[red]x[/] \\x1b[2J'",
        }),
        (parse_moves, {"": (None,), "0": (0,), "1000000": (1_000_000,)},
         dict.fromkeys(("-1", "a", "1.5", "10000000", "9" * 400, "²"), "Invalid number")),
        (price_of, {"98.32": (98.32,), " $1,000 ": (1000.0,), "": (None,), "0": (0.0,)},
         dict.fromkeys(("x", "-1", "1e9", "nan", "inf", "1 2"), "Invalid price")),
    ],
)  # fmt: skip
def test_what_is_typed_is_read_or_refused_with_a_remedy(read, fine: dict[str, object], wrong: dict[str, str]) -> None:
    assert {text: read(text) for text in fine} == fine
    for text, part in wrong.items():
        with pytest.raises(UsageError) as refused:
            read(text)
        assert part in refused.value.message and refused.value.remedy


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path / "fleet.db")
    done = opened(
        sighting("cheap", hours=1.0), sighting("dear", hours=50.0), sighting("grave", severity="high", priced=False),
        sighting("over"), renamed(sighting("odd", hours=2.0), HOSTILE_WORKLOAD), now=NOW,
    )  # fmt: skip
    over = replace(done.incidents[3], state="resolved", resolved_at=NOW, resolution="released", resolution_told=True)
    with made.writing() as db:
        commit(db, done)
        commit(db, Advance((over,)))
    return made


def of(state: State) -> dict[str, Incident]:
    with state.reading() as db:
        return {incident.sighting.subject.name: incident for incident in listed(db)}


async def at_incidents(s: Session, text: str) -> None:
    await s.press(KEY["incidents"])
    await s.until(lambda: s.app.current_page == "incidents")
    await s.shows(text)


def test_open_incidents_are_listed_with_the_evidence_of_the_chosen_one(state: State) -> None:
    async def steps(s: Session) -> None:
        await at_incidents(s, "grave: 8 H100s held but idle")
        names = [row.title.partition(":")[0] for row in s.app.screen.query_one(ItemTable).shown]
        assert names == ["grave", "dear", "[red]x[/red] [@click=app.quit]y[/] \x1b[2J\r\nBcc", "cheap"]
        assert "$150" in s.screen and "team search, user ann" in s.screen and "over:" not in s.screen
        await s.shows("unknown: no price for these GPUs")
        await s.press("down")
        for text in ("skuwise job dear SOURCE", "power 106 W", "last work", "at list price, 2026-09-19 (azure.com)"):
            await s.shows(text)
        assert "\x1b[2J" not in s.screen and "\u202e" not in s.screen and "[red]x[/red]" in s.screen
        await s.press("enter")
        await s.shows("Incident")

    drive(steps, HandLoader(state_file=state), size=(160, 50))


def test_an_incident_is_acknowledged_by_a_name_and_snoozed_until_a_later_time(state: State) -> None:
    async def steps(s: Session) -> None:
        await at_incidents(s, "grave: 8 H100s")
        await s.press("down", "a")
        await s.shows("Acknowledge: no reminders")
        await s.enter("ann", "acknowledged by ann")
        incident = of(state)["dear"]
        assert (incident.state, incident.acknowledged_by) == ("acknowledged", "ann") and incident.acknowledged_at >= NOW
        await s.press("a")
        await s.shows("Acknowledge: no reminders")
        await s.press("escape")
        assert sum(incident.state == "acknowledged" for incident in of(state).values()) == 1
        await s.press("up", "z")
        await s.shows("Snooze: no reminders")
        await s.enter("2001-01-01", "is in the past")
        await s.enter("3h", "snoozed until")
        until = max(incident.snoozed_until or 0 for incident in of(state).values())
        assert until == pytest.approx(NOW + 60 + 3 * HOUR, abs=30)

    drive(steps, HandLoader(state_file=state), size=(160, 50))


@pytest.mark.parametrize(("content", "shown"), [(None, "skuwise watch SOURCE"), ("no database", "cannot be read")])
def test_without_incidents_it_says_why_and_what_to_do(tmp_path: Path, content: str | None, shown: str) -> None:
    path = tmp_path / "fleet.db"
    if content is not None:
        path.write_text(content * 100)

    async def steps(s: Session) -> None:
        await at_incidents(s, "No open incidents.")
        await s.until(lambda: shown in s.told("#evidence"))
        await s.press("a", "z", "enter")  # nothing is chosen
        assert len(s.app.screen_stack) == 2 and path.exists() == (content is not None)

    drive(steps, HandLoader(state_file=State(path)), size=(120, 30))
