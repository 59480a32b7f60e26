"""Slurm's queue as real commands wrote it (`tests/data/squeue`, Slurm 22.05.8) and as newer versions do."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.slurm_jobs.queue import Queue, read_squeue
from skuwise.rules.base.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "squeue"
SUBMITTED = 1796076220.0
AT = 1_790_000_000.0
BIG = "8_[1,3,6-7,9,11,14-15,17,19,21-22,25,27,29,...]"
# Jobs, GPUs of each, nodes, type, reason. Without: running, no GPUs.
REAL: dict[str, tuple[object, ...]] = {
    "2": (1, 4, 1, None, "Resources"),
    "3": (1, 2, 1, "h100", "Priority"),
    "4": (1, 6, None, None, "Priority"),  # --gpus=6: on any number of nodes
    "5": (1, 3, None, "h100", "Priority"),
    "6": (1, 6, None, None, "Priority"),  # three tasks of two
    "7_[3-9%2]": (7, 1, 1, None, "Priority"),
    BIG: (30, 1, 1, None, "Priority"),
    "10": (1, 1, 1, None, "Dependency"),
    "11": (1, 1, 1, None, "JobHeldUser"),
    "12": (1, 1, 1, None, "BeginTime"),
    "14": (1, 1, 1, None, "PartitionDown"),
    "17": (1, 3, 1, "a100,h100", "Priority"),
    "19": (1, 7, 2, None, "Resources"),  # heterogeneous: four on one node, three on another
}


def rows_of(queue: Queue) -> dict[str, tuple[object, ...]]:
    return {job.id: (job.jobs, job.gpus, job.nodes, job.gpu_type, job.reason) for job in queue.jobs}


def written(folder: Path, *jobs: object, **document: object) -> Path:
    path = folder / "squeue.json"
    path.write_text(json.dumps({"jobs": jobs, "errors": [], **document}))
    os.utime(path, (AT, AT))
    return path


def number(value: object) -> dict[str, object]:
    """As Slurm writes numbers from 23.11 on."""
    return {"set": value is not None, "infinite": False, "number": value or 0}


def newer(**fields: object) -> dict[str, object]:
    """A job of 23.11 and later, of those fields that are read."""
    job: dict[str, Any] = {
        "job_id": 671, "job_state": ["PENDING"], "state_reason": "Priority", "array_job_id": number(0),
        "array_task_id": number(None), "array_task_string": "", "het_job_id": number(0), "het_job_offset": number(0),
        "node_count": number(1), "max_nodes": number(0), "tasks": number(1), "tres_per_node": "", "tres_per_job": "",
        "tres_per_task": "", "tres_req_str": "cpu=1,mem=128G,node=1,billing=1",
        "submit_time": number(int(SUBMITTED)), "cluster": "hpc", "user_name": "clara", "name": "wrap",
    }  # fmt: skip
    return {**job, **fields}


def test_a_real_queue_has_each_job_once(tmp_path: Path) -> None:
    path = shutil.copy(DATA / "22.05.json", tmp_path)
    os.utime(path, (AT, AT))
    queue = read_squeue(Path(path))
    assert rows_of(queue) == REAL
    assert (queue.at, queue.warnings) == (AT, ())
    assert {(job.cluster, job.partition, job.since) for job in queue.jobs if job.id != "14"} == {
        ("lab", "main", SUBMITTED)
    }
    assert {(job.user, job.account) for job in queue.jobs} == {("alice", "vision"), ("bob", "nlp")}
    assert sum(job.jobs * job.gpus for job in queue.jobs) == 72


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tres_per_node": "gres/gpu:h100:4", "node_count": number(2)}, (1, 8, 2, "h100", "Priority")),
        ({"tres_req_str": "cpu=4,gres/gpu=8,gres/gpu:h100=8", "node_count": number(2)}, (1, 8, 2, "h100", "Priority")),
        ({"tres_per_job": "gres/gpu:12"}, (1, 12, None, None, "Priority")),
        ({"tres_per_job": "gres/gpu:12", "node_count": number(2), "max_nodes": number(3)},
         (1, 12, 2, None, "Priority")),
        ({"tres_per_task": "cpu:2,gres/gpu:1", "tasks": number(6)}, (1, 6, None, None, "Priority")),
        ({"tres_per_node": "gres/gpu"}, (1, 1, 1, None, "Priority")),
        ({"tres_per_node": "gres:gpu:a100"}, (1, 1, 1, "a100", "Priority")),
        ({"tres_per_node": "gres/gpu:1g.10gb:2"}, (1, 2 / 7, 1, "1g.10gb", "Priority")),
        ({"tres_per_node": "gres/gpu:a100_3g.20gb:1"}, (1, 3 / 7, 1, "a100_3g.20gb", "Priority")),
        ({"tres_per_node": "gres/gpu:2", "state_reason": ["Dependency"]}, (1, 2, 1, None, "Dependency")),
        ({"tres_per_node": "gres/gpu:2", "state_reason": "None"}, (1, 2, 1, None, None)),
        ({"tres_per_node": "gres/gpu:0"}, None),
        ({"tres_per_node": "gres/shard:2,gres/nic:gpu:1"}, None),
        ({"tres_per_node": "gres/gpu:2", "job_state": ["RUNNING", "COMPLETING"]}, None),
        ({"tres_per_node": "gres/gpu:2", "job_state": "CONFIGURING"}, None),
    ],
)  # fmt: skip
def test_a_job_of_newer_slurm(tmp_path: Path, fields: dict[str, object], expected: tuple[object, ...] | None) -> None:
    queue = read_squeue(written(tmp_path, newer(**fields)))
    assert rows_of(queue) == ({"671": expected} if expected else {})


@pytest.mark.parametrize(
    ("tasks", "jobs", "cut"),
    [("0-9", 10, 0), ("1,3,7-8%1", 4, 0), ("1-59:2", 30, 0), ("5", 1, 0), ("1,3,43...", 3, 1), ("9-3", 1, 0),
     ("0-4000000000", 4000000001, 0), ("nonsense", 1, 0)],
)  # fmt: skip
def test_an_array_is_as_many_jobs_as_tasks_wait(tmp_path: Path, tasks: str, jobs: int, cut: int) -> None:
    array = newer(array_job_id=number(671), array_task_string=tasks, tres_per_node="gres/gpu:1")
    task = newer(job_id=680, array_job_id=number(671), array_task_id=number(2), tres_per_node="gres/gpu:1")
    queue = read_squeue(written(tmp_path, array, task, array))
    assert {job.id: job.jobs for job in queue.jobs} == {f"671_[{tasks}]": jobs, "671_2": 1}
    assert len(queue.warnings) == cut


def test_a_heterogeneous_job_is_one_whatever_the_order_of_its_parts(tmp_path: Path) -> None:
    parts = [
        newer(job_id=900 + n, het_job_id=number(900), het_job_offset=number(n), name=f"part {n}", **wanted)
        for n, wanted in enumerate(({}, {"tres_per_node": "gres/gpu:8", "node_count": number(2)},
                                    {"tres_per_node": "gres/gpu:h100:1"}))
    ]  # fmt: skip
    queue = read_squeue(written(tmp_path, *reversed(parts)))
    assert rows_of(queue) == {"900": (1, 17, 3, "h100", "Priority")} and queue.jobs[0].name == "part 0"


def test_what_cannot_be_read_is_counted_and_a_strange_name_is_not(tmp_path: Path) -> None:
    path = tmp_path / "squeue.json"
    good = json.dumps(newer(tres_per_node="gres/gpu:1", name="NAME")).encode()
    path.write_bytes(b'{"jobs": [' + good.replace(b"NAME", b"odd\xff") + b', 7, {"job_id": null}, {}]}')
    queue = read_squeue(path)
    assert [job.name for job in queue.jobs] == ["odd\ufffd"]
    assert queue.warnings == ("Jobs of Slurm's queue that cannot be read: 3, left out.",)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is not the output"), ("JOBID NAME\n", "is not the output"), ('{"jobs": [{"job_id": 1}', "or was cut"),
        ('{"jobs": 3}', "is not the output"),
        # What squeue 22.05 writes, with exit status 0, where slurmctld does not answer.
        ('{"jobs": [], "errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}]}', "slurm_load_jobs"),
    ],
)  # fmt: skip
def test_no_queue_is_no_empty_queue(tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / "squeue.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=what):
        read_squeue(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_squeue(tmp_path / "none")


def test_an_empty_queue_is_known(tmp_path: Path) -> None:
    assert read_squeue(written(tmp_path)) == Queue(AT, ())
