"""How kube-state-metrics is asked for the owners of pods: how often, in which spellings, and what a use becomes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import Scheduled, WorkloadVerdict
from skuwise.advisor.show.subjects import find, runs_of
from skuwise.advisor.telemetry.job_table import with_jobs
from skuwise.advisor.telemetry.prometheus.client.response import Grid, Labels, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.owners import SERIES, KubeOwners, owned, read_owners
from skuwise.agent.jobs.ids import gang_id, series_id, workload_id
from skuwise.agent.jobs.pods import Pod, PodOwner
from skuwise.agent.model import SlurmJob
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.moves_builders import advice_of, verdicts, workload
from skuwise.tests.support.moves_builders import node as one_node
from skuwise.tests.support.rulebooks import rulebook

DAY = 86400.0
END = 1_790_000_000.0 // DAY * DAY
GRID = Grid(END - DAY + 3600, END, 3600.0)
_SERIES = re.compile(r"kube_\w+")


class Server:
    """Answers by the name of the series; `reported`: series -> labels and values. Keeps the queries."""

    def __init__(self, reported: Mapping[str, Sequence[tuple[Labels, float]]]) -> None:
        self.reported, self.asked = reported, list[str]()

    def __call__(self, queries: Sequence[str], kept: Sequence[str]) -> list[SeriesAnswer]:
        self.asked += queries
        answers = []
        for query in queries:
            name = _SERIES.search(query)
            rows = self.reported.get(name.group() if name else "", ())
            labels = tuple({label: text for label, text in row.items() if label in kept} for row, _ in rows)
            answers.append(SeriesAnswer(labels, np.array([value for _, value in rows]).reshape(-1, 1)))
        return answers


def ask(server: Server, *pods: str, hours: float = 24, **about: Any) -> KubeOwners:
    """The owners of pods that held a GPU in these first hours of the day."""
    uses = pd.DataFrame([use(pod, 0, hours) for pod in pods])
    return read_owners(server, SERIES, ('cluster="eu"',), uses, window=Window(END - DAY, END), **about)


def test_a_thousand_pods_take_a_bounded_number_of_queries() -> None:
    names = [f"llm-{n}-worker-{i}" for n in range(125) for i in range(8)]
    rows = [({"namespace": "ml", "pod": n, "uid": n, "owner_kind": "PyTorchJob", "owner_name": n[:-9],
              "owner_is_controller": "true"}, 60.0) for n in names]  # fmt: skip
    server = Server({"kube_pod_owner": rows})
    assert len(ask(server, *names).pods) == 1000
    # Seven parts of 150 names, six series, and the namespace's labels.
    assert len(server.asked) <= 7 * 6 + 1 and all('cluster="eu"' in query for query in server.asked)
    nothing = Server({})
    assert not ask(nothing, *names).pods and len(nothing.asked) <= 2 * 7 * 6
    gone = Server({})
    assert not ask(gone, *names, hours=12).pods and len(gone.asked) <= 7 * 6
    assert all(f"[{DAY:.0f}s]" in query for query in gone.asked)


def test_no_name_gets_into_a_query_that_is_no_name_of_a_pod() -> None:
    server = Server({})
    ask(server, 'x"}) or vector(1) #', "a|.*", "UPPER", "", "\u202e", "a" * 254)
    assert server.asked == []
    ask(server, "a.b")
    assert all('=~"a[.]b"' in query for query in server.asked)


def test_the_controller_is_the_owner_of_several() -> None:
    plain = {"namespace": "ml", "pod": "a", "uid": "u", "owner_kind": "Job"}
    rows = [({**plain, "owner_name": name, "owner_is_controller": is_controller}, 1.0)
            for name, is_controller in (("aaa", "false"), ("new", "true"), ("other", "false"))]  # fmt: skip
    (pod,) = ask(Server({"kube_pod_owner": rows}), "a").pods["", "ml", "a"]
    assert pod.owner == PodOwner("Job", "new")


def test_a_pod_of_two_clusters_is_that_of_its_own() -> None:
    pod = {"namespace": "ml", "pod": "a", "created_by_kind": "Job"}
    rows = [({**pod, "cluster": name, "uid": name, "created_by_name": name}, 1.0) for name in ("eu", "us")]
    owners = ask(Server({"kube_pod_info": rows}), "a")
    assert [owners.cluster_of(cluster, "ml", "a") for cluster in ("eu", "us", "", "ap")] == ["eu", "us", None, None]


def use(pod: str, start: float, end: float, gpu: str = "GPU-0", **about: object) -> dict[str, object]:
    """A use from an hour to an hour of the day, as dcgm-exporter labels it."""
    return {
        "workload_id": workload_id("", "kubernetes", "pod", "ml", pod), "node": f"n-{gpu}", "gpu_uuid": gpu,
        "basis": "allocation", "ts_start": END - DAY + 3600 * start, "ts_end": END - DAY + 3600 * end,
        "scheduler": "kubernetes", "namespace": "ml", "pod": pod, "cluster": "", **about,
    }  # fmt: skip


def life(pod: str, uid: str | None, hour: float | None, owner: PodOwner | None, image: str | None = None) -> Pod:
    at = None if hour is None else END - DAY + 3600 * hour
    return Pod("ml", pod, uid, owner, created_seconds=at, started_seconds=at, image=image)


def became(uses: list[dict[str, object]], *pods: Pod) -> pd.DataFrame:
    by_name = {("", "ml", pod.name): tuple(other for other in pods if other.name == pod.name) for pod in pods}
    return owned(pd.DataFrame(uses), KubeOwners(by_name), GRID, (), {})


STORE = PodOwner("StatefulSet", "store")


@pytest.mark.parametrize(
    ("span", "lives", "expected"),
    [
        # What had a name before is kept apart where only the last is reported.
        ((0, 24), [("b", 13)], [("", 0, 13), ("b", 13, 24)]),
        # A use begins with its pod where rows are coarser: minutes within an hour are where the pod was, and what is
        # far off is believed as measured.
        ((3.05, 9), [("u", 3.0)], [("u", 3, 9)]), ((5, 5.2), [("u", 5.5)], [("u", 5.5, pytest.approx(5.7))]),
        ((5, 9), [("u", 2)], [("u", 5, 9)]),
        # Within an hour it is of the pod that had the name for most of it.
        ((12, 12.5), [("old", 1), ("a", 12.1), ("b", 12.9)], [("a", 12.1, pytest.approx(12.6))]),
    ],
)  # fmt: skip
def test_a_use_is_cut_where_the_pods_of_its_name_began(span, lives, expected) -> None:
    results = became([use("store-0", *span)], *(life("store-0", uid, hour, STORE) for uid, hour in lives))
    ids = [workload_id("", "kubernetes", *([uid] if uid else ["pod", "ml", "store-0"])) for uid, _, _ in expected]
    assert list(results["workload_id"]) == ids and set(results["name"]) == {"store"}
    begins, ends = ((results[name] - END + DAY) / 3600 for name in ("ts_start", "ts_end"))
    assert [*zip(begins, ends, strict=True)] == [(begin, end) for _, begin, end in expected]


@pytest.mark.parametrize(
    ("owner", "image", "requesting", "is_left_out"),
    [
        ("nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3", (), True),
        ("gpu-metrics", "registry.example/mirror/dcgm-exporter:4", (), True),
        ("gpu-metrics", "registry.example/gpu-metrics:1", {("ml", "trainer")}, True),
        # A DaemonSet's own work: it requests GPUs, or nothing says that it is an exporter.
        ("onnx-exporter", "registry.example/onnx-exporter:1", {("ml", "a")}, False),
        ("onnx-exporter", "registry.example/onnx-exporter:1", (), False),
    ],
)
def test_an_exporters_daemonset_owns_no_work(
    owner: str, image: str, requesting: set[tuple[str, str]], is_left_out: bool
) -> None:
    pod = life("a", "u", -9, PodOwner("DaemonSet", owner), image)
    owners, containers = KubeOwners({("", "ml", "a"): (pod,)}), dict.fromkeys(requesting, frozenset({"main"}))
    assert owned(pd.DataFrame([use("a", 0, 9)]), owners, GRID, (), containers).empty == is_left_out


def test_a_pod_that_nothing_tells_of_stays_as_the_exporter_names_it() -> None:
    rows = [use("a", 0, 3), use("b", 0, 3, "GPU-1"), {**use("j", 0, 3, "GPU-2"), "scheduler": "slurm", "pod": None}]
    ids = became(rows, life("a", "u", 0, None))["workload_id"]
    assert set(ids) == {workload_id("", "kubernetes", "u"), *(row["workload_id"] for row in rows[1:])} and len(ids) == 3


def test_what_the_agent_called_a_pod_or_a_gang_it_is_called_with_kube_state_metrics_too() -> None:
    """Both roads know the same facts: `works_of` gives the agent these ids from kubectl's file."""
    job = PodOwner("PyTorchJob", "llm")
    gang = gang_id("", "ml", "PyTorchJob", "llm", "u0")
    rows = [use(f"llm-worker-{n}", 2, 9, f"GPU-{n}", workload_id=gang, basis="process") for n in range(2)]
    rows.append(use("web-0", 2, 9, "GPU-2", workload_id=workload_id("", "kubernetes", "u2")))
    lives = [life(f"llm-worker-{n}", f"u{n}", 2, job) for n in range(2)]
    results = became(rows, *lives, life("web-0", "old", 2, STORE), life("web-0", "u2", 5, STORE))
    assert sorted(results["workload_id"]) == sorted(str(row["workload_id"]) for row in rows)


