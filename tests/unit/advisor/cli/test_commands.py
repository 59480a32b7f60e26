"""Every command that reads a fleet, once, in process: its exit status, and that it says what it is for."""

import shlex
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.tests.support.schemas import advised

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
