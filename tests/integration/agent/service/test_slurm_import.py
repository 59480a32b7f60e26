"""`skuwise slurm import` of files that a real sacct wrote, and of a sacct and a slurmrestd made up here (doubles: they
print what the real ones print), into a node's database while its agent writes, and into a file that `--jobs` takes."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path

import pytest
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.base.slurm_job import SlurmJob
from skuwise.agent.inventory.identity.ids import workload_id
from skuwise.agent.model import Gpu, Node, Tick, Workload
from skuwise.agent.slurm_jobs.ask import ask_sacct
from skuwise.agent.slurm_jobs.rest import ask_slurmrestd
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings, load_slurm_settings
from skuwise.agent.slurm_jobs.table_file import read_job_table, write_job_table
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.writing.slurm_rows import write_jobs
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import SkuwiseError, UsageError

DATA = Path(__file__).parents[3] / "data" / "sacct"
T0 = 1795373580.0  # half a minute before the first of the real jobs
GPUS = [Gpu(f"GPU-{n}", n, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30) for n in range(2)]


def database(path: Path, *, node: str = "gpunode.site", cluster: str = "", seconds: int = 120) -> Path:
    """A node on which jobs 5, 7 and 9 of the real table held GPU 0, known by their numbers."""
    with Writer.open(path) as writer:
        one = writer.for_node(Node(node, cluster, machine_id="m", gpu_count=2), T0)
        one.set_gpus(GPUS, T0)
        for second in range(seconds):
            values = {gpu.uuid: {"sm_active": 0.5, "power_watts": 300.0} for gpu in GPUS}
            one.add_tick(Tick(T0 + second + 1, 1.0, values, {}, {}, {}))
        for job, start, end in (("5", 21, 25), ("7", 33, 35), ("9", 33, 45)):
            name = f"job {job}"
            work = Workload(workload_id(cluster, "slurm", job), f"s-{job}", name, "slurm", job_id=job)
            one.put_workload_use(work, "GPU-0", T0 + start, T0 + end, "allocation")
    return path


def skuwise(
    *arguments: str, environ: Mapping[str, str] | None = None, stdin: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SKUWISE_", "SLURM_", "SACCT_"))}
    return subprocess.run(
        [sys.executable, "-m", "skuwise", *arguments], env={**own, "TZ": "UTC", **(environ or {})}, input=stdin,
        capture_output=True, check=False, timeout=120, cwd=folder,
    )  # fmt: skip


def rows(path: Path) -> list[tuple[object, ...]]:
    with open_reader(path) as reader:
        return reader.fetch(
            "SELECT job_id, started_at, ended_at, name, user, account, partition, qos, state, array_job_id, gpus"
            " FROM slurm_jobs ORDER BY started_at, job_id"
        )


def test_a_table_names_the_jobs_of_a_node_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db")
    done = skuwise("slurm", "import", str(DATA / "requeued.txt"), "--db", str(path))
    assert done.returncode == 0, done.stderr
    assert b"10 new jobs, 0 changed" in done.stderr
    assert b"1 record of the job table cannot be read" in done.stderr
    kept = rows(path)
    assert len(kept) == 10
    assert (
        "10",
        1795373613.0,
        1795373695.0,
        "timeout",
        "alice",
        "vision",
        "main",
        "normal",
        "TIMEOUT",
        None,
        1,
    ) in kept
    again = skuwise("slurm", "import", "-", "--db", str(path), stdin=(DATA / "requeued.txt").read_bytes())
    assert b"0 new jobs, 0 changed" in again.stderr
    assert rows(path) == kept
    more = skuwise("slurm", "import", str(DATA / "jobs.json"), "--db", str(path))
    assert b"1 new jobs, 0 changed" in more.stderr, more.stderr  # the job that text cannot tell
    frame = read_frame([path], now=T0 + 300)
    assert len(frame.jobs) == 11


@pytest.mark.slow
def test_advice_and_explain_know_the_jobs_names_from_the_database_or_the_file(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db")
    of_file = skuwise(
        "advise", "--db", str(path), "--jobs", str(DATA / "requeued.txt"), "--format", "json", "--no-ledger"
    )
    assert of_file.returncode == 0, of_file.stderr
    skuwise("slurm", "import", str(DATA / "requeued.txt"), "--db", str(path))
    of_database = skuwise("advise", "--db", str(path), "--format", "json", "--no-ledger")
    told = [json.loads(done.stdout)["workloads"] for done in (of_file, of_database)]
    assert told[0] == told[1]
    named = sorted((one["name"], one["owner"]["user"], one["scheduler"]["state"]) for one in told[0])
    assert named == [
        ("failing", "bob", "FAILED"), ("interactive-run", "bob", "COMPLETED"), ("requeued", "alice", "COMPLETED"),
        ("requeued", "alice", "REQUEUED"),
    ]  # fmt: skip
    explained = skuwise("explain", "--db", str(path), "9", "--no-ledger")
    assert explained.returncode == 0, explained.stderr
    assert b"Slurm job 9 ran 2 times" in explained.stderr
    assert b"requeued" in explained.stdout
    newest = max((one for one in told[0] if one["name"] == "requeued"), key=lambda one: one["start"])
    assert newest["id"].encode() in explained.stdout
    by_setting = skuwise(
        "advise", "--db", str(database(tmp_path / "m.db")), "--format", "json", "--no-ledger",
        environ={"SKUWISE_SLURM_JOBS": str(DATA / "requeued.txt")},
    )  # fmt: skip
    assert json.loads(by_setting.stdout)["workloads"] == told[0]


def test_jobs_of_other_nodes_and_clusters_are_not_taken_and_it_is_said(tmp_path: Path) -> None:
    table = str(DATA / "requeued.txt")
    elsewhere = skuwise("slurm", "import", table, "--db", str(database(tmp_path / "a.db", node="other")))
    assert elsewhere.returncode == 3
    assert b"10 jobs ran on other nodes" in elsewhere.stderr
    other = str(database(tmp_path / "b.db", cluster="eu"))
    refused = skuwise("slurm", "import", table, "--db", other)
    assert refused.returncode == 3
    assert b"another cluster ('lab')" in refused.stderr
    assert rows(Path(other)) == []
    named = skuwise("slurm", "import", table, "--db", other, "--cluster", "lab")
    assert named.returncode == 0, named.stderr
    assert len(rows(Path(other))) == 10


def test_without_node_names_only_jobs_that_were_observed_are_taken(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db")
    done = skuwise("slurm", "import", str(DATA / "epoch.txt"), "--db", str(path))
    assert done.returncode == 0, done.stderr
    assert [(row[0], row[3]) for row in rows(path)] == [
        ("5", "interactive-run"), ("7", "failing"), ("9", "requeued"), ("9", "requeued"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 3), (b"<html>", 2), (b"JobID|Start\n", 0), (b"JobID|Start\n22|17900000", 3), (b"\x00\xff" * 500, 2)],
)
def test_a_bad_file_ends_with_a_sentence_and_its_status(tmp_path: Path, content: bytes, status: int) -> None:
    path = database(tmp_path / "n.db")
    done = skuwise("slurm", "import", "-", "--db", str(path), stdin=content)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    assert rows(path) == []


def test_what_is_no_database_of_ours_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "f.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = foreign.read_bytes()
    for path in (foreign, tmp_path / "missing.db", tmp_path):
        done = skuwise("slurm", "import", str(DATA / "epoch.txt"), "--db", str(path))
        assert done.returncode == 1, done.stderr
        assert b"Traceback" not in done.stderr
    assert foreign.read_bytes() == before
    assert not (tmp_path / "missing.db").exists()


def test_an_import_beside_a_writing_agent_loses_no_tick_and_no_job(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db", seconds=1)
    jobs = [SlurmJob(str(n), T0 + n, T0 + n + 5, name=f"job-{n}", node_list="gpunode") for n in range(3000)]
    told: list[tuple[int, int]] = []
    importer = threading.Thread(target=lambda: told.append(write_jobs(path, jobs, T0)))
    with Writer.open(path) as writer:
        one = writer.for_node(Node("gpunode.site", "", machine_id="m", gpu_count=2), T0)
        one.set_gpus(GPUS, T0)
        importer.start()
        for second in range(200):
            one.add_tick(Tick(T0 + 200 + second, 1.0, {"GPU-0": {"sm_active": 0.5}}, {}, {}, {}))
        importer.join()
    assert told == [(3000, 0)]
    with open_reader(path) as reader:
        assert reader.fetch("SELECT count(*) FROM gpu_samples WHERE ts >= ?", (T0 + 200,)) == [(200,)]


def test_an_end_replaces_no_end_and_is_not_taken_back(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db", seconds=1)
    running = SlurmJob("22", T0, None, state="RUNNING", name="x")
    over = SlurmJob("22", T0, T0 + 60, state="COMPLETED", name="x")
    assert write_jobs(path, [running], T0) == (1, 0)
    assert write_jobs(path, [over], T0 + 60) == (0, 1)
    assert write_jobs(path, [running], T0 + 90) == (0, 0)
    assert [(row[2], row[8]) for row in rows(path)] == [(T0 + 60, "COMPLETED")]


def test_retention_lets_go_of_jobs_with_the_hours(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db", seconds=1)
    write_jobs(path, [SlurmJob("1", T0 - 90 * 86400, T0 - 89 * 86400), SlurmJob("2", T0 - 86400, T0)], T0)
    RetentionJob(path, Limits(hours_seconds=30 * 86400.0), sleep=lambda _: None).run(T0 + 120)
    assert [row[0] for row in rows(path)] == ["2"]


SACCT = """#!{python}
import os, sys
arguments = dict(one.partition("=")[::2] for one in sys.argv[1:])
columns, delimiter = arguments["--format"].split(","), arguments["--delimiter"]
if "Restarts" in columns and {old}:
    sys.exit('sacct: error: Invalid field requested: "Restarts"')
