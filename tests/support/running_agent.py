"""An agent that runs on a stub of the driver, as a test of it sees it from outside."""

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from skuwise.tests.nvmlstub import StubClock, stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

GPUS = "[gpu 0-1]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0.5\n"


class RunningAgent:
    """`supervised`: with a socket of systemd's, `manager`. `stepped`: the stub's time is `clock`."""

    def __init__(
        self, folder: Path, scenario: str = GPUS, *arguments: str, db: Path | None = None, supervised: bool = False,
        stepped: bool = False, nics: bool = True,
    ) -> None:  # fmt: skip
        self.folder, self.db, self.socket = folder, db or folder / "node.db", folder / "agent.sock"
        if nics and not (folder / "sys").exists():
            dgx_like(folder / "sys")
        (folder / "sys/block").mkdir(parents=True, exist_ok=True)
        self.env = stub_env(folder, scenario, stepped=stepped)
        self.clock = StubClock(folder / "nvml.clock")
        self.config = folder / "skuwise.toml"
        self.config.touch()
        self.manager: socket.socket | None = None
        if supervised:
            self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.manager.bind(str(folder / "notify"))
            self.manager.settimeout(60)
            self.env |= {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "2000000"}
        command = [sys.executable, "-m", "skuwise", "agent", "run", "--config", str(self.config), "--db", str(self.db)]
        command += ["--socket", str(self.socket), "--interval", "0.2s", "--path.sysfs", str(folder / "sys"), *arguments]
        self.process = subprocess.Popen(command, env=self.env, cwd=folder, stderr=subprocess.PIPE, text=True)

    def said(self, words: str) -> str:
        """The line of stderr that has `words`, once it comes."""
        assert self.process.stderr is not None
        heard = []
        for line in self.process.stderr:
            if words in line:
                return line
            heard.append(line)
        raise AssertionError(f"it ended without saying {words!r}: {heard}")

    def told(self, words: str) -> list[str]:
        """What systemd heard, up to the datagram that has `words`."""
        assert self.manager is not None
        heard: list[str] = []
        while not heard or words not in heard[-1]:
            heard.append(self.manager.recv(4096).decode())
        return heard

    def ask(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "skuwise", "agent", *words, "--socket", str(self.socket)]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=check, timeout=60
        )

    def status(self) -> dict[str, object]:
        return json.loads(self.ask("status", "--format", "json").stdout)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """None where the database is not there yet."""
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=60)) as connection:
                return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        if self.process.stderr is not None:
            self.process.stderr.close()
        if self.manager is not None:
            self.manager.close()
            (self.folder / "notify").unlink(missing_ok=True)


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.1)
