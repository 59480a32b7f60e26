# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Commands as people run them, on simulated databases."""

import contextlib
import shlex
import shutil
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


# Command line, exit status, and a piece of its output. {db}: the founding case.
RUNS = (
    ("plan --db {db} --no-ledger", 0, "Plan: return 2 of 2 nodes"),
    ("plan --db {db} --no-ledger --format json", 0, '"skuwise.fleet-plan/1"'),
    ("plan --db {db} --no-ledger --goal nope", 2, ""), ("job --namespace nobody --db {db}", 3, ""),
    ("job --user nobody --db {db}", 3, ""), ("doctor --db {db}", 0, "serve-01"),
    ("doctor --db {db} --format json", 0, '"skuwise.doctor/1"'), ("showback --db {db}", 0, "serve"),
    ("showback --db {db} --format csv", 0, "BilledCost"), ("watch --db {db} --once --state {state}", 0, ""),
    ("idle serve-01 --db {db} --longer-than 2h", 5, ""),
    ("skus compare H100-SXM5 H200-SXM --phase decode --params 70B --format json", 0, '"time_ratio"'),
    ("skus plan --params 70B", 0, "H100"), ("rules list", 0, "idle-fabric"),
    # What is refused, or nothing to work on.
    ("plan --db {db} --max-moves -1", 2, "usage"), ("plan --db {db} --reserve x", 2, "usage"),
    ("plan --db {db} --seconds 0", 2, "usage"), ("plan --db {db} --growth nan", 2, "usage"),
    ("plan --db {db} --keep x", 2, "usage"), ("advise", 2, "usage"), ("advise --db x --since soon", 2, "usage"),
    ("advise --db x --until later", 2, "usage"), ("advise --db x --format xml", 2, "usage"),
    ("advise --db {db} --until 2001-01-01T00:00:00Z --since 1d", 3, "--since"),
    ("explain --db {db} nothing-such", 2, "No match for 'nothing-such'"),
    ("job nothing-such --db {db}", 3, "nothing-such"),
    ("doctor --db {db} --until 2001-01-01T00:00:00Z --since 1d", 3, "--since"),
    ("doctor --db {db} --match 'a=\"b\"'", 2, "--prometheus"),
    ("showback --db {db} --format csv --output /nowhere/a.csv", 1, "Cannot write /nowhere/a.csv"),
    ("showback --db {db} --teams /nowhere/teams.toml", 2, "/nowhere/teams.toml"),
    ("showback --db {db} --prices /nowhere/prices.yaml", 2, "/nowhere/prices.yaml"),
    ("showback --db {db} --until 2020-01-01T00:00:00Z --since 1d", 3, ""),
    ("showback --db {db} --by color", 2, "color"), ("showback --db {db} --format parquet", 2, "parquet"),
    ("rules check --gpu-hour-usd H100-SXM5=2.10", 0, "prices per GPU-hour: 1, valid"),
    ("advise --db {db} --gpu-hour-usd H100-SXM5=two", 2, "Invalid price of H100-SXM5 in --gpu-hour-usd: 'two'."),
    ("plan --db x --only ads --exclude ads", 2, "Team 'ads' is in --only and in --exclude."),
    ("plan --db x --add H100", 2, "Invalid nodes to add 'H100'"),
    ("plan --db x --demand chat", 2, "Invalid demand 'chat'"),
    ("plan --db x --demand 'all x2' --demand 'all x3'", 2, "is given twice"),
    ("plan --db x --commit-ends soon", 2, "soon"), ("advise --prometheus http://h --db x", 2, "not allowed with"),
    ("advise --db x.db --match 'a=\"b\"'", 2, "requires --prometheus"),
    ('advise --prometheus http://h --match \'a="b"}} or vector(1) or x{{c="d"\'', 2, "Invalid label matcher"),
    ("advise --prometheus http://h --match a=b", 2, "Invalid label matcher"),
    ("advise --prometheus http://me:secret@h", 2, "prometheus.username"), ("job", 2, ""), ("job 1 --user a", 2, ""),
    ("job --user a --format admin-comment", 2, ""), ("job 1 --format csv", 2, ""), ("job --keep-finished", 2, ""),
    ("job 1 --existing x", 2, ""), ("job --keep-finished --no-keep --db x", 2, ""), ("job 1 --format k8s-event", 2, ""),
)  # fmt: skip


@pytest.mark.parametrize(("line", "status", "said"), RUNS, ids=[run[0] for run in RUNS])
def test_a_command_runs(
    founding: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, status: int, said: str
) -> None:
    words = [word.format(db=founding, state=tmp_path / "incidents.db") for word in shlex.split(line)]
    try:
        ended: object = main(words)
    except SystemExit as stopped:
        ended = stopped.code
    shown = capsys.readouterr()
    assert ended == status, shown.err
    assert said in (shown.out if status in (0, 5) else shown.err)
    if status not in (0, 5):
        told = shown.err.splitlines()[-1]
        assert not shown.out and told.startswith("skuwise") and "secret" not in shown.err
    assert "Traceback" not in shown.err


def test_a_job_of_the_advice_has_a_card(founding: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = advised(capsys, "--db", str(founding))["recommendations"][0]["workload"]
    for form in ("table", "json", "html"):
        assert main(["job", work, "--db", str(founding), "--no-keep", "--format", form]) == 0
        assert work in capsys.readouterr().out


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def hall(founding: Path, tmp_path: Path) -> Path:
    """The founding case in somebody's own hall: no provider, no SKU, no region."""
    path = tmp_path / "hall.db"
    shutil.copy(founding, path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE node SET provider = NULL, region = NULL, node_sku = NULL, instance_type = NULL")
        db.commit()
    return path


def test_dollars_per_gpu_hour_from_the_flag_or_the_settings(hall, tmp_path, capsys) -> None:
    before = advised(capsys, "--db", str(hall))
    assert before["summary"]["cost_usd"] is None
    (line,) = [n for n in before["notes"] if n["code"] == "prices-missing"]
    assert "--gpu-hour-usd H100-SXM5=PRICE" in line["text"]
    by_flag = advised(capsys, "--db", str(hall), "--gpu-hour-usd", "H100-SXM5=2.10")
    assert by_flag["summary"]["cost_usd"] == pytest.approx(2.10 * by_flag["summary"]["gpu_hours"])
    (price,) = by_flag["prices"]
    assert (price["basis"], price["region_assumed"]) == ("owned", False)
    assert price["source"] == "your setting, gpu_hour_usd"
    assert by_flag["summary"]["recoverable_usd_per_month"] == 0
    settings = tmp_path / "config" / "skuwise" / "skuwise.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[prices]\ngpu_hour_usd = { "H100-SXM-80GB" = 2.10 }\n')
    assert advised(capsys, "--db", str(hall))["prices"] == by_flag["prices"]
    # The agent reads the same file, and passes over what is the advisor's.
    assert main(["explain", "--db", str(hall), by_flag["findings"][0]["id"], "--no-ledger"]) == 0
