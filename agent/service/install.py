"""`skuwise agent install | uninstall`: systemd units and Slurm's scripts for the installation that runs this.

The units would run a service from whatever interpreter runs this, so one that others can write is refused: it would be
theirs to decide what runs here.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path

from ...rules.base.errors import SkuwiseError

MARK = "# Written by skuwise agent install; uninstall removes it. Changes belong into a drop-in."
_COMMAND = "/usr/bin/skuwise"  # what the units in the package run
_PYTHON = "/opt/skuwise/bin/python3"  # what the environ helper's unit runs
# The unit hides these from the service (ProtectHome, PrivateTmp).
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - refused, not used
_UNITS, _SCRIPTS = "etc/systemd/system", "etc/skuwise/slurm"
_SHEBANG = "#!/bin/sh\n"
# Units that are written only where they are asked for (skuwise-NAME.*), and what each is for. The environ helper's
# capabilities are root in all but name; report and watch belong on the host where advice is read.
OPTIONS: Mapping[str, str] = {
    "environ": "Names of Slurm's jobs, from environments",
    "report": "The weekly report, once recipients are configured",
    "watch": "The watch, once a source is configured",
    "slurm": "Names and owners of Slurm's jobs, every ten minutes",
}
_NEXT_STEPS = f"""\
Start it with: systemctl enable --now skuwise-agent.service
Snapshots, where the fleet collects files: systemctl enable --now skuwise-snapshot.timer
On a Slurm node, so that it is known which job was given which GPU, in slurm.conf (scontrol reconfigure):
  Prolog=/{_SCRIPTS}/prolog.sh
  Epilog=/{_SCRIPTS}/epilog.sh
  PrologFlags=Alloc,Contain
  Where slurm.conf names a prolog and an epilog already, call these two from them (not with '.').
  skuwise agent doctor lists what is still missing, and the GPU of each Slurm index.
