"""Who was given which GPU: Slurm's files and extern steps, and what becomes of them as workloads."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.agent.jobs.attribution import join_claims
from skuwise.agent.jobs.podresources import WireError, claim_of, decode_pods
from skuwise.agent.jobs.processes import Origin
from skuwise.agent.jobs.scheduler_claims import DeviceClaim, Devices
from skuwise.agent.jobs.slurm import parse_devices, parse_job_file, read_job_files
from skuwise.agent.model import Gpu
from skuwise.tests.support.sysfs_trees import put
from skuwise.tests.unit.agent.jobs.test_slurm_runs import SlurmNode

STEPD = "system.slice/slurmstepd.scope"
TRUSTED = frozenset({0, os.getuid()})
# Minor numbers run the other way than NVML's indices, as they may. Gres indices are minors here.
GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=7 - i) for i in range(8))


class Node(SlurmNode):
    """The same under cgroup v2."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, GPUS)
        self.cgroups = root / "cgroup"

    def job(self, name: str, *, extern: bool = True) -> None:  # type: ignore[override]
        """A living job with a cgroup of v2 and its extern step."""
        home = self.cgroups / STEPD / name
        (home / "step_0/user").mkdir(parents=True, exist_ok=True)
        if extern:
            put(home / "step_extern/user/task_special/cgroup.procs", "9")
            path = f"0::/{STEPD}/{name}/step_extern/user/task_special"
            self.proc.process(9, comm="sleep", argv=["sleep", "100000000"], cgroup=path, start=10)

    def process(self, pid: int, name: str, step: str = "step_0/user/task_0", **more: object) -> None:
        path = f"0::/{STEPD}/{name}/{step}"
        self.proc.process(pid, argv=["python", "train.py"], cgroup=path, **more)  # type: ignore[arg-type]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_processes_and_allocation_of_a_job_are_one_workload_that_stays_when_nothing_runs(node: Node) -> None:
    node.prolog(42, "7,6", start="1788000000", account="nlp", user="ada", partition="gpu")
    (bare,), uses = node.see()
    assert (bare.job_id, bare.name, bare.account, bare.user, bare.partition) == ("42", "job 42", "nlp", "ada", "gpu")
    held = [("GPU-0", "allocation", False), ("GPU-1", "allocation", False)]
    assert [(u.gpu_uuid, u.basis, u.shared) for u in uses] == held
    node.process(700, "job_42")
    (workload,), uses = node.see((0, 700))
    assert sorted((u.gpu_uuid, u.basis, u.shared) for u in uses) == sorted([*held, ("GPU-0", "process", False)])
    assert {u.workload_id for u in uses} == {workload.workload_id, bare.workload_id}
    assert workload.command == "python train.py"
    assert node.see()[0] == (workload,) and node.reasons() == set()


@pytest.mark.parametrize("name", ["job_42", "s8FXKTA79XAR00"])
def test_a_job_without_a_prolog_is_known_and_not_what_it_was_given(node: Node, name: str) -> None:
    node.job(name)
    node.process(700, name, environ={"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0-7", "SLURM_JOB_NAME": "llama"})
    (workload,), uses = node.see((0, 700))
    assert (workload.job_id, workload.name) == ("42", "llama")
    assert [(use.gpu_uuid, use.basis) for use in uses] == [("GPU-0", "process")]
    assert node.reasons() == {"allocation-unknown"}
    node.prolog(42, "7", sluid="" if name == "job_42" else name)  # which ties a SLUID to its job
    node.attribution = node.agent()
    node.process(700, name, "step_batch")
    (workload,), uses = node.see((0, 700))
    assert (workload.job_id, [u.basis for u in uses]) == ("42", ["allocation", "process"])


def test_without_a_scheduler_allocation_is_absent_and_a_drained_node_says_why(node: Node) -> None:
    shutil.rmtree(node.root / "etc")
    put((node.root / "drained"), "bad\x1b[31m DIMM " + "x" * 900)
    node.attribution.look_at_node()
    assert node.reasons() == {"allocation-unknown", "drained"}
    (absence,) = [a for a in node.attribution.absences if a.reason == "drained"]
    assert absence.detail.startswith("The node is out of service: bad[31m DIMM xxx") and len(absence.detail) < 300
    (node.root / "drained").unlink()
    node.proc.process(700, argv=["python", "x.py"])
    _, uses = node.see((0, 700))
    assert {u.basis for u in uses} == {"process"} and node.reasons() == {"allocation-unknown"}


GOOD = b"version=2\njob_id=42\ngpus=0,1\nstart=1788000000\nname=x\n"
END = b"complete=1\n"


@pytest.mark.parametrize(
    "raw",
    [
        GOOD + b"extra=1\n", GOOD + b"gpus=3\n", GOOD.replace(b"=42", b"=43"),
        GOOD.replace(b"version=2", b"version=1"), GOOD.replace(b"0,1", b"0-9999"), GOOD.replace(b"0,1", b"0,,1"),
        GOOD.replace(b"0,1", b"-1"), GOOD.replace(b"1788000000", b"soon"), GOOD.replace(b"gpus=0,1\n", b""),
        GOOD.replace(b"0,1", "٣".encode()), GOOD + b"name=" + b"x" * 5000 + b"\n", b"\xff\xfe=\n", GOOD + b"\n",
        GOOD.replace(b"0,1", b",".join(b"0-255" for _ in range(9))),
    ],
)  # fmt: skip
def test_a_file_that_the_prolog_did_not_write_is_refused(raw: bytes) -> None:
    assert isinstance(parse_job_file(raw + END, "42"), str)


