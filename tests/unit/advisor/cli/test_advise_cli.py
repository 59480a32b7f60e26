"""Commands as people run them on simulated databases, and what an attacker may hand to them."""

import json
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.http_session import secret
from skuwise.advisor.notify.routes import load_routes
from skuwise.agent.config import load_config
from skuwise.agent.slurm_jobs.read_jobs import read_job_table
from skuwise.rules.base.errors import RulesError, SkuwiseError, UsageError
from skuwise.rules.base.files import TOML_MAX_BYTES, read_bounded, read_toml
from skuwise.rules.base.output import write_whole
from skuwise.rules.base.yaml_loader import read_table as read_rules
from skuwise.rules.base.yaml_loader import rules_root
from skuwise.tests.support.schemas import advised, validate


def test_bad_databases_are_refused_in_one_sentence(tmp_path, capsys):
    with sqlite3.connect(tmp_path / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "text.db").write_text("no database at all, but long enough to look like a file of some kind")
    for name in ("foreign.db", "text.db", "missing.db", "\x1b[31mred\u202e.db"):
        assert main(["advise", "--db", str(tmp_path / name)]) in (1, 2, 3)
        said = capsys.readouterr().err
        assert not [part for part in ("Traceback", "unexpected", "\x1b", "\u202e") if part in said]
    assert "\\x1b[31mred" in said


# Command line, exit status, and a piece of its output. {db}: the founding case.
RUNS = (
    ("advise --db {db} --format csv", 0, "idle-fabric"), ("advise --db {db} --format markdown", 0, "# GPU fleet: "),
    ("plan --db {db} --no-ledger", 0, "Plan: return 4 of 4 nodes"),
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
    ("advise --db {db} --gpu-hour-usd H100-SXM5=two", 2, "Invalid price of 'H100-SXM5' in --gpu-hour-usd: 'two'."),
    ("plan --db x --only ads --exclude ads", 2, "Team 'ads' is in --only and in --exclude."),
    ("plan --db x --add H100", 2, "Invalid nodes to add 'H100'"),
    ("plan --db x --demand chat", 2, "Invalid demand 'chat'"),
    ("plan --db x --demand 'all x2' --demand 'all x3'", 2, "is given twice"),
    ("plan --db x --commit-ends soon", 2, "soon"), ("advise --prometheus http://h --db x", 2, "exclude each other"),
    ("advise --db x.db --match 'a=\"b\"'", 2, "requires --prometheus"),
    ('advise --prometheus http://h --match \'a="b"}} or vector(1) or x{{c="d"\'', 2, "Invalid label matcher"),
    ("advise --prometheus http://h --match a=b", 2, "Invalid label matcher"),
    ("advise --prometheus http://me:secret@h", 2, "prometheus.username"), ("job", 2, ""), ("job 1 --user a", 2, ""),
    ("job --user a --format admin-comment", 2, ""), ("job 1 --format csv", 2, ""), ("job --keep-finished", 2, ""),
    ("job 1 --existing x", 2, ""), ("job --keep-finished --no-keep --db x", 2, ""), ("job 1 --format k8s-event", 2, ""),
)  # fmt: skip


@pytest.mark.parametrize(("line", "status", "said"), RUNS, ids=[run[0] for run in RUNS])
def test_a_command_runs(founding, tmp_path: Path, capsys, line: str, status: int, said: str) -> None:
    words = [word.format(db=founding, state=tmp_path / "incidents.db") for word in shlex.split(line)]
    ended = main(words)
    shown = capsys.readouterr()
    assert ended == status, shown.err
    assert said in (shown.out if status in (0, 5) else shown.err)
    if status not in (0, 5):
        assert not shown.out and shown.err.splitlines()[-1].startswith("skuwise") and "secret" not in shown.err
    assert "Traceback" not in shown.err


@pytest.fixture
def crafted(founding, tmp_path):
    def make(*statements: tuple[str, object]) -> Path:
        path = tmp_path / "crafted.db"
        path.write_bytes(founding.read_bytes())
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = 1")
            for statement, value in statements:
                connection.execute(statement, (value,))
        return path

    return make


