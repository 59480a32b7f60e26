"""A plan kept on a fleet, carried out, and undone, through the real commands."""

from __future__ import annotations

import email
import json
from email.policy import default as default_policy
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.benchmarks.generators.first import simulate

BEFORE, AFTER, BACK = "2026-11-09", "2026-11-16", "2026-11-23"


@pytest.mark.slow
def test_a_plan_is_kept_done_realized_told_by_mail_and_regresses(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet = tmp_path / "fleet"
    fleet.mkdir()

    def run(*arguments: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert main([str(one) for one in arguments]) == status
        told = capsys.readouterr()
        return told.out, told.err

    def plan() -> dict:
        (found,) = json.loads(run("ledger", "plan", "--format", "json")[0])["plans"]
        return found

    run("simulate", "founding", "--db", fleet / "before.db", "--days", "3", "--seed", "5", "--until", BEFORE)
    keep = ("plan", "--db", fleet, "--since", "3d", "--until", BEFORE, "--seconds", "2", "--keep", "autumn")
    run(*keep, "--no-ledger", status=2)
    run(*keep, "--add", "4xH100-SXM5", status=2)
    run("plan", "--db", fleet, "--accept", status=2)
    shown, told = run(*keep, "--accept", "--by", "ann")
    assert "is followed in" in told and "1 recommendation accepted" in told and "Plan: return 2 of 2" in shown
    begun = plan()
    (step,) = [s for s in begun["steps"] if s["recommendation"]]
    assert (begun["name"], begun["by"], begun["steps_done"], step["state"]) == ("autumn", "ann", 0, step["state"])
    assert step["state"] in ("pending", "waiting") and begun["realised_usd_per_month"] == 0
    saving = begun["planned_usd_per_month"]
    assert saving == pytest.approx(2 * (98.32 - 88.488) * 730, rel=1e-3)
    assert "accepted by ann" in run("ledger", "show", step["recommendation"])[0]

    simulate("moved", fleet / "after.db", days=7, seed=5, until=parse_moment(AFTER))
    told = run("advise", "--db", fleet, "--until", AFTER)[1]
    assert "2 nodes of the plan are returned" in told and "2 nodes of the plan are rented" in told
    done = plan()
    (step,) = [s for s in done["steps"] if s["recommendation"]]
    assert step["state"] == "done" and done["steps_done"] == len(done["steps"]) and done["nodes_returned"] == 2
    assert done["realised_usd_per_month"] == pytest.approx(saving)
    assert {n["state"] for n in done["nodes"]} == {"returned", "rented"}
    assert "2 of 2 nodes returned" in run("ledger", "plan")[0]
    assert "the plan of" in run("ledger", "show", step["recommendation"])[0]

    run("report", "--db", fleet, "--week", "2026-11-10", "--preview", tmp_path / "mails")
    mail = email.message_from_bytes((tmp_path / "mails/fleet.eml").read_bytes(), policy=default_policy)
    body = mail.get_body(("plain",))
    assert body is not None
    text = " ".join(body.get_content().split())
    assert "2 of 2 nodes returned, $14,355 of $14,355/month realized" in text and "ledger plan" in text

    run("simulate", "founding", "--db", fleet / "back.db", "--days", "7", "--seed", "5", "--until", BACK)
    told = run("advise", "--db", fleet, "--until", BACK)[1]
    assert "regressed" in told
    undone = plan()
    (step,) = [s for s in undone["steps"] if s["recommendation"]]
    assert step["state"] == "regressed" and undone["nodes_returned"] == 0
    assert undone["realised_usd_per_month"] <= 0
    # An older window tells nothing of a newer plan.
    run("advise", "--db", fleet, "--until", AFTER)
    assert plan()["nodes"] == undone["nodes"]

    assert "no longer followed" in run("ledger", "plan", "--drop", "--why", "enough")[1]
    run("ledger", "plan", status=3)
