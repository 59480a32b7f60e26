"""Every command that reads a fleet, once, in process: its exit status, and that it says what it is for."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import demo

# Command line, exit status, and a piece of its output. {db}: the founding case.
RUNS = (
    ("plan --db {db} --no-ledger", 0, "Plan: return 2 of 2 nodes"),
    ("plan --db {db} --no-ledger --format json", 0, '"skuwise.fleet-plan/1"'),
    ("plan --db {db} --no-ledger --goal nope", 2, ""),
    ("job --namespace nobody --db {db}", 3, ""),
    ("job --user nobody --db {db}", 3, ""),
    ("doctor --db {db}", 0, "serve-01"),
    ("doctor --db {db} --format json", 0, '"skuwise.doctor/1"'),
    ("showback --db {db}", 0, "serve"),
    ("showback --db {db} --format csv", 0, "BilledCost"),
    ("watch --db {db} --once --state {state}", 0, ""),
    ("idle serve-01 --db {db} --longer-than 2h", 5, ""),
    ("skus compare H100-SXM5 H200-SXM --phase decode --params 70B --format json", 0, '"time_ratio"'),
    ("skus plan --params 70B", 0, "H100"),
    ("rules list", 0, "idle-fabric"),
)


@pytest.mark.parametrize(("line", "status", "said"), RUNS, ids=[run[0] for run in RUNS])
def test_a_command_runs(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, status: int, said: str
) -> None:
    words = [word.format(db=founding, state=tmp_path / "incidents.db") for word in line.split()]
    try:
        ended: object = main(words)
    except SystemExit as stopped:
        ended = stopped.code
    shown = capsys.readouterr()
    assert ended == status, shown.err
    assert said in shown.out
    assert "Traceback" not in shown.err


def test_a_recommendation_is_accepted_and_shown(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["--ledger", str(tmp_path / "ledger.db")]
    assert main(["advise", "--db", str(founding), "--format", "json", *kept]) == 0
    advice = json.loads(capsys.readouterr().out)
    move = next(r for r in advice["recommendations"] if r["action"] == "move-sku" and not r["blocked_by"])
    assert main(["patch", move["id"], "--for", "kubernetes", *kept]) == 2
    assert "not accepted" in capsys.readouterr().err
    assert main(["ledger", "accept", move["id"], *kept]) == 0
    assert main(["patch", move["id"], "--for", "kubernetes", *kept]) == 2
    assert "not accepted" not in capsys.readouterr().err
    assert main(["ledger", "list", *kept]) == 0
    assert "accepted" in capsys.readouterr().out
    assert main(["ledger", "show", move["id"], *kept]) == 0
    assert move["id"] in capsys.readouterr().out
    for form in ("table", "json", "html"):
        assert main(["job", move["workload"], "--db", str(founding), "--no-keep", "--format", form]) == 0
        assert move["workload"] in capsys.readouterr().out


def test_the_demo_writes_advice_and_mail_and_prints_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = functools.partial(demo.simulate, nodes=("h100-ib-serve-01", "h100-eth-tune-01"))
    monkeypatch.setattr(demo, "simulate", few)
    monkeypatch.setattr(demo, "DAYS", 3)
    monkeypatch.setattr(demo, "_has_gpus", lambda: False)
    assert main(["demo", "--dir", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert [line[:3] for line in said.err.splitlines()] == ["1/4", "2/4", "3/4", "4/4"]
    assert "explain" in said.out and str(tmp_path / "fleet.db") in said.out
    assert {"advice.html", "fleet.db", "mail"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "mail" / "fleet.html").exists()
    assert main(["demo", "--dir", str(tmp_path)]) == 2  # it is there already
