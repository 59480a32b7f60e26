"""`skuwise agent doctor`: what each source can read here and, where it cannot, why and what to do; and `once`: one
reading of every source, for a person or a program to look at."""

import datetime
import glob
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...rules.base.files import open_stream
from ...rules.base.output import columns
from ...rules.base.sanitize import clean
from ..base.clock import SystemClock
from ..base.safe_text import clean_text
from ..config import AgentConfig
from ..jobs.scheduler_claims import Devices
from ..jobs.slurm import INSTALL_PROLOG
from ..jobs.slurm_conf import SlurmConfReader, resolve
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from ..model import Absence, Capability, Gpu, Node, Probe, Tick, WorkloadUse
from ..sources.base import Fault
from .assembly import Agent, assemble

_SUFFIXES = {"bytes": "B", "bytes per second": "B/s", "hertz": "Hz", "watts": "W", "joules": "J", "celsius": "°C"}
_PATIENCE_SECONDS = 3.0  # scontrol waits much longer for a controller that is not there
_SCRIPT_LIMIT = 1 << 18
_KEYS = ("prolog", "epilog", "prologflags", "proctracktype", "taskplugin", "constraindevices")
_MAKE_FOLDER = "Run: systemd-tmpfiles --create skuwise.conf"


def probe_node(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float
) -> tuple[Agent, Tick, tuple[WorkloadUse, ...]]:
    """Read every source twice, `seconds` apart: the second reading's rates cover that time. Nothing is stored. Returns
    the agent, closed again; its second reading; and whose work was seen."""
    agent = assemble(config, environ, clock.now)
    try:
        first = clock.now()
        agent.sampler.sample(first)
        clock.wait_until(first.monotonic_seconds + seconds)
        tick = agent.sampler.sample(clock.now())
        uses = tuple(use for use in agent.attribution.attribute(tick.processes or ())[1] if use.until is None)
    finally:
        agent.sampler.close()
        agent.attribution.allocations.close()
    return agent, replace(tick, absences=tick.absences | agent.attribution.absences), uses


def examine(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float
) -> tuple[list[dict[str, str | None]], str]:
    """What doctor has to say of this node: rows for JSON, and a table for a person."""
    agent, tick, _ = probe_node(config, environ, clock, seconds)
    lines = [*source_lines(agent.survey, tick), *not_configured(config, agent.survey)]
    lines += [*look_at_slurm(config, agent.survey.gpus), *service_lines(Path("/"))]
    rows = [
        _picked(line, "source", "scope", "subject", "metric")
        | {"status": "absent" if line.absence else "read", "origin": line.origin}
        | _picked(line.absence, "reason", "detail", "remedy")
        for line in lines
    ]
    return rows, _table(lines)


def _picked(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name, None) for name in names}


def source_lines(survey: Probe, tick: Tick) -> list[Capability]:
    """The survey's lines, with what the first reading showed to be absent."""
    lines: dict[tuple[str, str, str], Capability] = {}
    for line in survey.capabilities:
        # Where one source lacks what another gives, it is not missing; of two that lack it the later knows more.
        capability = lines.get((line.scope, line.subject, line.metric))
        if capability is None or capability.absence is not None:
            lines[line.scope, line.subject, line.metric] = line
    for absence in sorted(tick.absences, key=lambda a: (a.scope, a.subject, a.metric)):
        key = (absence.scope, absence.subject, absence.metric)
        capability = lines.get(key)
        # A first look has nothing to subtract from; that says nothing.
        if absence.reason != "first-reading" and (capability is None or capability.absence is None):
            source = capability.source if capability else absence.subject or absence.scope
            lines[key] = Capability(source, *key, capability.origin if capability else "", absence)
    return list(lines.values())


def not_configured(config: AgentConfig, survey: Probe) -> tuple[Capability, ...]:
    """What is not read because the settings do not ask for it, where it would add something."""
    lacks_gpm = any(line.absence is not None and line.absence.reason == "no-gpm" for line in survey.capabilities)
    is_asked = config.serving_endpoints or any(line.source == "serving" for line in survey.capabilities)
    page = "dcgm_url is empty, so dcgm-exporter's page is not read, which may report what GPM does not."
    servers = "No inference server's metrics page was found, so the use of KV caches, queues and tokens is unknown."
    checks = (
        ("dcgm", lacks_gpm and not config.dcgm_url, page, "Set dcgm_url to the page's address."),
        ("serving", survey.gpus and not is_asked, servers, "Name it in serving_endpoints, or set serving_discover."),
    )
    return tuple(Fault("not-configured", *words).line(source, "") for source, lacks, *words in checks if lacks)


