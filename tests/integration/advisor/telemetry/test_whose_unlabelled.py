"""Work on machines without any label: nearly all busy GPU-hours belong to a workload, and jobs are found with the right
set of GPUs, from a server that is scraped every minute and from our agent's databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.source import Databases, PrometheusServer
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.fleets.database import write_databases
from skuwise.tests.fleets.devices import How, device_series
from skuwise.tests.fleets.unlabelled import BareFleet, JobTruth, Lived, bare_fleet, live, scraped, truths
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.gang_fixtures import Detected, Score, of_frame, score_frame, score_spans
from skuwise.tests.support.prometheus_engines import victoria

pytestmark = pytest.mark.slow
SEEDS = (201, 202, 203)


@cache
def made(seed: int, nodes: int = 8, hours: float = 16) -> tuple[BareFleet, Lived, tuple[JobTruth, ...]]:
    fleet = bare_fleet(seed, nodes, hours)
    return fleet, live(fleet), truths(fleet)


def read(fleet: BareFleet, lived: Lived, folder: Path) -> Frame:
    return read_series(fleet, scraped(fleet, lived), folder)


def read_series(fleet: BareFleet, found: Iterable[Series], folder: Path) -> Frame:
    with victoria(folder, found) as url:
        server = PrometheusServer(url, environ={}, cached=False)
        return server.read(load_catalog(), since=fleet.seconds, until=fleet.end, now=fleet.end + 60)


def test_jobs_are_found_through_a_server(tmp_path: Path) -> None:
    total = Score()
    for seed in SEEDS:
        fleet, lived, known = made(seed)
        frame = read(fleet, lived, tmp_path / str(seed))
        total += score_frame(fleet, lived, known, frame)
        assert set(frame.uses["basis"]) == {"activity"}
        assert set(frame.uses["workload_id"]) == set(frame.workloads["workload_id"])
        assert frame.workloads[["user", "account", "namespace", "job_id"]].isna().all(axis=None)
    assert total.coverage >= 0.95
    assert total.f1 >= 0.9


def test_jobs_are_found_in_databases(tmp_path: Path) -> None:
    total = Score()
    for seed in (204, 206):
        fleet, lived, known = made(seed, nodes=5, hours=8)
        write_databases(fleet, lived, tmp_path / str(seed), samples_seconds=fleet.seconds)
        source = Databases((tmp_path / str(seed),))
        frame = source.read(load_catalog(), since=fleet.seconds, until=fleet.end, now=fleet.end)
        total += score_frame(fleet, lived, known, frame)
    assert total.coverage >= 0.95
    assert total.f1 >= 0.85  # some fifty jobs


@pytest.mark.parametrize("how", ["seconds", "minutes", "scrapes"])
def test_gangs_are_found_in_series(how: How) -> None:
    from skuwise.advisor.telemetry.activity import find_gangs

    total = Score()
    for seed in SEEDS:
        fleet, lived, known = made(seed)
        found = find_gangs(device_series(fleet, lived, how))
        total += score_spans(fleet, lived, known, [Detected(frozenset(one.gpus), one.start, one.end) for one in found])
    assert total.coverage >= 0.95
    assert total.f1 >= 0.9


def test_machines_that_rest_have_no_workloads(tmp_path: Path) -> None:
    fleet, _, _ = made(205)
    fleet = replace(fleet, jobs=())
    lived = live(fleet)
    frame = read(fleet, lived, tmp_path)
    assert frame.uses.empty and frame.workloads.empty


@pytest.mark.parametrize("lacking", ["DCGM_FI_PROF_", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_"])
def test_with_fewer_metrics_what_works_still_belongs_to_somebody(lacking: str, tmp_path: Path) -> None:
    fleet, lived, known = made(202)
    found = [one for one in scraped(fleet, lived) if not one.name.startswith(lacking)]
    told = score_frame(fleet, lived, known, read_series(fleet, found, tmp_path))
    assert told.coverage >= 0.95
    # Memory tells best when a process comes and goes: without it ends are guesses.
    assert told.f1 >= (0.3 if "FB" in lacking else 0.5)


@pytest.mark.parametrize("interval", [15, 30, 120])
def test_other_intervals_of_scraping(interval: int, tmp_path: Path) -> None:
    fleet, lived, known = made(203)
    told = score_frame(fleet, lived, known, read_series(fleet, scraped(fleet, lived, interval), tmp_path))
    assert told.coverage >= 0.95
    # One fleet of some fifty jobs: the targets are asked of several together.
    assert told.f1 >= (0.8 if interval < 60 else 0.65)


def test_no_gpu_is_in_two_workloads_at_once(tmp_path: Path) -> None:
    fleet, lived, _ = made(205)
    frame = read(fleet, lived, tmp_path)
    assert len(of_frame(frame)) > 10
    for _, rows in frame.uses.groupby("gpu_uuid"):
        spans = sorted(zip(rows["ts_start"], rows["ts_end"], strict=True))
        assert all(after[0] >= before[1] - 60 for before, after in itertools.pairwise(spans))
