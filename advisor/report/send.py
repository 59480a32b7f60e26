"""A week's letters put into the outbox, and the outbox emptied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

from ...rules.base.errors import EXIT_DONE, SkuwiseError, UsageError
from ...rules.base.sanitize import clean
from ..core.timestamps import span
from ..mail.carriers import WEBHOOK, carriers_of
from ..mail.delivery import Clocks, Tally, send_waiting
from ..mail.mime import NOBODY, Envelope, compose, message_id
from ..mail.outbox import Outbox
from ..mail.parcel import Channel, Parcel
from ..mail.routes import TeamRoute
from ..mail.webhook import payload
from .run import ReportJob

# A pass of the watch sends from the same outbox for two minutes at most.
_WAIT_SECONDS = 150.0


def send(job: ReportJob, outbox: Outbox, environ: Mapping[str, str], time: Clocks) -> int:
    """Queue what was never queued of the week, then send what waits. Raises SkuwiseError where somebody has yet to
    receive something or never will."""
    if not any(_expected(team) for team in job.teams):
        raise UsageError("No recipients configured.", "Set administrators in [report] or in the routes.")
    carriers = carriers_of(job.settings, job.teams, environ)
    with outbox.sending(wait_seconds=_WAIT_SECONDS):
        routed = _digest(job)
        if not outbox.is_queued(job.week.name, routed):
            job.check_over()
            _queue(job, outbox, time)
            outbox.note_queued(job.week.name, routed, time.now().wall_seconds)
        tally = send_waiting(
            outbox, carriers, only=job.only, clock=time.now, sleep=time.sleep,
            mails_per_minute=job.settings.mails_per_minute, say=job.say,
        )  # fmt: skip
    return _told(tally, job.say)


def _told(tally: Tally, say: Callable[[str], None]) -> int:
    say(f"sent to {tally.sent}; {tally.waiting} waiting; {len(tally.refused)} refused")
    faults = [str(error) for error in tally.down]
    if tally.refused:
        faults.append(f"Refused for good: {'; '.join(clean(one) for one in tally.refused)}.")
    if tally.waiting:
        # A span, no moment: it is true whatever this machine's clock says.
        when = f" once {span(tally.soonest_seconds)} have passed" if tally.soonest_seconds else ""
        faults.append(f"{tally.waiting} waiting in the outbox: the next run of the same command tries again{when}.")
    if faults:
        raise SkuwiseError(" ".join(faults))
    return EXIT_DONE


def _queue(job: ReportJob, outbox: Outbox, time: Clocks) -> None:
    sender = job.settings.sender or NOBODY
    known = outbox.known(job.week.name)
    teams = tuple(team for team in job.teams if any(one not in known for one in _expected(team)))
    if not teams:
        return
    for report in job.reports(teams, noting=True):
        team, letter = report.team, report.letter
        id_ = message_id(job.week.name, team.name, sender)
        at = time.now().wall_seconds
        contents: dict[Channel, tuple[bytes, tuple[str, ...]]] = {}
        if team.to:
            envelope = Envelope(sender, team.to, job.list_unsubscribe)
            contents["mail"] = (compose(letter, envelope, message_id=id_, date=at), team.to)
        if team.webhook_url_file:
            contents["webhook"] = (payload(letter), (WEBHOOK,))
        for channel, (content, to) in contents.items():
            outbox.queue(Parcel(job.week.name, team.name, channel, id_, letter.subject, content, to), at)
        job.note_told(report, at)


def _expected(team: TeamRoute) -> list[tuple[str, str, str]]:
    """(team, channel, recipient) of all that a team is to receive in a week."""
    mails = [(team.name, "mail", address) for address in team.to]
    return mails + ([(team.name, "webhook", WEBHOOK)] if team.webhook_url_file else [])


def _digest(job: ReportJob) -> str:
    """Names the routes by which a week is queued: where they change, it is looked at again."""
    return hashlib.sha256(json.dumps([_expected(team) for team in job.teams]).encode()).hexdigest()
