"""Workloads of Kubernetes stopped, so that they hold no GPUs: suspended, or with no replicas."""

from __future__ import annotations

import copy

from ...rules.base.errors import UsageError
from .yaml_documents import Document

# API group and kind -> has spec.suspend.
_SUSPENDED = frozenset({
    ("batch", "Job"), ("batch", "CronJob"), ("ray.io", "RayCluster"), ("ray.io", "RayJob"),
    ("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob"),
})  # fmt: skip
# Training jobs of Kubeflow, which have spec.runPolicy.suspend; its other kinds (Notebook, Profile) have not.
_RUN_POLICY = frozenset(
    ("kubeflow.org", kind)
    for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
)  # fmt: skip
_REPLICATED = frozenset(
    {("apps", kind) for kind in ("Deployment", "StatefulSet", "ReplicaSet")} | {("", "ReplicationController")}
)


def stopped(document: Document) -> Document:
    """The object with its pods gone. Raises UsageError for a kind that has no field for that."""
    new = copy.deepcopy(document)
    kind = (str(document["apiVersion"]).rpartition("/")[0], document["kind"])
    spec = new["spec"]
    if kind in _SUSPENDED:
        spec["suspend"] = True
    elif isinstance(spec.get("runPolicy"), dict) or kind in _RUN_POLICY:
        policy = spec.get("runPolicy")
        spec["runPolicy"] = {**(policy if isinstance(policy, dict) else {}), "suspend": True}
    elif kind in _REPLICATED or "replicas" in spec:
        spec["replicas"] = 0
    else:
        of = f" of {kind[0]}" if kind[0] else ""
        raise UsageError(
            f"A {document['kind']}{of} cannot be stopped by a patch.",
            "Stop it with the tool it was started with, or delete it with kubectl.",
        )
    return new
