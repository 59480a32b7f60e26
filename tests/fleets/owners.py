"""Who owns a pod, and what its pods are called: the chains as kube-state-metrics exports them without configuration.

Rests on: kube-state-metrics' docs/metrics (pod: kube_pod_info, kube_pod_owner; replicaset: kube_replicaset_owner; job:
kube_job_owner; there is no owner series of a StatefulSet, and none of custom resources); Kubernetes' documentation of
generated names, StatefulSets (NAME-ORDINAL), CronJobs (NAME-MINUTES) and indexed Jobs (JOB-INDEX-xxxxx); the Kubeflow
training operator (NAME-master-0, NAME-worker-N owned by the PyTorchJob); mpi-operator v2beta1 (workers owned by the
MPIJob, the launcher by a batch Job NAME-launcher that the MPIJob owns); JobSet (Jobs JOBSET-REPLICATEDJOB-INDEX);
LeaderWorkerSet's reference (leader NAME-GROUP of StatefulSet NAME, workers NAME-GROUP-N of StatefulSet NAME-GROUP);
KubeRay's quick start (NAME-head-xxxxx, NAME-GROUP-worker-xxxxx owned by the RayCluster); Volcano (pods JOB-TASK-INDEX,
owned by a Job that is no batch Job, so that no kube_job_owner tells of it); Kubeflow's Notebook (a StatefulSet of its
name); KServe (Deployment NAME-predictor, on Knative one Deployment NAME-predictor-REVISION-deployment a revision).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .names import generated

if TYPE_CHECKING:
    from .description import Workload

GANGS = ("PyTorchJob", "MPIJob", "JobSet", "LeaderWorkerSet", "RayCluster", "IndexedJob", "VolcanoJob")
"""Owners whose pods are one piece of work: none of them does anything useful without the others."""
REPLICATED = ("Deployment", "InferenceService", "KnativeService", "StatefulSet")
"""Owners whose pods do the same work side by side."""
FINITE = ("Job", "CronJob", "PyTorchJob", "MPIJob", "JobSet", "IndexedJob", "VolcanoJob")


@dataclass(frozen=True)
class Owned:
    """What stands above a pod. `kind`, `name`: its own owner ("" for none). `above`: the metric, the label that names
    the owner in it, and the owner's owner ("" for none); None where kube-state-metrics has no series of the owner."""

    kind: str = ""
    name: str = ""
    above: tuple[str, str, str, str] | None = None


def pod_name(work: Workload, number: int) -> str:
    """The name of the workload's pod `number`."""
    name, space = work.called, work.namespace
    some = generated(5, space, name, number, *_more(work))
    match work.owner:
        case "StatefulSet" | "Notebook":
            return f"{name}-{number}"
        case "PyTorchJob":
            return f"{name}-master-0" if number == 0 else f"{name}-worker-{number - 1}"
        case "MPIJob" | "VolcanoJob":
            return f"{name}-worker-{number}"
        case "Deployment" | "InferenceService" | "KnativeService":
            return suffixed(replica_set(work), some)
        case "Pod":
            return name if number == 0 else f"{name}-{number}"
        case "LeaderWorkerSet":
            return f"{name}-{work.group}" + (f"-{number}" if number else "")
        case "RayCluster":
            return suffixed(f"{name}-head" if number == 0 else f"{name}-gpu-worker", some)
        case "JobSet":
            return suffixed(f"{name}-workers-{number}-0", some)
        case "IndexedJob":
            return suffixed(f"{name}-{number}", some)
        case _:
            return suffixed(work.job, some)


def suffixed(base: str, some: str) -> str:
    """As the API server makes a name of a generateName: what is longer than 58 characters is cut off before the
    generated part (k8s.io/apiserver, storage/names)."""
    return f"{base}-"[:58] + some


def owned(work: Workload, number: int) -> Owned:
    """What stands above the workload's pod `number`."""
    name = work.called
    match work.owner:
        case "Deployment" | "InferenceService" | "KnativeService":
            own = replica_set(work)
            return Owned("ReplicaSet", own, ("kube_replicaset_owner", own, "Deployment", deployment(work)))
        case "CronJob":
            return Owned("Job", work.job, ("kube_job_owner", work.job, "CronJob", name))
        case "Job" | "IndexedJob":
            return Owned("Job", name, ("kube_job_owner", name, "", ""))
        case "JobSet":
            own = f"{name}-workers-{number}"
            return Owned("Job", own, ("kube_job_owner", own, "JobSet", name))
        case "VolcanoJob":
            return Owned("Job", name)
        case "Notebook":
            return Owned("StatefulSet", name)
        case "LeaderWorkerSet":
            return Owned("StatefulSet", f"{name}-{work.group}" if number else name)
        case "Pod":
            return Owned()
        case kind:
            return Owned(kind, name)


def deployment(work: Workload) -> str:
    """The Deployment's name; KServe derives it from that of the InferenceService."""
    if work.owner == "InferenceService":
        return f"{work.called}-predictor"
    if work.owner == "KnativeService":
        return f"{work.called}-predictor-{work.revision + 1:05d}-deployment"
    return work.called


def replica_set(work: Workload) -> str:
    return f"{deployment(work)}-{generated(10, work.namespace, work.called, *_more(work))}"


def launcher(work: Workload) -> tuple[str, Owned] | None:
    """A pod without GPUs that belongs to the work: the launcher of an MPIJob."""
    if work.owner != "MPIJob":
        return None
    job = f"{work.called}-launcher"
    return f"{job}-{generated(5, work.namespace, job, *_more(work))}", Owned(
        "Job", job, ("kube_job_owner", job, "MPIJob", work.called)
    )  # fmt: skip


def _more(work: Workload) -> tuple[str, ...]:
    """What sets a later revision apart from the first."""
    return (str(work.revision),) if work.revision else ()
