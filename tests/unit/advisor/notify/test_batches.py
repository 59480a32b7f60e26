"""Who is informed of what: one message a recipient, one item an incident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from skuwise.advisor.core.incident_types import Incident
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.mail.delivery import Clocks
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.routes import Routes, TeamRoute
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.notify.desk import Desk, Recipient
from skuwise.advisor.notify.dispatch import Batch, Untold, batches_of, key_of, waits
from skuwise.agent.model import Instant
from skuwise.tests.support.incident_fixtures import NOW, ended, event, incident

SEARCH = Recipient("search", "mail", "a@example.org")
HOOK = Recipient("search", "webhook", "webhook")
OPS = Recipient("", "mail", "ops@example.org")


def made(
    untold: Untold, *to: Recipient, told: dict[str, set[str]] | None = None, knows: bool = False,
    busy: Sequence[Recipient] = (), recipients: Callable[[Incident], Sequence[Recipient]] | None = None,
) -> tuple[tuple[Batch, ...], frozenset[str]]:  # fmt: skip
    return batches_of(untold, recipients or (lambda _: to), told or {}, lambda _, __: knows, lambda one: one in busy)


def kinds(batches: Sequence[Batch]) -> list[list[str]]:
    return [[item.kind for item in one.items] for one in batches]


def test_one_message_a_recipient_whatever_it_is_about() -> None:
    one, two, three = incident(1), incident(2), ended(incident(3))
    untold = [(event(one), one), (event(two, "reminded"), two), (event(three, "resolved"), three)]
    batches, waiting = made(untold, SEARCH, HOOK, knows=True)
    assert [(one.team, one.channel, len(one.items)) for one in batches] == [
        ("search", "mail", 3),
        ("search", "webhook", 3),
    ]
    assert kinds(batches)[0] == ["opened", "reminded", "resolved"] and not waiting


def test_addresses_of_a_team_share_a_mail_unless_one_has_it_already() -> None:
    one = incident(1)
    other = replace(SEARCH, address="b@example.org")
    batches, _ = made([(event(one), one)], SEARCH, other)
    assert [batch.recipients for batch in batches] == [(SEARCH, other)]
    batches, _ = made([(event(one), one)], SEARCH, other, told={key_of(event(one)): {SEARCH.key}})
    assert [batch.recipients for batch in batches] == [(other,)]


def test_what_began_and_ended_unseen_is_one_line_and_an_end_without_a_beginning_is_none() -> None:
    over = ended(incident(1))
    both = [(event(over), over), (event(over, "resolved"), over)]
    assert kinds(made(both, SEARCH)[0]) == [["over"]]
    assert made(both[1:], SEARCH, knows=False)[0] == ()
    assert kinds(made(both[1:], SEARCH, knows=True)[0]) == [["resolved"]]
    # Somebody who had the beginning reads of its end.
    had = made(both, SEARCH, told={key_of(both[0][0]): {SEARCH.key}}, knows=True)
    assert kinds(had[0]) == [["resolved"]]


def test_what_came_back_is_not_reported_as_resolved_and_several_events_are_one_item() -> None:
    one = incident(1)
    came_back = [(event(one), one), (event(one, "resolved"), one), (event(one, "reminded"), one)]
    batches, _ = made(came_back, SEARCH)
    assert kinds(batches) == [["opened"]] and len(batches[0].events) == 3
    assert kinds(made(came_back[1:], SEARCH, knows=True)[0]) == [["reminded"]]
    assert made(came_back[1:2], SEARCH, knows=True)[0] == ()


def desk(routes: Routes) -> Desk:
    report = ReportSettings(administrators=("ops@example.org",), webhook_url_file="/hook")
    clocks = Clocks(lambda: Instant(NOW, 0.0), lambda _: None)
    return Desk(routes, report, WatchSettings(), Outbox(None), clocks, print)  # type: ignore[arg-type] - never opened


def test_incidents_follow_the_routes_of_the_report_and_platform_matters_reach_the_administrators_too() -> None:
    teams = (TeamRoute("search", ("a@example.org",)), TeamRoute("infra", ("b@example.org",)))
    routes = Routes((), teams, {("user", "alice"): "search", ("node", "gpu-*"): "infra"})
    at = desk(routes)
    assert [one.key for one in at.recipients(incident(1))] == ["mail:a@example.org"]
    assert at.team_of(incident(1, user="bob")) == "infra"  # by its node
    nobody = incident(1, user="bob", node="cpu-1")
    assert [one.key for one in at.recipients(nobody)] == ["mail:ops@example.org", "webhook:"]
    silent = incident(1, kind="telemetry-dead", code="node-silent", workload=False)
    assert [one.key for one in at.recipients(silent)] == ["mail:b@example.org", "mail:ops@example.org", "webhook:"]
    slow = incident(1, kind="fault-clock", code="clock-stuck-low")
    assert [one.team for one in at.recipients(slow)] == ["search", "", ""]
    assert desk(Routes(("boss@example.org",))).fleet.to == ("boss@example.org",)


@pytest.mark.parametrize(
    ("hours", "moment", "quiet"),
    [
        ((22, 7), "2026-11-24T21:59:59", False), ((22, 7), "2026-11-24T22:00:00", True),
        ((22, 7), "2026-11-25T06:59:59", True), ((22, 7), "2026-11-25T07:00:00", False),
        ((1, 5), "2026-11-25T01:00:00", True), ((23, 0), "2026-11-25T00:00:00", False),
    ],
)  # fmt: skip
def test_quiet_hours_are_local_and_hold_all_but_high_severity(hours: tuple[int, int], moment: str, quiet: bool) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    at = datetime.fromisoformat(moment).replace(tzinfo=berlin).timestamp()
    settings = WatchSettings(quiet_hours=hours, time_zone=berlin)
    assert [waits(incident(severity=one), settings, at) for one in ("low", "high")] == [quiet, False]
