"""Streams, limits and surroundings that fail a command: a sentence, a status, and no second error at the end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.agent.base.address import parse_listen
from skuwise.rules.base.errors import UsageError
from skuwise.rules.base.last_resort import explained
from skuwise.rules.base.sanitize import ESCAPED

COMMAND = f"{sys.executable} -m skuwise"


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "unexpected" not in done.stderr and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize(
    "line",
    [
        f"{COMMAND} --version > /dev/full",
        f"{COMMAND} rules --help > /dev/full",
        f"{COMMAND} --help >&-",
        pytest.param(f"{COMMAND} skus list > /dev/full", marks=pytest.mark.slow),
    ],
)
def test_output_that_cannot_be_written_is_a_sentence_and_no_success(tmp_path: Path, line: str) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("skuwise: Standard output cannot be written: "), done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["2>&-", "2>/dev/full"])
def test_narration_that_cannot_be_written_stops_nothing(tmp_path: Path, end: str) -> None:
    done = shell(f"{COMMAND} agent run --db node.db --interval 0.2s --duration 0.6s {end}", tmp_path)
    assert done.returncode == 0 and (tmp_path / "node.db").stat().st_size > 0


@pytest.mark.slow
def test_an_encoding_that_lacks_a_character_gets_it_escaped_as_json_does(tmp_path: Path) -> None:
    assert "é → 😀 \udcff".encode("ascii", ESCAPED) == b"\\u00e9 \\u2192 \\ud83d\\ude00 \\udcff"
    line = f"{COMMAND} advise --db $'none-\\xff-\\xc3\\xa9'"
    done = shell(line, tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and "none-\\udcff-\\u00e9 does not exist" in done.stderr


def limited(what: int, limit: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skuwise", *arguments], capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(what, (limit, limit)),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [24, 32, 48, 64, 96, 128, 192])
def test_too_little_memory_is_a_sentence(tmp_path: Path, megabytes: int) -> None:
    done = limited(
        resource.RLIMIT_AS, megabytes << 20, "agent", "run", "--db", str(tmp_path / "n.db"), "--duration", "1s"
    )
    assert "unexpected" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "address",
    [
        ":9500", "a b:9500", "..:9500", f"{'a' * 64}:9500", f"{'a.' * 200}a:9500", "\udcff:9500", "a\0b:9500", "x:-1",
        "x:65536", "x:" + "9" * 5000, "x:٣", "[::1%a b]:9500", "[1.2.3.4]:9500", "[host]:9500", "::1:9500",
        "300.1.1.1:9500", "1.2.3.4.5:9500", "", "-a:1", "a..b:1", "a/b:1",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_can_never_be_listened_on_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(address)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("9500", "127.0.0.1"), ("0.0.0.0:9500", "0.0.0.0"), ("[::]:9500", "::"), ("[::1%eth0]:9500", "::1%eth0"),
        ("gpu-001.example.org:9500", "gpu-001.example.org"), ("node_7:9500", "node_7"), ("0:9500", "0"),
    ],
)  # fmt: skip
def test_what_can_be_listened_on_is_taken(text: str, host: str) -> None:
    assert parse_listen(text).host == host


@pytest.mark.parametrize("window", [("--since", "999999999w"), ("--since", "3651d"), ("--until", "0001-01-01")])
def test_a_window_of_thousands_of_years_is_wrong_usage(
    window: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["advise", "--db", "/nonexistent", *window])
    assert ended.value.code == 2 and (
        "longer than 3650 days" in (told := capsys.readouterr().err) or "before 1970" in told
    )


def boom() -> None:
    boom()


def missing() -> None:
    Path("/nonexistent/x").read_bytes()


def short() -> None:
    raise MemoryError


def undecodable() -> None:
    b"\xff".decode()


@pytest.mark.parametrize("fail", [boom, missing, short, undecodable], ids=lambda fail: fail.__name__)
def test_what_nobody_foresaw_is_a_sentence_with_a_remedy(fail: Callable[[], None]) -> None:
    with pytest.raises(Exception) as failed:
        fail()
    told = explained(failed.value)
    assert told is not None and told.message.endswith(".") and told.remedy.endswith((".", "?"))


def test_a_mistake_of_ours_is_not_explained_away() -> None:
    assert explained(KeyError("x")) is None and explained(TypeError("x")) is None
    assert explained(SystemError("bad argument to internal function")) is None
    without_reason = explained(SystemError("error return without exception set"))
    assert without_reason is not None and "memory" in without_reason.message
