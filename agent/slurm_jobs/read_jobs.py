"""What a reading of a job table gives, beside the jobs: what was left out, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..base.slurm_job import SlurmJob

# A year of a cluster that runs 3,000 jobs a day. More is asked for in parts, or narrowed by `keep`.
MAX_JOBS = 1_000_000

Keep = Callable[[SlurmJob], bool]


def keep_all(job: SlurmJob) -> bool:  # noqa: ARG001 - a Keep
    """Keep each job."""
    return True


@dataclass(slots=True)
class ReadJobs:
    """`jobs`: each run once, by `SlurmJob.key`. Numbers of what is not among them: `refused` records that cannot be
    read, `untimed` ones without a start that can be read."""

    jobs: dict[tuple[str, str, int], SlurmJob] = field(default_factory=dict)
    refused: int = 0
    untimed: int = 0
    unraw_tasks: int = 0
    contradicted: set[tuple[str, str, int]] = field(default_factory=set)

    def add(self, job: SlurmJob, keep: Keep) -> None:
        """Take a run in, once: what knows its end goes over what does not, else the later over the earlier."""
        if not keep(job):
            return
        before = self.jobs.get(job.key)
        if job.key in self.contradicted or (before is not None and _is_others(before, job)):
            # One run has one user. Whoever made up the other, nobody can tell which it is.
            self.jobs.pop(job.key, None)
            self.contradicted.add(job.key)
            return
        if before is not None and before.ended is not None and job.ended is None:
            job = replace(job, ended=before.ended, state=before.state)
        self.jobs[job.key] = job

    def warnings(self) -> list[str]:
        """What a person should know of what was left out, a sentence each."""
        said = []
        if self.refused:
            what = "record" if self.refused == 1 else "records"
            said.append(
                f"{self.refused} {what} of the job table cannot be read and were left out (a name with a line break or "
                "a '|', or a line that was cut)."
            )
        if self.contradicted:
            said.append(
                f"{len(self.contradicted)} runs have several users in the job table and were left out (a job's name "
                "may hold lines that look like another job)."
            )
        if self.untimed:
            said.append(f"{self.untimed} jobs have no start that can be read and were left out.")
        if self.unraw_tasks:
            said.append(
                f"{self.unraw_tasks} array tasks or parts of heterogeneous jobs have no JobIDRaw: their GPUs may not "
                "be found. Add JobIDRaw to sacct's --format."
            )
        return said


def _is_others(one: SlurmJob, other: SlurmJob) -> bool:
    return one.user is not None and other.user is not None and one.user != other.user
