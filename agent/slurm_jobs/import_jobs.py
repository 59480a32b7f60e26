"""``skuwise slurm import``: Slurm's job table into a node's database, or into a file that advice reads.

Asks ``sacct`` with a delimiter that is drawn by chance for each run, so that no job's name can hold it, and for times
in seconds since 1970, or in UTC of versions without that format. Or asks slurmrestd over a socket of this machine,
loopback or https.
"""

import http.client
import io
import ipaddress
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.files import read_token
from ...rules.base.output import say
from ..base.deadline import Deadline
from ..base.safe_text import clean_text
from ..base.settings import parse_zone
from ..config import SlurmImportSettings, load_config, load_section
from ..store.slurm_rows import known_jobs, write_jobs
from .queue import read_squeue
from .read_jobs import COLUMNS, MAX_JSON_BYTES, JobsOfNode, Keep, ReadJobs, read_job_table, read_jobs, write_job_table

# Newest first; a server has some three of them at a time, and answers 404 for another.
_VERSIONS = tuple(f"v0.0.{n}" for n in range(44, 37, -1))
_REFUSALS = {
    404: (
        f"has no data version of {_VERSIONS[-1]} to {_VERSIONS[0]}, or not the one that is set",
        "Set slurm.slurmrestd_version, and load its plugin openapi/slurmdbd.",
    ),
    **dict.fromkeys((401, 403), ("refuses the token", "Renew slurm.slurmrestd_token_file.")),
}
_Read = Callable[[Keep | None, float | None], ReadJobs]


