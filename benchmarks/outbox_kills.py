"""Kill a sender at any line of its work: does every team receive its mail, and once?

Usage: python benchmarks/outbox_kills.py [KILLS]. The sender queues a mail for each team and sends all of them to a real
SMTP server in a process of its own (STARTTLS, authentication). It is forked, so that a kill costs some milliseconds,
and kills itself with SIGKILL at a line of skuwise's mail or of smtplib, counted from its beginning: every line is as
likely. Then another sender runs to its end on what the first left.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import smtplib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.headerregistry import Address
from pathlib import Path
from types import FrameType
from typing import Any

import skuwise.advisor.mail
from skuwise.advisor.mail.letter import Letter
from skuwise.advisor.mail.message import Envelope, compose, message_id
from skuwise.advisor.mail.outbox import Outbox, Parcel
from skuwise.advisor.mail.sending import send_waiting
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.mail.smtp import SmtpCarrier
from skuwise.tests.mail_server import PASSWORD, USER, mail_server

WEEK = "2026-11-16"
SENDER = Address("GPU report", addr_spec="gpus@example.org")
TEAMS = ("ads", "search", "video")
WATCHED = (str(Path(skuwise.advisor.mail.__file__).parent), smtplib.__file__)


@dataclass(frozen=True)
class Round:
    """One kill. `where`: the function it was killed in, empty: it was done before. `copies`: mails that each team
    received in the end. `unended`: attempts of which nobody knew what became of them."""

    where: str
    copies: tuple[int, ...]
    unended: int


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[int, Path, Path]]:
    """A server in a process of its own: its port, its certificate, and the file in which it writes whom it had a mail
    for, before it says that it accepted it."""
    told, tell = os.pipe()
    log = folder / "accepted"
    log.touch()
    child = os.fork()
    if not child:
        try:
            os.close(told)
            with mail_server(folder) as running, log.open("ab", buffering=0) as accepted:

                def write(_: int) -> None:
                    accepted.write(f"{running.received.pop().to[0]}\n".encode())

                running.behaviour.after_data = write
                os.write(tell, f"{running.port}\n".encode())
                signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    with open(told, encoding="ascii") as answer:  # noqa: PTH123 - a descriptor
        port = int(answer.readline())
    try:
        yield port, folder / "ca.pem", log
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def work(path: Path, port: int, ca_file: Path) -> None:
    """What `skuwise report --send` does once the letters are made."""
    settings = ReportSettings(
        sender=SENDER, smtp_host="localhost", smtp_port=port, smtp_username=USER, smtp_ca_file=str(ca_file)
    )
    outbox = Outbox(path)
    with outbox.sending():
        if not outbox.is_queued(WEEK, "routes"):
            for team in TEAMS:
                id_ = message_id(WEEK, team, SENDER)
                envelope = Envelope(SENDER, (f"{team}@example.org",))
                content = compose(Letter("GPU report", "<p>all</p>", "all\n"), envelope, message_id=id_, date=0.0)
                outbox.queue(Parcel(WEEK, team, "mail", id_, "GPU report", content, envelope.to), time.time())
            outbox.note_queued(WEEK, "routes", time.time())
        send_waiting(
            outbox, {"mail": SmtpCarrier(settings, PASSWORD)}, clock=time.time, sleep=lambda _: None,
            mails_per_minute=6000, say=lambda _: None,
        )  # fmt: skip


def forked(job: Callable[[], None], kill_at: int) -> tuple[str, int]:
    """Run `job` in a child that kills itself at its `kill_at`-th line. Gives the function it was in (empty: it came to
    its end), and how many lines it had done."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        done = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal done
            if not frame.f_code.co_filename.startswith(WATCHED):
                return None
            if event == "line":
                done += 1
                if done == kill_at:
                    name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
                    os.write(tell, f"{name} {done}".encode())
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            job()
            sys.settrace(None)
            os.write(tell, f" {done}".encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(tell)
    with open(told, "rb") as answer:  # noqa: PTH123 - a descriptor
        where, _, lines = answer.read().decode().partition(" ")
    os.waitpid(child, 0)
    return where, int(lines or 0)


def run(folder: Path, kills: int, seed: int) -> list[Round]:
    """So many kills, each on an outbox of its own."""
    rng = random.Random(seed)
    rounds: list[Round] = []
    with server(folder) as (port, ca_file, log):
        _, length = forked(lambda: work(folder / "whole.db", port, ca_file), 0)
        assert log.read_text().split() == [f"{team}@example.org" for team in TEAMS]
        for number in range(kills):
            path, before = folder / f"{number}.db", log.stat().st_size
            # One out of each of as many equal parts of the work.
            at = rng.randrange(length * number // kills, length * (number + 1) // kills) + 1
            where, _ = forked(lambda: work(path, port, ca_file), at)  # noqa: B023
            ended, _ = forked(lambda: work(path, port, ca_file), 0)  # noqa: B023
            assert ended == "" and Outbox(path).waiting() == 0
            received = collections.Counter(log.read_bytes()[before:].decode().split())
            rounds.append(Round(where, tuple(received[f"{team}@example.org"] for team in TEAMS), unended(path)))
    return rounds


def unended(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM attempts WHERE result IS NULL").fetchone()[0])


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        rounds = run(Path(folder), kills, seed=8)
    rows: dict[str, list[Round]] = {}
    for one in rounds:
        rows.setdefault(one.where.partition(".")[0] or "after its end", []).append(one)
    print(f"{kills} kills, {len(TEAMS)} teams a run\n")
    print(f"{'killed in':<16}{'kills':>7}{'mails lost':>12}{'mails doubled':>15}{'most copies':>13}")
    for where, of in sorted([*rows.items(), ("all", rounds)], key=lambda item: (item[0] == "all", item[0])):
        lost = sum(copies == 0 for one in of for copies in one.copies)
        doubled = sum(copies > 1 for one in of for copies in one.copies)
        print(f"{where:<16}{len(of):>7}{lost:>12}{doubled:>15}{max(c for one in of for c in one.copies):>13}")


if __name__ == "__main__":
    main()
