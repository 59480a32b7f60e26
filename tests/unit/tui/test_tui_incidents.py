# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
"""The page of open incidents: what it shows, how decisions are kept, and what it says where there is nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.core.incident_types import Advance, Incident
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import commit, listed
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, opened, renamed, sighting
from skuwise.tests.support.tui_session import KEY, Session, drive
from skuwise.tui.widgets.table import ItemTable
from textual.widgets import Input


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path / "fleet.db")
    done = opened(
        sighting("cheap", hours=1.0), sighting("dear", hours=50.0), sighting("grave", severity="high", priced=False),
        sighting("over"), renamed(sighting("odd", hours=2.0), HOSTILE), now=NOW,
    )  # fmt: skip
    over = replace(done.incidents[3], state="resolved", resolved_at=NOW, resolution="released", resolution_told=True)
    with made.writing() as db:
        commit(db, done)
        commit(db, Advance((over,)))
    return made


def of(state: State) -> dict[str, Incident]:
    with state.reading() as db:
        return {incident.sighting.subject.name: incident for incident in listed(db)}


async def at_the_page(s: Session, text: str) -> None:
    await s.press(KEY["incidents"])
    await s.until(lambda: s.app.current_page == "incidents")
    await s.shows(text)


def rows(s: Session) -> list[str]:
    return [row.title for row in s.app.screen.query_one(ItemTable).shown]


def test_open_incidents_are_listed_with_the_evidence_of_the_chosen_one(state: State) -> None:
    async def steps(s: Session) -> None:
        await at_the_page(s, "grave: 8 H100s held but idle")
        assert [title.partition(":")[0] for title in rows(s)] == ["grave", "dear", "[red]x[/red] [@click=app.quit]y[/] \x1b[2J\r\nBcc", "cheap"]  # fmt: skip  # noqa: E501
        assert "$150" in s.screen and "team search, user ann" in s.screen and "over:" not in s.screen
        await s.shows("unknown: no price for these GPUs")
        await s.press("down")
        await s.shows("skuwise job dear SOURCE")
        for text in ("power 106 W", "last work", "at list price, 2026-09-19 (azure.com)", "severity medium"):
            assert text in s.screen, text
        assert "\x1b[2J" not in s.screen and "\u202e" not in s.screen and "[red]x[/red]" in s.screen
        await s.press("enter")
        await s.shows("Incident")

    drive(steps, HandLoader(state_file=state), size=(160, 50))


def test_an_incident_is_acknowledged_by_a_name_and_snoozed_until_a_later_time(state: State) -> None:
    async def steps(s: Session) -> None:
        await at_the_page(s, "grave: 8 H100s")
        await s.press("down", "a")
        await s.shows("Acknowledge: no reminders")
        s.app.screen.query_one(Input).value = "ann"
        await s.press("enter")
        await s.shows("acknowledged by ann")
        incident = of(state)["dear"]
        assert (incident.state, incident.acknowledged_by) == ("acknowledged", "ann") and incident.acknowledged_at >= NOW
        await s.press("a")
        await s.shows("Acknowledge: no reminders")
        await s.press("escape")
        assert sum(incident.state == "acknowledged" for incident in of(state).values()) == 1
        await s.press("z")
        await s.shows("Snooze: no reminders")
        for text, shown in (("2001-01-01", "is in the past"), ("3h", "snoozed until")):
            s.app.screen.query_one(Input).value = text
            await s.press("enter")
            await s.shows(shown)
        assert sorted(incident.snoozed_until or 0 for incident in of(state).values())[-1] == pytest.approx(
            NOW + 60 + 3 * HOUR, abs=30
        )

    drive(steps, HandLoader(state_file=state), size=(160, 50))


@pytest.mark.parametrize(
    ("begun", "said"),
    [("no place", "skuwise watch SOURCE"), ("no file", "skuwise watch SOURCE"), ("damaged", "cannot be read")],
)
def test_without_incidents_it_says_why_and_what_to_do(tmp_path: Path, begun: str, said: str) -> None:
    path = None if begun == "no place" else tmp_path / "fleet.db"
    if path is not None and begun == "damaged":
        path.write_text("no database at all" * 100)

    async def steps(s: Session) -> None:
        await at_the_page(s, "No open incidents.")
        await s.until(lambda: said in s.told("#evidence"))
        await s.press("a", "z", "enter")  # nothing is chosen
        assert len(s.app.screen_stack) == 2
        if path is not None and begun == "no file":
            assert not path.exists()

    drive(steps, HandLoader(state_file=State(path) if path is not None else None), size=(120, 30))
