"""A copy of the program to which a recipe of docs/architecture.md adds files, as somebody who follows it would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import skuwise

SOURCE = Path(skuwise.__file__).parent
FLOORS = ("__init__.py", "__main__.py", "agent", "advisor", "tui", "rules")


@dataclass(frozen=True)
class RecipeTree:
    """`root`: the folder that holds the copied package."""

    root: Path

    @classmethod
    def of(cls, folder: Path) -> RecipeTree:
        for name in FLOORS:
            source, target = SOURCE / name, folder / "skuwise" / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
        return cls(folder)

    def add(self, path: str, text: str) -> None:
        target = self.root / "skuwise" / path
        assert not target.exists()
        target.write_text(text, "utf-8")

    def change(self, path: str, old: str, new: str) -> None:
        target = self.root / "skuwise" / path
        text = target.read_text("utf-8")
        assert text.count(old) == 1
        target.write_text(text.replace(old, new), "utf-8")

    def remove(self, path: str) -> None:
        (self.root / "skuwise" / path).unlink()

    def run(self, *args: object) -> subprocess.CompletedProcess[str]:
        """``skuwise ...`` of the copy."""
        return subprocess.run(
            [sys.executable, "-m", "skuwise", *map(str, args)],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
