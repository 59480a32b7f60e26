"""Commands that are killed at random moments, by clocks that are a day wrong: each mail arrives, and at most twice.

A hundred kills of each: ``SKUWISE_KILLS=100 pytest -s tests/integration/advisor/report/test_killed_senders.py``.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.delivery_builders import DAY, HOUR
from skuwise.tests.support.mail_server import PASSWORD, USER, mail_server

KILLS = int(os.environ.get("SKUWISE_KILLS", "3"))
RECIPIENTS = 40
SKUWISE = """
import runpy, sys, time
real, skew = time.time, float(sys.argv.pop(1))
time.time = lambda: real() + skew
runpy.run_module("skuwise", run_name="__main__")
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "fleet"
    simulate("idle", folder, days=8, until=1_795_395_600.0, minutes_seconds=4 * HOUR)  # a Monday, 01:00 UTC
    return folder


def home(folder: Path, port: int, to: list[str]) -> dict[str, str]:
    """The environment of a user without any state, whose settings name the server and the recipients."""
    (folder / "skuwise").mkdir(parents=True)
    password = folder / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    (folder / "skuwise" / "skuwise.toml").write_text(f"""
        watch = {{send = true}}
        [report]
        send = true
        administrators = {to}
        from = "gpus@example.org"
        smtp_host = "127.0.0.1"
        smtp_port = {port}
        smtp_ca_file = "{folder.parent / "ca.pem"}"
        smtp_username = "{USER}"
        smtp_password_file = "{password}"
    """)
    return {**os.environ, **{f"XDG_{kind}_HOME": str(folder) for kind in ("STATE", "CONFIG", "CACHE")}}


@pytest.mark.parametrize("command", ["watch --once --until 2026-11-23T01:00:00Z", "report --send --week 2026-11-16"])
def test_a_killed_command_loses_nothing_and_sends_nothing_thrice(tmp_path: Path, fleet: Path, command: str) -> None:
    chance, killed, rounds, longest_seconds = random.Random(11), 0, 0, 3.0
    with mail_server(tmp_path) as server:
        while killed < KILLS:
            rounds += 1
            to = [f"{rounds}-{n}@example.org" for n in range(RECIPIENTS)]
            environ, status = home(tmp_path / f"{rounds}", server.port, to), None
            while status != 0:
                skew, began, before = chance.choice((0.0, DAY, -DAY)), time.monotonic(), len(server.received)
                process = subprocess.Popen(
                    [sys.executable, "-c", SKUWISE, f"{skew}", *command.split(), "--db", str(fleet)], env=environ,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                )  # fmt: skip
                sends = chance.random() < 0.7  # kill it while it sends, or at any moment
                while sends and len(server.received) == before and process.poll() is None:
                    time.sleep(0.001)
                if killed < KILLS:
                    try:
                        process.wait(chance.uniform(0.0, 0.4 if sends else longest_seconds))
                    except subprocess.TimeoutExpired:
                        process.kill()
                        killed += 1
                said = process.communicate()[1]
                status = process.returncode
                # A mail that was in hand at two kills counts as failed; whether it arrived is seen below.
                assert status in (0, -9) or b"may have arrived" in said, said
                longest_seconds = time.monotonic() - began if status == 0 else longest_seconds
    arrived = Counter((mail.to[0], str(mail.message["Message-ID"])) for mail in server.received)
    sys.stderr.write(f"{killed} kills of {command}; {rounds} rounds; arrived {Counter(arrived.values())}\n")
    assert {to for to, _ in arrived} == {f"{n + 1}-{to}@example.org" for n in range(rounds) for to in range(RECIPIENTS)}
    assert len(arrived) == rounds * RECIPIENTS and max(arrived.values()) <= 2
