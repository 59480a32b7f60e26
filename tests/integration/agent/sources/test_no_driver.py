"""A node without a driver, from the agent to the advice: its GPUs cannot be read, and no other window helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

NO_DRIVER = "[system]\nfault.nvmlInitWithFlags = !9\n"


def skuwise(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skuwise", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The database of an agent that found no driver."""
    folder = tmp_path_factory.mktemp("no-driver")
    dgx_like(folder / "sys")
    (folder / "sys" / "block").mkdir(exist_ok=True)
    env, db = stub_env(folder, NO_DRIVER), folder / "node.db"
    done = skuwise(
        "agent", "run", "--db", str(db), "--interval", "0.2s", "--duration", "1s", "--path.sysfs",
        str(folder / "sys"), env=env, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return db, env


def test_advice_names_the_cause_and_the_remedy(sampled: tuple[Path, dict[str, str]]) -> None:
    db, env = sampled
    done = skuwise("advise", "--db", str(db), "--no-ledger", env=env, cwd=db.parent)
    assert "cannot be read: the NVIDIA driver is not loaded" in done.stderr
    assert "Install or load the NVIDIA driver" in done.stderr
    assert "another window" not in done.stderr
