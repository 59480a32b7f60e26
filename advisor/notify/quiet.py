"""Quiet hours: who is informed now, and what waits until they end.

When they end, each recipient gets one digest. What began and ended within them is one line of it: nobody can act on it
any more, but its GPU-hours are spent, and a mail by itself where there is nothing else. Alertmanager receives the state
at all times: it has mute times of its own.
"""

from __future__ import annotations

from datetime import datetime

from ..core.incident_types import Incident
from ..incidents.settings import WatchSettings


def is_quiet(settings: WatchSettings, now: float) -> bool:
    """Whether `now` (Unix seconds) lies within the quiet hours, by the local clock. They may cross midnight; where the
    clock is set back, an hour that happens twice is quiet twice."""
    if settings.quiet_hours is None:
        return False
    begin, end = settings.quiet_hours
    hour = datetime.fromtimestamp(now, settings.time_zone).hour
    return begin <= hour < end if begin < end else hour >= begin or hour < end


def waits(incident: Incident, settings: WatchSettings, now: float) -> bool:
    """Whether its events wait until the quiet hours are over: all but those of high severity, as it is now."""
    return incident.sighting.severity != "high" and is_quiet(settings, now)
