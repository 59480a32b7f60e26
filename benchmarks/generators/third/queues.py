"""Jobs that wait at a fleet's end, in Kubernetes and Slurm: for GPUs, for something else, and some that want none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .rhythm import DAY, HOUR

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_OTHER = ("Dependency", "JobHeldUser", "JobHeldAdmin", "BeginTime", "QOSMaxGRESPerUser", "AssocGrpGRES", "Licenses",
          "ReqNodeNotAvail", "PartitionDown", "JobArrayTaskLimit", "Reservation", "BurstBufferResources")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waits:
    """What is true of a job, or of the tasks of an array: how many they are, GPUs that they want together, and whether
    they wait for these."""

    id: str
    jobs: int
    gpus: float
    for_gpus: bool


@dataclass(slots=True)
class Queue:
    """`pods`: (series, labels, value) of kube-state-metrics; `jobs`: of ``squeue --json``; `truth`: of those that want
    GPUs and have none."""

    pods: list[tuple[str, Mapping[str, object], float]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    truth: list[Waits] = field(default_factory=list)


def draw(rng: np.random.Generator, end: float, schedulers: Sequence[str]) -> Queue:
    """`end`: of the window, Unix seconds; `schedulers`: of the fleet's nodes."""
    queue = Queue()
    for number in range(int(rng.integers(0, 60)) if "kubernetes" in schedulers else 0):
        _pods(rng, queue, number, end - float(rng.exponential(6 * HOUR)))
    for number in range(int(rng.integers(0, 200)) if "slurm" in schedulers else 0):
        _slurm(rng, queue, 700_000 + 60 * number, end - float(rng.exponential(DAY)))
    if rng.random() < 0.5:  # from 23.11 on
        queue.jobs = [{name: _newer(name, value) for name, value in job.items()} for job in queue.jobs]
    return queue


def _newer(name: str, value: object) -> object:
    if name == "job_state":
        return [value]
    is_number = name != "job_id" and (isinstance(value, int) or value is None)
    return {"set": value is not None, "infinite": False, "number": value or 0} if is_number else value


def _pods(rng: np.random.Generator, queue: Queue, number: int, since: float) -> None:
    space, gpus = str(rng.choice(["ml", "research", "prod"])), int(rng.choice([1, 1, 2, 4, 8]))
    kind = str(rng.choice(["alone", "job", "gang", "mig", "storage", "first-consumer", "gate", "bound", "cpu"]))
    names = [f"wait-{number}"]
    owner = {"gang": "PyTorchJob", "job": "Job"}.get(kind, "")
    if kind == "gang":
        names = [f"wait-{number}-worker-{n}" for n in range(rng.integers(2, 9))]
    elif kind == "job":
        names = [f"wait-{number}-{n}-{''.join(rng.choice(list(_LETTERS), 5))}" for n in range(rng.integers(1, 9))]
    resource = {"mig": "nvidia_com_mig_3g_40gb", "cpu": "cpu"}.get(kind, "nvidia_com_gpu")
    for name in names:
        pod = {"namespace": space, "pod": name, "uid": f"{number:08x}-0000-4000-8000-{len(queue.pods):012x}"}
        mostly = int(rng.choice([0, gpus]))  # an init container may want as many
        queue.pods += [
            ("kube_pod_created", pod, since), ("kube_pod_status_phase", {**pod, "phase": "Pending"}, 1),
            ("kube_pod_status_phase", {**pod, "phase": "Running"}, 0),
            ("kube_pod_status_scheduled", {**pod, "condition": "true"}, float(kind == "bound")),
            ("kube_pod_status_reason", {**pod, "reason": "SchedulingGated"}, float(kind == "gate")),
            ("kube_pod_owner", {**pod, "owner_kind": owner, "owner_name": f"wait-{number}" if owner else "",
                                "owner_is_controller": "true" if owner else ""}, 1),
            ("kube_pod_container_resource_requests", {**pod, "container": "main", "resource": resource}, gpus),
            ("kube_pod_init_container_resource_requests", {**pod, "container": "i", "resource": resource}, mostly),
        ]  # fmt: skip
        if kind in ("storage", "first-consumer"):
            claim = {"namespace": space, "persistentvolumeclaim": f"data-{number}"}
            mode = "Immediate" if kind == "storage" else "WaitForFirstConsumer"
            queue.pods += [
                ("kube_pod_spec_volumes_persistentvolumeclaims_info", {**pod, **claim, "volume": "data"}, 1),
                ("kube_persistentvolumeclaim_info", {**claim, "storageclass": mode.lower()}, 1),
                ("kube_persistentvolumeclaim_status_phase", {**claim, "phase": "Bound"}, 0),
                ("kube_storageclass_info", {"storageclass": mode.lower(), "volume_binding_mode": mode}, 1),
            ]  # fmt: skip
    if kind not in ("bound", "cpu"):
        each, is_free = gpus * (3 / 7 if kind == "mig" else 1.0), kind not in ("storage", "gate")
        together = [(names[0], each * len(names))] if kind == "gang" else [(name, each) for name in names]
        queue.truth += [Waits(f"{space}/{name}", 1, wanted, is_free) for name, wanted in together]


