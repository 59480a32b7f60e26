"""`skuwise slurm import` from a sacct and a slurmrestd made up here (doubles: they print what the real ones print)."""

from __future__ import annotations

import http.server
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from skuwise.agent.slurm_jobs.import_jobs import ask_sacct, ask_slurmrestd
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings
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
