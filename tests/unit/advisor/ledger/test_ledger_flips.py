"""Flipped bytes in a ledger."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Fleet
from skuwise.advisor.ledger.entries import LedgerEvent, Proposal
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.fake_clocks import DAY, NOW

IDS = tuple(f"r-{number:012x}" for number in range(4))
FLEET = Fleet("f", False, (), frozenset({"c"}), {"GPU-1": "n"}, frozenset({"n"}), frozenset({"fleet.db"}), "", {},
              NOW - DAY, NOW)  # fmt: skip


def _flip(rng: random.Random, source: Path, target: Path) -> None:
    content = bytearray(source.read_bytes())
    written = [at for at, byte in enumerate(content) if byte]
    for _ in range(rng.choice((1, 1, 1, 6))):
        at = rng.choice(written) if rng.random() < 0.8 else rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del content[rng.randrange(len(content)) :]
    target.write_bytes(content)


def test_a_ledger_with_flipped_bytes_ends_every_command_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, path, rng = Ledger(tmp_path / "whole.db"), tmp_path / "flipped.db", random.Random(8)
    proposals = [
        Proposal(id_, "move-sku", "chat", "a", "b", 12.5, 0.0, "cash-now", "low", False, "Move it.", "s") for id_ in IDS
    ]
    whole.propose(proposals, NOW, fleet=FLEET)
    whole.add(IDS[0], LedgerEvent("snoozed", NOW, "ann", NOW + 9 * DAY))
    whole.note_mailed("team a", IDS, NOW)
    for _ in range(8):
        _flip(rng, whole.path, path)
        for arguments in (["list", "--format", "json"], ["show", rng.choice(IDS)], ["accept", rng.choice(IDS)]):
            main(["ledger", *arguments, "--ledger", str(path)])
            told = capsys.readouterr().err
            assert "unexpected" not in told and told.replace("\n", "").isprintable(), path
        ledger = Ledger(path)
        for call in (ledger.fleets, ledger.recover, partial(ledger.propose, [], NOW + 40 * DAY, fleet=FLEET)):
            try:
                call()
            except SkuwiseError as error:
                assert error.remedy
