"""The commands of docs/supply-chain.md, as shown."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from skuwise.tests.support.shared_artifacts import wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/supply-chain.md").read_text()
BLOCKS = [block.splitlines() for block in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
NO_INDEX = ("No matching distribution", "Could not find a version", "ConnectionError", "NewConnectionError")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False)


def test_the_commands_of_the_supply_chain_page_work(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (block,) = (block for block in BLOCKS if "--require-hashes" in "".join(block))
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel(tmp_path_factory).name).symlink_to(wheel(tmp_path_factory))
    for line in block:
        done = shell(line, tmp_path)
        if done.returncode != 0 and any(word in done.stderr for word in NO_INDEX):
            pytest.skip(f"pip has no index: {done.stderr.strip()[-200:]}")
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "skuwise" in shell("venv/bin/skuwise --version", tmp_path).stdout


def test_make_knows_the_targets_of_the_page() -> None:
    for line in (line for block in BLOCKS for line in block if line.startswith("make ")):
        done = shell(f"make -n -C {ROOT} {line.removeprefix('make ')}", ROOT)
        assert done.returncode == 0 and "requirements/dev.lock" in done.stdout, done.stderr
