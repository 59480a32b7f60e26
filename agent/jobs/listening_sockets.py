"""Which processes listen on a TCP port of this node, as far as an ordinary user can see.

Two ways, both told by the kernel, neither a guess: a process that holds the listening socket (readable for processes of
the same user, or with privileges), and one of the same user whose arguments say ``--port N``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_LISTEN = b"0A"  # include/net/tcp_states.h: TCP_LISTEN
_TABLES = ("net/tcp", "net/tcp6")
_TABLE_LIMIT = 16 * 1024 * 1024
_PORT_FLAGS = (b"--port", b"--http-port", b"--metrics-port", b"-p")
_TABLE_AGAIN_SECONDS = 60.0
_SEARCH_AGAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Found:
    """Who listens on one port. `proofs`: by PID, the descriptor that is the socket; None where its arguments say so."""

    sockets: frozenset[tuple[int, int]]
    proofs: Mapping[int, str | None]
    read_at: float  # the table, monotonic seconds
    searched_at: float

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(self.proofs)


class Listeners:
    """Finds listeners and remembers them while their sockets stay. Not for several threads."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._known: dict[int, _Found] = {}

    def pids(self, port: int, monotonic_seconds: float) -> frozenset[int]:
        """Who listens on `port`; empty where nobody can be seen to. A new search takes a while: not for a tick."""
        known = self._known.get(port)
        if known is not None and not all(self._still(port, pid, known) for pid in known.proofs):
            known = None
        if known is not None and monotonic_seconds - known.read_at < _TABLE_AGAIN_SECONDS:
            return known.pids
        sockets = self._sockets(port)
        lately = known is not None and monotonic_seconds - known.searched_at < _SEARCH_AGAIN_SECONDS
        if known is not None and known.sockets == sockets and (known.proofs or lately):
            known = replace(known, read_at=monotonic_seconds)
        else:
            proofs = self._search(port, sockets) if sockets else {}
            known = _Found(sockets, proofs, monotonic_seconds, monotonic_seconds)
        self._known[port] = known
        return known.pids

    def _still(self, port: int, pid: int, known: _Found) -> bool:
        proof = known.proofs[pid]
        if proof is None:
            return self._names(f"{self._procfs}/{pid}", port)
        try:
            return os.readlink(proof) in _links(known.sockets)  # noqa: PTH115
        except OSError:
            return False

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

    def _search(self, port: int, sockets: frozenset[tuple[int, int]]) -> Mapping[int, str | None]:
        links = _links(sockets)
        uids = {uid for _, uid in sockets}
        holders: dict[int, str | None] = {}
        named: dict[int, str | None] = {}
        try:
            entries = [entry for entry in os.scandir(self._procfs) if entry.name.isdecimal()]
        except OSError:
            return {}
        for entry in entries:
            try:
                if entry.stat(follow_symlinks=False).st_uid not in uids:
                    continue
            except OSError:
                continue
            descriptor = self._held(entry.path, links)
            if descriptor is not None:
                holders[int(entry.name)] = descriptor
            elif self._names(entry.path, port):
                named[int(entry.name)] = None
        return holders or named

    @staticmethod
    def _held(home: str, links: frozenset[str]) -> str | None:
        """The process's descriptor that is one of these sockets."""
        try:
            descriptors = os.listdir(f"{home}/fd")  # noqa: PTH208 - hundreds of these at a time
        except OSError:
            return None
        for descriptor in descriptors:
            path = f"{home}/fd/{descriptor}"
            try:
                if os.readlink(path) in links:  # noqa: PTH115
                    return path
            except OSError:
                continue
        return None

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


def _links(sockets: frozenset[tuple[int, int]]) -> frozenset[str]:
    """What a descriptor of one of these sockets links to."""
    return frozenset(f"socket:[{inode}]" for inode, _ in sockets)
