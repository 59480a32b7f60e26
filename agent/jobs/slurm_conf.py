"""Which GPU a gres index means, by Slurm's settings on this node and the driver.

By its source (``gres.c``, ``gres_gpu.c``) and a real 22.05, slurmd counts GPUs from 0 by the types of the node's
``Gres=`` in slurm.conf, for each by the lines of gres.conf, and by the files of a line. With AutoDetect it sorts them
by the driver's order. What these do not decide is not known.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from ...rules.base.files import read_bounded
from .processes import read_ascii
from .scheduler_claims import Devices

# Where slurmd looks for its settings, in its order: as packages build it, and where a configless one keeps its copy.
FOLDERS = tuple(map(Path, (
    "/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/var/spool/slurm/conf-cache",
    "/var/spool/slurm/d/conf-cache", "/usr/local/etc", "/opt/slurm/etc",
)))  # fmt: skip
_FILES = ("slurm.conf", "gres.conf")
_SIZE_LIMIT = 4 * 2**20
# A key begins where a word does: else each place within a long word would be tried as the beginning of one.
_PAIR = re.compile(r'(?<![A-Za-z0-9_.])([A-Za-z0-9_.]{1,64})\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))')
# ``gpu``, ``gpu:8``, ``gpu:h100``, ``gpu:h100:8``.
_GRES = re.compile(r"gpu(?::(?!\d+(?::|$)|no_consume)(?P<kind>[^:,]+))?(?::no_consume)?(?::(?P<count>\d{1,6}))?")
_MAX_GPUS = 1024
_DEVICE = re.compile(r"/dev/(?:nvidia(\d{1,4})|nvidia-caps/nvidia-cap(\d{1,5}))")
_ACCESS = re.compile(r"gpu(\d{1,4})/gi(\d{1,4})/access (\d{1,5})")
# Names have a few dimensions at most; a list made to be costly has thousands of brackets.
LIMIT, MAX_DIMENSIONS = 4096, 8
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_BRACKETS = re.compile(r"[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*")
_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")  # up to a comma that stands outside brackets
_INSIDE = re.compile(r"\[([^\]]*)\]")

Line = dict[str, str]
Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gres:
    """The node's GPUs in Slurm's count. `units`: by index, the device files of each (several for a MIG instance); None:
    AutoDetect finds them, or `why` says what is open. `is_sorted`: by the driver's order. `count`: as slurm.conf has
    it."""

    units: tuple[Unit, ...] | None = None
    is_sorted: bool = False
    count: int | None = None
    why: str = ""
    folder: Path | None = None


class SlurmConfReader:
    """Finds the settings again at each question. `folder`: as configured; None: it is looked for in `folders`."""

    def __init__(self, folder: Path | None = None, folders: Sequence[Path] = FOLDERS, host: str | None = None) -> None:
        self._is_configured = folder is not None
        if folder is not None:
            folders = (folder.parent if folder.name == "slurm.conf" else folder,)
        self.folders = folders
        self._host = host if host is not None else os.uname().nodename

    @property
    def is_present(self) -> bool:
        return self.gres().folder is not None

    def gres(self, told_conf: str | None = None, told_node: str | None = None) -> Gres:
        """What holds for a job whose prolog named these: ``SLURM_CONF`` and ``SLURMD_NODENAME``."""
        paths = [Path(told_conf).parent] if told_conf and not self._is_configured else []
        for folder in (*paths, *self.folders):
            if any((folder / name).is_file() for name in _FILES):
                return read_gres(folder, told_node or self._host.partition(".")[0])
        return Gres(why="slurm.conf and gres.conf are not found on this node")


def read_gres(folder: Path, node: str) -> Gres:
    """The settings in `folder` for the node of that name."""
    slurm, lines = (read_settings(folder / name) for name in _FILES)
    wanted = _wanted(slurm or [], node)
    count = None if wanted is None else sum(wanted.values())
    try:
        units, is_sorted = _units(lines, node, wanted)
    except ValueError as error:
        return Gres(count=count, why=f"{folder}/gres.conf {error}", folder=folder)
    return Gres(units, is_sorted, count, folder=folder)


def _units(lines: list[Line] | None, node: str, wanted: dict[str, int] | None) -> tuple[tuple[Unit, ...] | None, bool]:
    """The node's units (None: AutoDetect finds them), and whether slurmd sorts them. Raises ValueError: not decided."""
    if lines is None or not all(lines):
        raise ValueError("cannot be read" if lines is None else "has a line that is no setting (Include)")
    names = {line["nodename"]: expand(line["nodename"]) for line in lines if "nodename" in line}
    if None in names.values():
        raise ValueError("has a NodeName that is no list of names")
    node_lines = [line for line in lines if "nodename" not in line or node in (names[line["nodename"]] or ())]
    gpus = [line for line in node_lines if line.get("name", "gpu").lower() == "gpu"]
    # What is said for this node in particular goes over what is said for all.
    detection = [line.get("autodetect") for line in sorted(gpus, key=lambda line: "nodename" in line)]
    is_sorted = ([method.lower() for method in detection if method is not None] or ["off"])[-1] != "off"
    records: list[tuple[str, list[Unit]]] = []
    for line in gpus:
        files = expand(line.get("multiplefiles", line.get("file", "")), _MAX_GPUS)
        units = [(file,) for file in files or ()] if "file" in line else [files or ()]
        if files is None or ("file" in line and line.get("count", str(len(units))) != str(len(units))):
            raise ValueError("has a File that is no list of devices")
        if files:
            records.append((line.get("type", "").lower(), units))
        elif "name" in line and not is_sorted:
            raise ValueError("names no device files (File=)")
    everything = [unit for _, units in records for unit in units]
    if not everything and is_sorted:
        return None, True
    if not everything or len(set(everything)) < len(everything):
        raise ValueError("names a device twice" if everything else f"names no GPUs of this node ({node})")
    if wanted is None and len({kind for kind, _ in records}) > 1 and not is_sorted:
        raise ValueError(f"has several types, and the Gres of {node} in slurm.conf, which orders them, cannot be read")
    if wanted is not None:
        everything = []
        for kind, number in wanted.items():  # of each type of slurm.conf the lines of that type, cut to its count
            everything += [unit for typed, units in records if kind in ("", typed) for unit in units][:number]
    return tuple(everything), is_sorted


