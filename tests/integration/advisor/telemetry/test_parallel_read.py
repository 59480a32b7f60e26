"""Databases read by processes beside this one: they read what one reads, and what they fail to read is read here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import psutil
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.database import Parts
from skuwise.advisor.telemetry.sqlite.helpers import (
    BYTES_A_FILE,
    BYTES_A_PROCESS,
    Helpers,
    weight_of,
    worth_processes,
)
from skuwise.advisor.telemetry.sqlite.parallel_read import dealt, read_parallel
from skuwise.benchmarks.generators.first import simulate
from skuwise.rules.catalog.loader import load_catalog

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
WINDOW = Window(UNTIL - 86400.0, UNTIL)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate("idle", tmp_path_factory.mktemp("fleet") / "fleet.db", days=1, until=UNTIL).files[0]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def made_of(source: Databases) -> pd.DataFrame:
    return source.read(load_catalog(), since=86400.0, until=None, now=UNTIL).gpu


def test_as_many_processes_as_the_files_are_worth_and_files_are_dealt_out_by_size() -> None:
    assert worth_processes([2 * BYTES_A_PROCESS - 1], 8) == 1
    assert worth_processes([BYTES_A_PROCESS, BYTES_A_PROCESS], 8) == 2
    assert worth_processes([BYTES_A_FILE] * 1000, 8) == 8
    files = {Path(name): size for name, size in (("a", 10), ("b", 90), ("c", 10), ("d", 10), ("e", 10))}
    assert sorted(path.name for share in dealt(files, 2) for path in share) == ["a", "c", "d", "e"]  # b is cut
    assert dealt(files, 1) == [list(files)]


@pytest.mark.parametrize("broken", ["", "exit 3", "cat > /dev/null; head -c 100 /dev/urandom"])
def test_a_large_file_is_read_by_two_processes_or_by_one_where_the_other_fails(database: Path, broken: str) -> None:
    before, spans = children(), {database: (WINDOW.start, WINDOW.end)}
    helpers = Helpers(("/bin/sh", "-c", broken) if broken else ())
    two, one = (
        read_parallel(spans, WINDOW, 10, n, bytes_a_process=weight_of(database) // 2, helpers=helpers)[database]
        for n in (2, 1)
    )
    assert isinstance(one, Parts) and isinstance(two, Parts)
    order = ["ts", "node", "gpu_uuid"]
    mine, theirs = (pd.concat(some.tables["gpu"]).sort_values(order, ignore_index=True) for some in (one, two))
    pd.testing.assert_frame_equal(mine, theirs)
    assert len(mine) and children() == before