To take this node out of service: /{_SCRIPTS}/drained.sh REASON, and --clear afterwards."""

Say = Callable[[str], None]


def install_here(root: Path, options: Collection[str], say: Say, *, dry_run: bool) -> None:
    """Write the units of this installation and let systemd know. With `dry_run`, say what would be done. `options`:
    names of `OPTIONS`. Raises SkuwiseError where the service or the prolog would run what others can write."""
    # In a self-contained build (PyInstaller) the program itself is skuwise.
    program, arguments = Path(sys.executable), "" if getattr(sys, "frozen", False) else " -m skuwise"
    if not dry_run:
        refuse_what_others_can_write(program, Path(str(resources.files("skuwise"))))
        folders = (root, root / "etc", root / "etc/skuwise", root / _SCRIPTS)
        refuse((folder for folder in folders if folder.exists()), "Slurm's prolog runs as root")
    install(plan_files(program, arguments, root, options), root, say, dry_run=dry_run)
    say(_NEXT_STEPS)
    for name in options:
        kind = "timer" if name in ("report", "slurm") else "service"
        say(f"{OPTIONS[name]}: systemctl enable --now skuwise-{name}.{kind}")


def plan_files(program: Path, arguments: str, root: Path, options: Collection[str] = ()) -> dict[Path, str]:
    """The files of this installation under `root`, with their texts. `arguments` make skuwise of the program."""
    quoted = str(program)
    if any(character in quoted for character in "\"'\\\n") or not quoted.isprintable():
        raise SkuwiseError(
            f"The path {quoted!r} cannot be used in a systemd unit.", "Install skuwise under a plain path."
        )
    quoted = quoted.replace("%", "%%").replace("$", "$$")
    quoted = f'"{quoted}"' if " " in quoted else quoted
    folder = resources.files("skuwise").joinpath("systemd")
    files: dict[Path, str] = {}
    for source in (*folder.iterdir(), *folder.joinpath("slurm").iterdir()):
        stem, _, kind = source.name.rpartition(".")
        option = stem.removeprefix("skuwise-")
        if kind == "conf":  # skuwise.sysusers.conf
            stem, _, where = stem.rpartition(".")
            path = root / f"etc/{where}.d/{stem}.conf"
        elif kind == "sh":
            path = root / _SCRIPTS / source.name
        elif kind in ("service", "timer") and (option not in OPTIONS or option in options):
            path = root / _UNITS / source.name
        else:
            continue
        text = source.read_text(encoding="utf-8")
        text = text.replace(_COMMAND, f"{quoted}{arguments}").replace(_PYTHON, quoted) if kind != "sh" else text
        first = _SHEBANG if text.startswith(_SHEBANG) else ""
        files[path] = f"{first}{MARK}\n{text.removeprefix(first)}"
    return files


def refuse_what_others_can_write(
    program: Path, package: Path, owners: Collection[int] = (0,), hidden: Iterable[str] = _HIDDEN
) -> None:
    """Raise SkuwiseError where someone but `owners` could replace the interpreter or the package, or the unit would
    hide them. Both are checked with the folders above them, and not what lies in them."""
    looked: list[Path] = []
    for path in (program, package):
        looked.append(path)
        while looked[-1].is_symlink():  # each step decides what runs
            looked.append(Path(os.path.normpath(looked[-1].parent / looked[-1].readlink())))
        looked.append(path.resolve())
    for path in looked:
        closed = next((folder for folder in hidden if Path(folder) in (path, *path.parents)), None)
        if closed is not None:
            raise SkuwiseError(
                f"{path} lies under {closed}, which the unit hides from the service.",
                "Put it under /opt or /usr/local: python3 -m venv /opt/skuwise, or unpack the self-contained build.",
            )
    with_parents = (part for path in looked for part in (path, *path.parents))
    refuse(dict.fromkeys(with_parents), "a service started from it runs", owners)


def refuse(paths: Iterable[Path], decided: str, owners: Collection[int] = (0,)) -> None:
    """Raise SkuwiseError for the first that someone but `owners` can write."""
    for path in paths:
        with _as_root("checked"):
            about = path.lstat()
        mode = about.st_mode
        # A link's own mode says nothing (what it leads to is checked); in a sticky folder users cannot replace the
        # files of others.
        by_all = mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)
        is_open = not stat.S_ISLNK(mode) and (by_all or (mode & stat.S_IWGRP and about.st_gid != 0))
        if is_open or about.st_uid not in owners:
            raise SkuwiseError(
                f"{path} can be written by others than root (user {about.st_uid}, group {about.st_gid}, mode "
                f"{mode & 0o7777:04o}), who would decide what {decided}.",
                "Give it to root and close it (chown -R root:root, chmod -R go-w), and all folders above it.",
            )


def install(files: Mapping[Path, str], root: Path, say: Say, *, dry_run: bool) -> None:
    for path in files:
        if not dry_run and path.exists() and not _is_ours(path):
            raise SkuwiseError(
                f"{path} exists and was not written by skuwise.", "Move it away, or keep it and do not install."
            )
    with _as_root("written"):
        for path, text in files.items():
            if dry_run:
                say(f"--- would write {path}\n{text}")
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.new")
            aside.write_text(text, encoding="utf-8")
            aside.chmod(0o755 if text.startswith(_SHEBANG) else 0o644)
            aside.replace(path)
            say(f"wrote {path}")
    where = () if root == Path("/") else (f"--root={root}",)
    _run(("systemd-sysusers", *where, "skuwise.conf"), say, dry_run=dry_run)
    _run(("systemd-tmpfiles", *where, "--create", "skuwise.conf"), say, dry_run=dry_run)
    if _systemd_runs(root):
        _run(("systemctl", "daemon-reload"), say, dry_run=dry_run)


def uninstall(root: Path, say: Say, *, dry_run: bool) -> int:
    """Stop the units and remove what `install` wrote. The database, the settings and the user stay. Returns files."""
    ours = [path for path in plan_files(Path(sys.executable), "", root, OPTIONS) if _is_ours(path)]
    systemd = _systemd_runs(root)
    units = [path.name for path in ours if path.parent == root / _UNITS]
    for unit in sorted(units, key=lambda name: name.endswith(".service")) if systemd else ():  # timers first
        _run(("systemctl", "disable", "--now", unit), say, dry_run=dry_run)
    with _as_root("removed"):
        for path in ours:
            if not dry_run:
                path.unlink()
            say(f"{'--- would remove' if dry_run else 'removed'} {path}")
    if ours and systemd:
        _run(("systemctl", "daemon-reload"), say, dry_run=dry_run)
    if any(path.parent == root / _SCRIPTS for path in ours):
        with contextlib.suppress(OSError):  # the site's own scripts keep it
            if not dry_run:
                (root / _SCRIPTS).rmdir()
        say(f"Take /{_SCRIPTS} out of slurm.conf, if it names it: a prolog that is not there drains the node.")
    if ours:
        say("The database (/var/lib/skuwise), the settings (/etc/skuwise) and the user skuwise stay.")
    return len(ours)


@contextlib.contextmanager
def _as_root(done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SkuwiseError(f"{error.filename} cannot be {done}: {error.strerror}.", "Run as root.") from error


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(len(_SHEBANG) + len(MARK))
    except OSError:
        return False


def _systemd_runs(root: Path) -> bool:
    return root == Path("/") and Path("/run/systemd/system").is_dir()


def _run(command: tuple[str, ...], say: Say, *, dry_run: bool) -> None:
    if dry_run:
        say(f"--- would run {' '.join(command)}")
    elif shutil.which(command[0]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
        if done.returncode != 0:
            say(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
