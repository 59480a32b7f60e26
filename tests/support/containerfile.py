"""Reads a Containerfile: its instructions, stage by stage, as an engine would."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction and what stands behind it, line breaks joined."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def command(self) -> list[str]:
        """The exec form's words. Raises ValueError for the shell form."""
        words = json.loads(self.text[self.text.index("[") :])
        return [str(word) for word in words]


def stages(path: Path) -> list[list[Instruction]]:
    """The instructions of each stage, from its FROM on; what stands before the first is stage 0."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    instructionses: list[list[Instruction]] = [[]]
    for line in filter(None, joined.splitlines()):
        name, _, text = line.partition(" ")
        if name == "FROM":
            instructionses.append([])
        instructionses[-1].append(Instruction(name, text.strip()))
    return instructionses


def every(stage: list[Instruction], name: str) -> list[Instruction]:
    return [entry for entry in stage if entry.name == name]


def variables(stage: list[Instruction]) -> dict[str, str]:
    """What the stage's ENV sets."""
    pairs = (word.partition("=") for entry in every(stage, "ENV") for word in entry.words)
    return {name: value for name, _, value in pairs}
