"""Doctor's look at Slurm on this node: its settings, our scripts in them, and the folder between them and the agent.
Each line names the cause and the remedy."""

from __future__ import annotations

import glob
import os
import stat
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ...rules.base.files import open_stream
from ..base.safe_text import clean_text
from ..config import AgentConfig
from ..jobs.scheduler_claims import Devices
from ..jobs.slurm import INSTALL_PROLOG
from ..jobs.slurm_conf import SlurmConfReader, read_settings, resolve
from ..model import Absence, Capability, Gpu

_PATIENCE_SECONDS = 3.0  # scontrol waits much longer for a controller that is not there
_SCRIPT_LIMIT = 1 << 18
_KEYS = ("prolog", "epilog", "prologflags", "proctracktype", "taskplugin", "constraindevices")
_MAKE_FOLDER = "Run: systemd-tmpfiles --create skuwise.conf"


def look_at_slurm(config: AgentConfig, gpus: Sequence[Gpu]) -> list[Capability]:
    """Doctor's lines; none where this node has no Slurm."""
    reader = SlurmConfReader(config.slurm_conf)
    settings, origin = read_config(ask_scontrol(), reader.folders)
    if not origin and not reader.is_present:
        return []
    lines = config_lines(settings, origin) if origin else []
    return [*lines, folder_line(config.allocations), *devices_lines(reader, gpus, config.procfs)]


def ask_scontrol() -> str:
    """What ``scontrol show config`` prints; empty where it is not there, fails, or does not answer in time."""
    command = ["scontrol", "show", "config"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)  # noqa: S603
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout


def read_config(printed: str, folders: Sequence[Path]) -> tuple[Mapping[str, str], str]:
    """The settings by their keys in lower case, and their origin: from what scontrol `printed`, else from slurm.conf
    and cgroup.conf. No origin: this node has no Slurm."""
    values: dict[str, str] = {}
    for line in printed.splitlines():
        key, _, value = line.partition("=")
        # Several prologs are listed as Prolog[0], Prolog[1].
        name = key.strip().lower().partition("[")[0]
        if name in _KEYS:
            values[name] = f"{values[name]},{value.strip()}" if name in values else value.strip()
    if values:
        return values, "scontrol show config"
    for folder in folders:
        lines = read_settings(folder / "slurm.conf")
        if lines is not None:
            lines += read_settings(folder / "cgroup.conf") or []
            return {key: line[key] for line in lines for key in _KEYS if key in line}, str(folder / "slurm.conf")
    return {}, ""


def config_lines(values: Mapping[str, str], origin: str) -> list[Capability]:
    """What Slurm's settings lack."""
    given = dict.fromkeys(_KEYS, "") | {k: v for k, v in values.items() if v.lower() not in ("(null)", "none")}
    lines = [_script_line(kind, given[kind], origin) for kind in ("prolog", "epilog")]
    flags = {flag.strip().lower() for flag in given["prologflags"].split(",")}
    if "contain" not in flags:
        when = "" if "alloc" in flags else " Without Alloc the prolog runs only with a job's first step."
        detail = f"PrologFlags lacks Contain ({origin}): a file whose job has ended may be noticed late.{when}"
        lines.append(_line("flags", "", "prolog-flags", detail, "Set PrologFlags=Alloc,Contain."))
    tracking = given["proctracktype"].lower()
    if tracking in ("proctrack/linuxproc", "proctrack/pgid"):
        detail = f"ProctrackType={tracking}: jobs have no cgroup, so processes are tied to them by their slurmstepd."
        lines.append(_line("proctrack", "", "no-job-cgroup", detail, "Set ProctrackType=proctrack/cgroup."))
    constrains = given["constraindevices"].lower() in ("yes", "true", "1")
    if not constrains or "cgroup" not in given["taskplugin"].lower():
        detail = "Jobs may open every GPU: what they were given and what they work on need not be the same."
        remedy = "Set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf."
        lines.append(_line("constrain", "", "devices-not-constrained", detail, remedy))
    return lines


