"""A real Alertmanager on loopback: Debian's prometheus-alertmanager."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .prometheus_engines import free_port, needed, running


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """The address of an Alertmanager that notifies nobody."""
    needed("prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "alertmanager.yml"
    settings.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus-alertmanager", f"--config.file={settings}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}", "--cluster.listen-address=", "--log.level=error",
    ]  # fmt: skip
    with running(command, f"http://{address}/-/ready", folder):
        yield f"http://{address}"


def alerts(url: str) -> list[dict[str, Any]]:
    """The alerts that it has and that have not ended."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:
        return json.load(answer)