def _slurm(rng: np.random.Generator, queue: Queue, number: int, since: float) -> None:
    kind = str(rng.choice(["node", "job", "task", "array", "het", "cpu", "running", "done"]))
    gpus, nodes, tasks = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 1, 2, 4])), int(rng.integers(2, 9))
    reason = str(rng.choice(_OTHER)) if rng.random() < 0.4 else str(rng.choice(["Resources", "Priority", "None"]))
    gpu_type = str(rng.choice(["", "", "h100:"]))
    job: dict[str, Any] = {
        "job_id": number, "name": f"work-{number}", "user_name": f"user{number % 7}", "account": "lab",
        "partition": "gpu", "cluster": "slurm", "job_state": "PENDING", "state_reason": reason, "array_job_id": 0,
        "array_task_id": None, "array_task_string": "", "het_job_id": 0, "het_job_offset": 0, "node_count": nodes,
        "max_nodes": 0, "tasks": tasks, "tres_per_node": "", "tres_per_job": "", "tres_per_task": "",
        "tres_req_str": f"cpu=8,mem=64G,node={nodes},billing=8", "submit_time": int(since),
    }  # fmt: skip
    asked = {"job": "tres_per_job", "task": "tres_per_task"}.get(kind, "tres_per_node")
    each = gpus * {"job": 1, "task": tasks}.get(kind, nodes)
    if kind != "cpu":
        job[asked] = f"gres{rng.choice([':', '/'])}gpu:{gpu_type}{gpus}"
        if rng.random() < 0.5:  # a cluster that tracks them
            job["tres_req_str"] += f",gres/gpu={each}"
    jobs, identity, parts = 1, str(number), [job]
    if kind == "array":
        first, last, step = int(rng.integers(0, 50)), int(rng.integers(51, 400)), int(rng.integers(1, 4))
        listed = f"{first}-{last}:{step}" if step > 1 else f"{first}-{last}"
        job |= {"array_job_id": number, "array_task_string": f"{listed},500%4"}
        jobs, identity = len(range(first, last + 1, step)) + 1, f"{number}_[{listed},500%4]"
    elif kind == "het":
        parts = [{**job, "job_id": number + n, "het_job_id": number, "het_job_offset": n} for n in range(3)]
        each *= 3
    elif kind in ("running", "done"):
        job["job_state"] = {"running": "RUNNING", "done": "COMPLETED"}[kind]
    queue.jobs += [parts[n] for n in rng.permutation(len(parts))]
    if kind not in ("cpu", "running", "done"):
        queue.truth.append(Waits(identity, jobs, float(each * jobs), reason not in _OTHER))
