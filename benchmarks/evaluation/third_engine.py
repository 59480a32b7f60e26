"""A VictoriaMetrics on loopback that holds a fleet of the third generator, and the frame that is read from it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.rules.catalog.loader import Catalog

PROGRAM = "victoria-metrics"
START_SECONDS = 60.0
BATCH_BYTES = 8_000_000


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


@contextmanager
def victoria(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """The address of an engine whose data lie in `folder`, with `lines` of its import API in it.

    Raises OSError where it does not start.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    url = f"http://{address}"
    command = [
        PROGRAM, f"-storageDataPath={folder / 'data'}", f"-httpListenAddr={address}", "-retentionPeriod=100y",
        "-loggerLevel=ERROR", "-search.latencyOffset=0s", "-memory.allowedPercent=20",
    ]  # fmt: skip
    with (folder / "engine.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(f"{url}/health", process)
            _fill(url, lines)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def frame_of(url: str, catalog: Catalog, start: float, end: float) -> Frame:
    """The frame as `skuwise advise --prometheus` reads it."""
    server = PrometheusServer(url, cached=False)
    return server.read(catalog, since=end - start, until=end, now=end)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _fill(url: str, lines: Iterable[str]) -> None:
    batch: list[str] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size > BATCH_BYTES:
            _post(f"{url}/api/v1/import", "".join(batch))
            batch, size = [], 0
    _post(f"{url}/api/v1/import", "".join(batch))
    _post(f"{url}/internal/force_flush", "")


def _post(url: str, body: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST"), timeout=300) as answer:
        answer.read()
