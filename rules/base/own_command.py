"""How a user calls this installation, and how they add an extra to it: words that can be pasted as they are."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

_ROOT = Path(__file__).resolve().parents[2]


def own_command(*, anywhere: bool = False) -> str:
    """The words that stand for ``skuwise`` in a command to paste into the shell that runs us.

    ``skuwise`` where the PATH leads to this installation; else the path of its program, relative below the current
    folder; else this interpreter with ``-m skuwise``. `anywhere`: no path is relative, for a reader in another folder.
    """
    return command_words(
        program=Path(sys.executable) if getattr(sys, "frozen", False) else Path(sys.prefix, "bin", "skuwise"),
        interpreter=Path(sys.executable),
        folder=None if anywhere else Path.cwd(),
        path=os.environ.get("PATH", ""),
    )


def command_words(*, program: Path, interpreter: Path, folder: Path | None, path: str) -> str:
    """The same for an installation with `program` and `interpreter`, called from `folder` (None: from anywhere) with
    this PATH."""
    if not os.access(program, os.X_OK):
        return f"{_shown(interpreter, folder)} -m skuwise"
    found = shutil.which("skuwise", path=path)
    if found is not None and Path(found).is_absolute() and Path(found).samefile(program):
        return "skuwise"
    return _shown(program, folder)


def install_command(extra: str) -> str:
    """The command that adds `extra` to this installation, from the checkout that it was installed from if that exists,
    else from a package index."""
    pip = f"{_shown(Path(sys.executable), Path.cwd())} -m pip install"
    try:
        about = importlib.metadata.distribution("skuwise")
    except importlib.metadata.PackageNotFoundError:
        about = None
    checkout, editable = origin(about.read_text("direct_url.json") if about is not None else None)
    if checkout is None and (_ROOT / "pyproject.toml").is_file():
        checkout, editable = _ROOT, True  # run from a checkout by PYTHONPATH
    if checkout is not None:
        return f"{pip} {'-e ' if editable else ''}{shlex.quote(f'{checkout}[{extra}]')}"
    return f"{pip} {shlex.quote(f'skuwise[{extra}]')}"


def origin(direct_url: str | None) -> tuple[Path | None, bool]:
    """The checkout that pip recorded (PEP 610) if it still lies there, and whether its files are used in place."""
    try:
        record = json.loads(direct_url or "{}")
        folder = Path(unquote(urlparse(str(record.get("url", ""))).path))
        editable = bool(record.get("dir_info", {}).get("editable", False))
        found = folder.is_absolute() and (folder / "pyproject.toml").is_file()
    except (ValueError, AttributeError, OSError):
        return None, False
    return (folder, editable) if found else (None, False)


def _shown(program: Path, folder: Path | None) -> str:
    """`program` as a word of a shell: relative where it lies below `folder`."""
    absolute = program.absolute()
    if folder is None:
        return shlex.quote(str(absolute))
    try:
        inside = absolute.relative_to(folder)
    except ValueError:
        return shlex.quote(str(absolute))
    return shlex.quote(str(inside) if len(inside.parts) > 1 else f"./{inside}")