assert os.environ["SLURM_TIME_FORMAT"] == "%s" and os.environ["TZ"] == "UTC" and "SACCT_FEDERATION" not in os.environ
job = dict(JobID="22", JobIDRaw="22", Cluster="lab", User="ann", State="COMPLETED", Start="1790000000",
           End="1790000600", NodeList="gpunode", JobName="a|b\\n23|23|lab|eve|x|x|x|COMPLETED|1|1|1|1|n|c|c|made up")
print(delimiter.join(columns))
print(delimiter.join(job.get(one, "") for one in columns))
{more}
"""


@pytest.fixture
def sacct(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    yield folder / "sacct"


def double(path: Path, *, old: bool = False, more: str = "") -> dict[str, str]:
    path.write_text(SACCT.format(python=sys.executable, old=old, more=more))
    path.chmod(0o755)
    return {"PATH": str(path.parent), "SACCT_FEDERATION": "1"}


@pytest.mark.parametrize("old", [False, True])
def test_sacct_is_asked_so_that_no_name_can_break_its_answer(sacct: Path, old: bool) -> None:
    found = ask_sacct("sacct", 1789990000.0, double(sacct, old=old))
    (job,) = found.jobs.values()
    assert (job.job_id, job.user, job.started, job.ended) == ("22", "ann", 1790000000.0, 1790000600.0)
    assert job.name == "a|b 23|23|lab|eve|x|x|x|COMPLETED|1|1|1|1|n|c|c|made up"
    assert found.refused == 0


def test_a_sacct_that_is_missing_fails_hangs_or_prints_nonsense_is_told(sacct: Path) -> None:
    with pytest.raises(SkuwiseError, match="not on the PATH"):
        ask_sacct("sacct", 0.0, {"PATH": str(sacct.parent)})
    for more, said, seconds in (
        ("sys.exit('sacct: error: slurm_persist_conn_open: Connection refused\\x1b[31m')", "Connection refused", 60.0),
        ("import time; time.sleep(30)", "took longer", 0.5),
    ):
        with pytest.raises(SkuwiseError, match=said) as raised:
            ask_sacct("sacct", 0.0, double(sacct, more=more), timeout_seconds=seconds)
        assert "\x1b" not in str(raised.value)
    sacct.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(SkuwiseError, match="sacct's answer"):
        ask_sacct("sacct", 0.0, {"PATH": str(sacct.parent)})


def test_a_file_for_jobs_grows_with_each_import_and_forgets_what_is_old(tmp_path: Path) -> None:
    table = tmp_path / "jobs.txt"
    done = skuwise("slurm", "import", str(DATA / "requeued.txt"), "--output", str(table))
    assert done.returncode == 0, done.stderr
    assert len(read_job_table(table).jobs) == 10
    again = skuwise("slurm", "import", str(DATA / "jobs.json"), "--output", str(table))
    assert b"1 new jobs, 11 in" in again.stderr
    assert (table.stat().st_mode & 0o777) == 0o640
    now = int(time.time())
    ages = b"".join(b"%d|%d|%d\n" % (n, now - n * 86400, now - n * 86400 + 60) for n in (1, 3, 30))
    aged = tmp_path / "aged.txt"
    skuwise(
        "slurm", "import", "-", "--output", str(aged), environ={"SKUWISE_SLURM_KEEP": "7d"},
        stdin=b"JobID|Start|End\n" + ages,
    )  # fmt: skip
    assert sorted(job.job_id for job in read_job_table(aged).jobs.values()) == ["1", "3"]


@contextmanager
def slurmrestd(
    answers: Mapping[str, tuple[int, bytes]], unix: Path | None = None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server of these paths; gives its address, and what it was asked: path and token."""
    asked: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        disable_nagle_algorithm = unix is None  # else a body waits 40 ms for the acknowledgement of its head

        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("X-SLURM-USER-TOKEN", "")))
            status, body = answers.get(self.path.split("?")[0], (404, b""))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def address_string(self) -> str:
            return "x"

    server = (
        socketserver.ThreadingUnixStreamServer(str(unix), Handler)
        if unix
        else http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    )
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield (f"unix:{unix}" if unix else f"http://127.0.0.1:{server.server_address[1]}"), asked  # type: ignore[str-bytes-safe]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("unix", [False, True])
def test_slurmrestd_is_asked_in_the_version_that_it_knows(tmp_path: Path, unix: bool) -> None:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=abc.def\n")
    token.chmod(0o600)
    answer = (200, (DATA / "jobs.json").read_bytes())
    with slurmrestd({"/slurmdb/v0.0.38/jobs": answer}, tmp_path / "s" if unix else None) as (address, asked):
        found = ask_slurmrestd(SlurmImportSettings(slurmrestd=address, slurmrestd_token_file=token), 1790000000.0)
    assert len(found.jobs) == 11
    assert asked[-1] == ("/slurmdb/v0.0.38/jobs?start_time=1790000000&skip_steps=true", "abc.def")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b""), "refuses the token"), ((500, b""), "status 500"), ((302, b""), "status 302"),
        ((200, b"{"), "not JSON"), ((200, b'{"errors": []}'), "no list of jobs"), ((404, b""), "no data version"),
    ],
)  # fmt: skip
def test_a_slurmrestd_that_does_not_answer_well_is_told(answer: tuple[int, bytes], said: str) -> None:
    with slurmrestd({"/slurmdb/v0.0.44/jobs": answer}) as (address, _), pytest.raises(SkuwiseError, match=said):
        ask_slurmrestd(SlurmImportSettings(slurmrestd=address), 0.0)


