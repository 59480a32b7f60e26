"""Which processes listen on a TCP port of this node, as far as an ordinary user can see.

Two ways, both told by the kernel, neither a guess: a process that holds the listening socket (readable for processes of
the same user, or with privileges), and one of the same user whose arguments say ``--port N``.
"""

from __future__ import annotations

import os
from pathlib import Path

_LISTEN = b"0A"  # include/net/tcp_states.h: TCP_LISTEN
_TABLES = ("net/tcp", "net/tcp6")
_TABLE_LIMIT = 16 * 1024 * 1024
_PORT_FLAGS = (b"--port", b"--http-port", b"--metrics-port", b"-p")
_SEARCH_AGAIN_SECONDS = 300.0


class Listeners:
    """Finds listeners and remembers them while their sockets stay. Not for several threads."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._known: dict[int, tuple[frozenset[tuple[int, int]], frozenset[int], float]] = {}

    def pids(self, port: int, monotonic_seconds: float) -> frozenset[int]:
        """Who listens on `port`; empty where nobody can be seen to. A new search takes a while: not for a tick."""
        sockets = self._sockets(port)
        known = self._known.get(port)
        if known is not None and known[0] == sockets:
            alive = frozenset(pid for pid in known[1] if (self._procfs / str(pid)).exists())
            if alive == known[1] and (alive or monotonic_seconds - known[2] < _SEARCH_AGAIN_SECONDS):
                return alive
        found = self._search(port, sockets) if sockets else frozenset()
        self._known[port] = (sockets, found, monotonic_seconds)
        return found

    def _sockets(self, port: int) -> frozenset[tuple[int, int]]:
        """The listening sockets of `port` as (inode, uid)."""
        wanted = b"%04X" % port
        found: set[tuple[int, int]] = set()
        for table in _TABLES:
            try:
                with (self._procfs / table).open("rb") as file:
                    lines = file.read(_TABLE_LIMIT).split(b"\n")[1:]
            except OSError:
                continue
            for line in lines:
                fields = line.split()
                if len(fields) < 10 or fields[3] != _LISTEN or fields[1].rpartition(b":")[2] != wanted:
                    continue
                if fields[7].isdigit() and fields[9].isdigit():
                    found.add((int(fields[9]), int(fields[7])))
        return frozenset(found)

    def _search(self, port: int, sockets: frozenset[tuple[int, int]]) -> frozenset[int]:
        links = {f"socket:[{inode}]" for inode, _ in sockets}
        uids = {uid for _, uid in sockets}
        holders: set[int] = set()
        named: set[int] = set()
        try:
            entries = [entry for entry in os.scandir(self._procfs) if entry.name.isdecimal()]
        except OSError:
            return frozenset()
        for entry in entries:
            try:
                if entry.stat(follow_symlinks=False).st_uid not in uids:
                    continue
            except OSError:
                continue
            if self._holds(entry.path, links):
                holders.add(int(entry.name))
            elif self._names(entry.path, port):
                named.add(int(entry.name))
        return frozenset(holders or named)

    @staticmethod
    def _holds(home: str, links: set[str]) -> bool:
        try:
            descriptors = os.listdir(f"{home}/fd")  # noqa: PTH208 - hundreds of these at a time
        except OSError:
            return False
        for descriptor in descriptors:
            try:
                if os.readlink(f"{home}/fd/{descriptor}") in links:  # noqa: PTH115
                    return True
            except OSError:
                continue
        return False

    @staticmethod
    def _names(home: str, port: int) -> bool:
        try:
            with open(f"{home}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read(65536).split(b"\0")
        except OSError:
            return False
        number = b"%d" % port
        for word, after in zip(words, [*words[1:], b""], strict=True):
            flag, equals, value = word.partition(b"=")
            if flag in _PORT_FLAGS and (value if equals else after) == number:
                return True
        return False
