"""`skuwise agent install | uninstall`: systemd units and Slurm's scripts for the installation that runs this.

The units would run a root-installed service from whatever lies under this prefix, so a prefix that others can write is
refused: it would be theirs to decide what runs here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from ...rules.base.errors import SkuwiseError

MARK = "# Written by skuwise agent install; uninstall removes it. Changes belong into a drop-in."
_COMMAND = "/usr/bin/skuwise"  # what the units in the package run
# The unit hides these from the service (ProtectHome, PrivateTmp).
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - refused, not used
_PYTHON = "/opt/skuwise/bin/python3"  # what the environ helper's unit runs
_FOLDERS = {".service": "etc/systemd/system", ".timer": "etc/systemd/system", ".sh": "etc/skuwise/slurm"}
_SCRIPTS = _FOLDERS[".sh"]
_FILES = (
    "skuwise-agent.service", "skuwise-snapshot.service", "skuwise-snapshot.timer", "skuwise.sysusers.conf",
    "skuwise.tmpfiles.conf", "slurm/prolog.sh", "slurm/epilog.sh", "slurm/drained.sh",
)  # fmt: skip


class InstallOption(NamedTuple):
    """Files that are written only where they are asked for, and what is said of them then."""

    files: tuple[str, ...]
    help: str
    next_step: str


OPTIONS: Mapping[str, InstallOption] = {
    # Its capabilities are root in all but name.
    "environ": InstallOption(
        ("skuwise-environ.service",),
        "the helper that reads Slurm's environments (opt-in)",
        "Names of Slurm's jobs, from environments: systemctl enable --now skuwise-environ.service",
    ),
    # Advice is read on another host than the GPUs'.
    "report": InstallOption(
        ("skuwise-report.service", "skuwise-report.timer"),
        "the weekly report, on the host where advice is read",
        "The weekly report, once recipients are configured: systemctl enable --now skuwise-report.timer",
    ),
    # The same host.
    "watch": InstallOption(
        ("skuwise-watch.service",),
        "the watch for incidents, on the host where advice is read",
        "The watch, once a source is configured: systemctl enable --now skuwise-watch.service",
    ),
    # It talks to slurmdbd or slurmrestd over the network.
    "slurm": InstallOption(
        ("skuwise-slurm.service", "skuwise-slurm.timer"),
        "the import of Slurm's job table, where sacct works",
        "Names and owners of Slurm's jobs, every ten minutes: systemctl enable --now skuwise-slurm.timer",
    ),
}
# What runs by itself, in the order in which it is stopped.
_UNITS = (
    "skuwise-slurm.timer", "skuwise-slurm.service", "skuwise-report.timer", "skuwise-report.service",
    "skuwise-watch.service", "skuwise-snapshot.timer", "skuwise-agent.service", "skuwise-environ.service",
)  # fmt: skip
_SHEBANG = "#!/bin/sh\n"
_MOST_CHECKED = 200_000


@dataclass(frozen=True, slots=True)
class Installation:
    """What runs: the interpreter (or the program of a self-contained build), and the folders it takes code from.

    `arguments` make skuwise of it.
    """

    python: Path
    folders: tuple[Path, ...]
    arguments: str = " -m skuwise"

    @classmethod
    def current(cls) -> Installation:
        if getattr(sys, "frozen", False):  # set by PyInstaller: all of it lies beside the program
            program = Path(sys.executable)
            return cls(program, (program.resolve().parent,), "")
        paths = sysconfig.get_paths()
        package = Path(str(resources.files("skuwise")))
        code = {Path(paths[name]) for name in ("purelib", "platlib", "stdlib")} | {package}
        return cls(Path(sys.executable), tuple(sorted(code)))


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that is to be there, with what in it, and with which mode."""

    path: Path
    text: str
    mode: int = 0o644


def plan_files(installation: Installation, root: Path, options: Collection[str] = ()) -> tuple[PlannedFile, ...]:
    """The files of this installation under `root`, with those of some `OPTIONS`."""
    folder = resources.files("skuwise").joinpath("systemd")
    python = _quoted(installation.python)
    files: list[PlannedFile] = []
    for name in _names(options):
        text, path = folder.joinpath(name).read_text(encoding="utf-8"), root / _place(name)
        if text.startswith(_SHEBANG):
            files.append(PlannedFile(path, f"{_SHEBANG}{MARK}\n{text.removeprefix(_SHEBANG)}", 0o755))
        else:
            text = text.replace(_COMMAND, f"{python}{installation.arguments}").replace(_PYTHON, python)
            files.append(PlannedFile(path, f"{MARK}\n{text}"))
    return tuple(files)


