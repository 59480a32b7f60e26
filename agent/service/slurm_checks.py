"""Doctor's look at Slurm on this node: its settings, our scripts in them, the folder between them and the agent, and
what the agent recorded in its last minute. Each line names the cause and the remedy."""

from __future__ import annotations

import glob
import os
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...rules.base.errors import SkuwiseError
from ...rules.base.files import open_stream
from ..base.safe_text import clean_text
from ..jobs.scheduler_claims import Devices
from ..jobs.slurm import INSTALL_PROLOG
from ..jobs.slurm_conf import FOLDERS, SlurmConfReader, read_settings, resolve
from ..model import Absence, Capability, Gpu
from ..store.reader import open_reader

_PATIENCE_SECONDS = 3.0  # scontrol waits much longer for a controller that is not there
_OUTPUT_LIMIT = 1 << 20
_SCRIPT_LIMIT = 1 << 18
_SCRIPTS = {"prolog": "prolog.sh", "epilog": "epilog.sh"}
_KEYS = ("prolog", "epilog", "prologflags", "proctracktype", "taskplugin", "constraindevices")
_WITHOUT_CGROUP = ("proctrack/linuxproc", "proctrack/pgid")

Ask = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """What Slurm is configured to do here. `values`: keys in lower case; `origin`: who told."""

    values: Mapping[str, str]
    origin: str

    def value(self, key: str) -> str:
        """Empty: not set, or not told."""
        found = self.values.get(key, "")
        return "" if found.strip().lower() in ("", "(null)", "none") else found.strip()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the agent recorded in its last minute. `jobs`: Slurm jobs seen; `allocated`: those of them with an
    allocation. `absences` of scope allocation."""

    jobs: int
    allocated: int
    absences: tuple[Absence, ...]


def recent_allocations(db: Path) -> Recorded | None:
    """What the database has of the last minute; None: there is no database, or nothing was written lately."""
    since = {"since": time.time() - 60.0}
    try:
        with open_reader(db) as reader:
            if not reader.fetch("SELECT 1 FROM nodes WHERE last_seen > :since LIMIT 1", since):
                return None
            jobs = reader.fetch(
                "SELECT w.workload_id, max(u.basis = 'allocation') FROM workload_gpus u"
                " JOIN workloads w USING (workload_id) WHERE w.scheduler = 'slurm' AND u.ts_end > :since GROUP BY 1",
                since,
            )
            absences = reader.fetch(
                "SELECT reason, detail, remedy FROM absences WHERE scope = 'source' AND device = 'allocation'"
                " AND metric = 'slurm' AND (until IS NULL OR until > :since) GROUP BY reason",
                since,
            )
    except SkuwiseError:
        return None
    texts = ([str(cell or "") for cell in row] for row in absences)
    found = tuple(Absence("source", "allocation", "slurm", *row) for row in texts)
    return Recorded(len(jobs), sum(bool(given) for _, given in jobs), found)


def ask_scontrol(command: Sequence[str]) -> str | None:
    """What a command of Slurm's prints; None: it is not there, fails, or does not answer in time."""
    environ = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin:/usr/sbin"}
    environ |= {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - our own command, without a shell
            list(command), env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:_OUTPUT_LIMIT].decode("utf-8", "replace") if done.returncode == 0 else None


def read_config(ask: Ask, folders: Sequence[Path]) -> SlurmConfig | None:
    """From ``scontrol show config``, else from slurm.conf and cgroup.conf; None: this node has no Slurm."""
    said = ask(("scontrol", "show", "config"))
    if said is not None:
        pairs = (line.partition("=") for line in said.splitlines())
        values: dict[str, str] = {}
        for key, equals, value in pairs:
            # Several prologs are listed as Prolog[0], Prolog[1].
            name = key.strip().lower().partition("[")[0]
            if equals and name in _KEYS:
                values[name] = f"{values[name]},{value.strip()}" if name in values else value.strip()
        if values:
            return SlurmConfig(values, "scontrol show config")
    for folder in folders:
        lines = read_settings(folder / "slurm.conf")
        if lines is None:
            continue
        lines += read_settings(folder / "cgroup.conf") or []
        values = {key: line[key] for line in lines for key in _KEYS if key in line}
        return SlurmConfig(values, str(folder / "slurm.conf"))
    return None


