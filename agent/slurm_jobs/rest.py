"""Asks slurmrestd for the jobs of slurmdbd, over a socket of this machine, loopback or https.

The token (JWT) comes from a file and goes nowhere but to the address that the settings name; redirects are not
followed. https://slurm.schedmd.com/rest.html, ``/slurmdb/vX/jobs``: `start_time` is in Unix seconds.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.files import open_stream
from ..base.deadline import Deadline
from ..base.http_head import BoundedResponse
from .json_jobs import MAX_JSON_BYTES, read_json_jobs
from .read_jobs import Keep, ReadJobs, keep_all
from .settings import SlurmImportSettings

TIMEOUT_SECONDS = 120.0
# Newest first; a server has some three of them at a time, and answers 404 for another.
_VERSIONS = tuple(f"v0.0.{n}" for n in range(44, 37, -1))
_MAX_TOKEN = 16 * 1024


def ask_slurmrestd(
    settings: SlurmImportSettings, since: float, *, keep: Keep = keep_all, timeout_seconds: float = TIMEOUT_SECONDS
) -> ReadJobs:
    """The runs that did anything since `since` (Unix seconds). Raises SkuwiseError where the server cannot tell."""
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "skuwise"}
    if settings.slurmrestd_user:
        if not settings.slurmrestd_user.isascii():
            raise UsageError("slurm.slurmrestd_user must be ASCII.", "Use the user's name as Slurm has it.")
        headers["X-SLURM-USER-NAME"] = settings.slurmrestd_user
    if settings.slurmrestd_token_file is not None:
        headers["X-SLURM-USER-TOKEN"] = _token(settings.slurmrestd_token_file)
    # One for all versions: a server might be slow to know none of them.
    with Deadline(timeout_seconds) as deadline:
        for version in (settings.slurmrestd_version,) if settings.slurmrestd_version else _VERSIONS:
            path = f"/slurmdb/{version}/jobs?start_time={since:.0f}&skip_steps=true"
            status, body = _get(settings.slurmrestd, path, headers, deadline, timeout_seconds)
            if status != http.client.NOT_FOUND or settings.slurmrestd_version:
                return _jobs(status, body, keep)
    raise SkuwiseError(
        f"slurmrestd offers no API version from {_VERSIONS[-1]} to {_VERSIONS[0]}.",
        "Set slurm.slurmrestd_version, and load its plugin openapi/slurmdbd.",
    )


def _get(address: str, path: str, headers: Mapping[str, str], deadline: Deadline, seconds: float) -> tuple[int, bytes]:
    """The answer's status, and its body where it is one. `seconds`: what the deadline is of."""
    connection = _connection(address, deadline)
    connection.response_class = BoundedResponse
    try:
        connection.request("GET", f"{_prefix(address)}{path}", headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read(MAX_JSON_BYTES + 1) if answer.status == http.client.OK else b""
    except (OSError, http.client.HTTPException) as error:
        if deadline.over or isinstance(error, TimeoutError):
            raise _too_slow(seconds) from None
        what = getattr(error, "strerror", None) or type(error).__name__
        raise SkuwiseError(f"slurmrestd at {address} cannot be asked: {what}.", "Check slurm.slurmrestd.") from error
    finally:
        connection.close()
    if deadline.over:  # an answer without a length looks whole wherever it is cut
        raise _too_slow(seconds)
    return answer.status, body


def _jobs(status: int, body: bytes, keep: Keep) -> ReadJobs:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise SkuwiseError(f"slurmrestd refuses the token (status {status}).", "Renew slurm.slurmrestd_token_file.")
    if status != http.client.OK:
        raise SkuwiseError(f"slurmrestd answers with status {status}.", "See its log.")
    try:
        return read_json_jobs(io.BytesIO(body), keep=keep, what="slurmrestd's answer")
    except UsageError as error:
        raise SkuwiseError(error.message, "See slurmrestd's log.") from error


def _too_slow(seconds: float) -> SkuwiseError:
    return SkuwiseError(f"slurmrestd took longer than {seconds:g} s.", "Ask for a shorter time with --since.")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, deadline: Deadline) -> None:
        super().__init__("localhost")
        self._path, self._deadline = path, deadline

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.settimeout(self._deadline.left())
        self.sock.connect(self._path)
        self._deadline.guard(self.sock)


def _prefix(address: str) -> str:
    return "" if address.startswith("unix:") else urlsplit(address).path.rstrip("/")


def _connection(address: str, deadline: Deadline) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:").removeprefix("//"), deadline)
    said = repr(address) if "@" not in address else "an address with a password"
    wrong = UsageError(
        f"Invalid slurm.slurmrestd: {said}.", "Use https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH."
    )
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.username or parts.password or parts.query or not (address.isascii() and address.isprintable()):
        raise wrong
    if parts.scheme == "https":
        try:
            import ssl  # noqa: PLC0415 - the self-contained build has none
        except ImportError:
            raise UsageError(
                "This build of skuwise has no TLS.", "Use http on loopback, unix:/PATH, or an installation with pip."
            ) from None
        return _timed(http.client.HTTPSConnection(host, port, context=ssl.create_default_context()), deadline)
    if parts.scheme != "http" or not _is_loopback(host):
        raise wrong  # a token must not cross a network in the clear
    return _timed(http.client.HTTPConnection("127.0.0.1" if host == "localhost" else host, port), deadline)


def _timed(connection: http.client.HTTPConnection, deadline: Deadline) -> http.client.HTTPConnection:
    """The same, which connects under the deadline; TLS is put around what it gives."""
    connection._create_connection = lambda address, *_: deadline.connect(*address)  # type: ignore[attr-defined] - http.client's own place for another way
    return connection


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(path: Path) -> str:
    try:
        with open_stream(path) as file:
            if os.fstat(file.fileno()).st_mode & 0o007:
                raise UsageError(f"{path} may be read by everybody.", "chmod 0600 it, and renew the token.")
            raw = file.read(_MAX_TOKEN + 1)
        token = raw.decode("ascii").strip().removeprefix("SLURM_JWT=")  # as scontrol token prints it
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{path} cannot be read: {what}.", "Check slurm.slurmrestd_token_file.") from error
    if not token or len(raw) > _MAX_TOKEN or not token.isprintable() or " " in token:
        raise UsageError(f"{path} holds no token.", "Write one there with scontrol token.")
    return token
