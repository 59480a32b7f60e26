"""A VictoriaMetrics on loopback that holds a generated fleet, and the frame that is read from it."""

import shutil
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import JobTable, PrometheusServer
from skuwise.rules.catalog.loader import Catalog
from skuwise.tests.support.prometheus_engines import free_port, running

PROGRAM = "victoria-metrics"
BATCH_BYTES = 8_000_000


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


@contextmanager
def victoria(folder: Path, lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The address and process id of an engine whose data lie in `folder`, with `lines` of its import API in it."""
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    command = [
        PROGRAM, f"-storageDataPath={folder / 'data'}", f"-httpListenAddr={address}", "-retentionPeriod=100y",
        "-loggerLevel=ERROR", "-search.latencyOffset=0s", "-memory.allowedPercent=20",
    ]  # fmt: skip
    with running(command, f"{url}/health", folder) as engine:
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
        yield url, engine.pid


def frame_of(
    url: str, catalog: Catalog, start: float, end: float, matches: tuple[str, ...] = (), queue: Path | None = None
) -> Frame:
    """The frame as `skuwise advise --prometheus` reads it. `matches`, `queue`: as of `--match` and `--queue`."""
    server = PrometheusServer(url, matches, cached=False, jobs=JobTable(queue=queue))
    return server.read(catalog, since=end - start, until=end, now=end)


def _post(url: str, body: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST"), timeout=300) as answer:
        answer.read()
