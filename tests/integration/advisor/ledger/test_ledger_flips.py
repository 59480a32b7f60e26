"""Flipped bytes in a ledger and an outbox: every command does its work or ends with a sentence, and nothing is sent
that was not queued."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Fleet, Interval
from skuwise.advisor.ledger.entries import LedgerEvent, Proposal
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.records import EventFigures, Realised
from skuwise.advisor.mail.delivery import send_waiting
from skuwise.advisor.mail.outbox import Outbox
from skuwise.advisor.mail.parcel import Parcel
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.fake_clocks import DAY, NOW, Machine, Server

IDS = tuple(f"r-{number:012x}" for number in range(6))
FLEET = Fleet("f", False, (), frozenset({"c"}), {"GPU-1": "n"}, frozenset({"n"}), frozenset({"fleet.db"}), "", {},
              NOW - DAY, NOW)  # fmt: skip


def _ledger(path: Path) -> Ledger:
    found = Ledger(path)
    moves = [
        Proposal(id_, "move-sku", "chat", "a", "b", 12.5, 0.0, "cash-now", "low", False, "Move it.", "s") for id_ in IDS
    ]
    found.propose(moves, NOW, fleet=FLEET)
    told = Realised(NOW, NOW + DAY, 24.0, Interval(1, 2, 3), None, 10.0, 5.0, 5.0, None, 100.0, 50.0, 1.0, None)
    found.add(IDS[0], LedgerEvent("accepted", NOW, "ann"))
    found.add(IDS[1], LedgerEvent("snoozed", NOW, "ann", NOW + 9 * DAY))
    found.add(IDS[2], LedgerEvent("done", NOW, "skuwise", figures=EventFigures(realised=told)))
    found.note_mailed("team a", IDS[:3], NOW)
    return found


def _outbox(path: Path) -> Outbox:
    found = Outbox(path)
    for number, team in enumerate(("ads", "search", "ops")):
        content = f"letter to {team}".encode() * 200
        found.queue(
            Parcel("2026-11-16", team, "mail", "<id>", "report", content, (f"{team}@example.org",)), NOW + number
        )
    return found


def _flip(rng: random.Random, source: Path, target: Path) -> None:
    content = bytearray(source.read_bytes())
    written = [at for at, byte in enumerate(content) if byte]
    for _ in range(rng.choice((1, 1, 1, 6))):
        at = rng.choice(written) if rng.random() < 0.8 else rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del content[rng.randrange(len(content)) :]
    target.write_bytes(content)


def flip_ledgers(folder: Path, files: int, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path = random.Random(files), folder / "flipped.db"
    _ledger(folder / "whole.db")
    for _ in range(files):
        _flip(rng, folder / "whole.db", path)
        for arguments in (
            ["list", "--all"], ["list", "--format", "json"], ["show", rng.choice(IDS)], ["accept", rng.choice(IDS)],
            ["snooze", rng.choice(IDS), "--until", "2099-01-01"],
        ):  # fmt: skip
            main(["ledger", *arguments, "--ledger", str(path)])
            told = capsys.readouterr().err
            assert "unexpected" not in told and told.replace("\n", "").isprintable(), path
        ledger = Ledger(path)
        for call in (
            ledger.entries, ledger.fleets, ledger.recover, partial(ledger.mailed_since, "team a", 0.0),
            partial(ledger.propose, [], NOW + 40 * DAY, fleet=FLEET),
        ):  # fmt: skip
            try:
                call()
            except SkuwiseError as error:
                assert error.remedy


def flip_outboxes(folder: Path, files: int) -> None:
    rng, path = random.Random(files), folder / "flipped.db"
    _outbox(folder / "whole.db")
    queued = {f"letter to {team}".encode() * 200 for team in ("ads", "search", "ops")}
    for _ in range(files):
        shutil.rmtree(f"{path}-journal", ignore_errors=True)
        _flip(rng, folder / "whole.db", path)
        outbox, server = Outbox(path), _Reading(Machine())
        try:
            for _ in range(2):
                with outbox.sending():
                    send_waiting(
                        outbox, {"mail": server}, clock=server.machine.now, sleep=lambda _: None, mails_per_minute=60,
                        say=lambda _: None,
                    )  # fmt: skip
        except SkuwiseError as error:
            assert error.remedy and str(error).isprintable()
        assert server.contents <= queued
        assert len(server.accepted) == len(set(server.accepted))


class _Reading(Server):
    """One that looks at what it is given."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.contents: set[bytes] = set()

    def carry(self, parcel: Parcel):
        self.contents.add(parcel.content)
        return super().carry(parcel)


def test_a_few_flips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    flip_ledgers(tmp_path / "a", 8, capsys)
    flip_outboxes(tmp_path / "b", 20)
