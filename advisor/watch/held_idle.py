"""GPUs that somebody holds and nobody uses, for longer than the holder's kind may."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.advice_types import Evidence
from ..core.coded_text import CodedText, coded
from ..core.incident_types import Sighting
from ..core.recent import Hold, HolderKind
from ..core.timestamps import minute, rfc3339, span
from .rests import Rest, rests
from .scene import MINUTE, Scene
from .words import gpus_of, power_evidence, who

# From so many GPUs on an incident is a large one.
_MANY_GPUS = 8
_NEXT = {
    "job": "Cancel the job or end its process if the work is done.",
    "notebook": "Shut down the kernel or the notebook server if it is not needed any more.",
    "service": "Scale the service down, or to zero, if no requests are expected.",
    "process": "End the process if the work is done.",
    "allocation": "Cancel the allocation: no process uses its GPUs.",
}


def held_idle(scene: Scene) -> Iterator[Sighting]:
    """Workloads at rest for longer than their limit."""
    for n, rest in rests(scene, 0.0).items():
        hold = scene.recent.holds[n]
        holder = holder_now(hold, rest)
        limit = scene.limits(holder)
        if scene.end - rest.since >= limit:
            yield _sighting(scene, hold, rest, holder, limit)


def holder_now(hold: Hold, rest: Rest) -> HolderKind:
    """An allocation of which no process ever held memory is one without a process, whatever its job is named."""
    if hold.basis == "allocation" and rest.free and rest.last_work is None and rest.in_view:
        return "allocation"
    return hold.holder


def _sighting(scene: Scene, hold: Hold, rest: Rest, holder: HolderKind, limit: float) -> Sighting:
    code = _code(rest, holder)
    subject = scene.of_hold(hold, holder)
    idle = scene.end - rest.since
    last = () if rest.last_work is None else (Evidence("last_work", rfc3339(rest.last_work), None, "time (UTC)"),)
    longest = (Evidence("longest_rest_before", rest.longest_before_seconds / MINUTE, None, "minutes"),)
    evidence = (
        Evidence("idle", idle / MINUTE, limit / MINUTE, "minutes"),
        Evidence("idle_observed", rest.idle_seconds / idle, scene.rules.observed_min, "ratio"),
        *last,
        *(longest if rest.last_work is not None else ()),
        *power_evidence(scene, hold.gpus, rest.since),
        *((Evidence("requests_waiting", 0.0, None, "requests"),) if hold.engine else ()),
    )
    severity = "high" if subject.gpu_count >= _MANY_GPUS else "medium"
    return scene.sighting(
        "held-idle", subject, code=code, severity=severity, since=rest.since, last_work=rest.last_work,
        wasted_seconds=rest.idle_seconds, gpus=hold.gpus, evidence=evidence,
        text=_text(code, subject_words=gpus_of(subject), by=who(subject), idle=idle, rest=rest, limit=limit),
        do_next=coded(f"{holder}-release", _NEXT[holder]),
    )  # fmt: skip


def _code(rest: Rest, holder: HolderKind) -> str:
    if holder == "allocation":
        return "no-process"
    if rest.last_work is not None:
        return "worked-before"
    return "never-worked" if rest.in_view else "no-work-in-view"


def _text(code: str, *, subject_words: str, by: str, idle: float, rest: Rest, limit: float) -> CodedText:
    detail = {
        "no-process": "No process has touched them since they were allocated.",
        "never-worked": "They have not been used since the workload started.",
        "no-work-in-view": f"No activity in the data since {minute(rest.since)}.",
        "worked-before": f"Last activity: {minute(rest.last_work)}." if rest.last_work is not None else "",
    }[code]
    return CodedText(
        code,
        f"{subject_words} held idle for {span(idle)} by {by}. {detail} The limit is {span(limit)}.",
        {"idle_seconds": idle, "limit_seconds": limit, "last_work_ts": rest.last_work},
    )
