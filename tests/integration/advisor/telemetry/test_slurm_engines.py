"""Slurm's job table joined to `hpc_job` as real engines hold it, scraped every 60 s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.telemetry.source import JobTable, PrometheusServer
from skuwise.agent.base.slurm_job import SlurmJob
from skuwise.agent.inventory.identity.ids import workload_id
from skuwise.agent.slurm_jobs.table_file import write_job_table
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.server_metrics.exposition import gpu, host, moments
from skuwise.tests.server_metrics.prometheus_series import merged
from skuwise.tests.support.doctor_fleets import diagnosed_frame
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.rulebooks import rulebook

CATALOG = load_catalog()
HOUR = 3600.0
END = 1_790_000_000.0 // HOUR * HOUR
# Two nodes of job 31, one of job 32, one of job 33 that no table knows.
NODES = {"a-01": "31", "a-02": "31", "b-01": "32", "c-01": "33"}


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ts = moments(END - 12 * HOUR, END)
    series = [
        one
        for node, job in NODES.items()
        for one in (*host(node, ts), *gpu(node, f"GPU-{node}", ts, hpc_job=job))
    ]  # fmt: skip
    engine = {"prometheus": prometheus, "victoria-metrics": victoria}[request.param]
    with engine(tmp_path_factory.mktemp("engine"), merged(series)) as url:
        yield url


@pytest.mark.parametrize("days", [0.5, 3.0])
def test_runs_names_owners_and_exact_times_come_from_the_table(server: str, tmp_path: Path, days: float) -> None:
    bare = PrometheusServer(server, cached=False).read(CATALOG, since=days * 86400, until=END, now=END)
    held = bare.uses.groupby("workload_id")["ts_start"].min()
    start = float(held.min())
    end = float(bare.uses["ts_end"].max())
    nodes = {
        job: ",".join(sorted(set(of["node"])))
        for job, of in bare.uses.merge(bare.workloads, on="workload_id").groupby("job_id")
    }
    about: dict[str, Any] = {"user": "ann", "account": "vision", "partition": "gpu", "qos": "high"}
    table = tmp_path / "jobs.txt"
    write_job_table(
        table,
        [
            SlurmJob("31", start, start + 4 * HOUR, name="llm-1", state="REQUEUED", node_list=nodes["31"], **about),
            SlurmJob("31", start + 4 * HOUR + 40, None, name="llm-1", state="RUNNING", node_list=nodes["31"], **about),
            SlurmJob("31", start - 90 * 86400, start - 89 * 86400, name="last-year", state="COMPLETED", **about),
            SlurmJob("32", start, end, name="llm-2", state="COMPLETED", node_list="elsewhere", **about),
        ],
    )
    source = PrometheusServer(server, cached=False, jobs=JobTable(table))
    frame = source.read(CATALOG, since=days * 86400, until=END, now=END)
    told = sorted(judge(frame, rulebook(CATALOG)).workloads, key=lambda one: (one.name, one.start))
    assert [(one.name, one.scheduled.job_id, one.scheduled.state, one.owner.user) for one in told] == [
        ("job 32", "32", None, None), ("job 33", "33", None, None), ("llm-1", "31", "REQUEUED", "ann"),
        ("llm-1", "31", "RUNNING", "ann"),
    ]  # fmt: skip
    first, second = told[2:]
    assert first.series_id == second.series_id
    assert [one.id for one in (first, second)] == [
        workload_id("", "slurm", "31", str(int(at))) for at in (start, start + 4 * HOUR + 40)
    ]
    assert (first.start, first.end, second.start) == (
        start,
        pytest.approx(start + 4 * HOUR),
        pytest.approx(start + 4 * HOUR + 40),
    )
    assert len(first.nodes) == 2
    assert "jobs-not-matched" in {note.code for note in frame.notes}
    # What was attributed before is attributed still.
    assert sum(one.gpu_hours for one in told) == pytest.approx(
        sum(one.gpu_hours for one in judge(bare, rulebook(CATALOG)).workloads), rel=0.01
    )


def test_doctor_counts_the_jobs_that_have_a_name(server: str, tmp_path: Path) -> None:
    end = END
    table = tmp_path / "jobs.txt"
    write_job_table(
        table, [SlurmJob("31", end - 86400, end, name="llm"), SlurmJob("32", end - 9 * 86400, end - 8 * 86400)]
    )
    frame = PrometheusServer(server, jobs=JobTable(table)).read(CATALOG, since=86400.0, until=end, now=end)
    found = diagnosed_frame(frame, rulebook(CATALOG))
    assert (found.slurm.observed, found.slurm.named) == (3, 1)
