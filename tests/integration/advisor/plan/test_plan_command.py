"""`skuwise plan` as people run it, on simulated databases."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from skuwise.__main__ import main

PAYLOAD = "\x1b[2J\u202e[red]x[/red]<script>alert(1)</script>|=cmd|' /C calc'!A0[a](javascript:b)`x`"
SCHEMA = json.loads(files("skuwise.advisor.render").joinpath("schema", "fleet-plan-1.schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def founding(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "founding.db"
    assert main(["simulate", "founding", "--db", str(path), "--days", "3", "--seed", "4"]) == 0
    return path


@pytest.fixture(scope="module")
def crafted(founding, tmp_path_factory) -> Path:
    """The same with a hostile name for everything that has one."""
    path = tmp_path_factory.mktemp("crafted") / "crafted.db"
    path.write_bytes(founding.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE workload SET name = ?, namespace = ?, user = ?", (PAYLOAD, PAYLOAD, PAYLOAD))
        connection.execute("UPDATE node SET node = node || ?", (PAYLOAD,))
    return path


def plan(*arguments: str, capsys) -> tuple[int, str, str]:
    status = main(["plan", *arguments, "--no-ledger"])
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err, said.err
    return status, said.out, said.err


def test_the_founding_case_becomes_a_plan(founding, capsys):
    status, out, err = plan("--db", str(founding), "--format", "json", capsys=capsys)
    assert status == 0 and "reading telemetry" in err
    document = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["schema"] == "skuwise.fleet-plan/1"
    assert len(document["returned"]) == len(document["rented"]) > 0
    assert document["cash"][-1]["saving_usd_per_month"]["p50"] > 0
    moved = [s for s in document["steps"] if s["action"] == "move-sku"]
    assert moved and all(s["recommendation"].startswith("r-") for s in moved)
    emptied = {name for s in document["steps"] for name in s["frees"]}
    assert emptied == {r["node"] for r in document["returned"]}
    assert document["solver"]["proven"]


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_every_format_names_nodes_steps_and_what_to_do_next(founding, form, capsys):
    status, out, _ = plan("--db", str(founding), "--format", form, capsys=capsys)
    assert status == 0
    for text in ("Nodes to return", "Steps", "Fleet before and after", "How good this plan is", "ledger accept r-"):
        assert text in out


def test_a_plan_goes_to_a_file_whole_or_not_at_all(founding, tmp_path, capsys):
    path = tmp_path / "plan.json"
    status, out, err = plan("--db", str(founding), "--format", "json", "--output", str(path), capsys=capsys)
    assert (status, out) == (0, "") and f"written to {path}" in err
    assert json.loads(path.read_text())["goal"] == "cash"
    status, _, err = plan("--db", str(founding), "--output", str(tmp_path / "no" / "plan.txt"), capsys=capsys)
    assert status != 0 and not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "ads", "--exclude", "ads"), "Team 'ads' is in --only and in --exclude."),
        (("--only", "nobody"), "Unknown team 'nobody' in this window."),
        (("--exclude", "nothing"), "Unknown name 'nothing' in this window."),
        (("--remove", "nothing"), "Unknown node 'nothing'."),
        (("--add", "H100"), "Invalid nodes to add 'H100'"),
        (("--add", "2xB200"), "No node of the fleet is 'B200'."),
        (("--demand", "chat"), "Invalid demand 'chat'"),
        (("--demand", "all x2", "--demand", "all x3"), "is given twice"),
        (("--commit-ends", "soon"), "soon"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_with_a_remedy(founding, arguments, said, capsys):
    status, out, err = plan("--db", str(founding), *arguments, capsys=capsys)
    assert (status, out) == (2, "")
    told = err.splitlines()[-1]
    assert said in told and told.startswith("skuwise: ") and told.count(". ") >= 1


@pytest.mark.parametrize(
    "arguments",
    [("--max-moves", "-1"), ("--reserve", "x"), ("--seconds", "0"), ("--growth", "nan"), ("--goal", "fame")],
)
def test_wrong_options_are_wrong_usage(founding, arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--db", str(founding), *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_demand_that_exceeds_everything_is_told_missing(founding, capsys):
    status, out, _ = plan("--db", str(founding), "--demand", "all x100", "--format", "json", capsys=capsys)
    document = json.loads(out)
    assert status == 0 and document["returned"] == []
    assert len(document["missing"]) > 100
    assert [c["code"] for c in document["changes"]] == ["whatif-demand"]


def test_no_telemetry_is_nothing_to_work_on(founding, capsys):
    status, out, err = plan("--db", str(founding), "--until", "2020-01-01", capsys=capsys)
    assert status == 3 and out == "" and err


@pytest.mark.parametrize("form", ["table", "json", "markdown", "html"])
def test_hostile_names_have_no_effect(crafted, form, capsys):
    status, out, _ = plan("--db", str(crafted), "--format", form, capsys=capsys)
    assert status == 0
    assert "\x1b" not in out and "\u202e" not in out
    if form == "html":
        assert "<script" not in out.lower()
    elif form == "markdown":
        assert "[a](javascript" not in out
    elif form == "json":
        json.loads(out)
    else:
        assert "[red]x" in out  # markup is text


def test_the_ledger_knows_the_recommendations_of_a_plan(founding, tmp_path, capsys):
    ledger = tmp_path / "ledger.db"
    assert main(["plan", "--db", str(founding), "--ledger", str(ledger)]) == 0
    found = re.findall(r"ledger accept (r-[0-9a-f]+)", capsys.readouterr().out)
    assert found
    assert main(["ledger", "accept", found[0], "--by", "ann", "--ledger", str(ledger)]) == 0
    assert main(["plan", "--db", str(founding), "--ledger", str(ledger), "--format", "json"]) == 0
    assert found[0] in {s["recommendation"] for s in json.loads(capsys.readouterr().out)["steps"]}
    assert main(["ledger", "dismiss", found[0], "--why", "no", "--ledger", str(ledger)]) == 0
    capsys.readouterr()
    assert main(["plan", "--db", str(founding), "--ledger", str(ledger), "--format", "json"]) == 0
    assert found[0] not in {s["recommendation"] for s in json.loads(capsys.readouterr().out)["steps"]}