@pytest.mark.parametrize(
    ("images", "asking", "image"),
    [
        ({"main": "a", "proxy": "b"}, {"main"}, "a"), ({"main": "a", "proxy": "b"}, set(), None),
        ({"main": "a"}, set(), "a"), ({"main": "a", "proxy": "b"}, {"main", "proxy"}, None),
        ({"main": ""}, {"main"}, None), ({}, {"main"}, None),
    ],
)  # fmt: skip
def test_an_image_is_that_of_the_container_that_holds_the_gpus(
    images: dict[str, str], asking: set[str], image: str | None
) -> None:
    pod = {"namespace": "ml", "pod": "a", "uid": "u"}
    reported = [({**pod, "container": name, "image": image_name}, 1.0) for name, image_name in images.items()]
    server = Server({"kube_pod_info": [(pod, 1.0)], "kube_pod_container_info": reported})
    owners = ask(server, "a", requests={("ml", "a"): asking})
    assert [pod.image for pod in owners.pods["", "ml", "a"]] == [image]


def built(*spans: tuple[str, str, float, float], id_: str = "", **frameworks: str) -> Frame:
    """A frame with uses (job id, node, first hour, last hour) of known numbers, as a server reports them. `id_`: of
    their workload, the node in place of {}; `frameworks`: by node."""
    make = FrameBuilder(hours=48)
    for node in sorted({node for _, node, _, _ in spans}):
        make.node(node)
        make.use(TRAINING, node, f"GPU-{node}-0")
    for job, node, start, end in spans:
        name = id_.format(node) or workload_id("c", "slurm", job)
        job_about = {"name": f"job {job}", "job_id": job, "series": f"s-{job}", "framework": frameworks.get(node)}
        make.work(
            name, [(node, f"GPU-{node}-0")], start=start, end=end, scheduler="slurm", basis="allocation", **job_about
        )
    return make.frame()


