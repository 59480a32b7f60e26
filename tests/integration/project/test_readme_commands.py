"""The commands of docs/README.md, run in their order by a new user in an empty folder; README names two commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from skuwise.tests.nvmlstub import stub_env

ROOT = Path(__file__).parents[3]


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].rstrip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("skuwise ")]


def test_the_readme_fits_one_screen_and_names_the_apt_line_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    assert lines == ["sudo apt-get install git make python3-venv", "make demo", "make test"]
    assert text.count("![") == 1


def test_every_command_that_needs_no_gpu_works_as_shown(tmp_path: Path) -> None:
    shown = commands(ROOT / "docs/README.md")
    assert len(shown) >= 2
    environment = stub_env(tmp_path, "[gpu 0-1]\nsm_active = 0.5\n")
    for line in shown:
        done = subprocess.run(
            [sys.executable, "-m", "skuwise", *shlex.split(line)[1:]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stdout or done.stderr
        assert "Traceback" not in done.stderr