def slurm_lines(
    config: SlurmConfig | None,
    settings: SlurmConfReader,
    allocations: Path,
    gpus: Sequence[Gpu],
    recorded: Recorded | None,
    *,
    procfs: Path,
    root_uids: frozenset[int] = frozenset({0}),
) -> tuple[Capability, ...]:
    """Doctor's lines; none where this node has no Slurm."""
    if config is None and not settings.is_present:
        return ()
    lines: list[Capability] = []
    if config is not None:
        lines += [_script_line(config, kind) for kind in _SCRIPTS]
        lines += _flags_lines(config)
    lines.append(_folder_line(allocations, root_uids))
    devices = _devices_line(settings, gpus, procfs)
    if devices is not None:
        lines.append(devices)
    if recorded is not None:
        lines += _recorded_lines(recorded)
    return tuple(lines)


def _script_line(config: SlurmConfig, kind: str) -> Capability:
    """Whether slurm.conf runs our script, straight or from a script of the site's."""
    name, title = _SCRIPTS[kind], kind.capitalize()
    value = config.value(kind)
    if not value:
        detail = f"{title} is not set ({config.origin}), so the GPUs given to a job are not recorded."
        if kind == "epilog":
            detail = f"Epilog is not set ({config.origin}), so the end of a job is not recorded, and its file remains."
        return _line(kind, "", _absence(kind, f"{kind}-not-configured", detail, INSTALL_PROLOG))
    paths = [path for one in value.split(",") for path in sorted(glob.glob(one.strip()))]  # noqa: PTH207 - a pattern of any path
    ours = [path for path in paths if Path(path).name == name and "skuwise" in path]
    unread: list[str] = []
    for path in paths:
        text = _text(Path(path))
        if text is None:
            unread.append(path)
        elif "skuwise" in text:
            ours.append(path)
    closed = [path for path in paths if not _is_executable(Path(path))]
    if not paths:
        detail = f"{title}={value} ({config.origin}) is not there, which drains the node."
        return _line(kind, value, _absence(kind, f"{kind}-missing", detail, "Run skuwise agent install, or fix it."))
    if closed:
        detail = f"{closed[0]} may not be executed, which drains the node."
        return _line(kind, value, _absence(kind, f"{kind}-not-executable", detail, f"chmod 0755 {closed[0]}"))
    if ours or unread:
        return _line(kind, ours[0] if ours else f"{value} (not readable here)", None)
    detail = f"{title}={value} ({config.origin}) does not call /etc/skuwise/slurm/{name}."
    return _line(kind, value, _absence(kind, f"{kind}-not-ours", detail, f"Call /etc/skuwise/slurm/{name} from it."))


def _flags_lines(config: SlurmConfig) -> list[Capability]:
    flags = {flag.strip().lower() for flag in config.value("prologflags").split(",")}
    lines: list[Capability] = []
    if "contain" not in flags:
        when = "" if "alloc" in flags else " Without Alloc the prolog runs only with a job's first step."
        detail = f"PrologFlags lacks Contain ({config.origin}): a file whose job has ended may be noticed late.{when}"
        lines.append(_line("flags", "", _absence("flags", "prolog-flags", detail, "Set PrologFlags=Alloc,Contain.")))
    tracking = config.value("proctracktype").lower()
    if tracking in _WITHOUT_CGROUP:
        detail = f"ProctrackType={tracking}: jobs have no cgroup, so processes are tied to them by their slurmstepd."
        absence = _absence("proctrack", "no-job-cgroup", detail, "Set ProctrackType=proctrack/cgroup.")
        lines.append(_line("proctrack", "", absence))
    constrains = config.value("constraindevices").lower() in ("yes", "true", "1")
    if not constrains or "cgroup" not in config.value("taskplugin").lower():
        detail = "Jobs may open every GPU: what they were given and what they work on need not be the same."
        remedy = "Set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf."
        lines.append(_line("constrain", "", _absence("constrain", "devices-not-constrained", detail, remedy)))
    return lines