def _wanted(lines: Sequence[Line], node: str) -> dict[str, int] | None:
    """The GPUs of ``Gres=``, as in ``gpu:h100:4(S:0),gpu:a100:4``: type (empty: none) and count; None: not given."""
    default, gres = None, None
    for line in lines:
        if line.get("nodename", "").upper() == "DEFAULT":
            default = line.get("gres", default)
        elif "nodename" in line and node in (expand(line["nodename"]) or ()):
            gres = line.get("gres", default)
    kinds: dict[str, int] = {}
    for item in re.sub(r"\([^()]*\)", "", gres or "").lower().split(","):
        match = _GRES.fullmatch(item.strip())
        if match is not None:
            kinds[match["kind"] or ""] = kinds.get(match["kind"] or "", 0) + int(match["count"] or 1)
        elif item.strip().startswith("gpu"):
            return None
    return None if gres is None or ("" in kinds and len(kinds) > 1) else kinds


def read_settings(path: Path) -> list[Line] | None:
    """The settings of a file by line, keys in lower case (empty: the line is none); None: it cannot be read."""
    try:
        raw = read_bounded(path, _SIZE_LIMIT, 0.0)
    except OSError:
        return None
    text = re.sub(r"\\[ \t]*\r?\n", " ", raw.decode("utf-8", "replace"))
    lines = (re.split(r"(?<!\\)#", line, maxsplit=1)[0].strip() for line in text.splitlines())
    return [{key.lower(): quoted or plain for key, quoted, plain in _PAIR.findall(line)} for line in lines if line]


@dataclass(frozen=True, slots=True)
class Resolution:
    """`gpu_uuids` are proven. `unknown`: what nothing names, with `why`. `contradiction`: then there are no UUIDs."""

    gpu_uuids: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    why: str = ""
    contradiction: str = ""


def resolve(given: Sequence[str], gres: Gres, devices: Devices, procfs: Path) -> Resolution:
    """`given`: what ``SLURM_JOB_GPUS`` holds, indices or UUIDs."""
    units, why = _named(gres, devices, procfs)
    if why and len(set(given)) == gres.count == len(devices.uuids):
        # A job with as many GPUs as there are has them all, whatever the order.
        units = dict(zip(given, devices.uuids, strict=True))
    named = {name: name if name in devices.uuids else units.get(name) for name in given}
    if unknown := tuple(name for name, uuid in named.items() if uuid is None):
        return Resolution(unknown=unknown, why=why or "gres.conf or the driver has no GPU of that name")
    return Resolution(tuple(uuid for uuid in devices.uuids if uuid in named.values()))


