"""`skuwise advise` as people run it, on simulated databases."""

import json
import sqlite3

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.schemas import validate


def test_the_founding_case_is_found_priced_and_compared(founding, capsys):
    assert main(["advise", "--db", str(founding), "--format", "json"]) == 0
    out = capsys.readouterr().out
    advice = json.loads(out)
    validate(advice, "advice")
    found = [f for f in advice["findings"] if f["rule"] == "idle-fabric"]
    assert len(found) == 1
    assert found[0]["cost_usd"] > 0
    assert found[0]["price"] in {p["id"] for p in advice["prices"]}
    actions = {r["action"] for r in advice["recommendations"] if found[0]["id"] in r["findings"]}
    assert actions == {"move-sku", "reduce-gpus", "swap-placement"}
    parts = dict(advice["summary"]["reconciliation"])
    total = parts.pop("total")
    assert sum(parts.values()) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("form", ["table", "csv"])
def test_data_goes_to_stdout_and_progress_to_stderr(founding, form, capsys):
    assert main(["advise", "--db", str(founding), "--format", form]) == 0
    said = capsys.readouterr()
    assert "idle-fabric" in said.out
    assert "reading telemetry" in said.err
    assert "reading telemetry" not in said.out


def test_output_is_written_whole_or_not_at_all(founding, tmp_path, capsys):
    target = tmp_path / "report.md"
    target.write_text("old")
    assert main(["advise", "--db", str(founding), "--format", "markdown", "--output", str(target)]) == 0
    assert target.read_text().startswith("# GPU fleet: ")
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert capsys.readouterr().out == ""
    assert main(["advise", "--db", str(founding), "--output", str(tmp_path / "none" / "x.txt")]) == 1
    assert "Cannot write" in capsys.readouterr().err


def test_own_prices_come_first(founding, tmp_path, capsys):
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "prices:\n  - sku: azure/Standard_ND96isr_H100_v5\n    region: eastus\n    usd_per_hour: 40.0\n"
        "    basis: owned\n    source: books\n    as_of: 2026-10-01\n"
    )
    assert main(["advise", "--db", str(founding), "--format", "json", "--prices", str(prices)]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert any(p["basis"] == "owned" and p["usd_per_hour"] == 40.0 for p in advice["prices"])
    assert advice["summary"]["recoverable_usd_per_month"] == 0


def test_a_short_window_gives_no_waste_and_says_from_when(founding, capsys):
    assert main(["advise", "--db", str(founding), "--since", "6h", "--format", "json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["findings"] == []
    assert any("verdict" in note["text"] for note in advice["notes"])


def test_a_window_without_data_is_nothing_to_work_on(founding, capsys):
    assert main(["advise", "--db", str(founding), "--until", "2001-01-01T00:00:00Z", "--since", "1d"]) == 3
    assert "--since" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--db", "x", "--since", "soon"], ["--db", "x", "--until", "later"], ["--db", "x", "--format", "xml"]],
)
def test_wrong_usage_is_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["advise", *arguments])
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_bad_databases_are_told_in_one_sentence(tmp_path, capsys):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like a file of some kind")
    for path in (foreign, tmp_path / "text.db", tmp_path / "missing.db"):
        assert main(["advise", "--db", str(path)]) in (1, 2, 3)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "unexpected" not in said


def test_explain_tells_a_workload(founding, capsys):
    assert main(["advise", "--db", str(founding), "--format", "json"]) == 0
    workload = json.loads(capsys.readouterr().out)["workloads"][0]
    assert main(["explain", "--db", str(founding), workload["id"]]) == 0
    assert "Bottleneck: hbm-bandwidth" in capsys.readouterr().out


def test_explain_refuses_what_is_not_there(founding, capsys):
    assert main(["explain", "--db", str(founding), "nothing-such"]) == 2
    assert "No match for 'nothing-such'" in capsys.readouterr().err