def ask_sacct(
    program: str, since: float, environ: Mapping[str, str], *, keep: Keep | None = None, timeout_seconds: float = 300.0
) -> ReadJobs:
    """The runs that did anything since `since` (Unix seconds). Raises SkuwiseError where sacct fails."""
    path = shutil.which(program, path=environ.get("PATH", os.defpath))
    if path is None:
        remedy = "Run this where Slurm's commands are, set slurm.sacct or slurm.slurmrestd, or name a file."
        raise SkuwiseError(f"{program} is not on the PATH.", remedy)
    # Nothing of the caller's environment changes what is asked for (SACCT_FEDERATION, SACCT_LOCAL ...).
    variables = {name: value for name, value in environ.items() if not name.startswith("SACCT_")}
    variables |= {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
    start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    command = [path, "--allusers", "--duplicates", "--allocations", "--parsable2", f"--starttime={start}"]
    # To a file: a year of jobs may be more than memory holds.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status, said = 0, ""
        for columns in (COLUMNS, COLUMNS[:-1]):
            # Digits and signs alone: letters would belong to the header's names.
            own_options = [f"--delimiter=|{secrets.randbelow(10**18):018d}|", f"--format={','.join(columns)}"]
            for file in (out, err):
                file.seek(file.truncate(0))
            try:
                status = subprocess.run(  # noqa: S603 - no shell, and a program that the settings name
                    [*command, *own_options], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables,
                    check=False, timeout=timeout_seconds,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                raise _too_slow("sacct", timeout_seconds) from None
            except OSError as error:
                raise SkuwiseError(f"{path} cannot be run: {error.strerror}.", "Set slurm.sacct.") from error
            err.seek(0)
            said = clean_text(err.read(400))
            if "Invalid field" not in said:
                break
        remedy = "Run sacct --allusers as this user; slurmdbd must be reachable, and PrivateData must not hide jobs."
        if status != 0:
            raise SkuwiseError(f"sacct failed with status {status}: {said or 'no error message'}", remedy)
        out.seek(0)
        try:
            return read_jobs(out, zone=UTC, keep=keep, what="sacct's answer")
        except UsageError as error:
            raise SkuwiseError(f"{error.message} {said}".strip(), remedy) from error


def write_queue(path: Path, program: str, environ: Mapping[str, str]) -> None:
    """Write Slurm's queue, all or nothing; it names people. Raises SkuwiseError."""
    # Nothing of the caller's environment changes what is asked for, and lists of an array's tasks are not cut.
    variables = {name: value for name, value in environ.items() if not name.startswith("SQUEUE_")}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as out:
            subprocess.run(  # noqa: S603 - no shell, and a program that the settings name
                [shutil.which(program, path=environ.get("PATH", os.defpath)) or program, "--all", "--json"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, check=True, timeout=120.0,
                env=variables | {"SLURM_BITSTR_LEN": "0"},
            )  # fmt: skip
        read_squeue(temporary)
        temporary.chmod(0o640)
        temporary.replace(path)
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "Run squeue --all --json as this user, or set slurm.squeue; slurm.queue names a file here."
        raise SkuwiseError(f"Slurm's queue cannot be written to {path}: {clean_text(str(error))}", remedy) from error
    finally:
        temporary.unlink(missing_ok=True)


def _too_slow(what: str, seconds: float) -> SkuwiseError:
    return SkuwiseError(f"{what} took longer than {seconds:g} s.", "Ask for a shorter time with --since.")


def ask_slurmrestd(
    settings: SlurmImportSettings, since: float, *, keep: Keep | None = None, timeout_seconds: float = 120.0
) -> ReadJobs:
    """The runs that did anything since `since` (Unix seconds). Raises SkuwiseError where the server fails."""
    headers: dict[str, str | bytes] = {"Accept": "application/json", "User-Agent": "skuwise"}
    if settings.slurmrestd_user:
        headers["X-SLURM-USER-NAME"] = settings.slurmrestd_user.encode()
    if settings.slurmrestd_token_file is not None:
        headers["X-SLURM-USER-TOKEN"] = read_token(
            settings.slurmrestd_token_file, "slurm.slurmrestd_token_file"
        ).removeprefix("SLURM_JWT=")  # as scontrol token prints it
    status, body = 0, b""
    # One deadline for all versions: a server might be slow to know none of them.
    with Deadline(timeout_seconds) as deadline:
        try:
            for version in (settings.slurmrestd_version,) if settings.slurmrestd_version else _VERSIONS:
                path = f"/slurmdb/{version}/jobs?start_time={since:.0f}&skip_steps=true"
                status, body = _get(settings.slurmrestd, path, headers, deadline)
                if status != http.client.NOT_FOUND:
                    break
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not deadline.over and not isinstance(error, TimeoutError):
                why = getattr(error, "strerror", None) or type(error).__name__
                what = f"slurmrestd at {settings.slurmrestd} cannot be asked: {why}."
                raise SkuwiseError(what, "Check slurm.slurmrestd.") from error
            status = 0
        if deadline.over or status == 0:  # an answer without a length looks whole wherever it is cut
            raise _too_slow("slurmrestd", timeout_seconds)
    if status != http.client.OK:
        why, remedy = _REFUSALS.get(status, (f"answers with status {status}", "See its log."))
        raise SkuwiseError(f"slurmrestd {why}.", remedy)
    try:
        return read_jobs(io.BytesIO(body), keep=keep, what="slurmrestd's answer")
    except UsageError as error:
        raise SkuwiseError(error.message, "See slurmrestd's log.") from error


def _get(address: str, path: str, headers: Mapping[str, str | bytes], deadline: Deadline) -> tuple[int, bytes]:
    """The answer's status, and its body where it is one. Raises UsageError for an address over which a token would
    cross a network in the clear."""
    said = repr(address) if "@" not in address else "an address with a password"
    wrong = UsageError(
        f"Invalid slurm.slurmrestd: {said}.", "Use https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH."
    )
    try:
        parts = urlsplit(address)
        host, port, is_unix = parts.hostname or "localhost", parts.port, parts.scheme == "unix"
        is_here = host == "localhost" or (parts.scheme == "http" and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        raise wrong from None
    has_tls = parts.scheme == "https" and hasattr(http.client, "HTTPSConnection")  # the self-contained build has none
    is_secret = is_unix or has_tls or (parts.scheme == "http" and is_here)
    if not is_secret or parts.username or parts.password or parts.query or not (is_unix or parts.hostname):
        raise wrong
    kind = http.client.HTTPSConnection if has_tls else http.client.HTTPConnection
    connection = kind("127.0.0.1" if host == "localhost" and not has_tls else host, port)
    # http.client's own place for another way to connect; TLS is put around what it gives.
    connection._create_connection = lambda address, *_: deadline.connect(*address)  # type: ignore[attr-defined]
    try:
        if is_unix:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            connection.sock.settimeout(deadline.left())
            connection.sock.connect(parts.path)
            deadline.guard(connection.sock)
        connection.request("GET", path if is_unix else parts.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_JSON_BYTES + 1) if answer.status == http.client.OK else b""
    finally:
        connection.close()


def import_jobs(
    *,
    file: str | None,
    since: float | None,
    db: Path | None,
    output: Path | None,
    time_zone: str | None,
    cluster: str | None,
) -> int:
    """Read `file` (``-``: stdin; None: ask for what happened in the last `since` seconds; None: since the last import),
    and add its jobs to the job table `output`, else to the database `db` (None: the agent's). Without `file` Slurm's
    queue is written too, where the settings name a file for it. Returns the exit status.
    Raises UsageError, NothingToDo, SkuwiseError."""
    now, environ = time.time(), os.environ
    settings = load_section(SlurmImportSettings, "slurm", environ)
    if file is not None and since is not None:
        raise UsageError("--since applies to a query of sacct, not to FILE.", "Remove --since or FILE.")
    zone = parse_zone(time_zone) if time_zone else settings.time_zone
    if file is None and settings.queue is not None:
        try:
            write_queue(settings.queue, settings.squeue, environ)
        except SkuwiseError as error:  # names of jobs do not wait for it, and its age shows
            say(str(error))

    def read(keep: Keep | None, last: float | None) -> ReadJobs:
        if file is not None:
            return read_job_table(None if file == "-" else Path(file), zone=zone, keep=keep)
        # A job may reach slurmdbd late, and clocks differ: an hour is asked for again.
        start = now - 7 * 86400.0 if last is None else min(last, now) - 3600.0
        start = start if since is None else now - since
        if settings.slurmrestd:
            return ask_slurmrestd(settings, start, keep=keep)
        return ask_sacct(settings.sacct, start, environ, keep=keep)

    if output is not None:
        return _into_file(output, settings.keep_seconds, read, now)
    return _into_database(db or load_config({}, environ).db, cluster or settings.cluster, read, now)


def _into_database(path: Path, cluster: str | None, read: _Read, now: float) -> int:
    recorded = known_jobs(path)
    chosen = JobsOfNode(recorded, cluster)
    read_jobs = read(chosen, recorded.imported_at)
    left_out = read_jobs.warnings()
    if chosen.other_clusters:
        names = ", ".join(repr(name) for name, _ in chosen.other_clusters.most_common(3))
        text = f"{chosen.other_clusters.total()} jobs are of another cluster ({names}) and were not taken."
        left_out.append(f"{text} Set slurm.cluster where that is this cluster's name in Slurm.")
    if chosen.elsewhere:
        left_out.append(f"{chosen.elsewhere} jobs ran on other nodes and were not taken.")
    for line in left_out:
        say(line)
    if not read_jobs.jobs and left_out:
        nodes = ", ".join(sorted(recorded.nodes)[:3]) or "this node"
        raise NothingToDo(f"No job of the table ran on {nodes}.", "See what was left out above.")
    new, changed = write_jobs(path, read_jobs.jobs.values(), now)
    say(f"{new} new jobs, {changed} changed in {path}")
    return EXIT_DONE


def _into_file(path: Path, keep_seconds: float, read: _Read, now: float) -> int:
    merged = read_job_table(path) if path.exists() else ReadJobs()
    before = dict(merged.jobs)
    newest = max((max(job.started_at, job.ended_at or 0.0) for job in before.values()), default=None)
    read_jobs = read(None, newest)
    for line in read_jobs.warnings():
        say(line)
    for job in read_jobs.jobs.values():
        merged.add(job)
    kept = [job for job in merged.jobs.values() if (job.ended_at or now) >= now - keep_seconds]
    if not kept:
        raise NothingToDo("Slurm has no job that began in this time.", "Ask for a longer one with --since.")
    write_job_table(path, kept)
    say(f"{len(merged.jobs.keys() - before.keys())} new jobs, {len(kept)} in {path}")
    return EXIT_DONE
