"""A copy of the agent and the rules that a test may build on: what a newcomer would add to the tree is added here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


class HouseCopy:
    """The agent and the rules under `folder`, run with `run`; the checkout itself stays as it is."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.root = folder / "house" / "skuwise"
        self._environ = {**(os.environ if environ is None else environ), "PYTHONPATH": str(self.root.parent)}
        for floor in ("agent", "rules"):
            shutil.copytree(ROOT / floor, self.root / floor, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("__init__.py", "__main__.py", "py.typed"):
            shutil.copy(ROOT / file, self.root / file)

    def add(self, path: str, text: str) -> None:
        """A new file."""
        file = self.root / path
        assert not file.exists()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def edit(self, path: str, changes: Mapping[str, str]) -> None:
        """Each of these texts, which stands there once, becomes another."""
        file = self.root / path
        text = file.read_text()
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        file.write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`skuwise WORDS` of the copy."""
        command = [sys.executable, "-m", "skuwise", *words]
        return subprocess.run(
            command,
            env=self._environ,
            cwd=self.root.parents[1],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