def service_lines(root: Path, user: str = "skuwise") -> tuple[Capability, ...]:
    """What keeps the installed unit from starting or from the GPUs; nothing where it is not installed."""
    unit = root / "etc/systemd/system/skuwise-agent.service"
    try:
        command = re.search(r'^ExecStart="?([^"\n]+?)"? (-m|agent) ', unit.read_text(), re.MULTILINE)
        member = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except OSError:
        return ()
    except KeyError:
        fault = Fault("no-user", f"There is no user {user}, as which it runs.", "Run: systemd-sysusers skuwise.conf")
        return (fault.line("unit", str(unit)),)
    faults: list[Fault] = []
    if command is not None and not os.access(command[1], os.X_OK):
        detail = f"It starts {command[1]}, which is not there."
        faults.append(Fault("no-interpreter", detail, "Run agent install again."))
    for device in sorted((root / "dev").glob("nvidia[0-9c]*")):
        about = device.stat()
        by_group = about.st_gid in member and about.st_mode & 0o060 == 0o060
        if not by_group and about.st_mode & 0o006 != 0o006:
            group = f"SupplementaryGroups={about.st_gid}"
            detail = f"{device} is closed to the user {user} (mode {about.st_mode & 0o777:04o}, group {about.st_gid})."
            faults.append(Fault("device-closed", detail, f"{group} in a drop-in, or NVreg_DeviceFileMode=0666."))
            break
    return tuple(fault.line("unit", str(unit)) for fault in faults)


def look_at_slurm(config: AgentConfig, gpus: Sequence[Gpu]) -> list[Capability]:
    reader = SlurmConfReader(config.slurm_conf)
    settings = read_config(ask_scontrol())
    if not settings and not reader.is_present:
        return []
    lines = config_lines(settings) if settings else []
    return [*lines, folder_line(config.allocations), *devices_lines(reader, gpus, config.procfs)]


def ask_scontrol() -> str:
    """What ``scontrol show config`` prints; empty where it is not there, fails, or does not answer in time."""
    command = ["scontrol", "show", "config"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)  # noqa: S603
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout


def read_config(printed: str) -> Mapping[str, str]:
    """The settings that scontrol `printed`, by their keys in lower case."""
    values: dict[str, str] = {}
    for line in printed.splitlines():
        key, _, value = line.partition("=")
        # Several prologs are listed as Prolog[0], Prolog[1].
        name = key.strip().lower().partition("[")[0]
        if name in _KEYS:
            values[name] = f"{values[name]},{value.strip()}" if name in values else value.strip()
    return values


def config_lines(values: Mapping[str, str]) -> list[Capability]:
    given = dict.fromkeys(_KEYS, "") | {k: v for k, v in values.items() if v.lower() not in ("(null)", "none")}
    lines = [_script_line(kind, given[kind]) for kind in ("prolog", "epilog")]
    flags = {flag.strip().lower() for flag in given["prologflags"].split(",")}
    if "contain" not in flags:
        when = "" if "alloc" in flags else " Without Alloc the prolog runs only with a job's first step."
        detail = f"PrologFlags lacks Contain: a file whose job has ended may be noticed late.{when}"
        lines.append(_slurm_line("flags", "", "prolog-flags", detail, "Set PrologFlags=Alloc,Contain."))
    tracking = given["proctracktype"].lower()
    if tracking in ("proctrack/linuxproc", "proctrack/pgid"):
        detail = f"ProctrackType={tracking}: jobs have no cgroup, so processes are tied to them by their slurmstepd."
        lines.append(_slurm_line("proctrack", "", "no-job-cgroup", detail, "Set ProctrackType=proctrack/cgroup."))
    constrains = given["constraindevices"].lower() in ("yes", "true", "1")
    if not constrains or "cgroup" not in given["taskplugin"].lower():
        detail = "Jobs may open every GPU: what they were given and what they work on need not be the same."
        remedy = "Set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf."
        lines.append(_slurm_line("constrain", "", "devices-not-constrained", detail, remedy))
    return lines


