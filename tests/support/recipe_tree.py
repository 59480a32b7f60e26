"""A copy of the program to which a recipe of docs/architecture.md adds files, as somebody who follows it would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import skuwise

SOURCE = Path(skuwise.__file__).parent
ROOT_FILES = ("__init__.py", "__main__.py", "py.typed")
# What stands on a GPU node, and all there is.
AGENT, ALL = ("agent", "rules"), ("agent", "advisor", "tui", "rules")


@dataclass(frozen=True)
class RecipeTree:
    """`root`: the folder that holds the copied package, in which its commands run. `environ`: beside the test's own."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, floors: tuple[str, ...] = ALL, environ: Mapping[str, str] | None = None) -> RecipeTree:
        (folder / "skuwise").mkdir(parents=True)
        for name in floors:
            shutil.copytree(SOURCE / name, folder / "skuwise" / name)
        for name in ROOT_FILES:
            shutil.copy2(SOURCE / name, folder / "skuwise" / name)
        return cls(folder, environ or {})

    def add(self, path: str, text: str) -> None:
        """A new file."""
        target = self.root / "skuwise" / path
        assert not target.exists()
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, "utf-8")

    def change(self, path: str, changes: Mapping[str, str]) -> None:
        """Each of these texts, which stands there once, becomes another."""
        target = self.root / "skuwise" / path
        text = target.read_text("utf-8")
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        target.write_text(text, "utf-8")

    def remove(self, path: str) -> None:
        (self.root / "skuwise" / path).unlink()

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """``skuwise WORDS`` of the copy."""
        return subprocess.run(
            [sys.executable, "-m", "skuwise", *map(str, words)],
            cwd=self.root,
            env={**os.environ, "COLUMNS": "120", **self.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
