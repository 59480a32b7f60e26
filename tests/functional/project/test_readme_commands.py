"""The README's commands, run in its order by a new user in an empty folder, on a node behind the NVML stub."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env

ROOT = Path(__file__).parents[3]
# What a reader would stop by hand, the test stops by itself.
UNTIL_STOPPED = {"skuwise agent run --db node.db": "skuwise agent run --db node.db --duration 1s"}
# 30 hours of data are needed for a verdict; after a second the command says so and reports nothing to work on.
STATUS = {"skuwise advise --db node.db": {0, 3}, "skuwise advise --db node.db --format json": {0, 3}}


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("skuwise ")]


@pytest.mark.slow
def test_every_command_of_the_readme_works_as_shown(tmp_path: Path) -> None:
    shown = commands(ROOT / "README.md")
    assert len(shown) >= 10
    environment = stub_env(tmp_path, "[gpu 0-1]\nsm_active = 0.5\n")
    for line in shown:
        arguments = shlex.split(UNTIL_STOPPED.get(line, line))[1:]
        done = subprocess.run(
            [sys.executable, "-m", "skuwise", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode in STATUS.get(line, {0}), f"{line}\n{done.stderr}"
        assert done.stdout or done.stderr
        assert "Traceback" not in done.stderr
