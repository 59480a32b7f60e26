"""Commands that skuwise prints, taken from its output and run as somebody would paste them: by a shell.

`commands_in` finds them: lines that begin with the command's name, what stands between quotation marks or after
"Run", and the ends of lines such as ``Details: skuwise explain ID``. `paste` runs one in a folder, with ``skuwise`` on
the PATH being this checkout.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_QUOTED = re.compile(r"'(skuwise (?:[^'\n]|'[^'\n]*')*?)'(?=[\s.,;:)]|$)|`(skuwise [^`\n]+)`", re.MULTILINE)
_AT_END = re.compile(r"(?:^|[:>$] +|next: )(skuwise [a-z]+(?: .*)?)$", re.MULTILINE)
# What stands for a word of the reader's own: such a line is a form, not a command.
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]{1,}\b(?!=)|\.\.\.|…|\[")


def commands_in(text: str) -> list[str]:
    """Every command line in a text, once, in order.

    A line that its printer wrapped is joined: continuation lines are indented deeper or begin with ``-``.
    """
    result: dict[str, None] = {}
    joined = re.sub(r"\\\n\s+", "", text)
    for quoted, ticked in _QUOTED.findall(joined):
        result[(quoted or ticked).strip()] = None
    for line in joined.splitlines():
        bare = line.strip(" │|-*")
        at = _AT_END.search(bare)
        if at is not None:
            command = re.split(r"\s{2,}|  #|\s+\(", at[1].strip())[0].rstrip(".")
            result[command] = None
    return [entry for entry in result if not _PLACEHOLDER.search(_without_values(entry))]


def _without_values(command: str) -> str:
    """The command without quoted words and paths, whose capitals are no placeholders."""
    return re.sub(r"'[^']*'|\S*/\S*|\$\w+", "x", command)


def environment(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """A new user's: an empty home, and `skuwise` on the PATH, which runs this checkout."""
    script = folder / "bin/skuwise"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!{sys.executable}\nimport sys\n\nfrom skuwise.__main__ import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    folders = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "STATE")}
    path = f"{script.parent}{os.pathsep}{base.get('PATH', os.defpath)}"
    return {**base, **folders, "HOME": str(folder), "PATH": path, "TERM": "xterm-256color"}


def paste(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a printed command line by ``sh -c`` in `folder`. Settings and ledgers of the user do not count."""
    environ = environment(folder, os.environ)
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300
    )


def on_a_terminal(command: str, folder: Path, environ: Mapping[str, str], shows: str, key: str) -> tuple[int, str]:
    """The status and the output of a line of bash on a pseudo-terminal; `key` ends it once it `shows` something."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve("/bin/bash", ["bash", "-c", f"stty rows 40 cols 120; {command}"], dict(environ))
    shown, pressed, ends = b"", 0.0, time.monotonic() + 240
    try:
        while time.monotonic() < ends:
            if select.select([terminal], [], [], 0.5)[0]:
                try:
                    shown += os.read(terminal, 1 << 16)
                except OSError:  # the program ended
                    break
            # Pressed again until it ends: a program that still starts may not have heard the first.
            if shows.encode() in shown and time.monotonic() - pressed > 5:
                os.write(terminal, key.encode())
                pressed = time.monotonic()
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode(errors="replace")