@pytest.mark.parametrize(
    "address", ["http://slurm.example:6820", "ftp://127.0.0.1", "https://u:p@h", "x", "http://[::1", "unix"]
)
def test_a_token_crosses_no_network_in_the_clear(address: str) -> None:
    with pytest.raises(UsageError):
        ask_slurmrestd(SlurmImportSettings(slurmrestd=address), 0.0)


def test_settings_are_checked(tmp_path: Path) -> None:
    home = tmp_path / "config"
    (home / "skuwise").mkdir(parents=True)
    file = home / "skuwise" / "skuwise.toml"
    file.write_text('[slurm]\njobs = "/j"\ntime_zone = "Europe/Berlin"\nscheduled = true\nevery = "5m"\n')
    found = load_slurm_settings({}, system_file=tmp_path / "none", config_home=home)
    assert (found.jobs, str(found.time_zone), found.scheduled, found.every_seconds) == (
        Path("/j"),
        "Europe/Berlin",
        True,
        300,
    )
    for bad in ('time_zone = "Mars/Crater"', 'time_zone = "../../etc/passwd"', "every = 1", "jobs = 3", 'job = "x"',
                'slurmrestd_version = "v9/../x"'):  # fmt: skip
        file.write_text(f"[slurm]\n{bad}\n")
        with pytest.raises(UsageError):
            load_slurm_settings({}, system_file=tmp_path / "none", config_home=home)


