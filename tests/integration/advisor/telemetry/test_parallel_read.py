"""Databases read by processes beside this one: they read what one reads, and what ends them is read here."""

import os
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.sqlite import reader
from skuwise.advisor.telemetry.sqlite.database import Parts
from skuwise.advisor.telemetry.sqlite.reader import read_files
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.base.errors import StoreError

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
ASKED = (Window(UNTIL - 86400.0, UNTIL), 10, 3600.0, None)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("fleet")
    made = [simulate("idle", folder / f"{n}.db", days=1, until=UNTIL, seed=n).files[0] for n in range(5)]
    bad = folder / "bad.db"
    bad.write_bytes(made[0].read_bytes()[:20_000])
    return [*made, bad]


def _end(*_: object) -> None:
    os._exit(3)


@pytest.mark.parametrize("ends", [False, True])
def test_two_processes_read_what_one_reads(paths: list[Path], ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if ends:
        monkeypatch.setattr(reader, "_begin", _end)
    steps: list[tuple[int, int]] = []
    two = read_files(paths, ASKED, processes=2, bytes_each=1, steps=lambda *done: steps.append(done))
    files = read_files(paths, ASKED)
    assert list(two) == list(files) == paths and steps[-1] == (6, 6)
    for measured, theirs in zip(two.values(), files.values(), strict=True):
        if isinstance(theirs, Parts):
            assert isinstance(measured, Parts)
            for name in theirs.rows:
                pd.testing.assert_frame_equal(pd.concat(measured.rows[name]), pd.concat(theirs.rows[name]))
        else:
            assert isinstance(measured, StoreError) and str(measured) == str(theirs) and "bad.db" in str(measured)
