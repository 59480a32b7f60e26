"""`skuwise slurm import` from a sacct and a slurmrestd made up here (doubles: they print what the real ones print)."""

import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from skuwise.agent.config import SlurmImportSettings
from skuwise.agent.slurm_jobs.import_jobs import ask_sacct, ask_slurmrestd
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.unit.agent.service.test_slurm_import import DATA

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


def double(path: Path, *, old: bool = False, more: str = "") -> dict[str, str]:
    path.write_text(SACCT.format(python=sys.executable, old=old, more=more))
    path.chmod(0o755)
    return {"PATH": str(path.parent), "SACCT_FEDERATION": "1"}


@pytest.mark.parametrize("old", [False, True])
def test_sacct_is_asked_so_that_no_name_can_break_its_answer(tmp_path: Path, old: bool) -> None:
    read_jobs = ask_sacct("sacct", 1789990000.0, double(tmp_path / "sacct", old=old))
    (job,) = read_jobs.jobs.values()
    assert (job.job_id, job.user, job.started_at, job.ended_at) == ("22", "ann", 1790000000.0, 1790000600.0)
    assert job.name == "a|b 23|23|lab|eve|x|x|x|COMPLETED|1|1|1|1|n|c|c|made up"
    assert read_jobs.refused == 0


def test_a_sacct_that_is_missing_fails_hangs_or_prints_nonsense_is_told(tmp_path: Path) -> None:
    refused = "sys.exit('sacct: error: slurm_persist_conn_open: Connection refused\\x1b[31m')"
    with pytest.raises(SkuwiseError, match="not on the PATH"):
        ask_sacct("sacct", 0.0, {"PATH": str(tmp_path)})
    for more, said, seconds in ((refused, "Connection refused", 60.0), ("import time; time.sleep(30)", "took", 0.5)):
        with pytest.raises(SkuwiseError, match=said) as raised:
            ask_sacct("sacct", 0.0, double(tmp_path / "sacct", more=more), timeout_seconds=seconds)
        assert "\x1b" not in str(raised.value)
    (tmp_path / "sacct").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(SkuwiseError, match="sacct's answer"):
        ask_sacct("sacct", 0.0, {"PATH": str(tmp_path)})


@contextmanager
def slurmrestd(answers: Mapping[str, tuple[int, bytes]], unix: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server of these paths; gives its address, and the heads of what it was asked."""
    asked: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(b"".join(iter(self.rfile.readline, b"\r\n")).decode())
            status, body = answers.get(asked[-1].split()[1].split("?")[0], (404, b""))
            head = f"HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)

    server = (
        socketserver.ThreadingUnixStreamServer(str(unix), Handler) if unix
        else socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    )  # fmt: skip
    server.daemon_threads = True
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"unix:{unix}" if unix else f"http://127.0.0.1:{server.socket.getsockname()[1]}", asked
        server.shutdown()


@pytest.mark.parametrize("unix", [False, True])
def test_slurmrestd_is_asked_in_the_version_that_it_knows(tmp_path: Path, unix: bool) -> None:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=abc.def\n")
    token.chmod(0o600)
    answer = (200, (DATA / "jobs.json").read_bytes())
    with slurmrestd({"/slurmdb/v0.0.38/jobs": answer}, tmp_path / "s" if unix else None) as (address, asked):
        read_jobs = ask_slurmrestd(SlurmImportSettings(slurmrestd=address, slurmrestd_token_file=token), 1790000000.0)
    assert len(read_jobs.jobs) == 11
    assert asked[-1].startswith("GET /slurmdb/v0.0.38/jobs?start_time=1790000000&skip_steps=true HTTP")
    assert "X-SLURM-USER-TOKEN: abc.def\r\n" in asked[-1]


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
