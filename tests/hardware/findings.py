"""What the hardware answered: one file that a person can read and carry back into the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One open point. `settled` False: this machine could not answer it, and `answer` says why."""

    id: str
    question: str
    answer: str
    settled: bool
    measured: Mapping[str, object]


class Findings:
    """Collects findings and writes them after each one, so that a run that breaks off leaves what it had."""

    def __init__(self, path: Path, machine: Mapping[str, object]) -> None:
        self.path = path
        self._machine = dict(machine)
        self._found: dict[str, Finding] = {}

    def add(self, number: str, question: str, answer: str, *, settled: bool = True, **measured: object) -> None:
        """Keep one finding; a later one of the same id takes its place."""
        self._found[number] = Finding(number, question, answer, settled, measured)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.as_json(), indent=1, sort_keys=True) + "\n")

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "skuwise.findings/1",
            "machine": self._machine,
            "findings": [asdict(found) for found in self._found.values()],
        }
