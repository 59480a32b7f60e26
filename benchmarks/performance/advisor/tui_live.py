"""What looking on costs: `skuwise tui` with a node of eight GPUs on the screen, live, while another process writes.

Usage: python -m skuwise.benchmarks.performance.advisor.tui_live [SECONDS]. The program runs on a terminal of its own
(120 x 40), which is read all the time; its CPU is taken from /proc between two moments in which the node is shown.
Beside it stands how long the writer's commits took, with somebody looking on and without.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from multiprocessing.connection import Connection
from pathlib import Path

from ..agent.storage import begin, ticks

WARM_SECONDS, HISTORY_SECONDS, PATIENCE_SECONDS = 5.0, 1800, 120.0
SIZE = (40, 120)


def write(path: Path, pipe: Connection) -> None:
    """A second's samples each second, committed ten at once, until `pipe` says stop; tells how long commits took."""
    writer, node = begin(path)
    now = time.time()
    node.put_ticks(ticks(now - HISTORY_SECONDS, HISTORY_SECONDS, 1.0))
    writer.commit()
    pipe.send(None)
    due, taken = now + 1, []
    while not pipe.poll(max(due - time.time(), 0.0)):
        began = time.perf_counter()
        node.add_tick(next(ticks(due, 1, 1.0, seed=round(due))))
        if writer.waiting_ticks == 0:  # the others were only held
            taken.append(time.perf_counter() - began)
        due += 1
    writer.close()
    pipe.send(taken)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look_on(path: Path, seconds: float) -> float:
    """Share of a core that the program takes with the node on the screen."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "skuwise", "tui", "--db", str(path), "--no-ledger"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    try:
        _until(terminal, b"wasted")
        os.write(terminal, b"2")
        _until(terminal, b"mean over")
        os.write(terminal, b"\r")
        _until(terminal, b"live, every")
        _read(terminal, WARM_SECONDS)
        began, before = time.perf_counter(), cpu_seconds(child)
        _read(terminal, seconds)
        return (cpu_seconds(child) - before) / (time.perf_counter() - began)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def _until(terminal: int, text: bytes) -> None:
    told, end = b"", time.perf_counter() + PATIENCE_SECONDS
    while text not in told:
        if time.perf_counter() > end:
            raise SystemExit(f"{text.decode()!r} never came: {told[-2000:]!r}")
        told += _read(terminal, 0.2)


def _read(terminal: int, seconds: float) -> bytes:
    told, end = b"", time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        if select.select([terminal], [], [], left)[0]:
            told += os.read(terminal, 1 << 16)
    return told


def measured(folder: Path, seconds: float, *, watched: bool) -> list[float]:
    path = folder / f"node-{watched}.db"
    here, there = multiprocessing.Pipe()
    writer = multiprocessing.Process(target=write, args=(path, there))
    writer.start()
    here.recv()
    if watched:
        share = look_on(path, seconds)
        print(f"live view of 8 GPUs, 8 HCAs and the host, each second: {share * 100:.1f} % of a core; limit 5")
    else:
        time.sleep(seconds)
    here.send(None)
    commits = here.recv()
    writer.join()
    return commits


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        for watched in (True, False):
            taken = measured(Path(folder), seconds, watched=watched)
            told = f"{statistics.median(taken) * 1e3:.1f} ms ({max(taken) * 1e3:.1f} at most)"
            print(
                f"a commit of ten seconds{' with somebody looking on' if watched else ''}: {told}, {len(taken)} of them"
            )


if __name__ == "__main__":
    main()
