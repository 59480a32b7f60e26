"""Made-up incidents, and the file of incidents with a way to put them there."""

from dataclasses import replace

from skuwise.advisor.core.advice_types import Evidence, Severity
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.incident_types import (
    EventKind,
    Incident,
    IncidentEvent,
    IncidentKind,
    Sighting,
    Subject,
)
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.incidents.store import IncidentStore
from skuwise.advisor.incidents.transitions import Advance

NOW = 1_795_500_000.0  # 2026-11-24 06:00:00 UTC
HOUR = 3600.0
# What may stand in any name: a line's end, Slack, HTML, Go templates, an override of direction, a terminal's escape.
HOSTILE = "a\nBcc: x@y.example\r<!channel> <b>&amp;</b>```*{{ .X }}\u202egpj\x1b[31m\x00=?utf-8?q?x?= \ud800"


def incident(
    number: int = 1, *, kind: IncidentKind = "held-idle", code: str = "worked-before", severity: Severity = "medium",
    user: str | None = "alice", namespace: str | None = None, team: str | None = None, node: str = "gpu-009",
    hours: float = 2.1, cost: float | None = 51.24, workload: bool = True, name: str = "train-llm", gpus: int = 8,
    opened_at: float = NOW,
) -> Incident:  # fmt: skip
    """One incident, open since `opened_at`."""
    key = f"workload:w-{number:06d}" if workload else f"node:{node}"
    subject = Subject(
        key, name if workload else node, (node,), tuple(f"GPU-{i}" for i in range(gpus)), float(gpus), "H100-SXM5",
        "p5.48xlarge", f"w-{number:06d}" if workload else None, "s-1" if workload else None,
        "job" if workload else None, "slurm" if workload else None, f"{4710 + number}" if workload else None,
        owner=Owner(team, user, None, namespace) if workload else Owner(),
    )  # fmt: skip
    since = opened_at - hours * HOUR
    what = f"{gpus} GPUs of {subject.name} have not worked for {hours:g} h; their memory is still held."
    sighting = Sighting(
        f"{kind}-{number}", kind, code, severity, subject, since, since, gpus * hours,
        None if cost is None else cost / hours, cost, None if cost is None else "AWS list price, 2026-09-19",
        (
            Evidence("longest_rest", hours, 2.0, "h"), Evidence("sm_activity_max", 0.001, 0.015, "ratio"),
            Evidence("power", 106.0, None, "W"), Evidence("memory_held", 62.0, None, "GB"),
        ),
        CodedText("held-idle", what), CodedText("ask-owner", "Ask the owner whether the job still needs its GPUs."),
    )  # fmt: skip
    return Incident(
        f"i-{number:08x}", sighting, "open", opened_at, since, opened_at, opened_at, gpus * hours, cost,
    )  # fmt: skip


def ended(one: Incident, at: float = NOW + HOUR) -> Incident:
    """The same after its end."""
    return replace(one, state="resolved", resolved_at=at, resolution="works-again", updated_at=at, last_seen_at=at)


def event(one: Incident, kind: EventKind = "opened", number: int | None = None, at: float = NOW) -> IncidentEvent:
    """An event of it; `number` None: 0, 1 or -1 by its kind."""
    return IncidentEvent(
        one.id, kind, {"opened": 0, "reminded": 1, "resolved": -1}[kind] if number is None else number, at
    )


class FilledStore(IncidentStore):
    """The file of incidents, with a test's way to write into it."""

    def add(self, one: Incident, *kinds: EventKind, at: float = NOW) -> Incident:
        """An incident as it is now, with new events of it."""
        self.commit(Advance((one,), tuple(event(one, kind, at=at) for kind in kinds)))
        return one