def without_contradiction(resolution: Resolution, devices: Devices, works_on: Collection[str]) -> Resolution:
    """`resolution`, unless the job's processes work on GPUs that it was not given. A GPU stands for its instances."""
    uuids = {part.uuid for uuid in resolution.gpu_uuids for part in devices.parts(uuid)} | set(resolution.gpu_uuids)
    outside = set(works_on) - uuids
    if not resolution.gpu_uuids or not outside:
        return resolution
    names = {part.uuid: str(gpu.index) for gpu in devices.whole for part in (gpu, *devices.parts(gpu.uuid))}
    given, used = (", ".join(sorted({names.get(uuid, uuid) for uuid in some})) for some in (uuids, outside))
    return Resolution(contradiction=f"GPU {given} by Slurm's settings, but it works on GPU {used}")


def _named(gres: Gres, devices: Devices, procfs: Path) -> tuple[Mapping[str, str], str]:
    gpus = {gpu.uuid: gpu for gpu in devices.whole}
    uuids = list(gpus)  # as AutoDetect finds them
    if not gpus:
        return {}, "the driver does not list the GPUs here (see nvml in skuwise agent doctor)"
    if gres.why or (gres.units is None and gres.count != len(devices.uuids)):
        return {}, gres.why or "gres.conf has AutoDetect without device files (File=), which leaves the order open"
    if gres.units is not None:
        by_files = {files: _unit(files, devices, procfs) for files in gres.units}
        uuids = [uuid for uuid in by_files.values() if uuid is not None]
        if len(uuids) < len(by_files):
            # slurmd passes over a file that is not there, and all that follow have another index.
            missing = next(files for files, uuid in by_files.items() if uuid is None)
            return {}, f"gres.conf names {', '.join(missing)}, which is no GPU of this node"
    if gres.is_sorted:
        # AutoDetect sorts by the driver's order or by that of the device files, depending on whether it lists links.
        uuids.sort(key=lambda uuid: gpus[uuid].index if uuid in gpus else -1)
        minors = [gpus[uuid].minor if uuid in gpus else None for uuid in uuids]
        if None in minors or minors != sorted(minors, key=lambda minor: minor or 0):
            return {}, "gres.conf has AutoDetect, and the order of the driver is not that of the device files"
    return {str(index): uuid for index, uuid in enumerate(uuids)}, ""


def _unit(files: Sequence[str], devices: Devices, procfs: Path) -> str | None:
    named = [_DEVICE.fullmatch(file) for file in files]
    minors = {int(match[1]) for match in named if match is not None and match[1]}
    gpu = next((gpu for gpu in devices.whole if minors == {gpu.minor}), None)
    if gpu is None or None in named:
        return None
    parts = devices.parts(gpu.uuid)
    if not parts:
        return gpu.uuid
    # The minor of an instance's access capability -> the GPU's minor and the instance's id.
    lines = read_ascii(procfs / "driver/nvidia-caps/mig-minors").splitlines()
    places = {match[3]: (int(match[1]), int(match[2])) for line in lines if (match := _ACCESS.fullmatch(line.strip()))}
    node_places = {places.get(match[2]) for match in named if match is not None}
    instances = [part.uuid for part in parts if (gpu.minor, part.gpu_instance) in node_places]
    return instances[0] if len(instances) == 1 else None


def expand(text: str, limit: int = LIMIT) -> tuple[str, ...] | None:
    """Every name of a list as Slurm writes it (``gpu[01-04,07],login1``), in its order, also within brackets; None for
    what is none, names more than `limit`, or has more than `MAX_DIMENSIONS` brackets in a name."""
    if not _BRACKETS.fullmatch(text):
        return None
    names: list[str] = []
    for item in filter(None, (item.strip() for item in _ITEM.findall(text))):
        pieces = [[piece] for piece in _INSIDE.split(item)]
        if len(pieces) > 2 * MAX_DIMENSIONS + 1:
            return None
        pieces[1::2] = [_numbers(inside, limit) for (inside,) in pieces[1::2]]
        if not 0 < prod(map(len, pieces)) <= limit - len(names):
            return None
        names += map("".join, product(*pieces))
    return tuple(names)


def _numbers(inside: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for match in map(_PART.fullmatch, map(str.strip, inside.split(","))):
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not 0 <= int(last) - int(first) < limit - len(numbers):
            return []
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers
