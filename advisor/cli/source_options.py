"""The options that name a source of telemetry: node databases or a server, and Slurm's job table beside them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from ...rules.base.errors import UsageError
from ..telemetry.source import Databases, JobTable, PrometheusServer, Source

_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=|!=|=~|!~)\s*"([^"\\\n]|\\.)*"', re.ASCII)


def add_source_choice(
    parser: argparse.ArgumentParser, *, required: bool = True, identity: bool = False
) -> argparse._MutuallyExclusiveGroup:
    """The options --db and --prometheus, of which one is needed, and --match and --no-cache. Gives the choice, for
    others to join. `required` False: where neither is given, something else says what is read. `identity`: whose
    telemetry it is counts alone, so no option says how it is read."""
    choice = parser.add_mutually_exclusive_group(required=required)
    choice.add_argument(
        "--db", action="append", type=Path, metavar="PATH",
        help="database, or folder of node databases (repeatable)",
    )  # fmt: skip
    choice.add_argument(
        "--prometheus", metavar="URL",
        help=("URL of a server with the Prometheus API (connection settings: section [prometheus] of "
                "skuwise.toml)"),
    )  # fmt: skip
    parser.add_argument(
        "--match", action="append", default=[], metavar="LABEL=\"V\"",
        help='with --prometheus: read only time series with this label, for example cluster="eu" (repeatable)',
    )  # fmt: skip
    if identity:
        parser.set_defaults(no_cache=False, jobs=None)
        return choice
    parser.add_argument(
        "--no-cache", action="store_true",
        help="neither read nor write the cache of answers and of the last look",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=Path, metavar="FILE",
        help=("Slurm's job table as written by sacct --parsable2, for names, owners and times (default: "
                "setting slurm.jobs)"),
    )  # fmt: skip
    return choice


def source_of(options: argparse.Namespace, progress: Callable[[str], None], processes: int) -> Source:
    """The source that the options name. `progress`: notes on the way; `processes`: how many may read databases.

    Raises UsageError for an invalid matcher.
    """
    jobs = job_table(options.jobs, os.environ, progress)
    if options.prometheus is None:
        if options.match:
            raise UsageError("--match requires --prometheus.", "Add --prometheus URL, or remove --match.")
        return Databases(tuple(options.db), processes, jobs)
    for match in options.match:
        if not _MATCHER.fullmatch(match):
            raise UsageError(
                f"Invalid label matcher {match!r}.", 'Use LABEL="VALUE", or one of the operators !=, =~, !~.'
            )
    return PrometheusServer(
        options.prometheus, tuple(options.match), dict(os.environ), progress, cached=not options.no_cache, jobs=jobs
    )


def job_table(named: Path | None, environ: Mapping[str, str], say: Callable[[str], None]) -> JobTable:
    """The job table that --jobs names, else the settings. Raises UsageError for settings that cannot be."""
    from ...agent.slurm_jobs.settings import load_slurm_settings

    settings = load_slurm_settings(environ)
    return JobTable(named or settings.jobs, settings.time_zone, settings.cluster, say, optional=named is None)


def source_arguments(options: argparse.Namespace) -> str:
    """The options that name the source again, for a command line that somebody may copy."""
    jobs = [] if options.jobs is None else [f"--jobs {shlex.quote(str(options.jobs))}"]
    if options.prometheus is None:
        return " ".join([*(f"--db {shlex.quote(str(path))}" for path in options.db), *jobs])
    matches = [f"--match {shlex.quote(match)}" for match in options.match]
    return " ".join([f"--prometheus {shlex.quote(options.prometheus)}", *matches, *jobs])
