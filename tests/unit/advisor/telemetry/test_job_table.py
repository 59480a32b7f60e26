"""Slurm's job table joined to a frame: which run a use is, and what contradicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.verdict_types import Scheduled, WorkloadVerdict
from skuwise.advisor.telemetry.job_table import with_jobs
from skuwise.advisor.views.subjects import find, runs_of
from skuwise.agent.base.slurm_job import SlurmJob
from skuwise.agent.inventory.identity.ids import series_id, workload_id
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.moves_builders import advice_of, verdicts, workload
from skuwise.tests.support.moves_builders import node as one_node
from skuwise.tests.support.rulebooks import rulebook

GPU = ("n1", "GPU-n1-0")


def built(*spans: tuple[str, str, float, float], nodes: tuple[str, ...] = ("n1",)) -> Frame:
    """A frame with uses (job id, node, first hour, last hour) of known numbers, as a server tells them."""
    make = FrameBuilder(hours=48)
    for node in nodes:
        make.node(node)
        make.use(TRAINING, node, f"GPU-{node}-0")
    for job, node, start, end in spans:
        make.work(
            workload_id("c", "slurm", job), [(node, f"GPU-{node}-0")], start=start, end=end, name=f"job {job}",
            scheduler="slurm", job_id=job, basis="allocation", series=f"s-{job}",
        )  # fmt: skip
    return make.frame()


def run(job: str = "22", start: float = 0.0, end: float | None = 10.0, **about: object) -> SlurmJob:
    told = {"name": "train-7", "user": "ann", "account": "vision", "state": "COMPLETED", "gpus": 1, **about}
    return SlurmJob(
        job, START + start * HOUR, None if end is None else START + end * HOUR, **told  # type: ignore[arg-type]
    )  # fmt: skip


def spans(frame: Frame) -> list[tuple[str, float, float]]:
    """Name of the workload, first and last hour of each use."""
    names = dict(zip(frame.workloads["workload_id"], frame.workloads["name"], strict=True))
    return sorted(
        (names[key], (a - START) / HOUR, (b - START) / HOUR)
        for key, a, b in zip(frame.uses["workload_id"], frame.uses["ts_start"], frame.uses["ts_end"], strict=True)
    )


def test_a_job_gets_name_owner_series_and_the_id_of_its_exact_start() -> None:
    job = run(end=10.01, partition="main", qos="high", array_job_id="20", array_task_id="7", restarts=1)
    frame = with_jobs(built(("22", "n1", 0, 10)), [job])
    (row,) = frame.workloads.to_dict("records")
    assert row["workload_id"] == workload_id("c", "slurm", "22", str(int(START)))
    assert row["series_id"] == series_id("c", "vision", "ann", "train-9")  # digits are folded
    (told,) = judge(frame, rulebook()).workloads
    assert (told.name, told.owner.user, told.owner.account) == ("train-7", "ann", "vision")
    about = told.scheduled
    assert (about.job_id, about.array_job_id, about.array_task_id, about.partition, about.qos, about.state) == (
        "22", "20", "7", "main", "high", "COMPLETED",
    )  # fmt: skip
    assert about.restarts == 1
    assert spans(frame) == [("train-7", 0.0, pytest.approx(10.01))]
    assert (row["first_seen"], row["last_seen"]) == (job.started, job.ended)
    assert frame.notes == ()


def test_the_same_job_has_one_id_on_both_roads() -> None:
    """A server knows the number alone, a node with SLURM_JOB_START_TIME the start too."""
    table = [run(start=1 / 3600)]
    server = with_jobs(built(("22", "n1", 0, 10)), table)
    make = FrameBuilder(hours=48)
    make.node()
    make.use(TRAINING)
    make.work(workload_id("c", "slurm", "22", str(int(START) + 1)), [GPU], end=10, scheduler="slurm", job_id="22")
    node = with_jobs(make.frame(), table)
    assert (
        set(server.workloads["workload_id"])
        == set(node.workloads["workload_id"])
        == set(make.frame().workloads["workload_id"])
    )


REQUEUED = (run(end=10, state="REQUEUED"), run(start=10.01, end=20), run(start=30, end=48, user="bob", name="other"))
TASKS = [run(str(n), start=n, end=n + 1, array_job_id="1", array_task_id=str(n)) for n in (1, 2)]
NODES = (run(node_list="n1.site"), run(start=1 / 3600, name="other", node_list="n[2-3]"))
OF_C, OF_D = run(cluster="c", name="of-c"), run(cluster="d", name="of-d")


@pytest.mark.parametrize(
    ("uses", "jobs", "expected", "codes"),
    [
        # A job that was requeued, and one that was given its id again; from hour 20 to 30 the table has nobody.
        (
            [("22", "n1", 0, 48)], REQUEUED,
            [("other", 30, 48), ("train-7", 0, 10), ("train-7", 10.01, 30)], [],
        ),
        ([("1", "n1", 1, 2), ("1_2", "n1", 2, 3)], TASKS, [("train-7", 1, 2), ("train-7", 2, 3)], []),
        # A job that runs ends where it was last observed.
        ([("22", "n1", 0, 48)], [run(end=None, state="RUNNING")], [("train-7", 0, 48)], []),
        # Runs that overlap prove nothing, unless each has nodes or a cluster of its own.
        ([("22", "n1", 0, 10)], [run(end=8), run(start=4)], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10), ("22", "n2", 0, 10)], NODES, [("other", 0, 10), ("train-7", 0, 10)], []),
        ([("22", "n1", 0, 10), ("22", "n2", 0, 10)], [OF_C, OF_D], [("of-c", 0, 10), ("of-d", 0, 10)], []),
        ([("22", "n1", 0, 9), ("22", "n2", 0, 9)], [OF_C], [("job 22", 0, 9), ("of-c", 0, 9)], ["jobs-not-matched"]),
        # Other jobs are left as they are.
        ([("22", "n1", 0, 10), ("23", "n1", 10, 20)], [run()], [("job 23", 10, 20), ("train-7", 0, 10)], []),
        ([("22", "n1", 0, 10)], [run("99")], [("job 22", 0, 10)], []),
        # The table contradicts what was observed.
        ([("22", "n1", 0, 10)], [run(node_list="n2")], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10)], [run(start=30, end=40)], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10)], [run(cluster="x")], [("job 22", 0, 10)], ["jobs-of-another-cluster"]),
    ],
)  # fmt: skip
def test_a_use_belongs_to_the_run_that_was_then_and_there(
    uses: list[tuple[str, str, float, float]], jobs: list[SlurmJob], expected: list[tuple], codes: list[str]
) -> None:
    frame = built(*uses, nodes=tuple(sorted({node for _, node, _, _ in uses})))
    if OF_C in jobs:
        frame = replace(frame, nodes=frame.nodes.assign(cluster=["c", "d"]))
    joined = with_jobs(frame, jobs)
    assert [(name, pytest.approx(a, abs=0.001), pytest.approx(b, abs=0.02)) for name, a, b in spans(joined)] == expected
    assert [note.code for note in joined.notes] == codes
    assert with_jobs(frame) is frame


def test_a_use_is_placed_exactly_where_a_server_knows_it_by_the_hour() -> None:
    frame = built(("22", "n1", 3, 4.3))
    frame = replace(frame, source={**frame.source, "row_seconds": 3600.0})
    assert spans(with_jobs(frame, [run(start=3.5, end=4.8)])) == [("train-7", pytest.approx(3.5), pytest.approx(4.8))]
    # A use shorter than a row stands anywhere in it; a longer one that misses the run contradicts.
    short = replace(built(("22", "n1", 3, 3.3)), source={"row_seconds": 3600.0})
    assert spans(with_jobs(short, [run(start=3.5, end=3.8)])) == [("train-7", pytest.approx(3.5), pytest.approx(3.8))]
    assert spans(with_jobs(frame, [run(start=4.4, end=4.9)]))[0][0] == "job 22"


def test_two_workloads_of_one_job_become_one() -> None:
    """proctrack/linuxproc: the processes of one job were two workloads."""
    make = FrameBuilder(hours=48)
    for node in ("n1", "n2"):
        make.node(node)
        make.use(TRAINING, node, f"GPU-{node}-0")
        make.work(f"w-{node}", [(node, f"GPU-{node}-0")], end=10, scheduler="slurm", job_id="22",
                  framework="pytorch" if node == "n2" else None)  # fmt: skip
    frame = with_jobs(make.frame(), [run(gpus=2, node_list="n[1-2]")])
    (row,) = frame.workloads.to_dict("records")
    assert row["framework"] == "pytorch"
    assert len(frame.uses) == 2
    (told,) = judge(frame, rulebook()).workloads
    assert told.nodes == ("n1", "n2")


def test_explain_finds_a_job_by_its_number_and_of_several_runs_the_newest() -> None:
    def job(name: str, start: float, **about: Any) -> WorkloadVerdict:
        return workload(name, start=start, scheduled=Scheduled("slurm", **about))

    first = job("a", START, job_id="22", array_job_id="20", array_task_id="7")
    last = job("b", START + 9 * HOUR, job_id="22")
    other = replace(job("c", START), scheduled=Scheduled("kubernetes", job_id="23"))
    advice = advice_of(verdicts([one_node()], [first, last, other]))
    assert find(advice, "22").id == "w-b"
    assert [one.id for one in runs_of(advice, "22")] == ["w-b", "w-a"]
    assert find(advice, "20_7").id == "w-a"
    assert find(advice, "23").id == "w-c"
    for nobody in ("7", "22 OR 1", "2" * 40):
        with pytest.raises(UsageError):
            find(advice, nobody)
