"""Which recipient is informed of what in one pass: events by recipient, at most one item an incident. Pure.

A recipient that the routes name from today on is not sent what was opened before. It reads of an incident that is still
open by the next reminder, and of its end only after that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core.incident_types import Incident, IncidentEvent
from ..mail.parcel import WATCH, Channel
from ..views.document.incident_words import Item, ItemKind
from .desk import Recipient

Untold = Sequence[tuple[IncidentEvent, Incident]]


@dataclass(frozen=True, slots=True)
class Batch:
    """One message: to recipients of one team and channel, about the same events."""

    team: str
    channel: Channel
    recipients: tuple[Recipient, ...]
    items: tuple[Item, ...]
    events: tuple[IncidentEvent, ...]

    @property
    def name(self) -> str:
        """The same for the same events and recipients, whenever it is made."""
        what = [self.team, self.channel, *sorted(one.key for one in self.recipients), *sorted(map(key_of, self.events))]
        return WATCH + hashlib.sha256("\0".join(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def key_of(event: IncidentEvent) -> str:
    """As the outbox names an event."""
    return f"{event.incident_id}/{event.number}"


def opening_key(incident_id: str) -> str:
    return f"{incident_id}/0"


def batches_of(
    untold: Untold,
    recipients: Callable[[Incident], Sequence[Recipient]],
    told: Mapping[str, set[str]],
    knows: Callable[[Incident, Recipient], bool],
    busy: Callable[[Recipient], bool],
) -> tuple[tuple[Batch, ...], frozenset[str]]:
    """The messages of a pass, and the keys of events that have to wait for a recipient.

    `told`: event -> the recipients for whom it was queued. `knows`: whether a recipient was ever informed that an
    incident is open. `busy`: an earlier message has yet to reach the recipient, so that no other is queued meanwhile.
    """
    by_incident: dict[str, tuple[Incident, list[IncidentEvent]]] = {}
    for event, incident in untold:
        by_incident.setdefault(incident.id, (incident, []))[1].append(event)
    found: dict[Recipient, list[tuple[Item, tuple[IncidentEvent, ...]]]] = {}
    taken: set[tuple[str, str]] = set()  # an address of two teams is informed once
    waiting: set[str] = set()
    for incident, events in by_incident.values():
        for recipient in recipients(incident):
            if (incident.id, recipient.key) in taken:
                continue
            new = tuple(event for event in events if recipient.key not in told.get(key_of(event), ()))
            kind = _kind(incident, new, lambda one=incident, to=recipient: knows(one, to))
            if kind is None:
                continue
            taken.add((incident.id, recipient.key))
            if busy(recipient):
                waiting.update(map(key_of, new))
            else:
                found.setdefault(recipient, []).append((Item(incident, kind), new))
    return tuple(_merged(found.items())), frozenset(waiting)


def _kind(incident: Incident, new: Sequence[IncidentEvent], knows: Callable[[], bool]) -> ItemKind | None:
    """What is new to one recipient; None: nothing. As the incident is now, not as each event found it."""
    kinds = {event.kind for event in new}
    if incident.resolved_at is None:
        # An end of what came back is no end.
        return "opened" if "opened" in kinds else "reminded" if "reminded" in kinds else None
    if "opened" in kinds:
        return "over"
    return "resolved" if "resolved" in kinds and knows() else None


def _merged(found: Iterable[tuple[Recipient, list[tuple[Item, tuple[IncidentEvent, ...]]]]]) -> Iterable[Batch]:
    """One batch for the addresses of a team that are informed of the same."""
    same: dict[tuple[str, Channel, tuple[tuple[str, str], ...], tuple[str, ...]], list[Recipient]] = {}
    contents: dict[object, tuple[tuple[Item, ...], tuple[IncidentEvent, ...]]] = {}
    for recipient, pairs in found:
        items = tuple(item for item, _ in pairs)
        events = tuple(event for _, each in pairs for event in each)
        what = (
            recipient.team, recipient.channel, tuple((item.incident.id, item.kind) for item in items),
            tuple(map(key_of, events)),
        )  # fmt: skip
        same.setdefault(what, []).append(recipient)
        contents[what] = (items, events)
    for what, recipients in same.items():
        items, events = contents[what]
        yield Batch(what[0], what[1], tuple(recipients), items, events)
