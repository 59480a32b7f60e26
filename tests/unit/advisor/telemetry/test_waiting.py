"""What a job waits for, by Slurm's own words, and which queue belongs to the telemetry."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.core.frame import WAITING, Frame, Window, of_nodes, together
from skuwise.advisor.telemetry.source import JobTable
from skuwise.advisor.telemetry.waiting import BLOCKED, blocked_by, waiting_table
from skuwise.rules.base.errors import UsageError

END = 1_790_000_000.0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "Resources Priority None SchedDefer (Resources)"),
        ("dependency", "Dependency DependencyNeverSatisfied"),
        ("held", "JobHeldUser JobHeldAdmin JobHoldMaxRequeue SchedulingGated"),
        ("begin-time", "BeginTime"),
        ("limit", "AssocGrpGRES AssocMaxJobsLimit AssociationJobLimit QOSMaxGRESPerUser QOSGrpGRESMinutes "
                  "QOSNotAllowed MaxGRESPerAccount MaxMemPerLimit AccountNotAllowed InvalidQOS JobArrayTaskLimit "
                  "QOSUsageThreshold"),
        ("nodes", "ReqNodeNotAvail ReqNodeNotAvail,UnavailableNodes:n1 NodeDown Reservation ReservationDeleted "
                  "BadConstraints Constraints"),
        ("partition", "PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit PartitionConfig"),
        ("licenses", "Licenses"),
        ("storage", "BurstBufferResources BurstBufferStageIn PersistentVolumeClaim"),
        ("other", "Prolog Cleaning FedJobLock SystemFailure DeadLine whatever"),
    ],
)  # fmt: skip
def test_what_a_word_means(code: str | None, words: str) -> None:
    assert {word: blocked_by(word) for word in words.split()} == dict.fromkeys(words.split(), code)
    assert code is None or code in BLOCKED
    assert blocked_by(None) is None


def frame(*clusters: str | None) -> Frame:
    none = pd.DataFrame()
    nodes = pd.DataFrame({"node": [f"n{n}" for n in range(len(clusters))], "cluster": list(clusters),
                          "first_seen": END - 86400, "last_seen": END})  # fmt: skip
    pods = waiting_table(pd.DataFrame([{"scheduler": "kubernetes", "id": "ml/pod", "jobs": 1, "gpus": 2.0}]))
    return Frame(
        Window(END - 86400, END), nodes, none, none, none, none, pd.DataFrame(columns=["workload_id"]),
        pd.DataFrame(columns=["node", "workload_id"]), none, {}, waiting=pods, waiting_at=END,
    )  # fmt: skip


def squeue(folder: Path, *clusters: str, age: float = 0.0) -> Path:
    jobs = [
        {"job_id": n + 1, "job_state": "PENDING", "state_reason": "Priority", "tres_per_node": "gres:gpu:4",
         "node_count": 1, "cluster": cluster, "submit_time": int(END) - 60, "name": "train"}
        for n, cluster in enumerate(clusters)
    ]  # fmt: skip
    path = folder / "squeue.json"
    path.write_text(json.dumps({"jobs": jobs}))
    os.utime(path, (END - age, END - age))
    return path


@pytest.mark.parametrize(
    ("age", "clusters", "cluster", "ids", "at", "notes"),
    [
        (60.0, ("lab", "lab"), None, ["ml/pod", "1", "2"], END - 60, []),
        (-3600.0, ("lab",), None, ["ml/pod", "1"], END, []),  # written while a whole hour of the server was not over
        (3700.0, ("lab",), None, ["ml/pod"], END, ["queue-of-another-time"]),
        (-7300.0, ("lab",), None, ["ml/pod"], END, ["queue-of-another-time"]),
        (60.0, ("lab", "other"), None, ["ml/pod", "1"], END - 60, ["queue-of-another-cluster"]),
        (60.0, ("other",), None, ["ml/pod"], END, ["queue-of-another-cluster"]),
        (60.0, ("slurm", "lab"), "slurm", ["ml/pod", "1"], END - 60, ["queue-of-another-cluster"]),
        (60.0, (), None, ["ml/pod"], END - 60, []),
    ],
)
def test_a_queue_is_of_its_time_and_cluster(
    tmp_path: Path,
    age: float,
    clusters: tuple[str, ...],
    cluster: str | None,
    ids: list[str],
    at: float,
    notes: list[str],
) -> None:
    joined = JobTable(cluster=cluster, queue=squeue(tmp_path, *clusters, age=age)).with_queue(frame("lab", None))
    assert joined.waiting["id"].tolist() == ids and list(joined.waiting) == WAITING
    assert (joined.waiting_at, [note.code for note in joined.notes]) == (at, notes)
    # Every part of a frame has the whole queue, and all parts together have it once.
    parts = [of_nodes(joined, {node}) for node in joined.nodes["node"]]
    assert [len(part.waiting) for part in parts] == [len(ids)] * 2
    assert together(parts).waiting["id"].tolist() == ids and together(parts).waiting_at == at


def test_a_queue_that_is_not_there_is_an_error_where_it_was_named(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match="cannot be read"):
        JobTable(queue=tmp_path / "none").with_queue(frame())
    kept = JobTable(queue=tmp_path / "none", queue_optional=True, say=said.append).with_queue(frame())
    assert kept.waiting_at == END and [line[:26] for line in said] == ["Slurm's queue not used: Sl"]
