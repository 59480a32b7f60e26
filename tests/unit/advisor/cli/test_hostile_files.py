"""Settings and other small files that are no files, never end, or are made to break their reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.advisor.core.credentials import secret
from skuwise.advisor.mail.routes import load_routes
from skuwise.agent.config import load_config
from skuwise.agent.slurm_jobs.table_file import read_job_table
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.rules.base.files import open_stream, read_bounded, read_text
from skuwise.rules.base.toml import MAX_BYTES, read_toml
from skuwise.rules.base.yaml_loader import read_table as read_rules

Read = Callable[[Path], object]


def settings(path: Path) -> object:
    return load_config({"config": path}, {})


READERS: dict[str, Read] = {
    "settings": settings,
    "routes": load_routes,
    "rules": read_rules,
    "secret": lambda path: secret(str(path), {}),
    "toml": lambda path: read_toml(path, str(path)),
}


def zero(folder: Path) -> Path:
    (folder / "zero").symlink_to("/dev/zero")
    return folder / "zero"


def directory(folder: Path) -> Path:
    (folder / "folder").mkdir()
    return folder / "folder"


def loop(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


def sparse(folder: Path) -> Path:
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "sparse").chmod(0o600)
    return folder / "sparse"


def binary(folder: Path) -> Path:
    (folder / "binary").write_bytes(b"a = 1\nb = \xff\xfe\x00")
    (folder / "binary").chmod(0o600)
    return folder / "binary"


@pytest.mark.parametrize("make", [zero, directory, loop, sparse, binary], ids=lambda make: make.__name__)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_of_text_is_refused_in_a_sentence(tmp_path: Path, reader: str, make: Read) -> None:
    path = make(tmp_path)
    with pytest.raises(SkuwiseError) as refused:
        READERS[reader](Path(str(path)))
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
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("[" + "a." * 30_000 + "a]", "line 1 has more than 64 dots"),
        ("a = " + "9" * 5000, "number that is too long"),
        ("a = '\0'", "not valid TOML"),
        ('"""\\' * 50_000, "not valid TOML"),
        ("#" * (MAX_BYTES + 1), "larger than 1 MiB"),
        ('db = "a\\u0000b"', "control character"),
        ("duration = nan", "not a span of time"),
        ("interval = inf", "outside 0.1 s to 60 s"),
        ("db = 1979-05-27", "must be text"),
        ("listen = 1.5", "not an address"),
    ],
    ids=range(11),
)
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
