"""Kill a sender at any line of its work: does every team receive its mail, and once?

Usage: python -m skuwise.benchmarks.performance.advisor.outbox_kills [KILLS]. The sender is `skuwise report --send`
from where its letters are made: it queues a mail for each of three and sends them to a real SMTP server in a process
of its own (STARTTLS, authentication). It is forked, so that a kill costs some milliseconds, and kills itself with
SIGKILL at a line of skuwise's report and mail or of smtplib, counted from its beginning: every line is as likely. Then
another sender runs to its end on what the first left."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.headerregistry import Address
from pathlib import Path
from types import FrameType
from typing import Any

import skuwise.advisor.mail
import skuwise.advisor.report
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.ledger.sync import LedgerSync
from skuwise.advisor.mail.letter import Letter
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.routes import Routes, TeamRoute
from skuwise.advisor.mail.settings import ReportSettings
from skuwise.advisor.report.run import ReportJob
from skuwise.advisor.report.send import Clocks, send
from skuwise.advisor.report.weekly import Report
from skuwise.advisor.report.weeks import week_of
from skuwise.advisor.telemetry.source import Databases
from skuwise.agent.base.clock import SystemClock
from skuwise.tests.support.mail_server import PASSWORD, USER, mail_server

ADDRESSES = ("ops@example.org", "ads@example.org", "search@example.org")
FOLDERS = (skuwise.advisor.mail, skuwise.advisor.report)
WATCHED = (*(str(Path(str(one.__file__)).parent) for one in FOLDERS), smtplib.__file__)


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


@dataclass(frozen=True)
class Written(ReportJob):
    """A run whose letters are there: what is read to make them is no part of sending."""

    def reports(self, teams: tuple[TeamRoute, ...], *, noting: bool = False) -> Iterator[Report]:  # noqa: ARG002
        return (Report(team, Letter("GPU report", "<p>all</p>", "all\n"), ()) for team in teams)


def work(path: Path, password: Path, port: int, ca_file: Path) -> None:
    """What `skuwise report --send` does but for reading."""
    settings = ReportSettings(
        sender=Address("GPU report", addr_spec="gpus@example.org"), administrators=(ADDRESSES[0],),
        smtp_host="127.0.0.1", smtp_port=port, smtp_username=USER, smtp_password_file=str(password),
        smtp_ca_file=str(ca_file),
    )  # fmt: skip
    routes = Routes(teams=tuple(TeamRoute(address.partition("@")[0], (address,)) for address in ADDRESSES[1:]))
    week = week_of(0.0)
    job = Written(
        settings,
        routes,
        Databases(()),
        load_rulebook(None, None, week.end),
        LedgerSync(None, False, print),
        week,
        week.end,
        None,
        lambda _: None,
    )
    send(job, Outbox(path), {}, Clocks(SystemClock().now, lambda _: None))


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
    password = folder / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    with server(folder) as (port, ca_file, log):

        def run_one(path: Path, kill_at: int = 0) -> tuple[str, int]:
            return forked(lambda: work(path, password, port, ca_file), kill_at)

        _, length = run_one(folder / "whole.db")
        assert tuple(log.read_text().split()) == ADDRESSES
        for number in range(kills):
            path, before = folder / f"{number}.db", log.stat().st_size
            # One out of each of as many equal parts of the work.
            at = rng.randrange(length * number // kills, length * (number + 1) // kills) + 1
            where, _ = run_one(path, at)
            ended, _ = run_one(path)
            assert ended == "" and Outbox(path).waiting() == 0
            received = collections.Counter(log.read_bytes()[before:].decode().split())
            rounds.append(Round(where, tuple(received[address] for address in ADDRESSES), unended(path)))
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
    print(f"{kills} kills, {len(ADDRESSES)} mails a run\n")
    print(f"{'killed in':<16}{'kills':>7}{'mails lost':>12}{'mails doubled':>15}{'most copies':>13}")
    for where, of in sorted([*rows.items(), ("all", rounds)], key=lambda item: (item[0] == "all", item[0])):
        lost = sum(copies == 0 for one in of for copies in one.copies)
        doubled = sum(copies > 1 for one in of for copies in one.copies)
        print(f"{where:<16}{len(of):>7}{lost:>12}{doubled:>15}{max(c for one in of for c in one.copies):>13}")


if __name__ == "__main__":
    main()