def run(job: str = "22", start: float = 0.0, end: float | None = 10.0, **about: object) -> SlurmJob:
    reported = {"name": "train-7", "user": "ann", "account": "vision", "state": "COMPLETED", "gpus": 1, **about}
    ended_at = None if end is None else START + end * HOUR
    return SlurmJob(job, START + start * HOUR, ended_at, **reported)  # type: ignore[arg-type]


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
    (verdict,) = judge(frame, rulebook()).workloads
    assert (verdict.name, verdict.owner.user, verdict.owner.account) == ("train-7", "ann", "vision")
    about = verdict.scheduled
    array = about.array_job_id, about.array_task_id
    assert (about.job_id, array, about.partition, about.qos) == ("22", ("20", "7"), "main", "high")
    assert about.state == "COMPLETED"
    assert about.restarts == 1 and spans(frame) == [("train-7", 0.0, pytest.approx(10.01))]
    assert (row["first_seen"], row["last_seen"]) == (job.started_at, job.ended_at) and frame.notes == ()


def test_the_same_job_has_one_id_on_both_roads() -> None:
    """A server knows the number alone, a node with SLURM_JOB_START_TIME the start too."""
    table = [run(start=1 / 3600)]
    ours = built(("22", "n1", 0, 10), id_=workload_id("c", "slurm", "22", str(int(START) + 1)))
    frames = with_jobs(built(("22", "n1", 0, 10)), table), with_jobs(ours, table), ours
    assert len({tuple(frame.workloads["workload_id"]) for frame in frames}) == 1


