"""Slurm's settings on this node, as far as they say which device a gres index means.

``SLURM_JOB_GPUS`` and ``scontrol show job -d`` count the node's GPUs from 0 in an order of Slurm's own. From Slurm's
source (``gres.c``, ``gres_common.c``, ``gres_gpu.c``) and a real 22.05: slurmd goes through the types of the node's
``Gres=`` in slurm.conf, and for each through the lines of gres.conf in their order, and the files of a line in theirs.
With AutoDetect it sorts them by the driver's order, which `Gres.is_sorted` tells. What these two files do not decide is
not known: `Gres.why` says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.files import read_bounded
from .hostlist import expand

# Where slurmd finds its settings: as packages build it, and where a configless slurmd keeps what it fetched.
FOLDERS = tuple(
    Path(folder)
    for folder in (
        "/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache",
        "/var/spool/slurm/conf-cache", "/var/spool/slurm/d/conf-cache", "/usr/local/etc", "/opt/slurm/etc",
    )
)  # fmt: skip
_FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
_SIZE_LIMIT = 4 * 2**20
_LINES_LIMIT = 100_000
# A key begins where a word does: else each place within a long word would be tried as the beginning of one.
_PAIR = re.compile(r'(?<![A-Za-z0-9_.])([A-Za-z0-9_.]{1,64})\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))')
_MAX_GPUS = 1024
_WITHOUT_DETECTION = frozenset({"", "off"})

Line = dict[str, str]


@dataclass(frozen=True, slots=True)
class Gres:
    """The node's GPUs in Slurm's count.

    `units`: by index, the device files of each (several for a MIG instance); None: `why` says what does not decide it.
    `files`: every device file that is Slurm's here, whatever the order; None: not known. `is_sorted`: slurmd sorts the
    units by the driver's order. `count`: how many slurm.conf says there are. `is_constrained`: whether a job is kept
    from the GPUs that it was not given (cgroup.conf); None: not told.
    """

    units: tuple[tuple[str, ...], ...] | None = None
    files: frozenset[str] | None = None
    is_sorted: bool = False
    count: int | None = None
    is_constrained: bool | None = None
    why: str = ""
    folder: Path | None = None


class SlurmConfReader:
    """Reads the settings again when a file of theirs changed. `folder`: as configured; None: it is looked for."""

    def __init__(self, folder: Path | None = None, folders: Sequence[Path] = FOLDERS, host: str | None = None) -> None:
        self._folder = folder
        self._folders = folders
        self._host = host if host is not None else os.uname().nodename
        self._known: dict[tuple[Path, str], tuple[tuple[object, ...], Gres]] = {}

    @property
    def is_present(self) -> bool:
        """Whether this node has settings of Slurm's."""
        return bool(self._candidates(None))

    def gres(self, told_conf: str | None = None, told_node: str | None = None) -> Gres:
        """What holds for a job whose prolog named these: ``SLURM_CONF`` and ``SLURMD_NODENAME``."""
        node = told_node or self._host.partition(".")[0]
        found = [self._read(folder, node) for folder in self._candidates(told_conf)]
        if not found:
            return Gres(why="slurm.conf and gres.conf are not found on this node")
        first = found[0]
        if any((one.units, one.files, one.is_sorted) != (first.units, first.files, first.is_sorted) for one in found):
            named = ", ".join(str(one.folder) for one in found)
            return Gres(why=f"the settings in {named} differ, and slurmd may read any of them")
        return first

    def _candidates(self, told_conf: str | None) -> list[Path]:
        if self._folder is not None:
            folder = self._folder.parent if self._folder.name == "slurm.conf" else self._folder
            return [folder] if _has_settings(folder) else []
        if told_conf and told_conf.startswith("/"):
            folder = Path(told_conf).parent
            if _has_settings(folder):
                return [folder]
        found: dict[Path, None] = {}
        for folder in self._folders:
            if _has_settings(folder):
                found[folder.resolve()] = None  # a configless slurmd links one to the other
        return list(found)

    def _read(self, folder: Path, node: str) -> Gres:
        mark = tuple(_mark(folder / name) for name in _FILES)
        known = self._known.get((folder, node))
        if known is None or known[0] != mark:
            if len(self._known) > 16:
                self._known.clear()
            known = self._known[folder, node] = (mark, read_gres(folder, node))
        return known[1]


def read_gres(folder: Path, node: str) -> Gres:
    """The settings in `folder` for the node of that name."""
    slurm, cgroup = read_settings(folder / "slurm.conf"), read_settings(folder / "cgroup.conf")
    wanted = _wanted(slurm, node) if slurm is not None else None
    count = sum(number for _, number in wanted) if wanted is not None else None
    base = Gres(count=count, is_constrained=_is_constrained(slurm, cgroup), folder=folder)
    lines = read_settings(folder / "gres.conf")
    path = folder / "gres.conf"
    if lines is None:
        return replace(base, why=f"{path} is not there or cannot be read")
    if any("include" in line for line in lines):
        return replace(base, why=f"{path} includes another file")
    mine = [line for line in lines if _is_for(line, node)]
    if any(_is_for(line, node) is None for line in lines):
        return replace(base, why=f"{path} has a NodeName that is no list of names")
    detects = _detection(mine) not in _WITHOUT_DETECTION
    gpus = [line for line in mine if line.get("name", "").lower() == "gpu"]
    if not gpus and not detects:
        elsewhere = any(line.get("name", "").lower() == "gpu" for line in lines)
        return replace(base, why=f"{path} has {'only other nodes' if elsewhere else 'no'} GPUs (this node is {node})")
    records: list[tuple[str, tuple[tuple[str, ...], ...]]] = []
    for line in gpus:
        units = _units(line)
        if units is None:
            return replace(base, why=f"a line of {path} has a File that is no list of devices")
        if units:
            records.append((line.get("type", "").lower(), units))
        elif not detects:
            return replace(base, why=f"{path} names no device files (File=)")
    if detects and not records:
        return replace(base, is_sorted=True)
    order = _ordered(records, wanted)
    everything = tuple(unit for _, units in records for unit in units)
    files = frozenset(file for unit in (order if order is not None else everything) for file in unit)
    if len({file for unit in everything for file in unit[:1]}) != len(everything) and all(
        len(unit) == 1 for unit in everything
    ):
        return replace(base, why=f"{path} names a device twice")
    if order is None and not detects:
        why = f"{path} has several types, and the Gres of {node} in slurm.conf, which orders them, cannot be read"
        return replace(base, files=files, why=why)
    return replace(base, units=order if order is not None else everything, files=files, is_sorted=detects)


