"""``skuwise incidents``: what it lists and shows, and the decisions that it takes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.incidents.store import IncidentStore
from skuwise.advisor.incidents.transitions import Advance
from skuwise.tests.support.incident_builders import HOSTILE, NOW, opened, renamed, sighting


@pytest.fixture
def store(tmp_path: Path) -> IncidentStore:
    made = IncidentStore(tmp_path / "incidents.db")
    done = opened(
        sighting("cheap", hours=1.0), sighting("dear", hours=50.0), sighting("grave", severity="high", priced=False),
        sighting("over"), renamed(sighting("odd", hours=2.0), HOSTILE),
    )  # fmt: skip
    made.commit(done)
    over = replace(done.incidents[3], state="resolved", resolved_at=NOW, resolution="released", resolution_told=True)
    made.commit(Advance((over,)))
    return made


def incidents(store: IncidentStore, *arguments: str) -> int:
    return main(["incidents", *arguments, "--state", str(store.path)])


def test_the_list_has_the_gravest_first_then_the_dearest(store: IncidentStore, capsys) -> None:
    assert incidents(store, "list") == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    order = [name for line in lines for name in ("grave", "dear", "odd", "cheap", "over") if f" {name}:" in line]
    assert order == ["grave", "dear", "cheap"]
    assert "dear: 8 H100s held but idle" in shown and "team search, user ann" in shown and "$150" in shown
    assert lines[-2] == "Cost: at list price, 2026-09-19 (azure.com)."
    assert lines[-1] == "1 resolved incident not listed; --all lists them."
    assert "\x1b" not in shown and "\u202e" not in shown and "[red]x[/red]" in shown
    assert incidents(store, "list", "--all") == 0
    assert "resolved: GPUs released" in capsys.readouterr().out


def test_json_has_every_figure_and_no_markup_of_its_own(store: IncidentStore, capsys) -> None:
    assert incidents(store, "list", "--all", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "skuwise.incidents/1"
    grave, dear, *_, over = document["incidents"]
    assert (grave["cost_usd"], grave["severity"], grave["state"]) == (None, "high", "open")
    assert (dear["gpu_hours"], dear["cost_usd"], dear["usd_per_hour"]) == (50.0, 150.0, 24.0)
    assert dear["since"] == "2026-11-15T22:00:00Z" and dear["subject"]["owner"]["team"] == "search"
    assert dear["text"]["code"] == "held-idle" and dear["evidence"][0]["threshold"] == 0.015
    assert over["resolution"] == "released" and over["resolved_at"] == "2026-11-16T00:00:00Z"


def test_show_names_the_evidence_the_cost_and_what_to_do(store: IncidentStore, capsys) -> None:
    assert incidents(store, "show", "dear") == 0
    shown = capsys.readouterr().out
    for text in (
        "dear: 8 H100s held but idle", "severity medium", "team search, user ann", "last work   2026-11-15 21:59 UTC",
        "50.0 GPU-hours observed so far", "$150 so far, $24.00 an hour, at list price, 2026-09-19",
        "engine 0.0004 ratio (threshold 0.015 ratio)", "Stop dear or cancel its job", "skuwise job dear SOURCE",
    ):  # fmt: skip
        assert text in " ".join(shown.split()) or text in shown, text
    assert incidents(store, "show", "grave") == 0
    assert "unknown: no price for these GPUs" in capsys.readouterr().out
    assert incidents(store, "show", "dear", "--format", "json") == 0
    one = json.loads(capsys.readouterr().out)
    assert one["schema"] == "skuwise.incident/1" and one["incident"]["gpu_hours"] == 50.0


def test_who_takes_it_and_how_long_it_waits_is_kept(store: IncidentStore, capsys) -> None:
    assert incidents(store, "acknowledge", "dear", "--by", "Ann\x1b[2J") == 0
    assert "is acknowledged by Ann\\x1b[2J." in capsys.readouterr().err
    assert incidents(store, "snooze", "7cheap", "--until", "8h") == 0
    assert "is snoozed until" in capsys.readouterr().err
    now = {one.sighting.subject.name: one for one in store.listed()}
    assert now["dear"].state == "acknowledged" and (now["dear"].acknowledged_by or "").startswith("Ann")
    assert now["cheap"].snoozed_until == pytest.approx(time.time() + 8 * 3600, abs=60)
    assert incidents(store, "list") == 0
    assert "snoozed until" in (shown := capsys.readouterr().out) and "acknowledged by Ann\\x1b[2J" in shown
    assert incidents(store, "acknowledge", "grave") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["show", "nothing"], 2, "No match for 'nothing'"),
        (["show", "n1"], 2, "matches 4 items"),
        (["acknowledge", "over"], 2, "was resolved on 2026-11-16 00:00 UTC"),
        (["snooze", "dear", "--until", "2001-01-01"], 2, "2001-01-01 00:00 UTC is in the past"),
        (["snooze", "dear", "--until", "soon"], 2, "Invalid end of a snooze 'soon'"),
        (["snooze", "dear", "--until", "999999999w"], 2, "Invalid end of a snooze"),
    ],
)
def test_what_cannot_be_is_a_sentence(store: IncidentStore, capsys, arguments, status: int, said: str) -> None:
    assert incidents(store, *arguments) == status
    assert said in capsys.readouterr().err
