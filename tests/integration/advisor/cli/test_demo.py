"""`skuwise demo` as a new user runs it: what it prints runs when it is pasted, and so do the commands of its mail."""

from __future__ import annotations

import email
import os
import re
import resource
import subprocess
import sys
from email.policy import default
from pathlib import Path

from skuwise.tests.support.pasted_commands import paste

PLAIN = {"LC_ALL": "C", "LANG": "C", "NO_COLOR": "1", "PYTHONUTF8": "0"}


def demo(*arguments: str, folder: Path, file_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the demo in `folder`; no file may grow beyond `file_bytes`."""

    def limited() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, "-m", "skuwise", "demo", *arguments], cwd=folder, env={**os.environ, **PLAIN},
        capture_output=True, text=True, check=False, timeout=600, preexec_fn=limited,
    )  # fmt: skip


def pasteable(text: str) -> list[str]:
    """The commands of a text: from each line after one that introduces it, its continuation lines joined."""
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if " explain " in line or " advise " in line]


def test_the_demo_prints_commands_that_run_and_writes_a_mail_that_compares_two_weeks(tmp_path: Path) -> None:
    done = demo("--dir", "out of the box", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 200
    assert [line[:3] for line in done.stderr.splitlines()] == ["1/4", "2/4", "3/4", "4/4"]
    folder = tmp_path / "out of the box"
    assert {"advice.html", "fleet.db", "mail"} <= {path.name for path in folder.iterdir()}
    mail = email.message_from_bytes((folder / "mail" / "fleet.eml").read_bytes(), policy=default)
    body = mail.get_body(("plain",))
    assert body is not None
    text = re.sub(r"\\\r?\n", "", body.get_content())  # a long command goes on in the next line, as in a shell
    assert "nothing to compare with" not in text
    assert "Changes since last week" in text
    printed, mailed = pasteable(done.stdout), pasteable(text)
    assert len(printed) == 2
    assert len(mailed) >= 2
    for command in (*printed, mailed[0]):
        again = paste(command, tmp_path)
        assert again.returncode == 0, (command, again.stderr)


def test_a_full_disk_ends_the_demo_with_a_sentence_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    done = demo("--dir", "demo", folder=tmp_path, file_bytes=400_000)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "demo").glob("fleet.db*"))


def test_a_folder_that_cannot_be_made_or_that_holds_a_demo_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = demo("--dir", "file/demo", folder=tmp_path)
    assert refused.returncode == 2
    assert "--dir" in refused.stderr
    (tmp_path / "fleet.db").write_text("")
    twice = demo("--dir", ".", folder=tmp_path)
    assert twice.returncode == 2
    assert "already exists" in twice.stderr
    assert "--dir" in twice.stderr
