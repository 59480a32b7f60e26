"""Asks ``sacct`` itself, in a way that nobody's job name can break.

The delimiter is drawn by chance for each run, so that no name can hold it: a name with ``|`` or line breaks is read as
it is, and none can make up a line. Times are asked for in seconds since 1970 (``SLURM_TIME_FORMAT=%s``; sacct(1),
"ENVIRONMENT VARIABLES") and in UTC, for versions that know no such format.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime

from ...rules.base.errors import SkuwiseError, UsageError
from ..base.safe_text import clean_text
from .read_jobs import Keep, ReadJobs, keep_all
from .sacct import read_sacct

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
