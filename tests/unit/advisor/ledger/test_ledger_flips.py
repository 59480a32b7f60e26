"""Flipped bytes in a ledger."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.ledger.entries import LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.ledger_builders import one_node_fleet, proposal
from skuwise.tests.support.outbox_builders import DAY, NOW

IDS = tuple(f"r-{number:012x}" for number in range(4))
FLEET = one_node_fleet(NOW)


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
    whole.propose([proposal(id_) for id_ in IDS], NOW, fleet=FLEET)
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