def _names(options: Collection[str]) -> tuple[str, ...]:
    return _FILES + tuple(name for option in OPTIONS if option in options for name in OPTIONS[option].files)


def _place(name: str) -> str:
    """Where a file of the package goes."""
    stem, _, kind = Path(name).name.rpartition(".")
    if kind == "conf":
        stem, _, folder = stem.rpartition(".")
        return f"etc/{folder}.d/{stem}.conf"
    return f"{_FOLDERS[f'.{kind}']}/{stem}.{kind}"


def _quoted(path: Path) -> str:
    text = str(path)
    if any(character in text for character in "\"'\\\n") or not text.isprintable():
        raise SkuwiseError(
            f"The path {text!r} cannot be used in a systemd unit.", "Install skuwise under a plain path."
        )
    escaped = text.replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if " " in escaped else escaped


def refuse_what_others_can_write(
    installation: Installation, owners: frozenset[int] = frozenset({0}), hidden_folders: tuple[str, ...] = _HIDDEN
) -> None:
    """Raise SkuwiseError where someone but `owners` could change what the service runs, or the unit would hide it."""
    executables = _chain(installation.python)
    for path in (*executables, *installation.folders):
        hidden = next((h for h in hidden_folders if path == Path(h) or Path(h) in path.parents), None)
        if hidden is not None:
            raise SkuwiseError(
                f"{path} lies under {hidden}, which the unit hides from the service.",
                "Put it under /opt or /usr/local: python3 -m venv /opt/skuwise, or unpack the self-contained build.",
            )
    for checked, path in enumerate(_to_check(executables, installation.folders)):
        _refuse(path, owners, "a service started from it runs", f", from {path} down and all folders above")
        if checked >= _MOST_CHECKED:
            raise SkuwiseError(f"There are too many files below {installation.folders[0]} to check.", "Use a venv.")


def refuse_scripts_that_others_can_write(root: Path, owners: frozenset[int] = frozenset({0})) -> None:
    """Raise SkuwiseError where someone but `owners` could put another prolog in the place of ours: it runs as root."""
    folder = root
    for part in ("", *Path(_SCRIPTS).parts):
        folder /= part
        if folder.exists():
            _refuse(folder, owners, "Slurm's prolog runs as root")


def _refuse(path: Path, owners: frozenset[int], decided: str, extent: str = "") -> None:
    why = _why_unsafe(path, owners)
    if why is not None:
        raise SkuwiseError(
            f"{path} {why}, so others decide what {decided}.",
            f"Give it to root and close it (chown root:root, chmod go-w){extent}.",
        )


def _chain(path: Path) -> tuple[Path, ...]:
    """`path` and what it links to, one step after the other: each of them decides what runs."""
    found = [path]
    while path.is_symlink() and len(found) < 40:
        path = Path(os.path.normpath(path.parent / path.readlink()))
        found.append(path)
    return tuple(found)


