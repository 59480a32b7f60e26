"""Files that are a user's own, in folders that may be somebody else's: no link of another is followed, nothing that is
no plain file is opened, and nothing is cut short by being opened."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PRIVATE = 0o600
_OF_A_GROUP = 0o660
_LOOKS_A_SECOND = 10


def check_place(path: Path, *, alone: bool = False) -> None:
    """Raises OSError where `path` leads to what is no plain file, or could lead where another user wants.

    A link counts where its owner, or root, made it, and nobody else could have put it there. In a folder that everybody
    may write to (``/tmp``) the file and its journal must be ours. `alone`: no such folder at all.
    """
    folder = path.parent.stat()
    everybodys = bool(folder.st_mode & stat.S_IWOTH)
    if everybodys and alone:
        raise OSError(errno.EPERM, "its folder is writable by all users (chmod o-w)")
    names = (path, path.with_name(f"{path.name}-journal")) if everybodys else (path,)
    for name in names:
        _check_file(name, everybodys=everybodys)


def _check_file(path: Path, *, everybodys: bool) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    ours = found.st_uid in (0, os.geteuid())
    if stat.S_ISLNK(found.st_mode):
        if everybodys or not ours:
            raise OSError(errno.ELOOP, "it is a link that another user may have made")
        if not path.exists():
            raise OSError(errno.ENOENT, "it is a link to a missing file")
        found = path.stat()
    elif everybodys and not ours:
        raise OSError(errno.EPERM, "it belongs to another user, in a folder that is writable by all users")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def begin_file(path: Path, *, alone: bool = False) -> None:
    """Make an empty file for its owner alone, where there is none yet; its folder too. Raises OSError.

    A folder with the set-group-ID bit is one that its owner shares with a group (chmod(1)): there the group may use the
    file.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_place(path, alone=alone)
    shared = bool(path.parent.stat().st_mode & stat.S_ISGID)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)
    except FileExistsError:
        return
    try:
        if shared:
            os.fchmod(handle, _OF_A_GROUP)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, alone: bool = False, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock file, made where it is not there. Raises BlockingIOError where another process holds it for
    `wait_seconds`, OSError where it cannot be had. Nothing is read of the file and nothing written to it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_place(path, alone=alone)
    # Without blocking, or a pipe that lies there would be waited for.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, _PRIVATE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"its lock file {path.name} is a link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, f"its lock file {path.name} is not a regular file")
        _lock(handle, wait_seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, wait_seconds: float) -> None:
    until = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(1 / _LOOKS_A_SECOND)
        else:
            return
