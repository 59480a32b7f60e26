"""Streams, limits and surroundings that fail a command: a sentence, a status, and no second error at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        f"{COMMAND} skus list > /dev/full",
    ],
)
def test_output_that_cannot_be_written_is_a_sentence_and_no_success(tmp_path: Path, line: str) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("skuwise: Standard output cannot be written: "), done.stderr
    assert len(done.stderr.splitlines()) == 1
