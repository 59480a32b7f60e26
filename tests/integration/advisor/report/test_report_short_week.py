"""A week of which 15 hours were observed, mailed: nothing in it is a zero that was never measured."""

from __future__ import annotations

import email
import json
import re
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import cast

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.demo import simulate

HOURS = 15
MONDAY, NEXT = "2026-03-02", "2026-03-09"
TEAMS = """
administrators = ["platform@example.org"]
[teams.serving]
sku = ["H100*"]
to = ["serving@example.org"]
"""
# Words that state a zero, an absence or a whole week.
UNTRUE = (
    "(7.0 days)", "(7 days)", "No GPU was idle", "No waste found", "No recommendation: nothing saves", "wasted $0",
    "No cash", "All metrics that the verdicts need were observed",
)  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "founding.db"
    simulate("founding", path, days=HOURS / 24, seed=4, until=parse_moment(NEXT))
    return path


def mails(folder: Path, fleet: Path) -> dict[str, EmailMessage]:
    teams, out = folder / "teams.toml", folder / "out"
    teams.write_text(TEAMS)
    asked = ("report", "--db", str(fleet), "--preview", str(out), "--week", MONDAY, "--teams", str(teams))
    assert main([*asked, "--no-ledger"]) == 0
    return {
        path.stem: cast("EmailMessage", email.message_from_bytes(path.read_bytes(), policy=default_policy))
        for path in out.glob("*.eml")
    }


def body(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    assert part is not None
    return " ".join(part.get_content().split())


def test_a_week_of_15_hours_is_mailed_as_such(fleet: Path, tmp_path: Path) -> None:
    made = mails(tmp_path, fleet)
    assert set(made) == {"fleet", "serving"}
    for message in made.values():
        assert f"{HOURS} of 168 h observed" in message["subject"]
        for kind in ("plain", "html"):
            told = body(message, kind)
            assert f"{HOURS} of 168 h observed" in told
            assert told.count("not judged") >= 2
            assert "Waste was not judged: no GPU was observed for the 30 h that it takes." in told
            assert not [one for one in UNTRUE if one in told]
    (attached,) = [
        part for part in made["fleet"].iter_attachments() if part.get_filename() == f"skuwise-{MONDAY}.json"
    ]  # fmt: skip
    summary = json.loads(attached.get_content())["summary"]
    assert summary["wasted_usd"] is None
    assert summary["recoverable_usd_per_month"] is None
    assert summary["judged_gpu_count"] == 0
    assert summary["observed_hours"] == pytest.approx(HOURS, abs=0.1)
    assert summary["cost_usd"] > 0


def test_the_table_of_such_a_week_states_no_zero(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--db", str(fleet), "--since", "7d", "--no-ledger"]) == 0
    told = capsys.readouterr().out
    assert f"{HOURS} of 168 h observed" in "\n".join(told.splitlines()[:4])
    for figure in ("Wasted", "Recoverable"):
        assert re.search(rf"{figure} +not judged", told)
    assert not [one for one in UNTRUE if one in " ".join(told.split())]