REQUEUED = (run(end=10, state="REQUEUED"), run(start=10.01, end=20), run(start=30, end=48, user="bob", name="other"))
TASKS = [run(str(n), start=n, end=n + 1, array_job_id="1", array_task_id=str(n)) for n in (1, 2)]
NODES = (run(nodes="n1.site"), run(start=1 / 3600, name="other", nodes="n[2-3]"))
OF_C, OF_D = run(cluster="c", name="of-c"), run(cluster="d", name="of-d")


@pytest.mark.parametrize(
    ("uses", "jobs", "expected", "codes"),
    [
        # A job that was requeued, and one that was given its id again; from hour 20 to 30 the table has no entry.
        (
            [("22", "n1", 0, 48)], REQUEUED,
            [("other", 30, 48), ("train-7", 0, 10), ("train-7", 10.01, 30)], [],
        ),
        ([("1", "n1", 1, 2), ("1_2", "n1", 2, 3)], TASKS, [("train-7", 1, 2), ("train-7", 2, 3)], []),
        # A job that runs ends where it was last observed.
        ([("22", "n1", 0, 48)], [run(end=None, state="RUNNING")], [("train-7", 0, 48)], []),
        # Runs that overlap prove nothing, unless each has separate nodes or clusters.
        ([("22", "n1", 0, 10)], [run(end=8), run(start=4)], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10), ("22", "n2", 0, 10)], NODES, [("other", 0, 10), ("train-7", 0, 10)], []),
        ([("22", "n1", 0, 10), ("22", "n2", 0, 10)], [OF_C, OF_D], [("of-c", 0, 10), ("of-d", 0, 10)], []),
        ([("22", "n1", 0, 9), ("22", "n2", 0, 9)], [OF_C], [("job 22", 0, 9), ("of-c", 0, 9)], ["jobs-not-matched"]),
        # Other jobs are left as they are.
        ([("22", "n1", 0, 10), ("23", "n1", 10, 20)], [run()], [("job 23", 10, 20), ("train-7", 0, 10)], []),
        ([("22", "n1", 0, 10)], [run("99")], [("job 22", 0, 10)], []),
        # The table contradicts what was observed.
        ([("22", "n1", 0, 10)], [run(nodes="n2")], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10)], [run(start=30, end=40)], [("job 22", 0, 10)], ["jobs-not-matched"]),
        ([("22", "n1", 0, 10)], [run(cluster="x")], [("job 22", 0, 10)], ["jobs-of-another-cluster"]),
    ],
)  # fmt: skip
def test_a_use_belongs_to_the_run_that_was_then_and_there(
    uses: list[tuple[str, str, float, float]], jobs: list[SlurmJob], expected: list[tuple], codes: list[str]
) -> None:
    frame = built(*uses)
    if OF_C in jobs:
        frame = replace(frame, nodes=frame.nodes.assign(cluster=["c", "d"]))
    joined = with_jobs(frame, jobs)
    assert [(name, pytest.approx(a, abs=0.001), pytest.approx(b, abs=0.02)) for name, a, b in spans(joined)] == expected
    assert [note.code for note in joined.notes] == codes and with_jobs(frame) is frame


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
    frame = built(("22", "n1", 0, 10), ("22", "n2", 0, 10), id_="w-{}", n2="pytorch")
    frame = with_jobs(frame, [run(gpus=2, nodes="n[1-2]")])
    (row,) = frame.workloads.to_dict("records")
    assert row["framework"] == "pytorch" and len(frame.uses) == 2
    assert [verdict.nodes for verdict in judge(frame, rulebook()).workloads] == [("n1", "n2")]


def test_explain_finds_a_job_by_its_number_and_of_several_runs_the_newest() -> None:
    def job(name: str, start: float, **about: Any) -> WorkloadVerdict:
        return workload(name, start=start, scheduled=Scheduled("slurm", **about))

    first = job("a", START, job_id="22", array_job_id="20", array_task_id="7")
    last = job("b", START + 9 * HOUR, job_id="22")
    other = replace(job("c", START), scheduled=Scheduled("kubernetes", job_id="23"))
    advice = advice_of(verdicts([one_node()], [first, last, other]))
    assert find(advice, "22").id == "w-b" and [run.id for run in runs_of(advice, "22")] == ["w-b", "w-a"]
    assert find(advice, "20_7").id == "w-a" and find(advice, "23").id == "w-c"
    for nobody in ("7", "22 OR 1", "2" * 40):
        with pytest.raises(UsageError):
            find(advice, nobody)
