"""What one pass of the watch makes of the incidents: opened, reminded, resolved. Pure.

An incident is resolved when no pass sighted it for `resolve_after_seconds`, by the watcher's clock and by the data's.
What comes back within an hour (doubled by each incident of the subject within a day) continues as the same incident,
with one reminder; its next end is only reported once it lasted. A job that stopped is sighted as held idle once its
last work has left the view, and its incident continues as that.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..core.ids import stable_id
from ..core.incident_types import Advance, Incident, IncidentEvent, Resolution, Sighting, WatchPass
from .settings import WatchSettings

_HOUR, _DAY = 3600.0, 86400.0
# For so long after its end an incident that comes back continues; it doubles with each earlier one of a day.
_REOPEN_SECONDS = _HOUR
_MOST_DOUBLINGS = 3
# A node that reported nothing for so long, by both clocks, is gone, and what was open there is over.
_GONE_SECONDS = 7 * _DAY
_UNUSED = {"stopped": "held-idle", "held-idle": "stopped"}


def advance(incidents: Sequence[Incident], look: WatchPass, settings: WatchSettings) -> Advance:
    """The incidents after a pass. `incidents`: those that are not resolved, those whose end is not reported yet, and
    those resolved within the last day at least."""
    # No moment is ahead of the clock by which it is measured: after a clock went back, time counts from there on.
    names = ("last_seen_at", "told_at", "silent_since", "resolved_at")
    ends = {**dict.fromkeys(names, look.now), "data_until": look.data_end}
    clamped = [
        replace(i, **{name: end for name, end in ends.items() if (getattr(i, name) or -math.inf) > end})
        for i in incidents
    ]
    # Of several with one subject, the one that continues: not resolved, else the one resolved last.
    latest = {i.sighting.id: i for i in sorted(clamped, key=_end)}
    ended = Counter(i.sighting.id for i in clamped if 0 <= look.now - _end(i)[0] <= _DAY)
    sightings = {s.id: s for s in look.sightings}
    by_subject = {(s.kind, s.subject.key): s.id for s in look.sightings if s.kind in _UNUSED}
    changed: list[Incident] = []
    events: list[IncidentEvent] = []
    for before, i in zip(incidents, clamped, strict=True):
        sighting = sightings.get(i.sighting.id) if latest[i.sighting.id] is i else None
        if i.resolved_at is not None:
            after = _resolved(i, sighting, look, settings, ended[i.sighting.id] - 1)
        else:
            if sighting is None and i.sighting.kind in _UNUSED:
                other = by_subject.get((_UNUSED[i.sighting.kind], i.sighting.subject.key), "")
                is_free = other not in latest or latest[other].resolved_at is not None
                sighting = sightings.get(other) if is_free else None
            after = _sighted(i, sighting, look, settings) if sighting is not None else _unsighted(i, look, settings)
        if sighting is not None and after.resolved_at is None:
            del sightings[sighting.id]
        if after != before:
            changed.append(after)
        if after.reminders > before.reminders:
            events.append(IncidentEvent(after.id, "reminded", after.reminders, look.now))
        elif after.resolution_told and not before.resolution_told:
            events.append(IncidentEvent(after.id, "resolved", -2 if after.reopenings else -1, look.now))
    for s in sightings.values():
        # With their number: a clock may be set back to the same moment.
        id_ = stable_id("i", s.id, s.since, look.now, *([len(incidents)] if s.id in latest else []))
        changed.append(Incident(
            id_, s, "open", opened_at=look.now, since=s.since, updated_at=look.now, last_seen_at=look.now,
            gpu_hours=s.gpu_hours, cost_usd=s.cost_usd, told_at=look.now, data_until=look.data_end,
        ))  # fmt: skip
        events.append(IncidentEvent(id_, "opened", 0, look.now))
    return Advance(tuple(changed), tuple(events))


def _resolved(
    incident: Incident, sighting: Sighting | None, look: WatchPass, settings: WatchSettings, earlier: int
) -> Incident:
    """A resolved incident after the pass: it continues where it came back soon; where its end lasted, that is reported.
    `earlier`: how many others of its subject ended within a day."""
    longest = max(_REOPEN_SECONDS, settings.resolve_after_seconds) * 2 ** min(earlier, _MOST_DOUBLINGS)
    lasted = look.now - _end(incident)[0] >= min(longest, _DAY)
    if lasted and not incident.resolution_told:
        return replace(incident, resolution_told=True, updated_at=look.now)
    is_final = incident.resolution_told and incident.reopenings > 0
    return incident if sighting is None or lasted or is_final else _sighted(incident, sighting, look, settings)


def _sighted(incident: Incident, sighting: Sighting, look: WatchPass, settings: WatchSettings) -> Incident:
    is_due = look.now - (incident.told_at or incident.opened_at) >= settings.remind_every_seconds
    is_quiet = incident.acknowledged_at is not None or (incident.snoozed_until or 0.0) > look.now
    is_told = (is_due or incident.resolution_told) and not is_quiet
    hours, cost = _grown(incident, sighting, look.data_end)
    return replace(
        incident, sighting=sighting, state="open" if incident.acknowledged_at is None else "acknowledged",
        since=min(incident.since, sighting.since), updated_at=look.now, last_seen_at=look.now, gpu_hours=hours,
        cost_usd=cost, silent_since=None, resolved_at=None, resolution=None, data_until=look.data_end,
        reopenings=incident.reopenings + (incident.resolved_at is not None), resolution_told=False,
        reminders=incident.reminders + is_told, told_at=look.now if is_told else incident.told_at,
    )  # fmt: skip


def _unsighted(incident: Incident, look: WatchPass, settings: WatchSettings) -> Incident:
    after_seconds, resolution = settings.resolve_after_seconds, _resolution(incident, look)
    by_clock = look.now - incident.last_seen_at
    by_data = look.data_end - incident.data_until if incident.data_until is not None else by_clock
    subject = incident.sighting.subject
    # A silent node or source is the incident itself.
    of_silence = incident.sighting.kind == "telemetry-dead" and not subject.key.startswith("gpu:")
    if subject.key in look.unknown or not (of_silence or look.live_nodes.issuperset(subject.nodes)):
        after_seconds, resolution = _GONE_SECONDS, "cleared"
        if incident.silent_since is None:
            incident = replace(incident, silent_since=look.now, updated_at=look.now)
    elif incident.silent_since is not None:
        # What the silence hid is unknown: the time without a sighting counts from the end of a longer one.
        was_long = look.now - incident.silent_since >= after_seconds
        until = look.data_end if was_long else incident.data_until
        incident = replace(incident, silent_since=None, data_until=until, updated_at=look.now)
        by_data = 0.0 if was_long else by_data
    if min(by_clock, by_data) < after_seconds:
        return incident
    # The end of one that came back is reported once it lasted.
    return replace(
        incident, state="resolved", updated_at=look.now, silent_since=None, resolved_at=look.now,
        resolution=resolution, resolution_told=not incident.reopenings,
    )  # fmt: skip


def _end(incident: Incident) -> tuple[float, float]:
    return math.inf if incident.resolved_at is None else incident.resolved_at, incident.opened_at


def _resolution(incident: Incident, look: WatchPass) -> Resolution:
    subject, kind = incident.sighting.subject, incident.sighting.kind
    if kind == "telemetry-dead":
        return "data-back" if look.live_nodes.issuperset(subject.nodes) else "cleared"
    if look.held is None:
        return "cleared"
    if kind in _UNUSED:
        return "works-again" if subject.key in look.held else "released"
    return "released" if subject.workload_id is not None and subject.key not in look.held else "cleared"


def _grown(incident: Incident, sighting: Sighting, data_end: float) -> tuple[float, float | None]:
    """GPU-hours and dollars so far. They never shrink; unobserved hours are not among them. What left the view at its
    beginning is added again, limited to the time since the last data and to the hours of the sighting."""
    last, count = incident.sighting, sighting.subject.gpu_count
    if sighting.since <= incident.since:
        hours = max(incident.gpu_hours, sighting.gpu_hours)
    else:
        left = last.subject.gpu_count * (sighting.since - last.since) / _HOUR
        most = sighting.gpu_hours
        if incident.data_until is not None and count > 0:
            most = min(most, count * max(data_end - incident.data_until, 0.0) / _HOUR)
        hours = incident.gpu_hours + min(max(sighting.gpu_hours - last.gpu_hours + left, 0.0), most)
    rate = sighting.cost_usd / sighting.gpu_hours if sighting.cost_usd and sighting.gpu_hours > 0 else None
    if incident.cost_usd is None:
        return hours, rate * hours if rate is not None else sighting.cost_usd
    if rate is None:
        rate = incident.cost_usd / incident.gpu_hours if incident.gpu_hours > 0 else 0.0
    return hours, incident.cost_usd + (hours - incident.gpu_hours) * rate
