"""What each source can read here and, where it cannot, why and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Absence, Capability
from ..sampler import Sampled, Survey
from .tables import table

# Reasons that only say that a first look has nothing to subtract from.
_PASSING = frozenset({"first-reading"})


def examine(survey: Survey, sampled: Sampled) -> tuple[Capability, ...]:
    """The survey's lines, with what the first reading showed to be absent put in their place."""
    lines = {(c.scope, c.subject, c.metric): c for c in survey.capabilities}
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


def grouped(capabilities: Iterable[Capability]) -> list[tuple[Capability, tuple[str, ...], tuple[str, ...]]]:
    """Lines that say the same of several subjects or metrics, as one: (an example, its subjects, its metrics).

    Eight GPUs that all lack the same counters for the same reason are one line to read, not one hundred.
    """
    groups: dict[tuple[str, str, str, str], tuple[Capability, dict[str, None], dict[str, None]]] = {}
    for line in capabilities:
        reason = line.absence.reason if line.absence else ""
        detail = line.absence.detail if line.absence else line.origin
        key = (line.source, line.scope, reason, "" if reason else detail)
        _, subjects, metrics = groups.setdefault(key, (line, {}, {}))
        subjects[line.subject] = None
        metrics[line.metric] = None
    return [(example, tuple(subjects), tuple(metrics)) for example, subjects, metrics in groups.values()]


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
    read, absent = [], []
    for example, subjects, metrics in grouped(capabilities):
        what = ", ".join(metrics) if metrics != ("*",) else "everything"
        who = f"{len(subjects)} {example.scope}s" if len(subjects) > 1 else subjects[0] or example.scope
        if example.absence is None:
            read.append((example.source, who, what, example.origin))
        else:
            absent.append((example.source, who, what, example.absence))
    parts = [table(("SOURCE", "OF", "READS", "FROM"), read) if read else "Nothing can be read here."]
    parts += ["", *(_sentence(*line) for line in absent)] if absent else ["", "Nothing is missing."]
    return "\n".join(parts)


def _sentence(source: str, who: str, what: str, absence: Absence) -> str:
    lines = f"absent  {source}: {what} of {who} ({absence.reason})"
    if absence.detail:
        lines += f"\n        {absence.detail}"
    return lines + (f"\n        Remedy: {absence.remedy}" if absence.remedy else "")
