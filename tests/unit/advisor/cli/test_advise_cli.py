"""`skuwise advise` as people run it, on simulated databases."""

import sqlite3
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.schemas import advised


def test_the_founding_case_is_found_priced_and_compared(founding, capsys):
    advice = advised(capsys, "--db", str(founding))
    found = [f for f in advice["findings"] if f["rule"] == "idle-fabric"]
    assert len(found) == 1 and found[0]["cost_usd"] > 0
    assert found[0]["price"] in {p["id"] for p in advice["prices"]}
    actions = {r["action"] for r in advice["recommendations"] if found[0]["id"] in r["findings"]}
    assert actions == {"move-sku", "reduce-gpus", "swap-placement"}
    assert {w["bottleneck"]["label"] for w in advice["workloads"]} == {"hbm-bandwidth"}
    parts = dict(advice["summary"]["reconciliation"])
    total = parts.pop("total")
    assert sum(parts.values()) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("form", ["table", "csv"])
def test_data_goes_to_stdout_and_progress_to_stderr(founding, form, capsys):
    assert main(["advise", "--db", str(founding), "--format", form]) == 0
    said = capsys.readouterr()
    assert "idle-fabric" in said.out and "reading telemetry" in said.err and "reading telemetry" not in said.out


def test_output_is_written_whole_or_not_at_all(founding, tmp_path, capsys):
    target = tmp_path / "report.md"
    target.write_text("old")
    assert main(["advise", "--db", str(founding), "--format", "markdown", "--output", str(target)]) == 0
    assert target.read_text().startswith("# GPU fleet: ")
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert capsys.readouterr().out == ""
    assert main(["advise", "--db", str(founding), "--output", str(tmp_path / "none" / "x.txt")]) == 1
    assert "Cannot write" in capsys.readouterr().err


def test_bad_databases_are_told_in_one_sentence(tmp_path, capsys):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like a file of some kind")
    for path in (foreign, tmp_path / "text.db", tmp_path / "missing.db"):
        assert main(["advise", "--db", str(path)]) in (1, 2, 3)
        said = capsys.readouterr().err
        assert "Traceback" not in said and "unexpected" not in said


def test_rules_list_names_the_services_of_a_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latency_classes.yaml").write_text(
        "classes:\n  quick: {first_token_p90_seconds: 0.05, reason: speech}\n"
        "services:\n  speech: {class: quick, match: {name: [x]}, reason: nobody waits}\n"
    )
    assert main(["rules", "list", "--rules", str(tmp_path)]) == 0
    assert "services speech: quick, nobody waits" in capsys.readouterr().out
