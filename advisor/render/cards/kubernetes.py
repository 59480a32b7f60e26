"""A card as Kubernetes manifests: an Event about the pod, and an annotation. Printed, never applied.

JSON is YAML: a document in JSON's syntax needs no rules about which names must be quoted, and kubectl takes it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ....agent.base.safe_text import clean_text
from ....rules.base.errors import UsageError
from ...core.card_types import Card
from ...core.ids import stable_id
from ...core.timestamps import rfc3339
from ...views.card_rows import card_rows
from .admin_comment import compact

ANNOTATION = "skuwise.dev/card"
# https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/: "note ... must be less than 1kB".
NOTE_MAX = 1024
# RFC 1123 as Kubernetes checks names: a subdomain for a pod, a label for a namespace.
_POD = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NOTED = ("Time", "GPUs", "Kind", "Bottleneck", "SM activity", "Memory", "Idle", "Cost", "Next step")


def event_manifest(card: Card) -> str:
    """An Event (events.k8s.io/v1) about the pod, one for each card of it: `kubectl create` of the same is refused.

    Raises UsageError where the job is no pod.
    """
    namespace, pod = _pod_of(card)
    warns = card.next_step.code not in ("card-nothing", "card-too-little")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": stable_id("skuwise", card.id, card.end), "namespace": namespace},
        "eventTime": rfc3339(card.generated_at).replace("Z", ".000000Z"),
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod},
        "reportingController": "skuwise.dev/skuwise",
        "reportingInstance": "skuwise",
        "action": "Reported",
        "reason": "GPUUse",
        "type": "Warning" if warns else "Normal",
        "note": note(card),
    }
    return _document(event)


def annotation_manifest(card: Card) -> str:
    """The pod with the annotation alone, for ``kubectl apply --server-side`` or ``kubectl patch --patch-file``. Raises
    UsageError where the job is no pod."""
    namespace, pod = _pod_of(card)
    metadata = {"name": pod, "namespace": namespace, "annotations": {ANNOTATION: compact(card)}}
    return _document({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def note(card: Card) -> str:
    """What the card says, in less than 1 kB of UTF-8; its next step is never cut."""
    rows = {row.label: row.text for row in card_rows(card)}
    last = f"Next step: {clean_text(rows['Next step'], 200)}"
    parts = [f"{label}: {clean_text(rows[label], 200)}" for label in _NOTED[:-1] if label in rows]
    while parts and len("; ".join([*parts, last]).encode()) >= NOTE_MAX:
        parts.pop()
    return "; ".join([*parts, last])


def _pod_of(card: Card) -> tuple[str, str]:
    namespace, pod = card.namespace, card.pod
    if not namespace or not pod:
        raise UsageError("This job is not a pod: namespace or pod unknown.", "Use another --format.")
    if not _POD.fullmatch(pod) or not _NAMESPACE.fullmatch(namespace):
        raise UsageError("Its pod or namespace is not a valid Kubernetes name.", "Use another --format.")
    return namespace, pod


def _document(value: dict[str, Any]) -> str:
    """YAML lets some characters stand in no document, which ASCII escapes."""
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"
