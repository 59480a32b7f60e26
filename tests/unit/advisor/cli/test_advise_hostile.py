"""What an attacker may hand to `skuwise advise`: crafted databases, rules, prices and places to write to."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.output import write_whole
from skuwise.rules.base.yaml_loader import rules_root
from skuwise.tests.support.schemas import validate

PAYLOAD = "\x1b[2J\u202e\x9b31m[red]x[/red]<script>|=cmd|' /C calc'!A0[a](javascript:b)`x`'; DROP TABLE node;--\r\n# h"
BINS = 21


@pytest.fixture
def crafted(founding, tmp_path):
    def make(*statements: tuple[str, object]) -> Path:
        path = tmp_path / "crafted.db"
        path.write_bytes(founding.read_bytes())
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = 1")
            for statement, value in statements:
                connection.execute(statement, (value,))
        return path

    return make


def advise(path: Path, capsys, form: str = "json") -> tuple[int, str, str]:
    status = main(["advise", "--db", str(path), "--format", form])
    said = capsys.readouterr()
    assert "unexpected" not in said.err and "Traceback" not in said.err, said.err
    return status, said.out, said.err


NUMBERS = [
    ("gpu", "power_limit_watts"), ("gpu", "nvlink_links"), ("gpu", "mem_total_bytes"), ("port", "port"),
    ("node", "gpu_count"), ("node", "first_seen"), ("workload", "last_seen"), ("workload_use", "ts_end"),
    ("workload_use", "shared"), ("gpu_hour", "unobserved_seconds"), ("gpu_hour", "sm_active_mean"),
    ("absence", "since"),
]  # fmt: skip


@pytest.mark.parametrize("value", [9e999, "12 pounds"], ids=["infinite", "text"])
def test_a_database_without_a_number_in_many_places_is_still_read(crafted, capsys, value) -> None:
    some = [name for name in NUMBERS if name[1] not in ("ts_end", "unobserved_seconds", "port", "first_seen")]
    path = crafted(*((f"UPDATE OR IGNORE {table} SET {column} = ?", value) for table, column in some))
    status, out, err = advise(path, capsys)
    assert status == 0, err
    validate(json.loads(out), "advice")


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("table", PAYLOAD), ("csv", PAYLOAD), ("markdown", PAYLOAD), ("json", b"\xff\xfe"), ("table", "n" * 100_000),
    ],
    ids=["table", "csv", "markdown", "bytes", "long"],
)  # fmt: skip
def test_names_have_no_effect_wherever_they_are_shown(crafted, capsys, form, value) -> None:
    names = ("workload SET name", "workload SET user", "workload SET workload_id", "node SET cluster", "node SET node")
    path = crafted(*((f"UPDATE OR IGNORE {name} = ?", value) for name in names))
    status, out, err = advise(path, capsys, form)
    assert status == 0, err
    assert not [c for c in out + err if (ord(c) < 32 and c not in "\r\n") or c in "\x7f\x9b\u202e"]
    assert len(out) < 1_000_000
    if form == "markdown":
        assert "<script" not in out


BAD_BINS = (
    "[" * 20_000, "[1, 2]", "[" + ",".join(["NaN"] * BINS) + "]", "[" + ",".join(["-1e300"] * BINS) + "]",
    "[" + "9" * 400 + ",1" * (BINS - 1) + "]", '{"a": 1}', "[1],[2", "", "null", "[" * 600,
)  # fmt: skip


def test_bins_that_are_none_count_as_missing(crafted, capsys) -> None:
    one = (
        "UPDATE gpu_hour SET sm_active_bins = ? WHERE id / 4096 = "
        "(SELECT DISTINCT id / 4096 FROM gpu_hour ORDER BY 1 LIMIT 1 OFFSET"
    )
    path = crafted(*((f"{one} {number})", bins) for number, bins in enumerate(BAD_BINS)))
    status, out, err = advise(path, capsys)
    assert status == 0, err
    validate(json.loads(out), "advice")
    frame = read_frame([path])
    stamps = frame.gpu["ts"].unique()[: len(BAD_BINS)]
    assert frame.gpu.loc[frame.gpu["ts"].isin(stamps), "sm_active_bins"].isna().all()


def test_a_name_in_an_error_has_no_effect_on_the_terminal(tmp_path, capsys) -> None:
    assert main(["advise", "--db", str(tmp_path / "\x1b[31mred\u202e.db")]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\u202e" not in said and "\\x1b[31mred" in said


def test_rules_that_are_no_files_are_refused_at_once(tmp_path) -> None:
    (tmp_path / "waste").mkdir()
    os.mkfifo(tmp_path / "waste" / "idle.yaml")
    with pytest.raises(RulesError, match="no ordinary file"):
        rules_root(tmp_path)
    (tmp_path / "waste" / "idle.yaml").unlink()
    (tmp_path / "kinds.yaml").symlink_to("/dev/zero")
    with pytest.raises(RulesError, match="no ordinary file"):
        rules_root(tmp_path)


def test_output_never_turns_a_pipe_or_a_device_into_a_file(tmp_path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "report")
    reader.join(timeout=60)
    assert read == ["report"] and pipe.is_fifo()
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_whole(null, "report")
    assert null.is_char_device()