def _to_check(executables: tuple[Path, ...], folders: tuple[Path, ...]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in (*executables, *folders):
        for part in (path, *path.parents, *path.resolve().parents):
            if part not in seen:
                seen.add(part)
                yield part
    for folder in folders:
        for base, names, files in os.walk(folder):
            for name in (*names, *files):
                yield Path(base) / name


def _why_unsafe(path: Path, owners: frozenset[int]) -> str | None:
    try:
        about = path.lstat()
    except OSError as error:
        return f"cannot be checked ({error.strerror})"
    if about.st_uid not in owners:
        return f"belongs to user {about.st_uid}"
    if stat.S_ISLNK(about.st_mode):
        return None  # a link's own mode says nothing; what it leads to was looked at, or is code we do not load
    if about.st_mode & stat.S_IWOTH and not (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
        return "can be written by everyone"
    if about.st_mode & stat.S_IWGRP and about.st_gid != 0:
        return f"can be written by group {about.st_gid}"
    return None


def install(files: tuple[PlannedFile, ...], root: Path, say: Callable[[str], None], *, dry_run: bool) -> None:
    """Write the units and let systemd know. With `dry_run`, print what would be written."""
    if dry_run:
        for file in files:
            say(f"--- would write {file.path} (mode {file.mode:04o})\n{file.text}")
        for command in _after_install(root):
            say(f"--- would run {' '.join(command)}")
        say("--- would leave to you")
        for line in _next_steps(files):
            say(line)
        return
    for file in files:
        if file.path.exists() and not _is_ours(file.path):
            raise SkuwiseError(
                f"{file.path} exists and was not written by skuwise.", "Move it away, or keep it and do not install."
            )
    try:
        for file in files:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            aside = file.path.with_name(f".{file.path.name}.new")
            aside.write_text(file.text, encoding="utf-8")
            aside.chmod(file.mode)
            aside.replace(file.path)
            say(f"wrote {file.path}")
    except OSError as error:
        raise SkuwiseError(f"{error.filename} cannot be written: {error.strerror}.", "Run as root.") from error
    for command in _after_install(root):
        _run(command, say)
    for line in _next_steps(files):
        say(line)


def _next_steps(files: tuple[PlannedFile, ...]) -> list[str]:
    """What is left to the person who installs."""
    steps = [
        "Start it with: systemctl enable --now skuwise-agent.service",
        "Snapshots, where the fleet collects files: systemctl enable --now skuwise-snapshot.timer",
        "On a Slurm node, so that it is known which job was given which GPU, in slurm.conf (scontrol reconfigure):",
        f"  Prolog=/{_SCRIPTS}/prolog.sh",
        f"  Epilog=/{_SCRIPTS}/epilog.sh",
        "  PrologFlags=Alloc,Contain",
        "  Where slurm.conf names a prolog and an epilog already, call these two from them (not with '.').",
        "  skuwise agent doctor lists what is still missing, and the GPU of each Slurm index.",
        f"To take this node out of service: /{_SCRIPTS}/drained.sh REASON, and --clear afterwards.",
    ]
    names = {file.path.name for file in files}
    steps += [option.next_step for option in OPTIONS.values() if names.issuperset(option.files)]
    return steps


def uninstall(root: Path, say: Callable[[str], None], *, dry_run: bool) -> int:
    """Stop the units and remove what `install` wrote. The database, the settings and the user stay. Returns files."""
    paths = [root / _place(name) for name in _names(OPTIONS)]
    ours = [path for path in paths if path.exists() and _is_ours(path)]
    systemd = _systemd_runs(root)
    if systemd and ours:
        for unit in (unit for unit in _UNITS if root / "etc/systemd/system" / unit in ours):
            command = ("systemctl", "disable", "--now", unit)
            say(f"--- would run {' '.join(command)}") if dry_run else _run(command, say)
    for path in ours:
        if dry_run:
            say(f"--- would remove {path}")
            continue
        try:
            path.unlink()
        except OSError as error:
            raise SkuwiseError(f"{path} cannot be removed: {error.strerror}.", "Run as root.") from error
        say(f"removed {path}")
    if ours and systemd and not dry_run:
        _run(("systemctl", "daemon-reload"), say)
    if any(path.parent == root / _SCRIPTS for path in ours):
        if not dry_run:
            with contextlib.suppress(OSError):  # the site's own scripts keep it
                (root / _SCRIPTS).rmdir()
        say(f"Take /{_SCRIPTS} out of slurm.conf, if it names it: a prolog that is not there drains the node.")
    if ours:
        say("The database (/var/lib/skuwise), the settings (/etc/skuwise) and the user skuwise stay.")
    return len(ours)


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(len(_SHEBANG) + len(MARK))
    except OSError:
        return False


def _after_install(root: Path) -> list[tuple[str, ...]]:
    where = () if root == Path("/") else (f"--root={root}",)
    commands = [("systemd-sysusers", *where, "skuwise.conf"), ("systemd-tmpfiles", *where, "--create", "skuwise.conf")]
    if _systemd_runs(root):
        commands.append(("systemctl", "daemon-reload"))
    return [command for command in commands if shutil.which(command[0])]


def _systemd_runs(root: Path) -> bool:
    return root == Path("/") and Path("/run/systemd/system").is_dir()


def _run(command: tuple[str, ...], say: Callable[[str], None]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
    if done.returncode != 0:
        say(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")


def install_here(root: Path, options: Collection[str], say: Callable[[str], None], *, dry_run: bool) -> None:
    """Install this installation's files under `root`."""
    installation = Installation.current()
    files = plan_files(installation, root, options)
    if not dry_run:
        refuse_what_others_can_write(installation)
        refuse_scripts_that_others_can_write(root)
    install(files, root, say, dry_run=dry_run)
