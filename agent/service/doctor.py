"""`skuwise agent doctor`: what each source can read here and, where it cannot, why and what to do; and `once`: one
reading of every source, for a person or a program to look at."""

from __future__ import annotations

import datetime
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from ..base.clock import SystemClock
from ..config import AgentConfig
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from ..model import Capability, Node, WorkloadUse
from ..sampler import Sampled, Survey
from ..sources.base import Fault
from ..sources.nvml_errors import explain
from ..store.disk_errors import place_line
from .assembly import Agent, assemble
from .slurm_checks import look_at_slurm

_SUFFIXES = {"bytes": "B", "bytes per second": "B/s", "hertz": "Hz", "watts": "W", "joules": "J", "celsius": "°C"}


def probe_node(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float
) -> tuple[Agent, Sampled, tuple[WorkloadUse, ...]]:
    """Read every source twice, `seconds` apart: the second reading's rates cover that time. Nothing is stored. Returns
    the agent, closed again; its second reading; and whose work was seen."""
    agent = assemble(config, environ, clock.now)
    try:
        first = clock.now()
        agent.sampler.sample(first)
        clock.wait_until(first.monotonic_seconds + seconds)
        sampled = agent.sampler.sample(clock.now())
        uses = tuple(use for use in agent.attribution.attribute(sampled.processes or ())[1] if use.until is None)
    finally:
        agent.sampler.close()
        agent.attribution.close()
    return agent, replace(sampled, absences=sampled.absences | agent.attribution.absences), uses


def examine(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float
) -> tuple[list[dict[str, str | None]], str]:
    """What doctor has to say of this node: rows for JSON, and a table for a person."""
    agent, sampled, _ = probe_node(config, environ, clock, seconds)
    lines = (
        *source_lines(agent.survey, sampled, config.procfs),
        *not_configured(config, agent.survey),
        *look_at_slurm(config, agent.survey.gpus),
        *service_lines(Path("/")),
        place_line(config.db, config.procfs),
    )
    about, why = ("source", "scope", "subject", "metric"), ("reason", "detail", "remedy")
    rows: list[dict[str, str | None]] = [
        {name: getattr(line, name) for name in about}
        | {"status": "absent" if line.absence else "read", "origin": line.origin}
        | {name: getattr(line.absence, name, None) for name in why}
        for line in lines
    ]
    return rows, _table(lines)


def source_lines(survey: Survey, sampled: Sampled, procfs: Path) -> tuple[Capability, ...]:
    """The survey's lines, with what the first reading showed to be absent put in their place. `procfs` has the reason
    why the driver refuses something."""
    lines: dict[tuple[str, str, str], Capability] = {}
    for line in survey.capabilities:
        # Where one source lacks what another gives, it is not missing; of two that lack it the later knows more.
        capability = lines.get((line.scope, line.subject, line.metric))
        if capability is None or capability.absence is not None:
            lines[line.scope, line.subject, line.metric] = line
    for absence in sorted(sampled.absences, key=lambda a: (a.scope, a.subject, a.metric)):
        key = (absence.scope, absence.subject, absence.metric)
        capability = lines.get(key)
        # A first look has nothing to subtract from; that says nothing.
        if absence.reason != "first-reading" and (capability is None or capability.absence is None):
            source = capability.source if capability else absence.subject or absence.scope
            lines[key] = Capability(source, *key, capability.origin if capability else "", absence)
    return tuple(explain(line, procfs) for line in lines.values())


def not_configured(config: AgentConfig, survey: Survey) -> tuple[Capability, ...]:
    """What is not read because the settings do not ask for it, where it would add something."""
    asked, lines = {line.source for line in survey.capabilities}, list[Capability]()
    lacks_gpm = any(line.absence is not None and line.absence.reason == "no-gpm" for line in survey.capabilities)
    if not config.dcgm_url and lacks_gpm:
        detail = "dcgm_url is empty, so dcgm-exporter's page is not read, which may report what GPM does not."
        lines.append(Fault("not-configured", detail, "Set dcgm_url to the page's address.").line("dcgm", ""))
    if survey.gpus and not config.serving_endpoints and "serving" not in asked:
        detail = "No inference server's metrics page was found, so the use of KV caches, queues and tokens is unknown."
        remedy = "Name it in serving_endpoints, or set serving_discover."
        lines.append(Fault("not-configured", detail, remedy).line("serving", ""))
    return tuple(lines)


def service_lines(root: Path, user: str = "skuwise") -> tuple[Capability, ...]:
    """What keeps the installed unit from starting or from the GPUs: its interpreter, its user, and the devices' modes;
    nothing where it is not installed."""
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


def reading_json(node: Node, survey: Survey, sampled: Sampled, uses: Sequence[WorkloadUse]) -> dict[str, object]:
    """Everything of one tick. Every metric of every device is named; null means absent, see `absences`."""
    tick = sampled.tick
    return {
        "ts": datetime.datetime.fromtimestamp(tick.ts, datetime.UTC).isoformat().replace("+00:00", "Z"),
        "interval_seconds": tick.interval_seconds,
        "node": {"node": node.node, "cluster": node.cluster, "node_sku": node.node_sku},
        "gpus": [
            {"gpu_uuid": g.uuid, "gpu_index": g.index, "name": g.name, "sku": g.sku}
            | {"mem_total_bytes": g.mem_total_bytes}
            | _all(GPU_METRICS, tick.gpus.get(g.uuid, {}))
            for g in survey.gpus
        ],
        "fabric": [
            {"device": p.device, "port": p.port, "role": p.role, "link_layer": p.link_layer}
            | {"state": tick.port_states.get(p.key), "line_rate_bytes_per_second": p.line_rate_bytes_per_second}
            | _all(FABRIC_METRICS, tick.fabric.get(p.key, {}))
            for p in survey.ports
        ],
        "host": _all(HOST_METRICS, tick.host),
        "workload_gpus": [
            {"workload_id": u.workload_id, "gpu_uuid": u.gpu_uuid, "basis": u.basis, "shared": u.shared} for u in uses
        ],
        "absences": [
            {"scope": a.scope, "subject": a.subject, "metric": a.metric, "reason": a.reason, "detail": a.detail}
            for a in sorted(sampled.absences, key=lambda a: (a.scope, a.subject, a.metric))
        ],
    }


def _all(metrics: Sequence[Metric], values: Mapping[str, float]) -> dict[str, object]:
    return {metric.name: values.get(metric.name) for metric in metrics}


def reading_table(node: Node, survey: Survey, sampled: Sampled) -> str:
    """For a person; a dash is a value that is absent (`skuwise agent doctor` says why)."""
    tick = sampled.tick
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
    if sampled.absences:
        parts += ["", f"Absent readings: {len(sampled.absences)}; run 'skuwise agent doctor' for the reasons."]
    return "\n".join(parts)


def _rows(metrics: Sequence[Metric], devices: Sequence[Mapping[str, float]]) -> list[tuple[str, ...]]:
    """A row for each metric, a column for each device."""
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
