"""Which incident a person means: by its id or the beginning of it, its workload, job or node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core import formatting as words
from ..core.incident_types import Incident
from ..core.naming import AmbiguousError, Named, matching, unknown
from ..core.timestamps import minute

_LIST = "'skuwise incidents list --all' lists every ID."


def find_incident(
    incidents: Sequence[Incident], asked: str, command: Callable[[str], str] = "skuwise incidents show {}".format
) -> Incident:
    """The incident that `asked` names, of those that are not resolved before all. `command` gives the command line for
    an id, for the list of candidates. Raises AmbiguousError for several, UsageError for none."""
    names = {one.id: _named(one) for one in incidents}
    going_on = [names[one.id] for one in incidents if one.resolved_at is None]
    found = matching(asked, going_on) or matching(asked, list(names.values()))
    if not found:
        raise unknown(asked, list(names.values()), "among the incidents", _LIST)
    if len(found) > 1:
        raise AmbiguousError(asked, found, command)
    return next(one for one in incidents if one.id == found[0].id)


def _named(one: Incident) -> Named:
    subject = one.sighting.subject
    jobs = tuple(known for known in (subject.job_id, subject.workload_id) if known)
    cost = words.usd(one.cost_usd) if one.cost_usd is not None else words.hours(one.gpu_hours, "GPU-h")
    return Named(
        one.id, f"{one.sighting.kind} of {subject.name}", subject.name, subject.nodes, jobs,
        f"since {minute(one.since)}", cost,
    )  # fmt: skip
