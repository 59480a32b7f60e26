"""What one pass of the watch makes of the incidents: opened, reminded, resolved. Pure.

An incident is over when it was not found for `resolve_after_seconds`, by the watcher's clock and by the data's: a clock
that jumps alone resolves nothing. What comes back within an hour goes on as the same incident. Somebody who was told
that it is over is told that it came back, once; after that nobody is told that it is over before it stayed so. That
hour doubles with each incident that the same subject had within a day. So a subject that flaps for a day makes a
handful of notifications.

GPUs that a workload holds and does not use are one incident, however they are found: a job that stopped is found as
held but idle once its last work has left the view, and its incident goes on as that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..core.ids import stable_id
from ..core.incident_types import (
    Advance,
    EventKind,
    Incident,
    IncidentEvent,
    IncidentKind,
    Resolution,
    Sighting,
    WatchPass,
)
from .settings import WatchSettings

_HOUR, _DAY = 3600.0, 86400.0
# For so long after its end the same incident goes on where it comes back; it doubles with each earlier one of a day.
REOPEN_SECONDS = _HOUR
_MOST_DOUBLINGS = 3
# A node that reported nothing for so long, by both clocks, is gone, and what was open there is over.
GONE_SECONDS = 7 * _DAY
FINAL = -2  # the number of the event that something is over at last
_UNUSED: Mapping[IncidentKind, IncidentKind] = {"stopped": "held-idle", "held-idle": "stopped"}


def advance(known: Sequence[Incident], found: WatchPass, settings: WatchSettings) -> Advance:
    """The incidents after a pass. `known`: those that are not resolved, those of which nobody was told yet that they
    are, and those resolved within the last day."""
    step = _Step(found, settings, {one.id for one in known})
    clamped = [_clamped(one, found) for one in known]
    latest = _latest(clamped)
    counts: dict[str, int] = {}
    for one in clamped:
        counts[one.sighting.id] = counts.get(one.sighting.id, 0) + (one.resolved_at is not None)
    sightings = {one.id: one for one in reversed(found.sightings)}
    unused = {(one.kind, one.subject.key): one.id for one in found.sightings if one.kind in _UNUSED}
    now: list[Incident] = []
    for before, one in zip(known, clamped, strict=True):
        earlier = counts[one.sighting.id] - (one.resolved_at is not None)
        sighting = sightings.get(one.sighting.id) if latest[one.sighting.id] is one else None
        if sighting is None and one.resolved_at is None and one.sighting.kind in _UNUSED:
            other = unused.get((_UNUSED[one.sighting.kind], one.sighting.subject.key))
            own = latest.get(other) if other is not None else None
            sighting = sightings.get(other) if other is not None and (own is None or own.resolved_at) else None
        after = step.known(one, sighting, earlier)
        if sighting is not None and after.resolved_at is None:
            del sightings[sighting.id]
        if after is not before:
            now.append(after)
    now += [step.opened(sighting) for sighting in found.sightings if sightings.pop(sighting.id, None) is not None]
    return Advance(tuple(now), tuple(step.events))


class _Step:
    """One pass at work. `events`: what it has to tell so far."""

    def __init__(self, found: WatchPass, settings: WatchSettings, ids: set[str]) -> None:
        self._found, self._settings, self._ids = found, settings, ids
        self.events: list[IncidentEvent] = []

    def opened(self, sighting: Sighting) -> Incident:
        """A new incident of a sighting that none of the known ones covers."""
        now, sighting = self._found.now, _sane(sighting, self._found)
        number, id_ = 0, stable_id("i", sighting.id, sighting.since, now)
        while id_ in self._ids:  # a clock that stands still
            number += 1
            id_ = stable_id("i", sighting.id, sighting.since, now, number)
        self._ids.add(id_)
        self._tell(id_, "opened", 0)
        return Incident(
            id_, sighting, "open", opened_at=now, since=sighting.since, updated_at=now, last_seen_at=now,
            gpu_hours=sighting.gpu_hours, cost_usd=sighting.cost_usd, told_at=now, data_until=self._found.data_end,
        )  # fmt: skip

    def known(self, one: Incident, sighting: Sighting | None, earlier: int) -> Incident:
        """A known incident after the pass; `earlier`: how many others of the same sighting are over."""
        if one.resolved_at is None:
            return self._seen(one, sighting) if sighting is not None else self._unseen(one)
        window = reopen_seconds(earlier, self._settings)
        stayed = self._found.now - one.resolved_at >= window
        final = one.resolution_told and one.reopenings > 0
        if sighting is not None and not stayed and not final:
            return self._seen(one, sighting)
        if stayed and not one.resolution_told:
            return self._over(one)
        return one

    def _seen(self, one: Incident, sighting: Sighting) -> Incident:
        found, sighting = self._found, _sane(sighting, self._found)
        hours, cost = _grown(one, sighting, found.data_end)
        back, came_back = one.resolved_at is not None, one.resolution_told
        after = replace(
            one, sighting=sighting, state="open" if one.acknowledged_at is None else "acknowledged",
            since=min(one.since, sighting.since), updated_at=found.now, last_seen_at=found.now, gpu_hours=hours,
            cost_usd=cost, silent_since=None, resolved_at=None, resolution=None, data_until=found.data_end,
            reopenings=one.reopenings + back, resolution_told=False,
        )  # fmt: skip
        if not (came_back or self._is_due(one)) or not self._may_be_told(one):
            return after
        self._tell(one.id, "reminded", one.reminders + 1)
        return replace(after, reminders=one.reminders + 1, told_at=found.now)

    def _is_due(self, one: Incident) -> bool:
        told = one.told_at if one.told_at is not None else min(one.opened_at, self._found.now)
        return self._found.now - told >= self._settings.remind_every_seconds

    def _may_be_told(self, one: Incident) -> bool:
        snoozed = one.snoozed_until is not None and one.snoozed_until > self._found.now
        return one.acknowledged_at is None and not snoozed

    def _unseen(self, one: Incident) -> Incident:
        found = self._found
        unseen = found.now - one.last_seen_at
        by_data = found.data_end - one.data_until if one.data_until is not None else unseen
        if not _is_judged(one, found):
            if min(unseen, by_data) >= GONE_SECONDS:
                return self._resolved(one, "cleared")
            return one if one.silent_since is not None else replace(one, silent_since=found.now, updated_at=found.now)
        after_seconds = self._settings.resolve_after_seconds
        if one.silent_since is not None:
            # What the silence hid is not known: the time without it counts from the end of a longer one.
            was_long = found.now - one.silent_since >= after_seconds
            until = found.data_end if was_long else one.data_until
            one = replace(one, silent_since=None, data_until=until, updated_at=found.now)
            by_data = 0.0 if was_long else by_data
        return self._resolved(one, _resolution(one, found)) if min(unseen, by_data) >= after_seconds else one

    def _resolved(self, one: Incident, resolution: Resolution) -> Incident:
        now = self._found.now
        after = replace(
            one, state="resolved", updated_at=now, silent_since=None, resolved_at=now, resolution=resolution
        )
        return after if one.reopenings else self._over(after)

    def _over(self, one: Incident) -> Incident:
        """Tell that it is over: at once where it never came back, else when it stayed so."""
        self._tell(one.id, "resolved", FINAL if one.reopenings else -1)
        return replace(one, resolution_told=True, updated_at=self._found.now)

    def _tell(self, id_: str, kind: EventKind, number: int) -> None:
        self.events.append(IncidentEvent(id_, kind, number, self._found.now))


def reopen_seconds(earlier: int, settings: WatchSettings) -> float:
    """For how long after its end an incident goes on where it comes back; `earlier`: others of the same subject that
    ended within a day. A day at most: for so long it is known."""
    longest = max(REOPEN_SECONDS, settings.resolve_after_seconds) * 2 ** min(earlier, _MOST_DOUBLINGS)
    return min(longest, _DAY)


def _latest(known: Iterable[Incident]) -> Mapping[str, Incident]:
    """By sighting the incident that goes on where it is found: the one that is not over, else the one over last."""
    found: dict[str, Incident] = {}
    for one in known:
        other = found.get(one.sighting.id)
        if other is None or _end(other) <= _end(one):
            found[one.sighting.id] = one
    return found


def _end(one: Incident) -> tuple[float, float]:
    return math.inf if one.resolved_at is None else one.resolved_at, one.opened_at


def _clamped(one: Incident, found: WatchPass) -> Incident:
    """The same with no moment ahead of the clocks by which it is measured: after a clock went back, time counts from
    there on."""
    now, until = found.now, one.data_until
    if (
        one.last_seen_at <= now
        and (one.told_at is None or one.told_at <= now)
        and (one.silent_since is None or one.silent_since <= now)
        and (one.resolved_at is None or one.resolved_at <= now)
        and (until is None or until <= found.data_end)
    ):
        return one
    return replace(
        one, last_seen_at=min(one.last_seen_at, now), told_at=_least(one.told_at, now),
        silent_since=_least(one.silent_since, now), resolved_at=_least(one.resolved_at, now),
        data_until=_least(until, found.data_end),
    )  # fmt: skip


def _least(moment: float | None, now: float) -> float | None:
    return None if moment is None else min(moment, now)


def _is_judged(one: Incident, found: WatchPass) -> bool:
    """Whether this pass could have found it: not where its subject is unknown, or one of its nodes reports nothing."""
    subject = one.sighting.subject
    if subject.key in found.unknown:
        return False
    if one.sighting.kind == "telemetry-dead" and not subject.key.startswith("gpu:"):
        return True  # a silent node or source is what it says
    return found.live_nodes.issuperset(subject.nodes)


def _resolution(one: Incident, found: WatchPass) -> Resolution:
    subject, kind = one.sighting.subject, one.sighting.kind
    if kind == "telemetry-dead":
        return "data-back" if found.live_nodes.issuperset(subject.nodes) else "cleared"
    if found.held is None:
        return "cleared"
    if kind in ("held-idle", "stopped"):
        return "works-again" if subject.key in found.held else "released"
    return "released" if subject.workload_id is not None and subject.key not in found.held else "cleared"


def _sane(sighting: Sighting, found: WatchPass) -> Sighting:
    """The same without numbers that are none: one of them would make the file unreadable."""
    figures = (sighting.since, sighting.gpu_hours, sighting.subject.gpu_count, sighting.cost_usd or 0.0)
    if all(map(math.isfinite, figures)) and sighting.gpu_hours >= 0:
        return sighting
    subject = sighting.subject
    return replace(
        sighting, since=sighting.since if math.isfinite(sighting.since) else found.data_end,
        gpu_hours=_counted(sighting.gpu_hours),
        cost_usd=sighting.cost_usd if sighting.cost_usd is not None and math.isfinite(sighting.cost_usd) else None,
        subject=replace(subject, gpu_count=_counted(subject.gpu_count)),
    )  # fmt: skip


def _counted(value: float) -> float:
    return max(value, 0.0) if math.isfinite(value) else 0.0


def _grown(one: Incident, sighting: Sighting, data_end: float) -> tuple[float, float | None]:
    """GPU-hours and dollars so far. They never shrink; hours that nobody observed are not among them."""
    if sighting.since <= one.since:
        hours = max(one.gpu_hours, sighting.gpu_hours)
    else:
        hours = one.gpu_hours + _increment(one, sighting, data_end)
    rate = sighting.cost_usd / sighting.gpu_hours if sighting.cost_usd and sighting.gpu_hours > 0 else None
    if one.cost_usd is None:
        return hours, rate * hours if rate is not None else sighting.cost_usd
    if rate is None:
        rate = one.cost_usd / one.gpu_hours if one.gpu_hours > 0 else 0.0
    return hours, one.cost_usd + (hours - one.gpu_hours) * rate


def _increment(one: Incident, sighting: Sighting, data_end: float) -> float:
    """GPU-hours observed since the last pass, of a sighting whose own begin with its view and no more with it.

    What left the view at its beginning is added again, as if all of it was observed; so the result is limited to what
    can have been added since: the time since the last data, and the sighting's own hours.
    """
    last = one.sighting
    left = last.subject.gpu_count * (sighting.since - last.since) / _HOUR
    most = sighting.gpu_hours
    if one.data_until is not None and sighting.subject.gpu_count > 0:
        most = min(most, sighting.subject.gpu_count * max(data_end - one.data_until, 0.0) / _HOUR)
    return min(max(sighting.gpu_hours - last.gpu_hours + left, 0.0), most)
