"""What each source can read here and, where it cannot, why and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...rules.columns import columns
from ...rules.plain import clean
from ..model import Absence, Capability
from ..sampler import Sampled, Survey

# Reasons that only say that a first look has nothing to subtract from.
_PASSING = frozenset({"first-reading"})


def examine(survey: Survey, sampled: Sampled) -> tuple[Capability, ...]:
    """The survey's lines, with what the first reading showed to be absent put in their place."""
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
    return tuple(lines.values())


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that say the same, as one: eight GPUs that lack the same counters are one line to read, not one hundred."""

    example: Capability
    sources: tuple[str, ...]
    subjects: tuple[str, ...]
    metrics: tuple[str, ...]


def grouped(capabilities: Iterable[Capability]) -> list[Group]:
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
    return [Group(example, tuple(a), tuple(b), tuple(c)) for example, a, b, c in groups.values()]


def _shape(line: Capability) -> str:
    """The sentence without what differs from subject to subject and metric to metric."""
    detail = line.absence.detail if line.absence else ""
    for part in (line.subject, line.metric):
        if part:
            detail = detail.replace(part, "")
    return detail


def as_rows(capabilities: Sequence[Capability]) -> list[dict[str, object]]:
    """One flat mapping a line, for JSON. `status` is read or absent."""
    return [
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
        for line in capabilities
    ]


def as_table(capabilities: Sequence[Capability]) -> str:
    """For a person: what is read first, then what is not, each with its reason and remedy."""
    groups = grouped(capabilities)
    read = [(", ".join(g.sources), _who(g), _what(g), g.example.origin) for g in groups if g.example.absence is None]
    absent = [_sentence(g, g.example.absence) for g in groups if g.example.absence is not None]
    parts = [columns(("SOURCE", "OF", "READS", "FROM"), read) if read else "Nothing can be read here."]
    return "\n".join([*parts, "", *(absent or ["Nothing is missing."])])


def _who(group: Group) -> str:
    if len(group.subjects) > 1:
        return f"{len(group.subjects)} {group.example.scope}s"
    return group.example.subject or group.example.scope


def _what(group: Group) -> str:
    return "everything" if "*" in group.metrics else ", ".join(group.metrics)


def _sentence(group: Group, absence: Absence) -> str:
    of = "" if group.example.scope == "source" else f" of {_who(group)}"
    lines = [f"absent  {', '.join(group.sources)}: {_what(group)}{of} ({absence.reason})"]
    if absence.detail:
        lines.append(f"        {absence.detail}")
    if absence.remedy:
        lines.append(f"        Remedy: {absence.remedy}")
    return "\n".join(clean(line) for line in lines)