def _folder_line(folder: Path, root_uids: frozenset[int]) -> Capability:
    make = "Run: systemd-tmpfiles --create skuwise.conf"
    absence = None
    try:
        about = folder.lstat()
    except OSError as error:
        detail = f"{folder}, where the prolog writes, cannot be read ({error.strerror})."
        absence = _absence("folder", "folder-missing", detail, f"{make} (skuwise agent install writes it).")
    else:
        if not stat.S_ISDIR(about.st_mode) or about.st_uid not in root_uids or about.st_mode & 0o022:
            detail = f"{folder} is not a folder that only root can write, so its files are not believed."
            absence = _absence("folder", "folder-not-roots", detail, f"chown root:root and chmod 0755 it, or: {make}")
    return _line("folder", str(folder), absence)


def _devices_line(settings: SlurmConfReader, gpus: Sequence[Gpu], procfs: Path) -> Capability | None:
    """What each of Slurm's indices means. Without GPUs nothing is said: what is wrong there stands with nvml."""
    whole = [gpu for gpu in gpus if gpu.kind == "gpu"]
    if not whole:
        return None
    gres = settings.gres()
    devices = Devices(gpus)
    number = len(gres.units) if gres.units is not None else gres.count or len(whole)
    found = [resolve((str(index),), gres, devices, procfs) for index in range(number)]
    if not found or any(one.unknown for one in found):
        why = next((one.why for one in found if one.why), gres.why) or "no GPUs are configured"
        detail = f"Slurm's GPU indices match no GPU: {why}."
        remedy = (
            "Let gres.conf name the device file of every GPU (File=/dev/nvidia[0-7]), and set slurm_conf to its folder."
        )
        return _line("devices", "", _absence("devices", "indices-unknown", detail, remedy))
    names = {gpu.uuid: f"{gpu.index}" for gpu in gpus}
    names |= {gpu.uuid: f"{gpu.index}/{gpu.gpu_instance}" for gpu in gpus if gpu.kind == "mig"}
    order = ", ".join(f"{index} is GPU {'+'.join(names[u] for u in one.gpu_uuids)}" for index, one in enumerate(found))
    return _line("devices", f"{gres.folder or ''}/gres.conf: {order}", None)


def _recorded_lines(recorded: Recorded) -> list[Capability]:
    text = f"{recorded.jobs} jobs in the last minute, {recorded.allocated} with their allocation"
    lines = [_line("recorded", text, None)] if recorded.jobs else []
    return lines + [Capability("slurm", "source", "allocation", "slurm", "", absence) for absence in recorded.absences]


def _line(metric: str, origin: str, absence: Absence | None) -> Capability:
    return Capability("slurm", "source", "slurm", metric, clean_text(origin, 1000), absence)


def _absence(metric: str, reason: str, detail: str, remedy: str) -> Absence:
    return Absence("source", "slurm", metric, reason, clean_text(detail, 1000), clean_text(remedy, 1000))


def _text(path: Path) -> str | None:
    try:
        with open_stream(path, 0.0) as file:
            return file.read(_SCRIPT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return None


def _is_executable(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o111)
    except OSError:
        return True  # not to be seen from here


def config_folders(configured: Path | None) -> tuple[Path, ...]:
    """Where slurm.conf may lie: as configured, else as slurmd usually has it."""
    if configured is None:
        return FOLDERS
    return (configured.parent if configured.name == "slurm.conf" else configured,)