def _script_line(kind: str, value: str, origin: str) -> Capability:
    """Whether slurm.conf runs our script, straight or from a script of the site's."""
    if not value:
        lost = "the GPUs given to a job are" if kind == "prolog" else "the end of a job, whose file remains, is"
        detail = f"{kind.capitalize()} is not set ({origin}), so {lost} not recorded."
        return _line(kind, "", f"{kind}-not-configured", detail, INSTALL_PROLOG)
    ours, setting = f"/etc/skuwise/slurm/{kind}.sh", f"{kind.capitalize()}={value} ({origin})"
    paths = [Path(path) for part in value.split(",") for path in sorted(glob.glob(part.strip()))]  # noqa: PTH207
    if not paths:
        detail = f"{setting} is not there, which drains the node."
        return _line(kind, value, f"{kind}-missing", detail, "Run skuwise agent install, or fix it.")
    calls_ours = False
    for path in paths:
        if os.access(path, os.F_OK) and not path.stat().st_mode & 0o111:
            detail = f"{path} may not be executed, which drains the node."
            return _line(kind, value, f"{kind}-not-executable", detail, f"chmod 0755 {path}")
        try:
            with open_stream(path) as file:
                calls_ours |= b"skuwise" in file.read(_SCRIPT_LIMIT)
        except OSError:
            calls_ours = True  # not readable here
    if not calls_ours:
        return _line(kind, value, f"{kind}-not-ours", f"{setting} does not call {ours}.", f"Call {ours} from it.")
    return _line(kind, value)


def folder_line(folder: Path, root_uids: Collection[int] = (0,)) -> Capability:
    """Whether the prolog's folder is there, and root's."""
    try:
        about = folder.lstat()
    except OSError as error:
        detail = f"{folder}, where the prolog writes, cannot be read ({error.strerror})."
        return _line("folder", str(folder), "folder-missing", detail, f"{_MAKE_FOLDER} (agent install writes it).")
    if not stat.S_ISDIR(about.st_mode) or about.st_uid not in root_uids or about.st_mode & 0o022:
        detail = f"{folder} is not a folder that only root can write, so its files are not believed."
        remedy = f"chown root:root and chmod 0755 it, or: {_MAKE_FOLDER}"
        return _line("folder", str(folder), "folder-not-roots", detail, remedy)
    return _line("folder", str(folder))


def devices_lines(reader: SlurmConfReader, gpus: Sequence[Gpu], procfs: Path) -> list[Capability]:
    """What each of Slurm's indices means. Without GPUs nothing is said: what is wrong there stands with nvml."""
    whole = [gpu for gpu in gpus if gpu.kind == "gpu"]
    if not whole:
        return []
    gres = reader.gres()
    number = len(gres.units) if gres.units is not None else gres.count or len(whole)
    resolutions = [resolve((str(index),), gres, Devices(gpus), procfs) for index in range(number)]
    if not resolutions or any(resolution.unknown for resolution in resolutions):
        reasons = (resolution.why for resolution in resolutions if resolution.why)
        detail = f"Slurm's GPU indices match no GPU: {next(reasons, gres.why) or 'no GPUs are configured'}."
        remedy = "Let gres.conf name every GPU's device file (File=/dev/nvidia[0-7]); set slurm_conf to its folder."
        return [_line("devices", "", "indices-unknown", detail, remedy)]
    names = {gpu.uuid: f"{gpu.index}" + (f"/{gpu.gpu_instance}" if gpu.kind == "mig" else "") for gpu in gpus}
    given = ("+".join(names[uuid] for uuid in resolution.gpu_uuids) for resolution in resolutions)
    order = ", ".join(f"{index} is GPU {units}" for index, units in enumerate(given))
    return [_line("devices", f"{gres.folder or ''}/gres.conf: {order}")]


def _line(metric: str, origin: str, reason: str = "", detail: str = "", remedy: str = "") -> Capability:
    absence = Absence("source", "slurm", metric, reason, clean_text(detail, 1000), clean_text(remedy, 1000))
    return Capability("slurm", "source", "slurm", metric, clean_text(origin, 1000), absence if reason else None)
