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
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..core.ids import stable_id
from ..core.incident_types import Advance, Incident, IncidentEvent, Resolution, Sighting, WatchPass
from .settings import WatchSettings

_HOUR, _DAY = 3600.0, 86400.0
# For so long after its end the same incident goes on where it comes back; it doubles with each earlier one of a day.
_REOPEN_SECONDS = _HOUR
_MOST_DOUBLINGS = 3
# A node that reported nothing for so long, by both clocks, is gone, and what was open there is over.
_GONE_SECONDS = 7 * _DAY
_UNUSED = {"stopped": "held-idle", "held-idle": "stopped"}


def advance(known: Sequence[Incident], found: WatchPass, settings: WatchSettings) -> Advance:
    """The incidents after a pass. `known`: those that are not resolved, those of which nobody was told yet that they
    are, and those resolved within the last day at least."""
    clamped = [_clamped(one, found) for one in known]
    # Of several with one subject, the one that goes on: not resolved, else the one resolved last.
    latest = {one.sighting.id: one for one in sorted(clamped, key=_end)}
    ended = Counter(one.sighting.id for one in clamped if 0 <= found.now - _end(one)[0] <= _DAY)
    sightings = {one.id: one for one in found.sightings}
    unused: dict[tuple[str, str], str] = {(one.kind, one.subject.key): one.id for one in found.sightings}
    pairs: list[tuple[Incident | None, Incident]] = []
    for before, one in zip(known, clamped, strict=True):
        sighting = sightings.get(one.sighting.id) if latest[one.sighting.id] is one else None
        if one.resolved_at is not None:
            after = _ended(one, sighting, found, settings, ended[one.sighting.id] - 1)
        else:
            if sighting is None and one.sighting.kind in _UNUSED:
                other = unused.get((_UNUSED[one.sighting.kind], one.sighting.subject.key), "")
                own = latest.get(other)
                sighting = sightings.get(other) if own is None or own.resolved_at is not None else None
            after = _seen(one, sighting, found, settings) if sighting is not None else _unseen(one, found, settings)
        if sighting is not None and after.resolved_at is None:
            del sightings[sighting.id]
        if after != before:
            pairs.append((before, after))
    ids = {one.id for one in known}
    for sighting in sightings.values():
        id_ = stable_id("i", sighting.id, sighting.since, found.now)
        if id_ in ids:  # a clock that was set back to the same moment
            id_ = stable_id("i", sighting.id, sighting.since, found.now, len(ids))
        opened = Incident(
            id_, sighting, "open", opened_at=found.now, since=sighting.since, updated_at=found.now,
            last_seen_at=found.now, gpu_hours=sighting.gpu_hours, cost_usd=sighting.cost_usd, told_at=found.now,
            data_until=found.data_end,
        )  # fmt: skip
        pairs.append((None, opened))
    events: list[IncidentEvent] = []
    for before, after in pairs:
        if before is None:
            events.append(IncidentEvent(after.id, "opened", 0, found.now))
        elif after.reminders > before.reminders:
            events.append(IncidentEvent(after.id, "reminded", after.reminders, found.now))
        elif after.resolution_told and not before.resolution_told:
            events.append(IncidentEvent(after.id, "resolved", -2 if after.reopenings else -1, found.now))
    return Advance(tuple(after for _, after in pairs), tuple(events))


def _ended(
    one: Incident, sighting: Sighting | None, found: WatchPass, settings: WatchSettings, earlier: int
) -> Incident:
    """A resolved incident after the pass: it goes on where it came back soon; where it stayed so, that is told.
    `earlier`: how many others of its subject ended within a day."""
    longest = max(_REOPEN_SECONDS, settings.resolve_after_seconds) * 2 ** min(earlier, _MOST_DOUBLINGS)
    stayed = found.now - _end(one)[0] >= min(longest, _DAY)
    if stayed and not one.resolution_told:
        return replace(one, resolution_told=True, updated_at=found.now)
    is_final = one.resolution_told and one.reopenings > 0
    return one if sighting is None or stayed or is_final else _seen(one, sighting, found, settings)


