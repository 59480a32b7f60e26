"""How long advice on a fleet takes from a server that scraped dcgm-exporter and node_exporter only, and what it asks.

Fills a VictoriaMetrics on loopback with nodes of eight GPUs at one sample a minute, runs ``skuwise advise`` on it and
prints wall time (the engine runs on the same cores), CPU time of both, which a busy machine does not blur, the memory
of the advisor's process, and queries.

    python -m skuwise.benchmarks.performance.advisor.prometheus_fleet --nodes 25 50 --days 7
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from ...engine import victoria

GPUS, PORTS, EVERY = 8, 8, 60.0
# name -> (level, amplitude of the day's wave): a service that decodes.
GAUGES = {
    "DCGM_FI_DEV_GPU_UTIL": (92, 4), "DCGM_FI_DEV_FB_USED": (73e3, 0), "DCGM_FI_DEV_FB_FREE": (8e3, 0),
    "DCGM_FI_DEV_POWER_USAGE": (280, 40), "DCGM_FI_DEV_SM_CLOCK": (1980, 0), "DCGM_FI_DEV_MEM_CLOCK": (2619, 0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.92, 0.04), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0.05, 0.02),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0.6, 0.1), "DCGM_FI_PROF_PCIE_TX_BYTES": (5e6, 1e6),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (5e6, 1e6),
}  # fmt: skip
VARIANTS = 16


def series_of(nodes: int) -> Iterator[tuple[dict[str, str], str, int]]:
    """Labels of every series, the name of its values, and which variant of them."""
    for n in range(nodes):
        for gpu in range(GPUS):
            labels = {
                "gpu": str(gpu), "UUID": f"GPU-{n:04}-{gpu}", "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": f"gpu-{n:04}", "instance": f"gpu-{n:04}:9400", "job": "dcgm",
                "exported_pod": f"decode-6d4cf56db6-{n:04}x".replace("0", "b").replace("1", "c"),
                "exported_namespace": f"team-{n % 10}", "exported_container": "main",
            }  # fmt: skip
            for name in GAUGES:
                yield {"__name__": name, **labels}, name, (n * GPUS + gpu) % VARIANTS
        host = {"instance": f"gpu-{n:04}:9100", "job": "node"}
        yield {"__name__": "node_uname_info", **host, "nodename": f"gpu-{n:04}"}, "one", 0
        for port in range(PORTS):
            port_labels = {**host, "device": f"mlx5_{port}", "port": "1"}
            yield {"__name__": "node_infiniband_rate_bytes_per_second", **port_labels}, "rate", 0
            for direction in ("transmitted", "received"):
                yield {"__name__": f"node_infiniband_port_data_{direction}_bytes_total", **port_labels}, "octets", 0


def values_of(ts: np.ndarray) -> dict[str, list[np.ndarray]]:
    """The values of each name in each variant."""
    rng = np.random.default_rng(1)
    wave = np.sin(2 * np.pi * ts / 86400)
    out = {
        name: [np.round(level + swing * (wave + 0.2 * rng.standard_normal(len(ts))), 4) for _ in range(VARIANTS)]
        for name, (level, swing) in GAUGES.items()
    }
    # Keep-alives alone: a silent fabric.
    return out | {"one": [np.ones(len(ts))], "rate": [np.full(len(ts), 5e10)], "octets": [np.arange(len(ts)) * 4e3]}


def lines_of(nodes: int, ts: np.ndarray) -> Iterator[str]:
    """Lines of VictoriaMetrics' import API."""
    stamps = json.dumps((ts * 1000).astype(int).tolist())
    texts = {name: [json.dumps(v.tolist()) for v in variants] for name, variants in values_of(ts).items()}
    for labels, name, variant in series_of(nodes):
        yield f'{{"metric":{json.dumps(labels)},"values":{texts[name][variant]},"timestamps":{stamps}}}\n'


def measure(url: str, days: float) -> tuple[float, float, float, dict[str, object]]:
    """Wall and CPU seconds and peak memory (MB) of one run, and what it says of its source."""
    command = [sys.executable, "-m", "skuwise", "advise", "--prometheus", url, "--since", f"{days:g}d", "--format",
               "json", "--no-ledger"]  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, env={**os.environ, "SKUWISE_PROMETHEUS_CACHE": ""})
        _, status, usage = os.wait4(child.pid, 0)  # of this child alone: the engines are children too
        seconds = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, "advise failed"
        out.seek(0)
        advice = json.load(out)
    peak = usage.ru_maxrss / 1024
    assert any(finding["rule"] == "idle-fabric" for finding in advice["findings"]), "the founding case was not found"
    return seconds, usage.ru_utime + usage.ru_stime, peak, advice["source"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[25, 50, 100])
    parser.add_argument("--days", type=float, nargs="+", default=[7])
    options = parser.parse_args()
    print("nodes  days  samples filled s   advise s   its CPU s   engine CPU s  peak MB   queries")
    for nodes, days in itertools.product(options.nodes, options.days):
        end = time.time() // 3600 * 3600
        ts = np.arange(end - days * 86400 + EVERY, end + EVERY, EVERY)
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            with victoria(Path(folder), lines_of(nodes, ts)) as (url, pid):
                process = psutil.Process(pid)
                filled = time.monotonic() - began
                before = sum(process.cpu_times()[:2])
                seconds, own_seconds, peak, source = measure(url, days)
                engines = sum(process.cpu_times()[:2]) - before
        samples = len(ts) * sum(1 for _ in series_of(nodes))
        print(
            f"{nodes:5} {days:5g} {samples / 1e6:8.1f}M {filled:8.0f} {seconds:10.1f} {own_seconds:11.1f} "
            f"{engines:14.1f} {peak:9.0f} {source['queries']:9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
