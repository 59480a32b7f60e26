"""Real engines on loopback, filled with series: Debian's prometheus and victoria-metrics."""

import itertools
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.range_planner import Cache
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frames
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.server_metrics.prometheus_series import Series, import_lines, openmetrics

_PACKAGES = {
    "promtool": "prometheus", "systemd-analyze": "systemd", "kubectl": "kubernetes-client", "sbatch": "slurm-client",
    "scontrol": "slurm-client", "munged": "munge",
}  # fmt: skip


def needed(*programs: str) -> None:
    """Skip the test where a program is not installed; fail it where ENGINES_REQUIRED says that it must be."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(dict.fromkeys(_PACKAGES.get(program, program) for program in missing))
        what = f"{' and '.join(missing)} not installed (apt-get install {packages})"
        if os.environ.get("ENGINES_REQUIRED"):
            pytest.fail(what)
        pytest.skip(what)


@contextmanager
def prometheus(folder: Path, series: Iterable[Series], *flags: str) -> Iterator[str]:
    """The address of a Prometheus that holds `series`, written as blocks by promtool."""
    needed("prometheus", "promtool")
    folder.mkdir(parents=True, exist_ok=True)
    text, data = folder / "series.txt", folder / "data"
    with text.open("w") as file:
        file.writelines(openmetrics(series))
    # Without the (hidden) flag the whole text is read again for every two hours.
    fill = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics", str(text), str(data)]
    done = subprocess.run(fill, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text.unlink()
    settings = folder / "prometheus.yml"
    settings.write_text("global: {scrape_interval: 1m}\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus", f"--config.file={settings}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=10y", "--log.level=error", *flags,
    ]  # fmt: skip
    with running(command, f"http://{address}/-/ready", folder):
        yield f"http://{address}"


@contextmanager
def victoria(folder: Path, series: Iterable[Series], *flags: str) -> Iterator[str]:
    """The address of a VictoriaMetrics that took `series` through its import API."""
    needed("victoria-metrics")
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    command = [
        "victoria-metrics", f"-storageDataPath={folder / 'vm'}", f"-httpListenAddr={address}", "-retentionPeriod=100y",
        "-loggerLevel=ERROR", "-search.latencyOffset=0s", *flags,
    ]  # fmt: skip
    url = f"http://{address}"
    with running(command, f"{url}/health", folder):
        lines = import_lines(series)
        while batch := "".join(itertools.islice(lines, 500)):
            _post(f"{url}/api/v1/import", batch)
        _post(f"{url}/internal/force_flush", "")
        yield url


ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}


def read_server(url: str, now: float, seconds: float, **settings: object) -> Frame:
    """The last `seconds` before `now` of a server's data."""
    with closing(Client(url, PrometheusSettings(), {})) as client:
        reading = ServerReading(client, Cache(None, ""), (), now, **settings)  # type: ignore[arg-type]
        return next(read_frames(reading, load_catalog(), since_seconds=seconds))


def read_series(
    engine: str, folder: Path, series: Iterable[Series], now: float, seconds: float, **settings: object
) -> Frame:
    """The frame that an engine with these series gives."""
    with ENGINES[engine](folder, series) as url:
        frame = read_server(url, now, seconds, **settings)
    shutil.rmtree(folder, ignore_errors=True)
    return frame


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _post(url: str, body: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST"), timeout=60) as answer:
        answer.read()


@contextmanager
def running(command: list[str], ready: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that answers at `ready`, until the end; its log lies in `folder`."""
    with (folder / "engine.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 30.0
            while True:
                try:
                    with urllib.request.urlopen(ready, timeout=2):
                        break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, (folder / "engine.log").read_text()[-2000:]
                    assert time.monotonic() < deadline, f"{command[0]} did not start"
                    time.sleep(0.1)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
