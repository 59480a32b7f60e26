"""GPUs that somebody holds and nobody uses, for longer than the holder's kind may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
from ..core.recent import Hold, HolderKind
from ..core.timestamps import minute, rfc3339, span
from .rests import Rest, rests
from .scene import MINUTE, Rule, Scene

# From so many GPUs on an incident is a large one.
_MANY_GPUS = 8
_HELD = "{gpus} held idle for {least}{lasted} by {who}."


class HeldIdle(Rule):
    """Workloads at rest for longer than their limit."""

    kind = "held-idle"
    texts: ClassVar = {
        "no-process": f"{_HELD} No process has touched them since they were allocated. The limit is {{limit}}.",
        "never-worked": f"{_HELD} They have not been used since the workload started. The limit is {{limit}}.",
        "no-work-in-view": f"{_HELD} No activity in the data since {{since}}. The limit is {{limit}}.",
        "worked-before": f"{_HELD} Last activity: {{last}}. The limit is {{limit}}.",
    }
    steps: ClassVar = {
        "job-release": "Cancel the job or end its process if the work is done.",
        "notebook-release": "Shut down the kernel or the notebook server if it is not needed any more.",
        "service-release": "Scale the service down, or to zero, if no requests are expected.",
        "process-release": "End the process if the work is done.",
        "allocation-release": "Cancel the allocation: no process uses its GPUs.",
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        for n, rest in rests(scene).items():
            hold, last, idle = scene.recent.holds[n], rest.last_work, scene.end - rest.since
            holder = _holder_now(hold, rest)
            limit = scene.criteria.limits(holder)
            if idle < limit:
                continue
            code = "never-worked" if rest.in_view else "no-work-in-view"
            code = "worked-before" if last is not None else "no-process" if holder == "allocation" else code
            evidence = [
                Evidence("idle", idle / MINUTE, limit / MINUTE, "minutes"),
                Evidence("idle_observed", rest.idle_seconds / idle, scene.rules.observed_min, "ratio"),
            ]
            if last is not None:
                longest = Evidence("longest_rest_before", rest.longest_before_seconds / MINUTE, None, "minutes")
                evidence += [Evidence("last_work", rfc3339(last), None, "time (UTC)"), longest]
            evidence += scene.power_evidence(hold.gpus, rest.since)
            evidence += [Evidence("requests_waiting", 0.0, None, "requests")] if hold.engine else []
            subject = scene.of_hold(hold, holder)
            yield self.sighting(
                scene, code, subject, step=f"{holder}-release", since=rest.since, last_work=last,
                severity="high" if subject.gpu_count >= _MANY_GPUS else "medium", wasted_seconds=rest.idle_seconds,
                gpus=hold.gpus, evidence=tuple(evidence), limit=span(limit), least="at least " if rest.at_least else "",
                last=minute(last) if last is not None else "",
            )  # fmt: skip


def _holder_now(hold: Hold, rest: Rest) -> HolderKind:
    """An allocation of which no process ever held memory is one without a process, whatever its job is named."""
    is_empty = hold.basis == "allocation" and rest.free and rest.last_work is None and rest.in_view
    return "allocation" if is_empty else hold.holder
