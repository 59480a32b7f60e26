"""Whose work it is, on simulated fleets: replicas and gangs of Kubernetes clusters, and jobs that no label names.

    python -m skuwise.benchmarks.evaluation.whose kubernetes [--seeds 0-19] [--engine victoria-metrics] [--failures 20]
    python -m skuwise.benchmarks.evaluation.whose scrapes
        [--seeds 0-9]   machines without labels, through a server, 60 s apart
    python -m skuwise.benchmarks.evaluation.whose databases
        [--seeds 0-4]   the same second by second, through the agent's databases (8
                                                           nodes and 12 hours: each second of each GPU is written)
    python -m skuwise.benchmarks.evaluation.whose gangs
        [--seeds 0-19]  the same without a source: seconds, minutes, scrapes

Prints the figures by seed, their sums, and by kind of scene what was found and what stood in its place. The targets:
99 % of the Deployments are one series, 99 % of the gangs one workload; without labels 95 % of the busy GPU-hours belong
to a workload, and F1 of the jobs is 0.90.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import Databases, PrometheusServer
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.fleets import series
from skuwise.tests.fleets.clusters import cluster
from skuwise.tests.fleets.database import write_databases
from skuwise.tests.fleets.devices import How, device_series
from skuwise.tests.fleets.owned import pod_truths
from skuwise.tests.fleets.unlabelled import bare_fleet, live, scraped, truths
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.gang_fixtures import Detected, Score, score_frame, score_spans, table
from skuwise.tests.support.owner_cases import Case, cases, tally, twice
from skuwise.tests.support.prometheus_engines import prometheus, victoria

ENGINES = {"victoria-metrics": victoria, "prometheus": prometheus}
# Who works where needs no clocks and no links: the rest of the series is left out.
NEEDED = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "kube_",
    "node_uname_info", "node_dmi_info",
)  # fmt: skip


def read(engine: str, found: Iterable[Series], start: float, end: float) -> Frame:
    """The frame that the product reads from a server that holds `found`."""
    with tempfile.TemporaryDirectory() as folder, ENGINES[engine](Path(folder), found) as url:
        server = PrometheusServer(url, environ={}, cached=False)
        return server.read(load_catalog(), since=end - start, until=end, now=end + 60)


def kubernetes(seeds: Sequence[int], engine: str, failures: int) -> None:
    every: list[Case] = []
    for seed in seeds:
        began, fleet = time.monotonic(), cluster(seed)
        found = [one for one in series(fleet, np.random.default_rng(seed)) if one.name.startswith(NEEDED)]
        frame = read(engine, found, fleet.start, fleet.end)
        mine = cases(pod_truths(fleet), frame)
        every += mine
        both = 100 * twice(pod_truths(fleet), frame)
        print(f"seed {seed}: {_share(mine, 'series:')} series, {_share(mine, 'gang:')} gangs; two at once {both:.2f} % "
              f"of the time; {fleet.kube}; {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    print(tally(every).to_string(float_format="{:.3f}".format))
    print(f"one series: Deployments {_share(every, 'series:Deployment')}, all controllers {_share(every, 'series:')}")
    print(f"one workload: gangs {_share(every, 'gang:')}; replicas apart {_share(every, 'apart:')}; "
          f"shared GPUs {_share(every, 'shared')}")  # fmt: skip
    for case in [case for case in every if not case.right][:failures]:
        print(f"    {case.kind} {case.name}: {case.why}")


def _share(found: Sequence[Case], kind: str) -> str:
    some = [case.right for case in found if case.kind.startswith(kind)]
    return f"{sum(some)} of {len(some)} ({100 * sum(some) / max(len(some), 1):.1f} %)"


def scrapes(seeds: Sequence[int], engine: str, nodes: int, hours: float, interval: int) -> None:
    total = Score()
    for seed in seeds:
        began, fleet = time.monotonic(), bare_fleet(seed, nodes, hours)
        lived = live(fleet)
        frame = read(engine, scraped(fleet, lived, interval), fleet.start, fleet.end)
        mine = score_frame(fleet, lived, truths(fleet), frame)
        total += mine
        _say(f"seed {seed}", mine, began)
    _sum(f"a server, scraped every {interval} s", total)


def databases(seeds: Sequence[int], nodes: int, hours: float, samples_hours: float) -> None:
    total = Score()
    for seed in seeds:
        began, fleet = time.monotonic(), bare_fleet(seed, nodes, hours)
        lived = live(fleet)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_databases(fleet, lived, folder, samples_seconds=samples_hours * 3600)
            source = Databases((folder,))
            frame = source.read(load_catalog(), since=fleet.seconds, until=fleet.end, now=fleet.end)
        mine = score_frame(fleet, lived, truths(fleet), frame)
        total += mine
        _say(f"seed {seed}", mine, began)
    _sum("the agent's databases, 1 s", total)


def gangs(seeds: Sequence[int], ways: Sequence[How], nodes: int, hours: float) -> None:
    from skuwise.advisor.telemetry.activity import find_gangs

    for way in ways:
        total = Score()
        for seed in seeds:
            began, fleet = time.monotonic(), bare_fleet(seed, nodes, hours)
            lived = live(fleet)
            told = find_gangs(device_series(fleet, lived, way))
            detected = [Detected(frozenset(one.gpus), one.start, one.end) for one in told]
            mine = score_spans(fleet, lived, truths(fleet), detected)
            total += mine
            _say(f"{way}, seed {seed}", mine, began)
        _sum(f"{way}, without a source", total)


def _say(what: str, one: Score, began: float) -> None:
    print(f"{what}: {one.asked['all']} jobs, F1 {one.f1:.3f} (recall {one.recall:.3f}, precision {one.precision:.3f}), "
          f"busy GPU-hours covered {one.coverage:.3f}; {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip


def _sum(what: str, total: Score) -> None:
    print(f"{what}: gang F1 {total.f1:.3f} (target 0.90), recall {total.recall:.3f}, precision {total.precision:.3f}; "
          f"busy GPU-hours that belong to a workload {100 * total.coverage:.1f} % (target 95 %)")  # fmt: skip
    print(table(total).to_string(float_format="{:.3f}".format), flush=True)


def numbers(text: str) -> list[int]:
    """Seeds as in "0-4,9"."""
    ends = (part.partition("-") for part in text.split(","))
    return [n for first, _, last in ends for n in range(int(first), int(last or first) + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kubernetes", "scrapes", "databases", "gangs"))
    parser.add_argument("--seeds", type=numbers, default=None)
    parser.add_argument("--engine", choices=tuple(ENGINES), default="victoria-metrics")
    parser.add_argument("--ways", nargs="+", choices=("seconds", "minutes", "scrapes"),
                        default=["seconds", "minutes", "scrapes"])  # fmt: skip
    parser.add_argument("--nodes", type=int, help="nodes of a fleet without labels (default: 12; databases: 8)")
    parser.add_argument("--hours", type=float, help="its length (default: 24; databases: 12)")
    parser.add_argument(
        "--samples-hours", type=float, default=48, help="how long the agent keeps seconds (default: 48)"
    )
    parser.add_argument("--interval", type=int, default=60, help="seconds between two scrapes (default: 60)")
    parser.add_argument("--failures", type=int, default=20, help="how many failed cases to print")
    options = parser.parse_args()
    small = options.what == "databases"
    nodes, hours = options.nodes or (8 if small else 12), options.hours or (12 if small else 24)
    if options.what == "kubernetes":
        kubernetes(options.seeds or range(20), options.engine, options.failures)
    elif options.what == "scrapes":
        scrapes(options.seeds or range(10), options.engine, nodes, hours, options.interval)
    elif options.what == "databases":
        databases(options.seeds or range(5), nodes, hours, options.samples_hours)
    else:
        gangs(options.seeds or range(20), options.ways, nodes, hours)


if __name__ == "__main__":
    main()
