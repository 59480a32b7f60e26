"""Which GPUs of which nodes are to be cut into MIG instances."""

from __future__ import annotations

from ...rules.base.errors import UsageError
from .subject import Subject


def mig_counts(subject: Subject) -> dict[str, int]:
    """Node -> how many of its GPUs: as few nodes as hold the instances of all replicas, in the order of their names.

    With --device, as many on each node as were typed. Raises UsageError where the nodes are not known, or too few.
    """
    subject.mig_per_gpu()  # refuses a profile that the GPU does not have
    nodes = subject.asked.nodes or subject.ground.nodes
    if not nodes:
        raise UsageError("The ledger does not know the nodes of this recommendation.", "Set --node NAME.")
    if subject.asked.devices:
        return dict.fromkeys(nodes, len(subject.asked.devices))
    left, room = subject.ground.target.gpu_count, subject.gpus_per_node()
    if room is None:
        raise UsageError("Number of GPUs of its nodes unknown.", "Set --device with the GPUs to divide, as in 0,1.")
    counts: dict[str, int] = {}
    for node in nodes:
        if left <= 0:
            break
        counts[node] = min(left, room)
        left -= counts[node]
    if left > 0:
        raise UsageError(
            f"{len(nodes)} nodes of {room} GPUs do not hold {subject.ground.target.gpu_count} GPUs.",
            "Name more nodes with --node.",
        )
    return counts
