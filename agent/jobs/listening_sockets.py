"""Which processes listen on a TCP port of this node: those that hold the listening socket, else, where another user's
are hidden, those of the socket's user whose arguments say ``--port N``."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from .cgroups import read_ascii
from .processes import read_start_ticks

_LISTEN = "0A"  # include/net/tcp_states.h
_PORT_FLAGS = ("--port", "--http-port", "--metrics-port", "-p")
_AGAIN_SECONDS = 60.0


class Listeners:
    """Finds listeners, and remembers them for a minute as long as they live. Not for several threads."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        # Port -> PIDs with their starts, and when they were searched for (monotonic seconds).
        self._known: dict[int, tuple[dict[int, int | None], float]] = {}

    def pids(self, port: int, monotonic_seconds: float) -> frozenset[int]:
        """Who listens on `port`; empty where nobody can be seen to. A new search takes a while: not for a tick."""
        found, searched_at = self._known.get(port, ({}, float("-inf")))
        alive = all(read_start_ticks(self._procfs, pid) == start for pid, start in found.items())
        if not alive or monotonic_seconds - searched_at >= _AGAIN_SECONDS:
            found = {pid: read_start_ticks(self._procfs, pid) for pid in self._search(port)}
            self._known[port] = (found, monotonic_seconds)
        return frozenset(found)

    def _search(self, port: int) -> list[int]:
        links: set[str] = set()
        uids: set[int] = set()
        for table in ("net/tcp", "net/tcp6"):
            for line in read_ascii(self._procfs / table, 1 << 24).splitlines()[1:]:
                fields = line.split()
                if len(fields) >= 10 and fields[3] == _LISTEN and fields[1].endswith(f":{port:04X}"):
                    links.add(f"socket:[{fields[9]}]")
                    uids.add(int(fields[7]) if fields[7].isdecimal() else -1)
        holders: list[int] = []
        named: list[int] = []
        for home in self._procfs.glob("[0-9]*") if links else ():
            try:
                if home.stat().st_uid not in uids:
                    continue
                words = read_ascii(home / "cmdline", 65536).split("\0")
                said = {word for word in words if "=" in word} | {"=".join(two) for two in pairwise(words)}
                if not said.isdisjoint(f"{flag}={port}" for flag in _PORT_FLAGS):
                    named.append(int(home.name))
                if any(_link(path) in links for path in (home / "fd").iterdir()):
                    holders.append(int(home.name))
            except (OSError, ValueError):
                continue
        return holders or named


def _link(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)  # noqa: PTH115 - thousands of these
    except OSError:
        return ""
