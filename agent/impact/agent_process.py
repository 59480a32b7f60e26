"""A real agent in a process of its own, and what it costs itself while the work runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ...rules.base.errors import SkuwiseError, SourceError
from ..base.self_command import child_command
from ..service.runtime.control import ask

_START_SECONDS, _STOP_SECONDS = 60.0, 30.0
_ASK_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Mode:
    """How the work is watched. `settings` are ``SKUWISE_*`` variables; None: no agent runs."""

    name: str
    settings: Mapping[str, str] | None
    meaning: str


OFF = Mode("off", None, "no agent")
# A burst each 10 s is as often as the settings allow; by default it is each 300 s.
MODES = (
    OFF,
    Mode("1 Hz", {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "0"}, "one reading a second, no bursts"),
    Mode(
        "burst",
        {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "10s", "SKUWISE_BURST_SECONDS": "5s"},
        "one reading a second, and 10 Hz for 5 s in each 10 s",
    ),
)


@dataclass(frozen=True, slots=True)
class AgentCost:
    """What an agent cost itself. `cpu_share`: CPU time over wall time, its children included; 1 is one core."""

    cpu_share: float
    rss_bytes: int


class RunningAgent:
    """An agent that runs. `gpus`: how many it reads."""

    def __init__(self, process: psutil.Process, gpus: int) -> None:
        self._process = process
        self.gpus = gpus

    def cpu_seconds(self) -> float:
        """CPU time of the agent and its children so far."""
        try:
            spent = _cpu(self._process)
            for child in self._process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    spent += _cpu(child)
        except psutil.Error as error:
            raise SourceError("The agent ended while it was measured.", "Run it alone: skuwise agent run.") from error
        return spent

    def rss_bytes(self) -> int:
        return self._process.memory_info().rss


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:4])  # user and system, of its own and of children that ended


@contextlib.contextmanager
def started_agent(
    settings: Mapping[str, str],
    arguments: Sequence[str],
    environ: Mapping[str, str],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[RunningAgent]:
    """`skuwise agent run` on a database of its own, from when it samples until the block ends.

    `arguments` are further flags of `agent run`. Raises SourceError where it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="skuwise-impact-") as name:
        folder = Path(name)
        socket, log = folder / "agent.sock", folder / "agent.log"
        own = ("--db", str(folder / "node.db"), "--socket", str(socket), "--listen", "")
        command = (*child_command("skuwise"), "agent", "run", *own, *arguments)
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env={**environ, **settings},
                start_new_session=True,  # an interrupt is for us; we end it
            )
        try:
            yield _once_it_answers(process, socket, log, sleep)
        finally:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _once_it_answers(
    process: subprocess.Popen[bytes], socket: Path, log: Path, sleep: Callable[[float], None]
) -> RunningAgent:
    for _ in range(int(_START_SECONDS / _ASK_EVERY_SECONDS)):
        if process.poll() is not None:
            break
        try:
            gpus = ask(socket, {"command": "status"}).get("gpus")
        except SkuwiseError:
            sleep(_ASK_EVERY_SECONDS)  # it is not there yet
            continue
        return RunningAgent(psutil.Process(process.pid), gpus if isinstance(gpus, int) else 0)
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
    raise SourceError(f"The agent to be measured did not start: {said[-1][:300]}", "Try: skuwise agent run.")


def running_agent(socket: Path) -> int | None:
    """The PID of an agent that runs here already; None: none answers there."""
    if not os.path.exists(socket):  # noqa: PTH110 - a folder that may not be entered is no error here
        return None
    try:
        pid = ask(socket, {"command": "status"}).get("pid")
    except SkuwiseError:
        return None
    return pid if isinstance(pid, int) else None