def _ordered(
    records: Sequence[tuple[str, tuple[tuple[str, ...], ...]]], wanted: Sequence[tuple[str, int]] | None
) -> tuple[tuple[str, ...], ...] | None:
    """The units in slurmd's order: for each type of slurm.conf the records of that type, cut to its count."""
    if wanted is None:
        if len({kind for kind, _ in records}) > 1:
            return None
        return tuple(unit for _, units in records for unit in units)
    left = list(records)
    order: list[tuple[str, ...]] = []
    for kind, number in wanted:
        missing = number
        rest: list[tuple[str, tuple[tuple[str, ...], ...]]] = []
        for record in left:
            if missing <= 0 or (kind and record[0] != kind):
                rest.append(record)
                continue
            taken = record[1][:missing]
            order += taken
            missing -= len(taken)
        left = rest
    return tuple(order)


def _units(line: Line) -> tuple[tuple[str, ...], ...] | None:
    """The devices of one line; empty: it names none; None: what it names is no list."""
    if "multiplefiles" in line:
        files = expand(line["multiplefiles"], _MAX_GPUS)
        return (files,) if files else None
    if "file" not in line:
        return ()
    files = expand(line["file"], _MAX_GPUS)
    if not files or ("count" in line and line["count"] != str(len(files))):
        return None
    return tuple((file,) for file in files)


def _detection(lines: Iterable[Line]) -> str:
    """AutoDetect for this node: what is said for it in particular goes over what is said for all."""
    found, particular = "", False
    for line in lines:
        if "autodetect" not in line or line.get("name", "gpu").lower() != "gpu":
            continue
        own = "nodename" in line
        if own or not particular:
            found, particular = line["autodetect"].lower(), own
    return found


def _is_for(line: Line, node: str) -> bool | None:
    if "nodename" not in line:
        return True
    names = expand(line["nodename"])
    return None if names is None else node in names


def _wanted(lines: Sequence[Line], node: str) -> tuple[tuple[str, int], ...] | None:
    """The GPUs of the node's ``Gres=``: type (empty: none) and count, each type once; None: not told here."""
    default, found = None, None
    for line in lines:
        if "nodename" not in line:
            continue
        gres = line.get("gres")
        if line["nodename"].upper() == "DEFAULT":
            default = gres if gres is not None else default
            continue
        if node in (expand(line["nodename"]) or ()):
            found = gres if gres is not None else default
    return None if found is None else _gpus_of(found)


def _gpus_of(gres: str) -> tuple[tuple[str, int], ...] | None:
    """``gpu:h100:4(S:0),gpu:a100:4,shard:8`` -> h100 4, a100 4."""
    kinds: dict[str, int] = {}
    for item in re.sub(r"\([^()]*\)", "", gres).split(","):
        words = [word for word in item.strip().lower().split(":") if word != "no_consume"]
        if words[0] != "gpu":
            continue
        number = words.pop() if len(words) > 1 and words[-1].isdecimal() else "1"
        if len(words) > 2 or len(number) > 6:
            return None
        kind = words[1] if len(words) == 2 else ""
        kinds[kind] = kinds.get(kind, 0) + int(number)
    return None if "" in kinds and len(kinds) > 1 else tuple(kinds.items())


def _is_constrained(slurm: Sequence[Line] | None, cgroup: Sequence[Line] | None) -> bool | None:
    if slurm is None or cgroup is None or any("include" in line for line in (*slurm, *cgroup)):
        return None
    plugin = next((line["taskplugin"] for line in reversed(slurm) if "taskplugin" in line), "")
    devices = next((line["constraindevices"] for line in reversed(cgroup) if "constraindevices" in line), "no")
    return "cgroup" in plugin.lower() and devices.lower() in ("yes", "true", "1", "up")


def read_settings(path: Path) -> list[Line] | None:
    """The settings of a file, one mapping a line, keys in lower case; None: it cannot be read."""
    try:
        raw = read_bounded(path, _SIZE_LIMIT, 0.0)
    except OSError:
        return None
    found: list[Line] = []
    text = re.sub(r"\\[ \t]*\r?\n", " ", raw.decode("utf-8", "replace"))
    for line in text.splitlines()[:_LINES_LIMIT]:
        words = re.split(r"(?<!\\)#", line, maxsplit=1)[0].strip()
        if not words:
            continue
        if re.match(r"include\s", words, re.IGNORECASE):
            found.append({"include": words.split(None, 1)[1]})
            continue
        found.append({key.lower(): quoted or plain for key, quoted, plain in _PAIR.findall(words)})
    return found


def _has_settings(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _FILES[:2])


def _mark(path: Path) -> object:
    try:
        about = path.stat()
    except OSError:
        return None
    return (about.st_mtime_ns, about.st_size, about.st_ino)