def test_a_year_of_jobs_is_read_within_bounded_time_and_memory(tmp_path: Path) -> None:
    """Streamed: what nobody wants is never held."""
    table = tmp_path / "year"
    with table.open("w") as file:
        file.write("JobID|JobIDRaw|JobName|User|State|Start|End|NodeList\n")
        for n in range(20_000):
            file.write(f"{n}|{n}|job-{n}|u{n % 50}|COMPLETED|{1790000000 + n}|{1790000600 + n}|gpu-[001-004]\n")
    found = read_job_table(table, keep=lambda job: job.job_id == "77")
    assert (len(found.jobs), found.unkept) == (1, 19_999)


ROOT = Path(__file__).parents[4]


def test_the_commands_of_the_documentation_work_as_shown(sacct: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    section = page.partition("## Names of Slurm's jobs")[2].partition("\n## ")[0]
    (block, *_) = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
    assert len(lines) == 4
    (tmp_path / "jobs.txt").write_bytes((DATA / "requeued.txt").read_bytes())
    environ = {**double(sacct), "SKUWISE_DB": str(database(tmp_path / "n.db"))}
    for line in lines:
        done = skuwise(*shlex.split(line)[1:], environ=environ, folder=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert {row[0] for row in rows(tmp_path / "n.db")} >= {"22", "9"}


def test_the_example_of_settings_is_one_and_every_key_is_documented(tmp_path: Path) -> None:
    page = (ROOT / "docs/operations.md").read_text()
    found = re.search(r"^<!-- example: slurm -->\n```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    file = tmp_path / "skuwise.toml"
    file.write_text(found[1])
    settings = load_slurm_settings({}, system_file=file, config_home=tmp_path)
    assert settings.scheduled and settings.jobs == Path("/var/lib/skuwise/jobs.txt")
    for key in (one.name.removesuffix("_seconds") for one in fields(SlurmImportSettings)):
        assert re.search(rf"\b{key}\b", page), key


def test_an_import_needs_nothing_of_the_advisor(tmp_path: Path) -> None:
    """It runs on GPU nodes, where neither pandas nor numpy is installed."""
    program = (
        "import sys; from skuwise.__main__ import main; status = main(sys.argv[1:]);"
        " heavy = {'pandas', 'numpy', 'sklearn', 'textual'} & set(sys.modules); sys.exit(status or bool(heavy))"
    )
    path = str(database(tmp_path / "n.db"))
    done = subprocess.run(
        [sys.executable, "-c", program, "slurm", "import", str(DATA / "requeued.txt"), "--db", path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_doctor_says_how_many_jobs_have_a_name(tmp_path: Path) -> None:
    path = str(database(tmp_path / "n.db"))
    bare = json.loads(skuwise("doctor", "--db", path, "--format", "json").stdout)
    assert bare["slurm_jobs"] == {"observed": 3, "named": 0, "in_job_table": 0}
    (gap,) = [gap for gap in bare["gaps"] if gap["code"] == "slurm-jobs-unnamed"]
    assert "skuwise slurm import" in gap["add"]
    told = skuwise("doctor", "--db", path, "--jobs", str(DATA / "requeued.txt"))
    assert b"Slurm jobs: 3 observed, 3 with a name (3 from Slurm's job table)." in told.stdout
    skuwise("slurm", "import", str(DATA / "requeued.txt"), "--db", path)
    own = json.loads(skuwise("doctor", "--db", path, "--format", "json").stdout)
    assert own["slurm_jobs"] == {"observed": 3, "named": 3, "in_job_table": 3}
    assert not [gap for gap in own["gaps"] if gap["code"] == "slurm-jobs-unnamed"]


@pytest.mark.slow
def test_a_job_table_of_the_settings_that_is_not_there_yet_stops_nobody(tmp_path: Path) -> None:
    path = str(database(tmp_path / "n.db"))
    advise = ("advise", "--db", path, "--format", "json", "--no-ledger")
    missing = {"SKUWISE_SLURM_JOBS": str(tmp_path / "none.txt")}
    done = skuwise(*advise, environ=missing)
    assert done.returncode == 0, done.stderr
    assert b"job table not used" in done.stderr
    named = skuwise(*advise, "--jobs", str(tmp_path / "none.txt"))
    assert named.returncode == 2
    (tmp_path / "empty.txt").touch()
    assert skuwise(*advise, "--jobs", str(tmp_path / "empty.txt")).returncode == 3


@pytest.mark.slow
def test_hostile_names_of_jobs_reach_no_terminal_page_or_query(tmp_path: Path) -> None:
    table = tmp_path / "jobs.txt"
    hostile = "\x1b[31m<script>alert(1)</script>'; DROP TABLE slurm_job; --\u202e=cmd()"
    write_job_table(table, [SlurmJob("5", T0 + 21, T0 + 25, name=hostile, user=hostile, account=hostile, state="X")])
    path = str(database(tmp_path / "n.db"))
    assert skuwise("slurm", "import", str(table), "--db", path).returncode == 0
    assert len(rows(Path(path))) == 1
    for form in ("table", "html", "markdown", "csv"):
        done = skuwise("advise", "--db", path, "--format", form, "--no-ledger")
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\u202e"} & set(done.stdout.decode())
        assert form != "html" or b"<script>alert" not in done.stdout
    done = skuwise("explain", "--db", path, "5", "--no-ledger")
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\u202e"} & set(done.stdout.decode())


def test_a_server_that_sends_a_byte_now_and_then_is_given_up() -> None:
    """Each byte comes in time; the answer does not."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.05):
                connection.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SkuwiseError, match="longer than"):
            ask_slurmrestd(SlurmImportSettings(slurmrestd=address), 0.0, timeout_seconds=0.3)
    finally:
        stop.set()
        thread.join()
        listener.close()


def test_no_error_tells_a_secret_and_no_token_is_everybodys(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="https://ann:s3cret@slurm.example"), 0.0)
    assert "s3cret" not in str(told.value)
    token = tmp_path / "token"
    token.write_text("s3cret")
    token.chmod(0o644)
    with pytest.raises(UsageError, match="everybody") as told:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="http://127.0.0.1:1", slurmrestd_token_file=token), 0.0)
    assert "s3cret" not in str(told.value)
    with pytest.raises(UsageError, match="ASCII"):
        ask_slurmrestd(SlurmImportSettings(slurmrestd="http://127.0.0.1:1", slurmrestd_user="\u0142"), 0.0)
