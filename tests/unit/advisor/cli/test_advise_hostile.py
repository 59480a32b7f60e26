"""What an attacker may hand to `skuwise advise`: crafted databases, rules, prices and places to write to."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.credentials import secret
from skuwise.advisor.notify.routes import load_routes
from skuwise.agent.config import load_config
from skuwise.agent.slurm_jobs.table_file import read_job_table
from skuwise.rules.base.errors import RulesError, SkuwiseError, UsageError
from skuwise.rules.base.files import open_stream, read_bounded, read_text
from skuwise.rules.base.output import write_whole
from skuwise.rules.base.toml import MAX_BYTES, read_toml
from skuwise.rules.base.yaml_loader import read_table as read_rules
from skuwise.rules.base.yaml_loader import rules_root
from skuwise.tests.support.schemas import validate

PAYLOAD = "\x1b[2J\u202e\x9b31m[red]x[/red]<script>|=cmd|' /C calc'!A0[a](javascript:b)`x`'; DROP TABLE node;--\r\n# h"


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


Read = Callable[[Path], object]


def settings(path: Path) -> object:
    return load_config({"config": path}, {})


READERS: dict[str, Read] = {
    "settings": settings, "routes": load_routes, "rules": read_rules, "secret": lambda path: secret(str(path), {}),
    "toml": lambda path: read_toml(path, str(path)),
}  # fmt: skip


MAKERS: dict[str, Read] = {
    "zero": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": lambda path: (path.touch(0o600), os.truncate(path, 1 << 40)),
    "binary": lambda path: (path.touch(0o600), path.write_bytes(b"a = 1\nb = \xff\xfe\x00")),
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_of_text_is_refused_in_a_sentence(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / kind
    MAKERS[kind](path)
    with pytest.raises(SkuwiseError) as refused:
        READERS[reader](path)
    assert str(path) in str(refused.value) and refused.value.remedy, refused.value


def test_a_pipe_that_nobody_writes_is_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="its end was not written"):
        read_bounded(tmp_path / "pipe", 100, 0.05)
    with pytest.raises(TimeoutError, match="no data was written to it"):
        open_stream(tmp_path / "pipe", 0.05)


@pytest.mark.parametrize("way", ["path", "stdin"])
def test_a_job_table_that_falls_silent_is_left(tmp_path: Path, way: str) -> None:
    """Its writer has it open all the time: the end never comes."""
    os.mkfifo(tmp_path / "pipe")
    keeps = os.open(tmp_path / "pipe", os.O_RDWR)
    reads = os.open(tmp_path / "pipe", os.O_RDONLY)
    try:
        os.write(keeps, b"JobID|State|Start|End\n1|COMPLETED|")
        path = tmp_path / "pipe" if way == "path" else None
        with pytest.raises(UsageError, match="no data was written to it for") as caught:
            read_job_table(path, patience_seconds=0.05, stdin=reads)
        assert "Let sacct write a file" in str(caught.value.remedy)
        os.fstat(reads)  # stdin is not ours to close
    finally:
        os.close(keeps)
        os.close(reads)


def test_the_null_device_stands_for_no_settings() -> None:
    assert load_config({"config": Path("/dev/null")}, {}) == load_config({"config": Path(os.devnull)}, {})
    assert read_bounded(Path("/dev/null"), 10) == b""


def test_a_byte_order_mark_is_dropped_and_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "skuwise.toml"
    path.write_bytes('node = "gpu-001"\n'.encode("utf-8-sig"))
    assert load_config({"config": path}, {}).node == "gpu-001"
    path.write_bytes('node = "gpu-001"\n'.encode("utf-16"))
    with pytest.raises(UsageError, match="UTF-16, not UTF-8"):
        settings(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"), ("[" + "a." * 30_000 + "a]", "line 1 has more than 64 dots"),
        ("a = " + "9" * 5000, "number that is too long"), ("a = '\0'", "not valid TOML"),
        ('"""\\' * 50_000, "not valid TOML"),
        ("#" * (MAX_BYTES + 1), "larger than 1 MiB"),
    ],
    ids=range(6),
)  # fmt: skip
def test_settings_made_to_break_the_reader_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "skuwise.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=fault):
        settings(path)


def test_text_is_read_to_its_limit_and_no_byte_further(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 100)
    assert read_text(tmp_path / "text", 100) == "x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        read_text(tmp_path / "text", 99)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full", "/dev/random"])
def test_a_job_table_that_is_a_device_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match="device"):
        read_job_table(Path(target))
