"""What tests of the incidents share: sightings and incidents made by hand, and a watch that runs without a disk."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from skuwise.advisor.core.advice_types import Evidence, Severity
from skuwise.advisor.core.coded_text import coded
from skuwise.advisor.core.incident_types import (
    Advance,
    EventKind,
    Incident,
    IncidentEvent,
    IncidentKind,
    Sighting,
    Subject,
    WatchPass,
)
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import commit
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.advisor.watch.transitions import advance

NOW = 1_794_787_200.0  # 2026-11-16T00:00:00Z
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MORNING = NOW + 6 * HOUR
GPUS = 8.0
RATE = 3.0  # USD per GPU-hour
# Markup of a terminal, Slack, HTML and Go templates, escapes, new lines, text that runs backwards, what is no text.
HOSTILE = (
    "[red]x[/red] [@click=app.quit]y[/] \x1b[2J\r\nBcc: a <!channel> <b>&amp;</b>```*{{ .X }}\x00\ud800=?utf-8?q?x?= "
    "\u202egnp.exe"
)


def sighting(
    name: str = "train", *, since: float = NOW - 2 * HOUR, until: float = NOW, kind: IncidentKind = "held-idle",
    nodes: tuple[str, ...] = ("n1",), hours: float | None = None, priced: bool = True, code: str = "worked-before",
    severity: Severity = "medium", gpus: float = GPUS, key: str | None = None,
) -> Sighting:  # fmt: skip
    """GPUs of `name`, idle from `since` to `until`, all of it observed unless `hours` (GPU-hours) says otherwise."""
    key = key or f"workload:{name}"
    wasted = hours if hours is not None else gpus * max(until - since, 0.0) / HOUR
    subject = Subject(
        key, name, nodes, tuple(f"GPU-{n}" for n in range(int(gpus))), gpus, "H100-SXM5", "azure/x",
        workload_id=name if key.startswith("workload:") else None, holder="job", scheduler="slurm", job_id=f"7{name}",
        owner=Owner(team="search", user="ann"),
    )  # fmt: skip
    return Sighting(
        f"{kind}:{key}", kind, code, severity, subject, since, since - MINUTE, wasted, gpus * RATE if priced else None,
        wasted * RATE if priced else None, "at list price, 2026-09-19 (azure.com)" if priced else None,
        (
            Evidence("longest_rest", (until - since) / HOUR, 2.0, "h"),
            Evidence("sm_activity_max", 0.001, 0.015, "ratio"), Evidence("power", 106.0, None, "W"),
            Evidence("memory_held", 62.0, None, "GB"),
        ),
        coded("held-idle", "{gpus:.0f} H100s held by {name} were not used for {hours:.1f} h", gpus=gpus, name=name,
              hours=(until - since) / HOUR),
        coded("release-gpus", "Stop {name} or cancel its job", name=name),
    )  # fmt: skip


def incident(
    number: int = 1, *, cost: float | None = 51.24, hours: float = 2.1, opened_at: float = MORNING,
    node: str = "gpu-009", workload: bool = True, name: str = "train-llm", user: str | None = "alice",
    namespace: str | None = None, team: str | None = None, **about: Any,
) -> Incident:  # fmt: skip
    """One incident of a job, or of a node, after `hours`, open since `opened_at`."""
    since, id_ = opened_at - hours * HOUR, f"w-{number:06d}"
    key = f"workload:{id_}" if workload else f"node:{node}"
    seen = sighting(name if workload else node, since=since, until=opened_at, nodes=(node,), key=key, **about)
    owner, job = Owner(team, user, None, namespace), f"{4710 + number}"
    if workload:
        subject = replace(seen.subject, workload_id=id_, job_id=job, owner=owner)
    else:
        subject = replace(seen.subject, holder=None, scheduler=None, job_id=None, owner=Owner())
    rate, price = (None, None) if cost is None else (cost / hours, seen.price_source)
    seen = replace(seen, subject=subject, usd_per_hour=rate, cost_usd=cost, price_source=price)
    return Incident(f"i-{number:08x}", seen, "open", opened_at, since, opened_at, opened_at, seen.gpu_hours, cost)


def ended(case: Incident, at: float = MORNING + HOUR) -> Incident:
    """The same after its end."""
    return replace(case, state="resolved", resolved_at=at, resolution="works-again", updated_at=at, last_seen_at=at)


def event(case: Incident, kind: EventKind = "opened", at: float = MORNING) -> IncidentEvent:
    return IncidentEvent(case.id, kind, {"opened": 0, "reminded": 1, "resolved": -1}[kind], at)


def add(state: State, case: Incident, *kinds: EventKind, at: float = MORNING) -> Incident:
    """Write an incident as it is now, with new events of it."""
    with state.writing() as db:
        commit(db, Advance((case,), tuple(event(case, kind, at=at) for kind in kinds)))
    return case


@dataclass
class Watch:
    """A watch that keeps its incidents in memory. `now` is the watcher's clock, `data` that of the telemetry. A
    pass sees what began within a day."""

    now: float = NOW
    data: float = NOW
    settings: WatchSettings = field(default_factory=WatchSettings)
    incidents: dict[str, Incident] = field(default_factory=dict)
    events: list[IncidentEvent] = field(default_factory=list)

    def step(self, sightings: Collection[Sighting] = (), **about: Any) -> None:
        """One pass after five minutes."""
        self.live()
        self.take(sightings, **about)

    def on(self, since: float) -> None:
        """One pass after five minutes that finds GPUs idle since then."""
        self.live()
        self.take([self.idle(since)])

    def live(self) -> None:
        self.now += 5 * MINUTE
        self.data += 5 * MINUTE

    def take(
        self, sightings: Collection[Sighting] = (), *, unknown: Collection[str] = (),
        live: Collection[str] = ("n1", "n2"), held: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        """One pass now."""
        looked = WatchPass(
            self.now, self.data, tuple(sightings), frozenset(unknown), frozenset(live),
            held=None if held is None else frozenset(held),
        )  # fmt: skip
        current = (  # as `state.incidents.current`
            case for case in self.incidents.values()
            if case.resolved_at is None or not case.resolution_told or case.resolved_at >= self.now - DAY
        )  # fmt: skip
        done = advance(tuple(current), looked, self.settings)
        self.incidents |= {incident.id: incident for incident in done.incidents}
        self.events += done.events

    def idle(self, since: float, name: str = "train", **about) -> Sighting:
        """What a pass sees of GPUs that are idle since then."""
        return sighting(name, since=max(since, self.data - DAY), until=self.data, **about)

    def told(self) -> list[tuple[str, int]]:
        return [(incident_event.kind, incident_event.number) for incident_event in self.events]

    @property
    def only(self) -> Incident:
        (incident,) = self.incidents.values()
        return incident


def opened(*sightings: Sighting, now: float = NOW) -> Advance:
    """What a first pass makes of these."""
    nodes = frozenset(node for sighting in sightings for node in sighting.subject.nodes)
    return advance((), WatchPass(now, now, sightings, live_nodes=nodes), WatchSettings())


def renamed(seen: Sighting, name: str) -> Sighting:
    return replace(seen, subject=replace(seen.subject, name=name), text=coded("held-idle", "{name} is idle", name=name))
