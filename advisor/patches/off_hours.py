"""A service switched off in its quiet hours: two CronJobs that scale it, with the right to do that and no other."""

from __future__ import annotations

from typing import Any

from ...rules.base.errors import UsageError
from .bare_patches import named_object
from .model import PatchFile, PatchPart, PatchSet
from .names import file_slug, image_name
from .objects import ANNOTATION, identity, target_words
from .pods import pod_groups
from .subject import Subject
from .workload import check_address
from .yaml_documents import Document, read_documents, write_document

_SCALED = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


def off_hours_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    hours = subject.told.off_hours
    if hours is None:
        raise UsageError("The ledger does not know the quiet hours of this recommendation.", "Accept it again.")
    if subject.asked.image is None:
        raise UsageError(
            "The CronJobs that scale the service run kubectl, and no image for it is set.",
            "Set --kubectl-image to an image with kubectl that your cluster may pull.",
        )
    head, replicas = _service(subject)
    if head["kind"] not in _SCALED:
        raise UsageError(f"A {head['kind']} has no replicas to scale.", "Stop it in its quiet hours by other means.")
    documents = _objects(subject, head, replicas, hours, image_name(subject.asked.image))
    patch = PatchFile("off-hours.yaml", "---\n".join(write_document(one) for one in documents))
    bare = [_bare(one) for one in documents]
    undo = PatchFile("undo-off-hours.yaml", "---\n".join(write_document(one) for one in bare))
    who = target_words(head)
    part = PatchPart(
        f"schedule of {head['kind']} {head['metadata']['name']}", patch, undo,
        (f"kubectl create -f {patch.name}",),
        (f"kubectl delete -f {undo.name}", f"kubectl scale {who} --replicas {replicas}"),
    )  # fmt: skip
    notes = (
        f"The hours are UTC: off from {hours[0]:02d}:00 to {hours[1]:02d}:00. timeZone needs Kubernetes 1.27.",
        "An autoscaler with minReplicas of 1 or more scales it up again; suspend it in these hours too.",
    )
    return PatchSet((part,), notes)


def _service(subject: Subject) -> tuple[Document, int]:
    """What is scaled, and to how many replicas it returns."""
    if not subject.asked.manifests:
        if subject.asked.replicas is None:
            raise UsageError("Current number of replicas unknown.", "Set --replicas, or --manifest FILE.")
        return named_object(subject), subject.asked.replicas
    given = subject.asked.manifests[0]
    found = [one for one in read_documents(given.raw, given.name) if one["kind"] in _SCALED and pod_groups(one)]
    if len(found) != 1 or found[0]["metadata"].get("namespace") is None:
        raise UsageError(
            "The manifest is not that of one Deployment or StatefulSet with its namespace.",
            "Use the output of 'kubectl get deployment NAME -n NAMESPACE -o yaml'.",
        )
    check_address(found[0], subject)
    return identity(found[0]), subject.asked.replicas or pod_groups(found[0])[0].count


def _objects(subject: Subject, head: Document, replicas: int, hours: tuple[int, int], image: str) -> list[Document]:
    name = f"skuwise-{file_slug(subject.id)}"
    space, of = head["metadata"]["namespace"], head["metadata"]["name"]
    role = "rbac.authorization.k8s.io"

    def metadata(called: str) -> dict[str, Any]:
        return {"name": called, "namespace": space, "annotations": {ANNOTATION: subject.id}}

    objects: list[Document] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name)},
        {"apiVersion": f"{role}/v1", "kind": "Role", "metadata": metadata(name), "rules": [
            {"apiGroups": ["apps"], "resources": [_SCALED[head["kind"]]], "resourceNames": [of], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": [f"{_SCALED[head['kind']]}/scale"], "resourceNames": [of],
             "verbs": ["get", "update", "patch"]},
        ]},
        {"apiVersion": f"{role}/v1", "kind": "RoleBinding", "metadata": metadata(name),
         "roleRef": {"apiGroup": role, "kind": "Role", "name": name},
         "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space}]},
    ]  # fmt: skip
    for way, hour, count in (("off", hours[0], 0), ("on", hours[1], replicas)):
        command = ["kubectl", "scale", f"{_SCALED[head['kind']]}.apps", of, "-n", space, "--replicas", str(count)]
        container = {"name": "kubectl", "image": image, "command": command}
        pod = {"serviceAccountName": name, "restartPolicy": "OnFailure", "containers": [container]}
        spec = {
            "schedule": f"0 {hour} * * *", "timeZone": "Etc/UTC", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        }  # fmt: skip
        objects.append(
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata(f"{name}-{way}"), "spec": spec}
        )
    return objects


def _bare(document: Document) -> Document:
    """What kubectl deletes an object by."""
    metadata = {key: document["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
