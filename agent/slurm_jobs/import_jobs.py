"""``skuwise slurm import``: Slurm's job table into a node's database, or into a file that advice reads."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import say
from ..base.durations import parse_duration
from ..config import load_config
from ..store.writing.slurm_rows import known_jobs, write_jobs
from .ask import ask_sacct
from .choice import JobsOfNode
from .read_jobs import Keep, ReadJobs, keep_all
from .settings import SlurmImportSettings, load_slurm_settings, parse_zone
from .table_file import read_job_table, write_job_table

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
