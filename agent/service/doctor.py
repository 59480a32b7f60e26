"""What each source can read here and, where it cannot, why and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from ..config import AgentConfig
from ..model import Absence, Capability
from ..sampler import Sampled, Survey
from ..sources.nvml_privileges import explain
from ..sources.registry import SOURCES
from .probe import overhead_sentence, source_cost

# Reasons that only say that a first look has nothing to subtract from.
_PASSING = frozenset({"first-reading"})


def source_lines(survey: Survey, sampled: Sampled, procfs: Path) -> tuple[Capability, ...]:
    """The survey's lines, with what the first reading showed to be absent put in their place.

    `procfs` tells the backends why their driver refuses something, where it does.
    """
    lines: dict[tuple[str, str, str], Capability] = {}
    for line in survey.capabilities:
        # Where one source lacks what another gives, it is not missing; of two that lack it the later knows more.
        known = lines.get((line.scope, line.subject, line.metric))
        if known is None or known.absence is not None:
            lines[(line.scope, line.subject, line.metric)] = line
    for absence in sorted(sampled.absences, key=lambda a: (a.scope, a.subject, a.metric)):
        if absence.reason in _PASSING:
            continue
        key = (absence.scope, absence.subject, absence.metric)
        known = lines.get(key)
        if known is None or known.absence is None:
            source = known.source if known else absence.subject or absence.scope
            origin = known.origin if known else ""
            lines[key] = Capability(source, absence.scope, absence.subject, absence.metric, origin, absence)
    return tuple(explain(line, procfs) for line in lines.values())


def not_configured(config: AgentConfig, survey: Survey) -> tuple[Capability, ...]:
    """What is not read because the settings do not ask for it, where it would tell something."""
    asked = {line.source for line in survey.capabilities}
    faults = ((spec.name, spec.unasked(config, survey.gpus, survey.capabilities)) for spec in SOURCES)
    return tuple(fault.line(name, "") for name, fault in faults if fault is not None and name not in asked)


def without_known(lines: Iterable[Capability], sampled: Sampled) -> tuple[Capability, ...]:
    """`lines` without those whose reason doctor's own look gave already."""
    said = {(absence.subject, absence.metric, absence.reason) for absence in sampled.absences}
    kept = (line for line in lines if line.absence is None or _reason(line.absence) not in said)
    return tuple(kept)


def _reason(absence: Absence) -> tuple[str, str, str]:
    return absence.subject, absence.metric, absence.reason


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Lines that say the same, as one: eight GPUs that lack the same counters are one line to read, not one hundred."""

    example: Capability
    sources: tuple[str, ...]
    subjects: tuple[str, ...]
    metrics: tuple[str, ...]


def group_lines(capabilities: Iterable[Capability]) -> list[LineGroup]:
    """Read lines joined by source and origin, absent ones by reason and sentence."""
    groups: dict[tuple[str, ...], tuple[Capability, dict[str, None], dict[str, None], dict[str, None]]] = {}
    for line in capabilities:
        if line.absence is None:
            key = ("read", line.source, line.scope, line.origin)
        else:
            key = ("absent", line.scope, line.absence.reason, line.absence.remedy, _shape(line))
        _, sources, subjects, metrics = groups.setdefault(key, (line, {}, {}, {}))
        sources[line.source] = None
        subjects[line.subject] = None
        metrics[line.metric] = None
    return [LineGroup(example, tuple(a), tuple(b), tuple(c)) for example, a, b, c in groups.values()]


def _shape(line: Capability) -> str:
    """The sentence without what differs from subject to subject and metric to metric."""
    detail = line.absence.detail if line.absence else ""
    for part in (line.subject, line.metric):
        if part:
            detail = detail.replace(part, "")
    return detail


def doctor_rows(capabilities: Sequence[Capability], costs: Mapping[str, float]) -> list[dict[str, object]]:
    """One flat mapping a line, for JSON. `status` is read or absent.

    `source_cpu_seconds` is what one reading of all that the source tells costs (nvml, gpm and nvlink are read in one);
    null for what is not read on a tick.
    """
    return [
        {
            "source": line.source,
            "scope": line.scope,
            "subject": line.subject,
            "metric": line.metric,
            "status": "absent" if line.absence else "read",
            "origin": line.origin,
            "source_cpu_seconds": source_cost(line.source, costs),
            "reason": line.absence.reason if line.absence else None,
            "detail": line.absence.detail if line.absence else None,
            "remedy": line.absence.remedy if line.absence else None,
        }
        for line in capabilities
    ]


def doctor_table(capabilities: Sequence[Capability], costs: Mapping[str, float]) -> str:
    """For a person: what is read and at what cost, then what is not, each with its reason and remedy."""
    groups = group_lines(capabilities)
    read = [(", ".join(g.sources), _who(g), _what(g), g.example.origin) for g in groups if g.example.absence is None]
    absent = [_sentence(g, g.example.absence) for g in groups if g.example.absence is not None]
    parts = [columns(("SOURCE", "OF", "READS", "FROM"), read) if read else "Nothing can be read here."]
    return "\n".join([*parts, "", overhead_sentence(costs), "", *(absent or ["Nothing is missing."])])


def _who(group: LineGroup) -> str:
    if len(group.subjects) > 1:
        return f"{len(group.subjects)} {group.example.scope}s"
    return group.example.subject or group.example.scope


def _what(group: LineGroup) -> str:
    return "everything" if "*" in group.metrics else ", ".join(group.metrics)


def _sentence(group: LineGroup, absence: Absence) -> str:
    of = "" if group.example.scope == "source" else f" of {_who(group)}"
    lines = [f"absent  {', '.join(group.sources)}: {_what(group)}{of} ({absence.reason})"]
    if absence.detail:
        lines.append(f"        {absence.detail}")
    if absence.remedy:
        lines.append(f"        Remedy: {absence.remedy}")
    return "\n".join(clean(line) for line in lines)
