"""Answers of a Prometheus server, from the bytes of a body to labels and numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..documents import by_json
from ..target import BrokenPromiseError, Prepared, Seed, Target
from ..verdict import finite

START, STEP, COUNT = 1_790_000_000.0, 3600.0, 12


def _labels(number: int) -> dict[str, str]:
    return {
        "__name__": "DCGM_FI_PROF_SM_ACTIVE", "Hostname": f"gpu-{number}", "UUID": f"GPU-{number}", "gpu": "0",
        "modelName": "NVIDIA H100 80GB HBM3", "exported_pod": 'a "pod"', "exported_namespace": "n",
        "instance": "x:9400",
    }  # fmt: skip


def seeds() -> list[Seed]:
    values = [[START + n * STEP, str(0.25 * n)] for n in range(COUNT)]
    matrix = [{"metric": _labels(n), "values": values[n:]} for n in range(4)]
    vector = [{"metric": _labels(n), "value": [START, "NaN" if n == 2 else f"{n}.5"]} for n in range(4)]

    def answer(kind: str, result: object, **more: object) -> bytes:
        return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()

    return [
        Seed("matrix", answer("matrix", matrix)), Seed("matrix", answer("matrix", [])),
        Seed("vector", answer("vector", vector, warnings=["a replica is missing"], isPartial=True)),
        Seed("vector", answer("scalar", [START, "42"])),
        Seed("names", json.dumps({"status": "success", "data": ["up", "DCGM_FI_DEV_GPU_UTIL"]}).encode()),
        Seed("config", json.dumps({"status": "success", "data": {"yaml": _CONFIG}}).encode()),
    ]  # fmt: skip


_CONFIG = "global:\n  scrape_interval: 1m\n  external_labels:\n    cluster: c1\n    replica: a\nscrape_configs: []\n"


def _prepare(folder: Path) -> Prepared:  # noqa: ARG001 - a Target's
    import numpy as np
    from skuwise.advisor.telemetry.prometheus.client import client, connection
    from skuwise.advisor.telemetry.prometheus.client.response import Grid, ServerAnswer
    from skuwise.advisor.telemetry.prometheus.rows import identity
    from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings

    grid = Grid(START, START + (COUNT - 1) * STEP, STEP)

    class Handed(connection.LimitedSession):
        """A session whose server is at hand: what is sent comes back as `body`."""

        body, status = b"", 200

        @contextmanager
        def _answered(self, method: str, url: str, asked: object) -> Iterator[connection._Reply]:  # noqa: ARG002
            yield connection._Reply(Handed.status, bytearray(Handed.body), 0.0)

    handed = client.Client("http://127.0.0.1:9", PrometheusSettings(), {}, session=Handed, sleep=lambda _: None)

    def read(name: str, data: bytes) -> object:
        Handed.body = data
        if name == "names":
            return handed.names("up", 0.0, 1.0)
        if name == "config":
            labels = identity.external_labels(handed)
            finite(labels, "external labels")
            return labels
        Handed.status = 503 if data[-9:-8] == b"r" else 200
        told: ServerAnswer = handed.instant("up", START) if name == "vector" else handed.range("up", grid)
        if np.isinf(told.answer.values).any():
            raise BrokenPromiseError("a value is infinite")
        finite([dict(labels) for labels in told.answer.labels], "labels")
        finite(told.notes, "notes")
        return told

    words = (
        b'"NaN"',
        b'"+Inf"',
        b'"metric":',
        b'"values":',
        b"[],",
        b"{},",
        b'"resultType":"vector"',
        b"1e999",
        b'"status":"error","error":"query processing would load too many samples",',
        b'"data":{"yaml":',
    )
    return Prepared(seeds(), read, by_json(*words))


ANSWERS = Target("answers", "answers of Prometheus' query API (advisor/telemetry/prometheus)", _prepare)