def _script_line(kind: str, value: str) -> Capability:
    if not value:
        lost = "the GPUs given to a job are" if kind == "prolog" else "the end of a job, whose file remains, is"
        detail = f"{kind.capitalize()} is not set, so {lost} not recorded."
        return _slurm_line(kind, "", f"{kind}-not-configured", detail, INSTALL_PROLOG)
    ours, setting = f"/etc/skuwise/slurm/{kind}.sh", f"{kind.capitalize()}={value}"
    paths = [Path(path) for part in value.split(",") for path in sorted(glob.glob(part.strip()))]  # noqa: PTH207
    if not paths or any(os.access(path, os.F_OK) and not path.stat().st_mode & 0o111 for path in paths):
        detail = f"{setting} is not there, or may not be executed, which drains the node."
        return _slurm_line(kind, value, f"{kind}-missing", detail, "Run skuwise agent install, or fix it.")
    calls_ours = False
    for path in paths:
        try:
            with open_stream(path) as file:
                calls_ours |= b"skuwise" in file.read(_SCRIPT_LIMIT)
        except OSError:
            calls_ours = True  # not readable here
    if not calls_ours:
        return _slurm_line(kind, value, f"{kind}-not-ours", f"{setting} does not call {ours}.", f"Call {ours} from it.")
    return _slurm_line(kind, value)


def folder_line(folder: Path, root_uids: Collection[int] = (0,)) -> Capability:
    try:
        about = folder.lstat()
    except OSError as error:
        detail = f"{folder}, where the prolog writes, cannot be read ({error.strerror})."
        remedy = f"{_MAKE_FOLDER} (agent install writes it)."
        return _slurm_line("folder", str(folder), "folder-missing", detail, remedy)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid not in root_uids or about.st_mode & 0o022:
        detail = f"{folder} is not a folder that only root can write, so its files are not believed."
        remedy = f"chown root:root and chmod 0755 it, or: {_MAKE_FOLDER}"
        return _slurm_line("folder", str(folder), "folder-not-roots", detail, remedy)
    return _slurm_line("folder", str(folder))


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
        return [_slurm_line("devices", "", "indices-unknown", detail, remedy)]
    names = {gpu.uuid: f"{gpu.index}" + (f"/{gpu.gpu_instance}" if gpu.kind == "mig" else "") for gpu in gpus}
    given = ("+".join(names[uuid] for uuid in resolution.gpu_uuids) for resolution in resolutions)
    order = ", ".join(f"{index} is GPU {units}" for index, units in enumerate(given))
    return [_slurm_line("devices", f"{gres.folder or ''}/gres.conf: {order}")]


def _slurm_line(metric: str, origin: str, reason: str = "", detail: str = "", remedy: str = "") -> Capability:
    absence = Absence("source", "slurm", metric, reason, clean_text(detail, 1000), clean_text(remedy, 1000))
    return Capability("slurm", "source", "slurm", metric, clean_text(origin, 1000), absence if reason else None)


def _table(lines: Sequence[Capability]) -> str:
    """What is read, then what is not, each with its reason and remedy. Lines that say the same are one: eight GPUs that
    lack the same counters are one line to read, not one hundred."""
    groups: dict[tuple[str, ...], list[Capability]] = {}
    for line in lines:
        key = ("", line.source, line.scope, line.origin)
        if line.absence is not None:
            detail = line.absence.detail
            for part in filter(None, (line.subject, line.metric)):
                detail = detail.replace(part, "")
            key = (line.absence.reason, line.scope, line.absence.remedy, detail)
        groups.setdefault(key, []).append(line)
    read: list[tuple[str, ...]] = []
    absent: list[str] = []
    for (reason, *_), group in groups.items():
        sources, subjects, metrics = (
            list(dict.fromkeys(getattr(line, name) for line in group)) for name in ("source", "subject", "metric")
        )
        names, scope, absence = ", ".join(sources), group[0].scope, group[0].absence
        who = f"{len(subjects)} {scope}s" if len(subjects) > 1 else subjects[0] or scope
        what = "everything" if "*" in metrics else ", ".join(metrics)
        if absence is None:
            read.append((names, who, what, group[0].origin))
            continue
        of = "" if scope == "source" else f" of {who}"
        block = [f"absent  {names}: {what}{of} ({reason})", f"        {absence.detail}"]
        block += [f"        Remedy: {absence.remedy}"] if absence.remedy else []
        absent += [clean(text) for text in block if text.strip()]
    table = columns(("SOURCE", "OF", "READS", "FROM"), read) if read else "Nothing can be read here."
    return "\n".join([table, "", *(absent or ["Nothing is missing."])])