def test_dollars_per_gpu_hour_from_the_flag_or_the_settings(crafted, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    hall = crafted(("UPDATE node SET region = NULL, node_sku = NULL, instance_type = NULL, provider = ?", None))
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


PAYLOAD = "\x1b[2J\u202e\x9b31m[red]x[/red]<script>|=cmd|' /C calc'!A0[a](javascript:b)`x`'; DROP TABLE node;--\r\n# h"


def printed(line: str, path: Path, capsys) -> tuple[str, str]:
    assert main([*line.split(), "--db", str(path), "--no-ledger"]) == 0
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err, said.err
    return said.out, said.err


NUMBERS = (
    "gpu.power_limit_watts", "gpu.nvlink_links", "gpu.mem_total_bytes", "node.gpu_count", "workload.last_seen",
    "workload_use.shared", "gpu_hour.sm_active_mean", "absence.since",
)  # fmt: skip


@pytest.mark.parametrize("value", [9e999, "12 pounds"], ids=["infinite", "text"])
def test_a_database_without_a_number_in_many_places_is_still_read(crafted, capsys, value) -> None:
    pairs = [name.split(".") for name in NUMBERS]
    path = crafted(*((f"UPDATE OR IGNORE {table} SET {column} = ?", value) for table, column in pairs))
    validate(json.loads(printed("advise --format json", path, capsys)[0]), "advice")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("advise", PAYLOAD), ("advise --format csv", PAYLOAD), ("advise --format markdown", PAYLOAD),
        ("advise --format json", b"\xff\xfe"), ("advise", "n" * 100_000), ("plan --seconds 2", PAYLOAD),
    ],
    ids=["table", "csv", "markdown", "bytes", "long", "plan"],
)  # fmt: skip
def test_names_have_no_effect_wherever_they_are_shown(crafted, capsys, line, value) -> None:
    names = ("workload SET name", "workload SET user", "workload SET workload_id", "node SET cluster", "node SET node")
    path = crafted(*((f"UPDATE OR IGNORE {name} = ?", value) for name in names))
    out, err = printed(line, path, capsys)
    assert not [c for c in out + err if (ord(c) < 32 and c not in "\r\n") or c in "\x7f\x9b\u202e"]
    assert len(out) < 1_000_000 and ("<script" not in out or "markdown" not in line)


def test_rules_that_are_no_files_are_refused_at_once(tmp_path) -> None:
    (tmp_path / "waste").mkdir()
    os.mkfifo(tmp_path / "waste" / "idle.yaml")
    with pytest.raises(RulesError, match="no ordinary file"):
        rules_root(tmp_path)


def test_output_replaces_a_file_but_no_pipe_or_device(tmp_path) -> None:
    pipe, report = tmp_path / "pipe", tmp_path / "report.md"
    report.write_text("old")
    write_whole(report, "new")
    assert report.read_text() == "new" and list(tmp_path.iterdir()) == [report]
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "report")
    reader.join(timeout=60)
    assert read == ["report"] and pipe.is_fifo()
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_whole(null, "report")
    assert null.is_char_device()


def settings(path: Path) -> object:
    return load_config({"config": path}, {})


READERS: dict[str, Callable[[Path], object]] = {
    "settings": settings, "routes": load_routes, "rules": read_rules, "secret": lambda path: secret(str(path), {}),
    "toml": lambda path: read_toml(path, str(path)),
}  # fmt: skip
MAKERS: dict[str, Callable[[Path], object]] = {
    "zero": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": lambda path: (path.touch(0o600), os.truncate(path, 1 << 40)),
    "binary": lambda path: (path.touch(0o600), path.write_bytes(b"a = 1\nb = \xff\xfe\x00")),
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_of_text_is_refused_in_a_sentence(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / kind
    MAKERS[kind](path)
    with pytest.raises(SkuwiseError) as refused:
        READERS[reader](path)
    assert str(path) in str(refused.value) and refused.value.remedy, refused.value


def test_a_byte_order_mark_is_dropped_and_utf_16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "skuwise.toml"
    path.write_bytes('node = "gpu-001"\n'.encode("utf-8-sig"))
    assert load_config({"config": path}, {}).node == "gpu-001"
    path.write_bytes('node = "gpu-001"\n'.encode("utf-16"))
    with pytest.raises(UsageError, match="line 1 is not UTF-8"):
        settings(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"), ("[" + "a." * 30_000 + "a]", "more than 64 dots"),
        ("a = " + "9" * 5000, "not valid TOML"), ("a = '\0'", "not valid TOML"),
        ('"""\\' * 50_000, "not valid TOML"),
        ("#" * (TOML_MAX_BYTES + 1), "larger than 1 MiB"),
    ],
    ids=range(6),
)  # fmt: skip
def test_settings_made_to_break_the_reader_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "skuwise.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=fault):
        settings(path)


def test_a_pipe_that_nobody_writes_and_a_job_table_that_is_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="its end was not written"):
        read_bounded(tmp_path / "pipe", 100, 0.05)
    for target in ("/dev/zero", "/dev/full", "/dev/random"):
        with pytest.raises(UsageError, match="device"):
            read_job_table(Path(target))
