"""By which label Kubernetes knows the nodes of a SKU."""

from __future__ import annotations

from ...rules.base.errors import UsageError
from .subject import Subject

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GPU_PRODUCT = "nvidia.com/gpu.product"
# Clouds whose node controller writes the instance type as the catalog names it
# (https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type).
_CLOUDS = frozenset({"aws", "azure", "gcp", "oci", "digitalocean", "scaleway"})


def target_labels(subject: Subject) -> tuple[dict[str, tuple[str, ...]], str]:
    """Label -> the values that the target's nodes have, and a note that says where they come from.

    Raises UsageError where no label is known.
    """
    if subject.asked.node_labels:
        found: dict[str, tuple[str, ...]] = {}
        for key, value in subject.asked.node_labels:
            found[key] = (*found.get(key, ()), value)
        return found, "The node labels are those of --node-label."
    node = subject.target_node
    if node is not None and node.provider in _CLOUDS:
        return {INSTANCE_TYPE: (node.instance_type,)}, (
            f"{INSTANCE_TYPE} is the label that {node.provider} sets. Check it with "
            f"'kubectl get nodes -L {INSTANCE_TYPE}'."
        )
    target = subject.ground.target
    gpu = subject.catalog.gpu(target.gpu_sku) if target.gpu_sku else None
    products = tuple(a.replace(" ", "-") for a in gpu.aliases if a.startswith(("NVIDIA ", "Tesla "))) if gpu else ()
    if products and target.gpu_sku != subject.ground.source.gpu_sku:
        return {GPU_PRODUCT: products}, (
            f"{GPU_PRODUCT} is the label that GPU Feature Discovery sets, with the names that drivers give this GPU. "
            f"Check it with 'kubectl get nodes -L {GPU_PRODUCT}'."
        )
    raise UsageError(
        f"No node label is known for {target.node_sku or target.gpu_sku or 'the target'}.",
        "Set --node-label KEY=VALUE to a label of these nodes ('kubectl get nodes --show-labels').",
    )