def test_a_file_without_its_last_line_is_none(node: Node) -> None:
    whole = GOOD + END
    assert [parse_job_file(whole[:end], "42") for end in range(len(whole))] == [None] * len(whole)
    node.prolog(42, "7")
    file = node.folder / "42-0.job"
    file.write_bytes(file.read_bytes()[:-3])
    node.job("job_42")
    assert node.see() == ((), ())
    assert node.reasons() == {"allocation-unknown"}  # the job is there, and nothing says what it was given
    assert parse_job_file(whole, "42") == DeviceClaim(
        job_id="42", devices=("0", "1"), start_seconds=1788000000, name="x"
    )
    lists = ("0,2-4,2", "GPU-0f3c2c11-aaaa,MIG-11112222", "4-2")
    assert list(map(parse_devices, lists)) == [tuple("0234"), ("GPU-0f3c2c11-aaaa", "MIG-11112222"), None]


def test_only_what_nobody_else_can_write_and_the_driver_names_is_believed(node: Node) -> None:
    node.prolog(42, "7,9")
    assert node.see()[1] == ()  # half an allocation would be a wrong one
    (absence,) = node.attribution.absences
    assert absence.reason == "allocation-unresolved" and "42: 9" in absence.detail
    node.prolog(42, "0")
    node.attribution = node.agent()
    os.mkfifo(node.folder / "44-0.job")
    (node.folder / "notes.txt").write_text("x")
    job_files = read_job_files(node.folder, TRUSTED)
    assert [job.job_id for job in job_files.jobs] == ["42"]
    assert [name for name, _ in job_files.refused] == ["44-0.job"]
    assert read_job_files(node.folder, frozenset({65533})).missing is not None
    node.see()
    assert node.reasons() == {"allocation-refused"}
    node.folder.chmod(0o777)
    assert read_job_files(node.folder, TRUSTED).jobs == ()


DEVICES = Devices(
    [
        Gpu("GPU-a", 0, "H100", minor=1),
        Gpu("GPU-b", 1, "H100", minor=0),
        Gpu("GPU-c", 2, "H100", minor=2),
        Gpu("MIG-1", 0, "H100 MIG", kind="mig", parent_uuid="GPU-a"),
        Gpu("MIG-2", 1, "H100 MIG", kind="mig", parent_uuid="GPU-b"),
        Gpu("MIG-3", 2, "H100 MIG", kind="mig", parent_uuid="GPU-b"),
    ]
)
UID_1, UID_2 = Origin("kubernetes", "uid-1"), Origin("kubernetes", "uid-2")


def pod(name: str, *gpus: str, unresolved: tuple[str, ...] = ()) -> DeviceClaim:
    return DeviceClaim("kubernetes", gpus, unresolved, namespace="ns", pod=name)


@pytest.mark.parametrize(
    ("claims", "seen", "joined"),
    [
        ([pod("one", "GPU-a", "GPU-b"), pod("two", "GPU-c")], {UID_1: {"GPU-a"}, UID_2: {"GPU-c"}}, [UID_1, UID_2]),
        # Where anything else fits, nothing is joined.
        ([pod("one", "GPU-a"), pod("two", "GPU-a")], {UID_1: {"GPU-a"}}, []),
        ([pod("one", "GPU-a")], {UID_1: {"GPU-a"}, UID_2: {"GPU-a"}}, []),
        ([pod("one", "GPU-a")], {UID_1: {"GPU-a", "GPU-b"}}, []),
        ([pod("one", "GPU-a")], {Origin("docker", "x"): {"GPU-a"}}, []),
        ([pod("one", "GPU-a", unresolved=("nvidia9",))], {UID_1: {"GPU-a"}}, []),
        ([pod("one")], {UID_1: {"GPU-a"}}, []),
    ],
)
def test_a_pod_is_joined_to_the_only_uid_on_its_gpus(
    claims: list[DeviceClaim], seen: dict[Origin, set[str]], joined: list[Origin]
) -> None:
    matches = join_claims(claims, {origin: frozenset(gpus) for origin, gpus in seen.items()})
    assert matches == dict(zip(claims, joined, strict=False))


def message(*fields: tuple[int, bytes | str]) -> bytes:
    out = b""
    for number, value in fields:
        raw = value.encode() if isinstance(value, str) else value
        out += bytes([number << 3 | 2, len(raw) & 0x7F | 0x80, len(raw) >> 7]) + raw
    return out


def test_the_kubelets_answer_is_read_by_resource() -> None:
    gpu, renamed = message((1, "nvidia.com/gpu"), (2, "GPU-a"), (2, "GPU-b::1")), message((1, "acme/gpu"), (2, "GPU-c"))
    nics = message((1, "nvidia.com/hostdev"), (2, "0000:18:00.0"), (2, "0\x07"))
    dra = message((4, message((2, "gpu.nvidia.com"), (3, "pool"), (4, "gpu-2"))))
    container = message((1, "c")) + b"\x18\x07" + message((2, gpu), (2, renamed), (2, nics), (5, dra))
    answer = message((1, message((1, "web"), (2, "ns"), (3, container))), (1, message((1, "bare"), (2, "ns"))))
    (pod,) = decode_pods(answer)
    assert pod.devices[3:5] == (("nvidia.com/hostdev", "0000:18:00.0"), ("nvidia.com/hostdev", "0"))
    whole = ("GPU-a", "GPU-b", "GPU-c"), ("dra:pool/gpu-2",)
    assert claim_of(pod, DEVICES) == DeviceClaim("kubernetes", *whole, namespace="ns", pod="web")
    assert claim_of(replace(pod, devices=(("acme/gpu", "GPU-z"), *pod.devices[3:5])), DEVICES) is None
    assert decode_pods(b"") == ()
    with pytest.raises(WireError):
        decode_pods(b"\x0a\x7f")