def _seen(one: Incident, sighting: Sighting, found: WatchPass, settings: WatchSettings) -> Incident:
    """An incident that this pass found."""
    hours, cost = _grown(one, sighting, found.data_end)
    is_due = found.now - (one.told_at or one.opened_at) >= settings.remind_every_seconds or one.resolution_told
    is_quiet = one.acknowledged_at is not None or (one.snoozed_until or 0.0) > found.now
    is_told = is_due and not is_quiet
    return replace(
        one, sighting=sighting, state="open" if one.acknowledged_at is None else "acknowledged",
        since=min(one.since, sighting.since), updated_at=found.now, last_seen_at=found.now, gpu_hours=hours,
        cost_usd=cost, silent_since=None, resolved_at=None, resolution=None, data_until=found.data_end,
        reopenings=one.reopenings + (one.resolved_at is not None), resolution_told=False,
        reminders=one.reminders + is_told, told_at=found.now if is_told else one.told_at,
    )  # fmt: skip


def _unseen(one: Incident, found: WatchPass, settings: WatchSettings) -> Incident:
    """An incident that is not resolved and that this pass did not find."""
    after_seconds, resolution = settings.resolve_after_seconds, _resolution(one, found)
    unseen = found.now - one.last_seen_at
    by_data = found.data_end - one.data_until if one.data_until is not None else unseen
    if not _is_judged(one, found):
        after_seconds, resolution = _GONE_SECONDS, "cleared"
        one = one if one.silent_since is not None else replace(one, silent_since=found.now, updated_at=found.now)
    elif one.silent_since is not None:
        # What the silence hid is not known: the time without it counts from the end of a longer one.
        was_long = found.now - one.silent_since >= after_seconds
        until = found.data_end if was_long else one.data_until
        one = replace(one, silent_since=None, data_until=until, updated_at=found.now)
        by_data = 0.0 if was_long else by_data
    if min(unseen, by_data) < after_seconds:
        return one
    # The end of one that came back is told when it stayed so.
    return replace(
        one, state="resolved", updated_at=found.now, silent_since=None, resolved_at=found.now, resolution=resolution,
        resolution_told=not one.reopenings,
    )  # fmt: skip


def _end(one: Incident) -> tuple[float, float]:
    return math.inf if one.resolved_at is None else one.resolved_at, one.opened_at


def _clamped(one: Incident, found: WatchPass) -> Incident:
    """The same with no moment ahead of the clocks by which it is measured: after a clock went back, time counts from
    there on."""

    def least(moment: float | None, end: float = found.now) -> float | None:
        return None if moment is None else min(moment, end)

    return replace(
        one, last_seen_at=min(one.last_seen_at, found.now), told_at=least(one.told_at),
        silent_since=least(one.silent_since), resolved_at=least(one.resolved_at),
        data_until=least(one.data_until, found.data_end),
    )  # fmt: skip


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
    if kind in _UNUSED:
        return "works-again" if subject.key in found.held else "released"
    return "released" if subject.workload_id is not None and subject.key not in found.held else "cleared"


def _grown(one: Incident, sighting: Sighting, data_end: float) -> tuple[float, float | None]:
    """GPU-hours and dollars so far. They never shrink; hours that nobody observed are not among them.

    The hours of a sighting may begin with its view, and no more with the incident. What left the view at its beginning
    is added again, as if all of it was observed; so what is added is limited to the time since the last data, and to
    the sighting's own hours.
    """
    last, count = one.sighting, sighting.subject.gpu_count
    if sighting.since <= one.since:
        hours = max(one.gpu_hours, sighting.gpu_hours)
    else:
        left = last.subject.gpu_count * (sighting.since - last.since) / _HOUR
        most = sighting.gpu_hours
        if one.data_until is not None and count > 0:
            most = min(most, count * max(data_end - one.data_until, 0.0) / _HOUR)
        hours = one.gpu_hours + min(max(sighting.gpu_hours - last.gpu_hours + left, 0.0), most)
    rate = sighting.cost_usd / sighting.gpu_hours if sighting.cost_usd and sighting.gpu_hours > 0 else None
    if one.cost_usd is None:
        return hours, rate * hours if rate is not None else sighting.cost_usd
    if rate is None:
        rate = one.cost_usd / one.gpu_hours if one.gpu_hours > 0 else 0.0
    return hours, one.cost_usd + (hours - one.gpu_hours) * rate
