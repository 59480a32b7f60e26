"""Senders that are killed at random moments, by clocks that are a day wrong: each mail arrives, and at most twice.

A hundred kills: ``SKUWISE_KILLS=100 pytest -s tests/integration/advisor/report/test_killed_senders.py``.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from skuwise.advisor.state.deliveries import KILLED
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.mail_server import PASSWORD, USER, MailServer, mail_server
from skuwise.tests.support.outbox_builders import DAY, HOUR, Post

KILLS = int(os.environ.get("SKUWISE_KILLS", "4"))
RECIPIENTS = 40


def sender(post: Post, server: MailServer, offset_seconds: float) -> "subprocess.Popen[bytes]":
    """A process that is about to send."""
    words = [str(post.state.path), str(server.port), str(server.ca_file), str(offset_seconds)]
    process = subprocess.Popen(
        [sys.executable, "-m", "skuwise.tests.support.killed_sender", *words], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"begins\n"
    return process


def test_killed_senders_lose_nothing_and_send_nothing_a_third_time(tmp_path: Path) -> None:
    chance, post, batches, killed, longest_seconds = random.Random(7), Post(tmp_path), 0, 0, 1.0
    with mail_server(tmp_path) as server:
        while killed < KILLS or post.waits():
            if not post.waits():
                batches += 1
                post.at = time.time()
                content = f"Subject: {batches}\r\n\r\nx".encode()
                post.queue(
                    "team", *(f"{n}@example.org" for n in range(RECIPIENTS)), batch=f"{batches}", content=content
                )
            with sender(post, server, chance.choice((0.0, DAY, -DAY))) as process:
                began = time.monotonic()
                try:
                    process.wait(None if killed == KILLS else chance.uniform(0.0, 0.9 * longest_seconds))
                    longest_seconds = time.monotonic() - began
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed += 1
    arrived = Counter((str(one.message["Subject"]), one.to[0]) for one in server.received)
    ended = post.rows("batch, recipient, state, unsure, reply")
    sys.stderr.write(f"{killed} kills; {Counter(row[2:4] for row in ended)}; arrived {Counter(arrived.values())}\n")
    assert len(ended) == batches * RECIPIENTS
    for batch, recipient, state, unsure, reply in ended:
        count = arrived[str(batch), str(recipient)]
        assert count <= 1 + int(str(unsure)) and count <= 2
        # What was in hand at two kills is told to have failed.
        assert (state == "sent" and count >= 1) or (state, unsure, reply) == ("failed", 2, KILLED)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "fleet"
    simulate("idle", folder, days=8, until=1_795_395_600.0, minutes_seconds=4 * HOUR)  # a Monday, 01:00 UTC
    return folder


@pytest.mark.parametrize("command", ["watch --once --until 2026-11-23T01:00:00Z", "report --send --week 2026-11-16"])
def test_killed_commands_lose_nothing_and_send_nothing_a_third_time(tmp_path: Path, fleet: Path, command: str) -> None:
    chance, killed, rounds, longest_seconds = random.Random(11), 0, 0, 3.0
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    with mail_server(tmp_path) as server:
        while killed < KILLS:
            rounds += 1
            home = tmp_path / f"{rounds}"
            (home / "skuwise").mkdir(parents=True)
            to = [f"{rounds}-{n}@example.org" for n in range(RECIPIENTS)]
            (home / "skuwise" / "skuwise.toml").write_text(
                f'[watch]\nsend = true\n[report]\nsend = true\nadministrators = {to}\nfrom = "gpus@example.org"\n'
                f'smtp_host = "127.0.0.1"\nsmtp_port = {server.port}\nsmtp_ca_file = "{server.ca_file}"\n'
                f'smtp_username = "{USER}"\nsmtp_password_file = "{password}"\n'
            )
            environ = {**os.environ, **{f"XDG_{kind}_HOME": str(home) for kind in ("STATE", "CONFIG", "CACHE")}}
            status = None
            while status != 0:
                process = subprocess.Popen(
                    [sys.executable, "-m", "skuwise", *command.split(), "--db", str(fleet)], env=environ,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                began, before = time.monotonic(), len(server.received)
                if killed < KILLS:
                    # At any moment, or while mails are sent.
                    sends = chance.random() < 0.5
                    while sends and len(server.received) == before and process.poll() is None:
                        time.sleep(0.001)
                    try:
                        process.wait(chance.uniform(0.0, 0.3 if sends else longest_seconds))
                    except subprocess.TimeoutExpired:
                        process.kill()
                        killed += 1
                status = process.wait()
                assert status in (0, -9)
                longest_seconds = time.monotonic() - began if status == 0 else longest_seconds
    arrived = Counter((one.to[0], str(one.message["Message-ID"])) for one in server.received)
    sys.stderr.write(f"{killed} kills of {command}; {rounds} rounds; arrived {Counter(arrived.values())}\n")
    assert {to for to, _ in arrived} == {f"{n + 1}-{to}@example.org" for n in range(rounds) for to in range(RECIPIENTS)}
    assert len(arrived) == rounds * RECIPIENTS and max(arrived.values()) <= 2
