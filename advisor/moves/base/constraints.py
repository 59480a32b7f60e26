"""What forbids a move, each with its reason in words. In doubt a gate closes: what is not known is not assumed."""

from __future__ import annotations

import math
import re

from ....rules.catalog.types import GpuSku, NodeSku
from .prediction import LINK_IN_USE, USE_NAMES
from .workload_groups import Group

# Memory a target must leave free: a tenth for growth, then the driver and the CUDA context.
MEMORY_SHARE = 0.90
RESERVED_BYTES = 3.5e9 + 0.4e9
HOST_BOUND = 0.5  # share of busy time from which the host or launches, not the GPU, set the pace
CPU_HEADROOM = 2.0  # a mean hides peaks: a host must offer twice what is busy on average
NVLINK = ("nvswitch", "nvlink-bridge", "xgmi")
FP8_CAPABILITY = (8, 9)
BF16_CAPABILITY = (8, 0)


def gates(group: Group, source: GpuSku, source_node: NodeSku | None, target: GpuSku, node: NodeSku) -> tuple[str, ...]:
    """Every reason why `group` must not move to `node`, which carries `target`; empty: nothing forbids it."""
    reasons = [
        _shared(group),
        _vendor(source, target),
        _precision(source, target),
        _memory(group, source, target),
        _arm(source, target),
        _nvlink(group, source_node, node),
        _split(group, node),
        _host(group, source_node, node),
        _fabric(group, source_node, node),
        _host_bound(group, source, target),
    ]
    return tuple(r for r in reasons if r)


def fewer_gpus_gates(group: Group, gpus: int) -> tuple[str, ...]:
    """Every reason why `group` must not shrink to `gpus` GPUs of the same kind."""
    reasons = [_shared(group)]
    excused = group.kept.get("surplus")
    if excused is not None:
        reasons.append(f"its GPUs are kept by the exception {excused.id}")
    if group.phase == "training":
        reasons.append("training on fewer GPUs runs longer by as much: nothing is saved")
    if group.demand_p95 is None:
        lacking = " and ".join(USE_NAMES[name] for name in group.lacking)
        reasons.append(f"{lacking or 'its use'} was not measured, so the demand is not known")
    elif gpus % max(group.gpus_per_replica, 1) and group.may_use_nvlink:
        reasons.append(
            "the GPUs of a replica talk over NVLink (tensor parallelism): whether the model fits on fewer is not "
            "known (memory needed unknown)"
        )
    return tuple(r for r in reasons if r)


def room_bytes(mem_bytes: float) -> float:
    """What a GPU (or an instance) of so much memory may be asked to hold."""
    return max(MEMORY_SHARE * (mem_bytes - RESERVED_BYTES), 0.0)


def _shared(group: Group) -> str | None:
    if group.sliced:
        return "it holds MIG instances, parts of GPUs whose rest others may hold"
    return "its GPUs are shared with other work, which would have to move as well" if group.shared else None


def _vendor(source: GpuSku, target: GpuSku) -> str | None:
    if source.vendor.lower() == target.vendor.lower():
        return None
    return f"{target.name} needs another software stack ({target.vendor})"


def _arm(source: GpuSku, target: GpuSku) -> str | None:
    # Grace superchips (GH200, GB200, GB300) sit beside an Arm processor.
    if re.match(r"G[HB]\d", target.name) and not re.match(r"G[HB]\d", source.name):
        return f"{target.name} comes with an Arm host, and software built for x86 does not run there"
    return None