def reading_json(node: Node, survey: Probe, tick: Tick, uses: Sequence[WorkloadUse]) -> dict[str, object]:
    """Everything of one tick. Every metric of every device is named; null means absent, see `absences`."""
    return {
        "ts": datetime.datetime.fromtimestamp(tick.ts, datetime.UTC).isoformat().replace("+00:00", "Z"),
        "interval_seconds": tick.interval_seconds,
        "node": _picked(node, "node", "cluster", "node_sku"),
        "gpus": [
            {"gpu_uuid": gpu.uuid, "gpu_index": gpu.index}
            | _picked(gpu, "name", "sku", "mem_total_bytes")
            | _all(GPU_METRICS, tick.gpus.get(gpu.uuid, {}))
            for gpu in survey.gpus
        ],
        "fabric": [
            _picked(port, "device", "port", "role", "link_layer")
            | {"state": tick.port_states.get(port.key)}
            | _picked(port, "line_rate_bytes_per_second")
            | _all(FABRIC_METRICS, tick.fabric.get(port.key, {}))
            for port in survey.ports
        ],
        "host": _all(HOST_METRICS, tick.host),
        "workload_gpus": [_picked(use, "workload_id", "gpu_uuid", "basis", "shared") for use in uses],
        "absences": [
            _picked(absence, "scope", "subject", "metric", "reason", "detail")
            for absence in sorted(tick.absences, key=lambda a: (a.scope, a.subject, a.metric))
        ],
    }


def _all(metrics: Sequence[Metric], values: Mapping[str, float]) -> dict[str, object]:
    return {metric.name: values.get(metric.name) for metric in metrics}


def reading_table(node: Node, survey: Probe, tick: Tick) -> str:
    """For a person; a dash is a value that is absent (`skuwise agent doctor` says why)."""
    parts = [f"{node.node}  {node.node_sku or 'node SKU unknown'}", ""]
    if survey.gpus:
        values = [tick.gpus.get(gpu.uuid, {}) for gpu in survey.gpus]
        rows = [("", *(gpu.sku or gpu.name for gpu in survey.gpus)), *_rows(GPU_METRICS, values)]
        parts += [columns(("GPU", *(str(gpu.index) for gpu in survey.gpus)), rows), ""]
    else:
        parts += ["No GPU can be read here.", ""]
    if survey.ports:
        rates = [port.line_rate_bytes_per_second for port in survey.ports]
        rows = [
            ("role", *(port.role for port in survey.ports)),
            ("state", *(tick.port_states.get(port.key) or "-" for port in survey.ports)),
            ("line rate", *(format_quantity(rate, "bytes per second") for rate in rates)),
            *_rows(FABRIC_METRICS, [tick.fabric.get(port.key, {}) for port in survey.ports]),
        ]
        parts += [columns(("PORT", *(port.key for port in survey.ports)), rows), ""]
    parts.append(columns(("HOST", ""), _rows(HOST_METRICS, [tick.host])))
    if tick.absences:
        parts += ["", f"Absent readings: {len(tick.absences)}; run 'skuwise agent doctor' for the reasons."]
    return "\n".join(parts)


def _rows(metrics: Sequence[Metric], devices: Sequence[Mapping[str, float]]) -> list[tuple[str, ...]]:
    return [(m.name, *(format_quantity(values.get(m.name), m.unit) for values in devices)) for m in metrics]


def format_quantity(value: float | None, unit: str) -> str:
    """`value` in `unit` as people read it: ratios as per cent, bytes in powers of 1000 with their prefix, - if None."""
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{value * 100:.1f} %"
    if unit == "bitmask":
        return f"{int(value):#x}"
    prefixes = ["T", "G", "M", "k", ""] if unit in ("bytes", "bytes per second", "hertz") else [""]
    prefix = prefixes.pop()
    while prefixes and abs(value) >= 1000:
        value /= 1000
        prefix = prefixes.pop()
    return f"{value:.4g} {prefix}{_SUFFIXES.get(unit, unit)}"
