"""``skuwise slurm import``: Slurm's job table into a node's database, or into a file that advice reads.

Asks ``sacct`` itself, in a way that nobody's job name can break.

The delimiter is drawn by chance for each run, so that no name can hold it: a name with ``|`` or line breaks is read as
it is, and none can make up a line. Times are asked for in seconds since 1970 (``SLURM_TIME_FORMAT=%s``; sacct(1),
"ENVIRONMENT VARIABLES") and in UTC, for versions that know no such format.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.output import say
from ..base.durations import parse_duration
from ..base.safe_text import clean_text
from ..config import load_config
from ..store.slurm_rows import known_jobs, write_jobs
from .choice import JobsOfNode
from .read_jobs import Keep, ReadJobs, keep_all
from .sacct import read_sacct
from .settings import SlurmImportSettings, load_slurm_settings, parse_zone
from .table_file import read_job_table, write_job_table

# slurmdbd answers weeks of a large cluster within a minute or so.
TIMEOUT_SECONDS = 300.0
# The name is not the last: what stands behind a line break in it ends with the record.
_COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "ElapsedRaw", "NodeList", "AllocTRES", "ReqTRES",
)  # fmt: skip
# Newer versions only; an older sacct (22.05) refuses the whole request for it.
_NEWER = ("Restarts",)
_MAX_ERROR = 400


def ask_sacct(
    program: str, since: float, environ: Mapping[str, str], *, keep: Keep = keep_all,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> ReadJobs:  # fmt: skip
    """The runs that did anything since `since` (Unix seconds). Raises SkuwiseError where sacct cannot tell."""
    path = shutil.which(program, path=environ.get("PATH", os.defpath))
    if path is None:
        raise SkuwiseError(
            f"{program} is not on the PATH.",
            "Run this where Slurm's commands are, set slurm.sacct or slurm.slurmrestd, or name a file of sacct's.",
        )
    try:
        return _ask(path, since, environ, (*_COLUMNS, *_NEWER), keep, timeout_seconds)
    except _UnknownFieldError:
        return _ask(path, since, environ, _COLUMNS, keep, timeout_seconds)


class _UnknownFieldError(Exception):
    """This sacct does not know a column."""


def _ask(  # noqa: PLR0917
    path: str, since: float, environ: Mapping[str, str], columns: tuple[str, ...], keep: Keep, timeout_seconds: float
) -> ReadJobs:
    # Digits and signs alone: letters would belong to the header's names.
    delimiter = f"|{secrets.randbelow(10**18):018d}|"
    start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    command = [
        path, "--allusers", "--duplicates", "--allocations", "--parsable2", f"--delimiter={delimiter}",
        f"--starttime={start}", f"--format={','.join(columns)}",
    ]  # fmt: skip
    # Nothing of the caller's environment changes what is asked for (SACCT_FEDERATION, SACCT_LOCAL ...).
    own = {name: value for name, value in environ.items() if not name.startswith("SACCT_")}
    own |= {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
    # To a file: a year of jobs may be more than memory holds.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and a program that the settings name
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=own, check=False, timeout=timeout_seconds
            )
        except subprocess.TimeoutExpired:
            raise SkuwiseError(
                f"sacct took longer than {timeout_seconds:g} s.", "Ask for a shorter time with --since."
            ) from None
        except OSError as error:
            raise SkuwiseError(f"{path} cannot be run: {error.strerror}.", "Set slurm.sacct.") from error
        err.seek(0)
        said = clean_text(err.read(_MAX_ERROR))
        if "Invalid field" in said and columns != _COLUMNS:
            raise _UnknownFieldError
        if done.returncode != 0:
            raise SkuwiseError(
                f"sacct failed with status {done.returncode}: {said or 'no error message'}",
                "Run sacct --allusers as this user; slurmdbd must be reachable, and PrivateData must not hide jobs.",
            )
        out.seek(0)
        try:
            return read_sacct(out, zone=UTC, keep=keep, what="sacct's answer")
        except UsageError as error:
            raise SkuwiseError(f"{error.message} {said}".strip(), "Run sacct --allusers as this user.") from error


_DEFAULT_SINCE_SECONDS = 7 * 86400.0
# A job may reach slurmdbd late, and clocks differ.
_OVERLAP_SECONDS = 3600.0

EXAMPLES = ("skuwise slurm import --since 7d --output jobs.txt",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE",
        help="output of sacct --parsable2 or --json, '-' for stdin (default: run sacct or query slurm.slurmrestd)",
    )  # fmt: skip
    parser.add_argument(
        "--since", metavar="DURATION",
        help="age of the oldest job to query, as in 7d (default: since the last import; 7d the first time)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--db", type=Path, metavar="PATH", help="database of the node (default: the one of the agent)")
    where.add_argument(
        "--output", type=Path, metavar="FILE",
        help="add new runs to this job table instead, for --jobs of other commands",
    )  # fmt: skip
    parser.add_argument(
        "--time-zone", metavar="NAME", help="time zone of FILE, as in Europe/Berlin (default: of this machine)"
    )
    parser.add_argument("--cluster", metavar="NAME", help="cluster name in Slurm, if the agent uses another")


def run(options: argparse.Namespace) -> int:
    """Read or ask, choose, write. The only place of the import that knows the clock."""
    now, environ = time.time(), os.environ
    settings = load_slurm_settings(environ)
    if options.file is not None and options.since is not None:
        raise UsageError("--since applies to a query of sacct, not to FILE.", "Remove --since or FILE.")
    since = None if options.since is None else now - parse_duration(options.since)
    zone = parse_zone(options.time_zone, "--time-zone") if options.time_zone else settings.time_zone

    def read(keep: Keep, last: float | None) -> ReadJobs:
        start = since
        if start is None:
            start = now - _DEFAULT_SINCE_SECONDS if last is None else min(last, now) - _OVERLAP_SECONDS
        return _read(options.file, settings, environ, zone, start, keep)

    if options.output is not None:
        return _into_file(options.output, settings, read, now)
    path = options.db or load_config({}, environ).db
    return _into_database(path, options.cluster or settings.cluster, read, now)


def _read(  # noqa: PLR0917
    file: str | None,
    settings: SlurmImportSettings,
    environ: Mapping[str, str],
    zone: tzinfo | None,
    since: float,
    keep: Keep,
) -> ReadJobs:
    if file is not None:
        return read_job_table(None if file == "-" else Path(file), zone=zone, keep=keep)
    if settings.slurmrestd:
        from .rest import ask_slurmrestd  # noqa: PLC0415 - http and TLS, where nothing else needs them

        return ask_slurmrestd(settings, since, keep=keep)
    return ask_sacct(settings.sacct, since, environ, keep=keep)


def _into_database(path: Path, cluster: str | None, read: Callable[[Keep, float | None], ReadJobs], now: float) -> int:
    known = known_jobs(path)
    chosen = JobsOfNode(known.nodes, known.clusters, known.runs, cluster)
    found = read(chosen, known.imported_at)
    for line in (*found.warnings(), *chosen.warnings()):
        say(line)
    if not found.jobs and (found.refused or found.untimed or chosen.other_clusters or chosen.elsewhere):
        raise NothingToDo(
            f"No job of the table ran on {', '.join(sorted(known.nodes)[:3]) or 'this node'}.",
            "See what was left out above.",
        )
    new, changed = write_jobs(path, found.jobs.values(), now)
    say(f"{new} new jobs, {changed} changed in {path}")
    return EXIT_DONE


def _into_file(
    path: Path, settings: SlurmImportSettings, read: Callable[[Keep, float | None], ReadJobs], now: float
) -> int:
    merged = read_job_table(path) if path.exists() else ReadJobs()
    before = dict(merged.jobs)
    newest = max((max(job.started, job.ended or 0.0) for job in before.values()), default=None)
    found = read(keep_all, newest)
    for line in found.warnings():
        say(line)
    for job in found.jobs.values():
        merged.add(job, keep_all)
    oldest = now - settings.keep_seconds
    kept = [job for job in merged.jobs.values() if (job.ended or now) >= oldest]
    if not kept:
        raise NothingToDo("Slurm has no job that began in this time.", "Ask for a longer one with --since.")
    write_job_table(path, kept)
    say(f"{len(merged.jobs.keys() - before.keys())} new jobs, {len(kept)} in {path}")
    return EXIT_DONE
