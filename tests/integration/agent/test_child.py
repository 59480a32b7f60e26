"""The agent's own child processes."""

import subprocess
from pathlib import Path

from skuwise.agent.base.self_command import child_command


def test_a_child_takes_no_code_from_the_folder_it_is_started_in(tmp_path: Path) -> None:
    (tmp_path / "skuwise").mkdir()
    for name in ("skuwise/__init__.py", "hashlib.py"):
        (tmp_path / name).write_text("raise SystemExit('taken from the current folder')\n")
    command = child_command("skuwise", "--version")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "skuwise" in done.stdout, done.stderr
