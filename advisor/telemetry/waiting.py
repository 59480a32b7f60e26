"""Jobs that want GPUs and have not begun: what each waits for, by its scheduler's word, and Slurm's queue as the
frame's table."""

import re
from collections import Counter
from dataclasses import replace

import pandas as pd

from ...agent.slurm_jobs.queue import Queue, WaitingJob
from ...agent.slurm_jobs.read_jobs import is_of_cluster
from ..core.coded_text import coded
from ..core.frame import WAITING, Frame
from ..core.scalars import records, text
from ..core.timestamps import minute

# Why a job waits for something else than GPUs: for other jobs; a person or a scheduling gate holds it; for a time; a
# limit of its account, QOS or array, or one of them may not; certain nodes, a reservation or constraints; its
# partition; licenses; a volume or a burst buffer.
BLOCKED = ("dependency", "held", "begin-time", "limit", "nodes", "partition", "licenses", "storage", "other")
# Slurm's own words (src/common/job_state_reason.c), and Kubernetes' for a gate. Slurm does not say which resource is
# short, and has no reason yet for some.
_FOR_GPUS = frozenset({"None", "Resources", "Priority", "SchedDefer"})
_WORDS = {
    "dependency": "Dependency.*",
    "held": "JobHeld.*|JobHold.*|SchedulingGated",
    "begin-time": "BeginTime",
    "limit": "Assoc.*|QOS.*|Max.*Per.*|AccountingPolicy|AccountNotAllowed|Invalid(Account|QOS)|JobArrayTaskLimit",
    "nodes": "ReqNodeNotAvail.*|Nodes? required.*|NodeDown|FrontEndDown|Reservation.*|(Bad)?Constraints",
    "partition": "Partition.*",
    "licenses": "Licenses",
    "storage": "BurstBuffer.*|PersistentVolumeClaim",
}
# A window ends with a whole hour, and reading takes time.
OLDEST_SECONDS, NEWEST_SECONDS = 3600.0, 2 * 3600.0
_OTHER_TIME = "Slurm's queue is of {at}, the telemetry ends {end}: which Slurm jobs wait for GPUs is not known."
_OTHER_CLUSTER = (
    "{jobs} jobs of cluster {cluster} in Slurm's queue not used: the nodes name another cluster. Set slurm.cluster to "
    "Slurm's name of this cluster."
)


def blocked_by(reason: str | None) -> str | None:
    """What a job waits for by its scheduler's word, a code of `BLOCKED`; None: for GPUs."""
    if reason is None or reason.strip("()") in _FOR_GPUS:
        return None
    return next((code for code, words in _WORDS.items() if re.fullmatch(words, reason.strip("()"))), "other")


def waiting_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The frame's table of rows with some of its columns."""
    table = rows.reindex(columns=WAITING).astype(object)
    numbers = {"jobs": int, "gpus": float, "nodes": float, "since": float}
    return table.where(table.notna(), None).astype(numbers)  # pyright: ignore[reportArgumentType]


def with_queue(frame: Frame, queue: Queue, *, cluster: str | None) -> Frame:
    """The frame with Slurm's queue beside what waits in Kubernetes. `cluster`: Slurm's name of it. A queue of another
    time or cluster than the telemetry is not known, and a note says so."""
    window_end, notes = frame.window.end, list(frame.notes)
    if not -OLDEST_SECONDS <= queue.at - window_end <= NEWEST_SECONDS:
        notes.append(coded("queue-of-another-time", _OTHER_TIME, at=minute(queue.at), end=minute(window_end)))
        return replace(frame, notes=tuple(notes))
    names = set(filter(None, (text(node["cluster"]) for node in records(frame.nodes))))
    here = [job for job in queue.jobs if is_of_cluster(job.cluster, names, cluster)]
    others = Counter(job.cluster for job in queue.jobs if not is_of_cluster(job.cluster, names, cluster))
    if others:
        first = repr(next(iter(others)))
        notes.append(coded("queue-of-another-cluster", _OTHER_CLUSTER, jobs=others.total(), cluster=first))
        if not here:
            return replace(frame, notes=tuple(notes))
    jobs = pd.DataFrame(here, columns=WaitingJob._fields, dtype=object)
    table = waiting_table(jobs.assign(scheduler="slurm", blocked=jobs["reason"].map(blocked_by)))
    both = pd.concat([frame.waiting, table], ignore_index=True) if len(frame.waiting) else table
    at = queue.at if frame.waiting_at is None else min(queue.at, frame.waiting_at)
    return replace(frame, waiting=both, waiting_at=at, notes=tuple(notes))
