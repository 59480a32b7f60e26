"""`skuwise agent doctor`: what each source can read here and, where it cannot, why and what to do."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from ..base.clock import SystemClock
from ..config import AgentConfig
from ..model import Capability, WorkloadUse
from ..sampler import Sampled, Survey
from ..sources.base import Fault
from ..sources.nvml_errors import explain
from ..sources.registry import not_asked
from ..store.disk_errors import place_line
from .assembly import Agent, assemble
from .slurm_checks import look_at_slurm


class NodeProbe(NamedTuple):
    """The agent, closed again; its second reading; and whose work was seen."""

    agent: Agent
    sampled: Sampled
    uses: tuple[WorkloadUse, ...]


def probe_node(config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float) -> NodeProbe:
    """Read every source twice, `seconds` apart: the second reading's rates cover that time. Nothing is stored."""
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
    return NodeProbe(agent, replace(sampled, absences=sampled.absences | agent.attribution.absences), uses)


def examine(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float
) -> tuple[list[dict[str, object]], str]:
    """What doctor has to say of this node: rows for JSON, and a table for a person."""
    seen = probe_node(config, environ, clock, seconds)
    survey = seen.agent.survey
    lines = (
        *source_lines(survey, seen.sampled, config.procfs),
        *not_configured(config, survey),
        *look_at_slurm(config, survey.gpus),
        *service_lines(Path("/")),
        place_line(config.db, config.procfs),
    )
    rows: list[dict[str, object]] = [
        {
            "source": line.source,
            "scope": line.scope,
            "subject": line.subject,
            "metric": line.metric,
            "status": "absent" if line.absence else "read",
            "origin": line.origin,
            "reason": line.absence.reason if line.absence else None,
            "detail": line.absence.detail if line.absence else None,
            "remedy": line.absence.remedy if line.absence else None,
        }
        for line in lines
    ]
    return rows, _table(lines)


def source_lines(survey: Survey, sampled: Sampled, procfs: Path) -> tuple[Capability, ...]:
    """The survey's lines, with what the first reading showed to be absent put in their place.

    `procfs` tells why the driver refuses something.
    """
    lines: dict[tuple[str, str, str], Capability] = {}
    for line in survey.capabilities:
        # Where one source lacks what another gives, it is not missing; of two that lack it the later knows more.
        known = lines.get((line.scope, line.subject, line.metric))
        if known is None or known.absence is not None:
            lines[line.scope, line.subject, line.metric] = line
    for absence in sorted(sampled.absences, key=lambda a: (a.scope, a.subject, a.metric)):
        key = (absence.scope, absence.subject, absence.metric)
        known = lines.get(key)
        # A first look has nothing to subtract from; that says nothing.
        if absence.reason != "first-reading" and (known is None or known.absence is None):
            source = known.source if known else absence.subject or absence.scope
            lines[key] = Capability(source, *key, known.origin if known else "", absence)
    return tuple(explain(line, procfs) for line in lines.values())


def not_configured(config: AgentConfig, survey: Survey) -> tuple[Capability, ...]:
    """What is not read because the settings do not ask for it, where it would tell something."""
    asked = {line.source for line in survey.capabilities}
    missed = not_asked(config, survey.gpus, survey.capabilities)
    return tuple(fault.line(name, "") for name, fault in missed.items() if name not in asked)


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
        faults.append(
            Fault("no-interpreter", f"It starts {command[1]}, which is not there.", "Run agent install again.")
        )
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
        if line.absence is None:
            key = ("", line.source, line.scope, line.origin)
        else:
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
        scope, absence = group[0].scope, group[0].absence
        who = f"{len(subjects)} {scope}s" if len(subjects) > 1 else subjects[0] or scope
        what = "everything" if "*" in metrics else ", ".join(metrics)
        if absence is None:
            read.append((", ".join(sources), who, what, group[0].origin))
            continue
        of = "" if scope == "source" else f" of {who}"
        told = [f"absent  {', '.join(sources)}: {what}{of} ({reason})", f"        {absence.detail}"]
        told += [f"        Remedy: {absence.remedy}"] if absence.remedy else []
        absent += [clean(text) for text in told if text.strip()]
    table = columns(("SOURCE", "OF", "READS", "FROM"), read) if read else "Nothing can be read here."
    return "\n".join([table, "", *(absent or ["Nothing is missing."])])