def _split(group: Group, node: NodeSku) -> str | None:
    together = max((-(-len(w.gpus) // max(len(w.nodes), 1)) for w in group.now), default=1)
    if node.gpu_count >= together or (_quiet(group, "n") and _quiet(group, "p")):
        return None
    return (
        f"{together} GPUs of one workload work on one node, this one has {node.gpu_count}, and whether they can be "
        "parted is not known"
    )


def _host(group: Group, source_node: NodeSku | None, node: NodeSku) -> str | None:
    if source_node is None or not source_node.vcpus or not node.vcpus:
        return None
    here, there = source_node.vcpus / source_node.gpu_count, node.vcpus / node.gpu_count
    if there >= here:
        return None
    busy = group.feature("cpu")
    if busy is None:
        return f"it has {there:.0f} CPU threads per GPU against {here:.0f}, and how many are needed was not measured"
    if there < CPU_HEADROOM * busy * here:
        return f"it has {there:.0f} CPU threads per GPU, and {busy * here:.0f} are busy on average today"
    return None


def _quiet(group: Group, link: str) -> bool:
    return group.use.link_p95[link] < LINK_IN_USE  # what was not measured is not quiet


def _precision(source: GpuSku, target: GpuSku) -> str | None:
    here, there = capability(source), capability(target)
    if here is None or there is None:
        return None
    if there < BF16_CAPABILITY <= here:
        return f"{target.name} has no BF16 (compute capability {target.compute_capability})"
    if there < FP8_CAPABILITY <= here:
        return f"the precision in use is not known, and {target.name} has no FP8"
    return None


def _memory(group: Group, source: GpuSku, target: GpuSku) -> str | None:
    if target.mem_bytes >= source.mem_bytes:
        return None
    if group.preallocates:
        return (
            f"memory needed unknown: the engine fills whatever memory it finds, and {target.name} has "
            f"{target.mem_bytes / 1e9:.0f} GB against {source.mem_bytes / 1e9:.0f} GB"
        )
    if group.mem_used_max is None:
        return f"memory needed unknown: its use was not measured, and {target.name} has less"
    needed = group.mem_used_max * source.mem_bytes
    room = room_bytes(target.mem_bytes)
    if needed <= room:
        return None
    return f"it used up to {needed / 1e9:.0f} GB per GPU, and {target.name} has room for {room / 1e9:.0f} GB"


def _nvlink(group: Group, source_node: NodeSku | None, node: NodeSku) -> str | None:
    had = group.gpus_per_replica > 1 and source_node is not None and source_node.intra_node_link in NVLINK
    if not group.uses_nvlink and not (had and group.may_use_nvlink):
        return None
    if node.intra_node_link not in NVLINK:
        if not group.uses_nvlink:
            return (
                "what its GPUs say to one another over NVLink was not measured, and this node joins them by PCIe only"
            )
        return "its GPUs talk over NVLink, and this node joins them by PCIe only"
    in_one_node = group.gpus_per_replica if source_node is None else min(group.gpus_per_replica, source_node.gpu_count)
    if node.gpu_count < in_one_node:
        return f"{in_one_node} GPUs work together over NVLink, and this node has {node.gpu_count}"
    return None


def _fabric(group: Group, source_node: NodeSku | None, node: NodeSku) -> str | None:
    excused = group.kept.get("fabric")
    if excused is not None and not node.fabric.rdma and (source_node is None or source_node.fabric.rdma is not False):
        return f"it may need its fabric, by the exception {excused.id}, and this node has none"
    spans = group.phase == "training" and any(len(w.nodes) > 1 for w in group.workloads)
    had = source_node is not None and source_node.fabric.rdma is True
    unknown = had and math.isnan(group.use.link_p95["i"])
    if not spans and not unknown and not group.use.matters("i"):
        return None
    if not node.fabric.rdma:
        if unknown and not spans:
            return "what its fabric carries was not measured, and this node has none"
        what = "training that spans nodes" if spans else "work that uses the fabric"
        return f"{what} never loses its fabric, and this node has none"
    if source_node is None or not source_node.fabric.bytes_per_second:
        return None
    here = source_node.fabric.bytes_per_second / source_node.gpu_count
    if not node.fabric.bytes_per_second:
        return "how fast its fabric is per GPU is not known"
    there = node.fabric.bytes_per_second / node.gpu_count
    if there < here:
        return f"its fabric is slower per GPU ({there * 8e-9:.0f} against {here * 8e-9:.0f} Gb/s)"
    return None


def _host_bound(group: Group, source: GpuSku, target: GpuSku) -> str | None:
    shares = group.bottleneck_shares
    busy = 1.0 - shares.get("idle", 0.0)
    waits = sum(shares.get(label, 0.0) for label in ("host-input", "latency")) / busy if busy > 0 else 0.0
    faster = target.mem_bandwidth_bytes_per_second > source.mem_bandwidth_bytes_per_second
    if waits < HOST_BOUND or not faster:
        return None
    return (
        f"its host and its launches set the pace in {waits:.0%} of its busy time, and a faster GPU waits for them as "
        "well: a small published service ran at 0.65x the speed of H100 on B200"
    )


def capability(sku: GpuSku) -> tuple[int, int] | None:
    """Compute capability as numbers; None where the catalog has none (other vendors)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", sku.compute_capability)
    return (int(match.group(1)), int(match.group(2))) if match else None
