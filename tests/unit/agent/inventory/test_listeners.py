"""Who listens on a port: by the socket it holds, or by its own arguments; never by guess."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from skuwise.agent.inventory.processes.listening_sockets import Listeners
from skuwise.tests.support.sysfs_trees import put

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def table(root: Path, *rows: tuple[int, str, int, int]) -> None:
    """``net/tcp`` with (port, state, uid, inode) rows."""
    lines = [
        f"   {i}: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5d} 0 {inode} 1"
        for i, (port, state, uid, inode) in enumerate(rows)
    ]
    put(root / "net/tcp", (HEAD + "\n".join(lines)))


def process(root: Path, pid: int, *, inode: int | None = None, argv: tuple[str, ...] = ("python",)) -> None:
    put(root / str(pid) / "cmdline", "\0".join(argv).encode() + b"\0")
    (root / str(pid) / "fd").mkdir()
    (root / str(pid) / "fd/3").symlink_to(f"socket:[{inode}]" if inode else "/dev/null")


UID = os.getuid()


def test_the_holder_of_the_listening_socket(tmp_path: Path) -> None:
    table(tmp_path, (8000, "0A", UID, 111), (8000, "01", UID, 222), (8001, "0A", UID, 333))
    process(tmp_path, 10, inode=111)
    process(tmp_path, 11, inode=222)
    process(tmp_path, 12, inode=333, argv=("vllm", "serve", "--port", "8000"))
    assert Listeners(tmp_path).pids(8000, 0.0) == frozenset({10})


@pytest.mark.parametrize("argv", [("vllm", "serve", "m", "--port", "8000"), ("sglang", "--port=8000")])
def test_where_sockets_are_hidden_the_arguments_tell(tmp_path: Path, argv: tuple[str, ...]) -> None:
    table(tmp_path, (8000, "0A", UID, 111))
    process(tmp_path, 10, argv=argv)
    process(tmp_path, 11, argv=("vllm", "serve", "m", "--port", "80001"))
    process(tmp_path, 12, argv=("echo", "8000", "--port"))
    assert Listeners(tmp_path).pids(8000, 0.0) == frozenset({10})
