"""A week's letters as files: each mail as it would be sent, and its page for a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...rules.base.errors import SkuwiseError
from ...rules.base.output import write_whole
from ..mail.mime import NOBODY, Envelope, compose, file_names, inlined, message_id
from .letters import preview_index
from .run import ReportJob


def write_previews(job: ReportJob, folder: Path) -> Iterator[Path]:
    """Write every letter of `job` into `folder`, and a list of them; yield each file as it is there.

    What lies there under the same name is replaced, and no link is followed. Raises SkuwiseError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkuwiseError(f"Cannot create the folder {folder}: {error.strerror}.", "Use another folder.") from error
    sender = job.settings.sender or NOBODY
    teams = [team.name for team in job.teams]
    names = dict(zip(teams, file_names(teams), strict=True))
    for report in job.reports(job.teams):
        id_ = message_id(job.week.name, report.team.name, sender)
        envelope = Envelope(sender, report.team.to, job.list_unsubscribe)
        message = compose(report.letter, envelope, message_id=id_, date=job.now)
        for ending, text in ((".eml", message.decode("ascii")), (".html", inlined(report.letter))):
            path = folder / f"{names[report.team.name]}{ending}"
            write_whole(path, text, into_devices=False)
            yield path
    index = folder / "index.csv"
    write_whole(index, preview_index(teams, [names[team] for team in teams]), into_devices=False)
    yield index
