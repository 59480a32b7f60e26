"""The shell blocks of a tutorial, run one after the other in one shell, as a reader would."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"(<!-- interactive: press (\w+) -->\n)?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One block to run; `key` ends it where it draws on a terminal until somebody quits."""

    text: str
    key: str | None = None

    @property
    def title(self) -> str:
        return self.text.strip().splitlines()[0]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a block printed, how it ended, and how long it took."""

    block: Block
    status: int
    output: str
    seconds: float


def blocks_of(page: Path) -> tuple[Block, ...]:
    """The blocks marked `sh`, in their order."""
    return tuple(Block(text, key or None) for _, key, text in _BLOCK.findall(page.read_text()))


def environment(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """A new user's: an empty home, and `skuwise` on the PATH, which runs this tree."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    script = programs / "skuwise"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m skuwise "$@"\n')
    script.chmod(0o755)
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "STATE")}
    path = f"{programs}{os.pathsep}{base.get('PATH', os.defpath)}"
    return {**base, **own, "HOME": str(folder), "PATH": path, "TERM": "xterm-256color"}


def run(blocks: Sequence[Block], folder: Path, environ: Mapping[str, str], shows: str = "GPU") -> list[Ran]:
    """Run each block where the one before left the shell: its folder and its exported variables.

    `shows`: what a block on a terminal shows once it has its data.
    """
    done: list[Ran] = []
    current = dict(environ)
    for block in blocks:
        began = time.monotonic()
        if block.key is not None:
            status, output = _on_a_terminal(block, folder, current, shows)
        else:
            after = folder / ".environment"
            script = f"{block.text}\nstatus=$?\nenv -0 > {shlex.quote(str(after))}\nexit $status\n"
            one = subprocess.run(
                ["bash", "-c", script],
                cwd=folder,
                env=current,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            status, output = one.returncode, one.stdout + one.stderr
            current |= dict(pair.split("=", 1) for pair in after.read_text().split("\0") if "=" in pair)
        done.append(Ran(block, status, output, time.monotonic() - began))
    return done


def _on_a_terminal(block: Block, folder: Path, environ: Mapping[str, str], shows: str) -> tuple[int, str]:
    """Run a block on a terminal of its own; when the pages are there, press its key."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve("/bin/bash", ["bash", "-c", f"stty rows 40 cols 120; {block.text}"], dict(environ))
    shown, pressed, ends = b"", 0.0, time.monotonic() + 240
    try:
        while time.monotonic() < ends:
            if select.select([terminal], [], [], 0.5)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:  # the program ended
                    break
            # Pressed again until it ends: a program that still starts may not have heard the first.
            if shows.encode() in shown and time.monotonic() - pressed > 5:
                os.write(terminal, (block.key or "q").encode())
                pressed = time.monotonic()
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode(errors="replace")
