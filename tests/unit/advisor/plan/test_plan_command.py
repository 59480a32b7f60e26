"""`skuwise plan` as people run it, on a simulated database."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.founding_database import founding  # noqa: F401 - a fixture
from skuwise.tests.support.schemas import validate

PAYLOAD = "\x1b[2J\u202e[red]x[/red]<script>alert(1)</script>|=cmd|' /C calc'!A0[a](javascript:b)`x`"


def plan(*arguments: str, capsys) -> tuple[int, str, str]:
    status = main(["plan", *arguments, "--seconds", "2", "--no-ledger"])
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err, said.err
    return status, said.out, said.err


def test_the_founding_case_becomes_a_plan_in_a_file(founding, tmp_path, capsys):  # noqa: F811
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
    assert emptied == {r["node"] for r in document["returned"]}
    assert document["solver"]["proven"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "ads", "--exclude", "ads"), "Team 'ads' is in --only and in --exclude."),
        (("--add", "H100"), "Invalid nodes to add 'H100'"),
        (("--demand", "chat"), "Invalid demand 'chat'"),
        (("--demand", "all x2", "--demand", "all x3"), "is given twice"),
        (("--commit-ends", "soon"), "soon"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_with_a_remedy(arguments, said, capsys):
    status, out, err = plan("--db", "nowhere.db", *arguments, capsys=capsys)
    assert (status, out) == (2, "")
    told = err.splitlines()[-1]
    assert said in told and told.startswith("skuwise: ") and told.count(". ") >= 1


@pytest.mark.parametrize(
    "arguments",
    [("--max-moves", "-1"), ("--reserve", "x"), ("--seconds", "0"), ("--growth", "nan"), ("--goal", "fame"),
     ("--keep", "x")],
)  # fmt: skip
def test_wrong_options_are_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--db", "nowhere.db", *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_hostile_names_have_no_effect(founding: Path, tmp_path, capsys):  # noqa: F811
    path = tmp_path / "crafted.db"
    path.write_bytes(founding.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE workload SET name = ?, namespace = ?, user = ?", (PAYLOAD, PAYLOAD, PAYLOAD))
        connection.execute("UPDATE node SET node = node || ?", (PAYLOAD,))
    status, out, _ = plan("--db", str(path), capsys=capsys)
    assert status == 0
    assert "\x1b" not in out and "\u202e" not in out
    for text in ("Nodes to return", "Steps", "Fleet before and after", "How good this plan is"):
        assert text in out


def test_the_ledger_knows_the_recommendations_of_a_plan(founding, tmp_path, capsys):  # noqa: F811
    ledger, where = tmp_path / "ledger.db", ("--db", str(founding), "--seconds", "2")
    assert main(["plan", *where, "--ledger", str(ledger)]) == 0
    found = re.findall(r"ledger accept (r-[0-9a-f]+)", capsys.readouterr().out)
    assert found
    assert main(["ledger", "dismiss", found[0], "--why", "no", "--ledger", str(ledger)]) == 0
    capsys.readouterr()
    assert main(["plan", *where, "--ledger", str(ledger), "--format", "json"]) == 0
    assert found[0] not in {s["recommendation"] for s in json.loads(capsys.readouterr().out)["steps"]}
