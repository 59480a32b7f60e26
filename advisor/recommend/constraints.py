"""What forbids a move, each with its reason in words. In doubt a gate closes: what is not known is not assumed."""

from __future__ import annotations

import math
import re

from ...rules.catalog.types import GpuSku, NodeSku
from ..core.coded_text import CodedText, coded
from .groups import Group
from .prediction import LINK_IN_USE, USE_NAMES

# Memory a target must leave free: a tenth for growth, then the driver and the CUDA context.
MEMORY_SHARE = 0.90
RESERVED_BYTES = 3.5e9 + 0.4e9
HOST_BOUND = 0.5  # share of busy time from which the host or launches, not the GPU, set the pace
CPU_HEADROOM = 2.0  # a mean hides peaks: a host must offer twice what is busy on average
NVLINK = ("nvswitch", "nvlink-bridge", "xgmi")
FP8_CAPABILITY = (8, 9)
BF16_CAPABILITY = (8, 0)
# Compute capability from which NVIDIA's tensor cores have a precision (CUDA C++ programming guide, compute
# capabilities). Weights of four-bit integers compute in 16 bits: kernels for them exist from 7.5 on.
PRECISION_CAPABILITY = {
    "bf16": BF16_CAPABILITY, "fp8": FP8_CAPABILITY, "fp4": (10, 0), "int8": (7, 5), "int4": (7, 5),
}  # fmt: skip

# What stands against moves of several kinds.
NODES_MIXED = coded("nodes-of-several-kinds", "its nodes have several types; evaluate each by hand")
WHICH_NODES = coded("nodes-to-give-up-unclear", "its nodes have several types; choose by hand which of them to release")
NODES_SHARED = coded("nodes-shared", "other work runs on the same nodes, so none of them becomes free")
GPUS_SHARED = coded("gpus-shared", "its GPUs are shared with other work that must move as well")
_SLICED = coded("holds-mig-instances", "it holds MIG instances of GPUs that other work may share")


def gates(
    group: Group, source: GpuSku, source_node: NodeSku | None, target: GpuSku, node: NodeSku
) -> tuple[CodedText, ...]:
    """Every reason why `group` must not move to `node`, which carries `target`; empty: nothing forbids it."""
    reasons = [
        _shared(group),
        other_stack(source, target),
        _precision(source, target),
        _memory(group, source, target),
        arm_host(source, target),
        _nvlink(group, source_node, node),
        _split(group, node, source, target),
        _host(group, source_node, node),
        _fabric(group, source_node, node),
        _host_bound(group, source, target),
    ]
    return tuple(r for r in reasons if r)


def fewer_gpus_gates(group: Group, gpus: int) -> tuple[CodedText, ...]:
    """Every reason why `group` must not shrink to `gpus` GPUs of the same kind."""
    reasons = [_shared(group)]
    excused = group.kept.get("surplus")
    if excused is not None:
        reasons.append(coded("kept-by-exception", "exception {id} keeps its GPUs", id=excused.id))
    if group.phase == "training":
        reasons.append(
            coded("training-runs-longer", "training on fewer GPUs takes proportionally longer and saves nothing")
        )
    if group.demand_p95 is None:
        lacking = " and ".join(USE_NAMES[name] for name in group.lacking)
        lacking = lacking or "its use"
        reasons.append(coded("demand-unknown", "demand unknown: no data on {lacking}", lacking=lacking))
    elif gpus % max(group.gpus_per_replica, 1) and group.may_use_nvlink:
        reasons.append(
            coded(
                "replica-over-nvlink",
                "the GPUs of a replica communicate over NVLink (tensor parallelism), and the required memory is "
                "unknown",
            )
        )
    return tuple(r for r in reasons if r)


def room_bytes(mem_bytes: float) -> float:
    """What a GPU (or an instance) of so much memory may be asked to hold."""
    return max(MEMORY_SHARE * (mem_bytes - RESERVED_BYTES), 0.0)


def _shared(group: Group) -> CodedText | None:
    if group.sliced:
        return _SLICED
    return GPUS_SHARED if group.shared else None


def other_stack(source: GpuSku, target: GpuSku) -> CodedText | None:
    if source.vendor.lower() == target.vendor.lower():
        return None
    return coded(
        "other-software-stack",
        "{sku} needs a different software stack ({vendor})",
        sku=target.name,
        vendor=target.vendor,
    )


def arm_host(source: GpuSku, target: GpuSku) -> CodedText | None:
    # Grace superchips (GH200, GB200, GB300) sit beside an Arm processor.
    if re.match(r"G[HB]\d", target.name) and not re.match(r"G[HB]\d", source.name):
        return coded("arm-host", "{sku} has an Arm host, which does not run x86 software", sku=target.name)
    return None


def _split(group: Group, node: NodeSku, source: GpuSku, target: GpuSku) -> CodedText | None:
    together = max((-(-len(w.gpus) // max(len(w.nodes), 1)) for w in group.now), default=1)
    if node.gpu_count >= together:
        return None
    # Cards that have PCIe alone, and hardly use it, may still hold parts of one model: it must fit where fewer are.
    share = group.mem_needed_max
    whole = None if share is None else share * source.mem_bytes * together
    fits = whole is not None and whole <= room_bytes(target.mem_bytes) * node.gpu_count
    linked = any(not n.without_nvlink for n in group.nodes)
    if (fits or linked) and _quiet(group, "n") and _quiet(group, "p"):
        return None
    return coded(
        "node-too-small",
        "one workload uses {together} GPUs per node, this node has {gpu_count}, and the work may not be divisible",
        together=together, gpu_count=node.gpu_count,
    )  # fmt: skip


def _host(group: Group, source_node: NodeSku | None, node: NodeSku) -> CodedText | None:
    if source_node is None or not source_node.vcpus or not node.vcpus:
        return None
    here, there = source_node.vcpus / source_node.gpu_count, node.vcpus / node.gpu_count
    if there >= here:
        return None
    busy = group.feature("cpu")
    if busy is None:
        return coded(
            "cpu-need-unknown",
            "it has {there:.0f} CPU threads per GPU instead of {here:.0f}, and the CPU need was not measured",
            there=there, here=here,
        )  # fmt: skip
    if there < CPU_HEADROOM * busy * here:
        return coded(
            "too-few-cpus", "it has {there:.0f} CPU threads per GPU, but {busy:.0f} are busy on average",
            there=there, busy=busy * here,
        )  # fmt: skip
    return None


def _quiet(group: Group, link: str) -> bool:
    return group.use.link_p95[link] < LINK_IN_USE  # what was not measured is not quiet


def lacks_precision(target: GpuSku, precision: str) -> CodedText:
    return coded(
        "precision-missing", "{sku} has no {precision} (compute capability {compute_capability})",
        sku=target.name, precision=precision, compute_capability=target.compute_capability,
    )  # fmt: skip


def _precision(source: GpuSku, target: GpuSku) -> CodedText | None:
    here, there = capability(source), capability(target)
    if here is None or there is None:
        return None
    if there < BF16_CAPABILITY <= here:
        return lacks_precision(target, "BF16")
    if there < FP8_CAPABILITY <= here:
        return coded("precision-unknown", "precision in use unknown, and {sku} has no FP8", sku=target.name)
    return None


def _memory(group: Group, source: GpuSku, target: GpuSku) -> CodedText | None:
    if target.mem_bytes >= source.mem_bytes:
        return None
    if group.preallocates:
        return CodedText(
            "memory-preallocated",
            f"required memory unknown: the engine allocates all available memory, and {target.name} has "
            f"{target.mem_bytes / 1e9:.0f} GB instead of {source.mem_bytes / 1e9:.0f} GB",
            {"sku": target.name, "mem_bytes": target.mem_bytes, "mem_bytes_today": source.mem_bytes},
        )
    if group.mem_used_max is None:
        return coded(
            "memory-not-measured", "required memory unknown: no memory data, and {sku} has less memory",
            sku=target.name,
        )  # fmt: skip
    needed = group.mem_used_max * source.mem_bytes
    room = room_bytes(target.mem_bytes)
    if needed <= room:
        return None
    return CodedText(
        "memory-too-small",
        f"it uses up to {needed / 1e9:.0f} GB per GPU; {target.name} has room for {room / 1e9:.0f} GB",
        {"sku": target.name, "needed_bytes": needed, "room_bytes": room},
    )


def _nvlink(group: Group, source_node: NodeSku | None, node: NodeSku) -> CodedText | None:
    had = group.gpus_per_replica > 1 and source_node is not None and source_node.intra_node_link in NVLINK
    if not group.uses_nvlink and not (had and group.may_use_nvlink):
        return None
    if node.intra_node_link not in NVLINK:
        if not group.uses_nvlink:
            return coded(
                "nvlink-not-measured",
                "NVLink traffic of its GPUs was not measured, and this node connects GPUs only by PCIe",
            )
        return coded("nvlink-missing", "its GPUs use NVLink, and this node connects GPUs only by PCIe")
    in_one_node = group.gpus_per_replica if source_node is None else min(group.gpus_per_replica, source_node.gpu_count)
    if node.gpu_count < in_one_node:
        return coded(
            "nvlink-group-too-small", "{together} GPUs work together over NVLink, but this node has {gpu_count}",
            together=in_one_node, gpu_count=node.gpu_count,
        )  # fmt: skip
    return None


def _fabric(group: Group, source_node: NodeSku | None, node: NodeSku) -> CodedText | None:
    excused = group.kept.get("fabric")
    if excused is not None and not node.fabric.rdma and (source_node is None or source_node.fabric.rdma is not False):
        return coded(
            "fabric-by-exception", "it may need its fabric (exception {id}), and this node has none",
            id=excused.id,
        )  # fmt: skip
    spans = group.phase == "training" and any(len(w.nodes) > 1 for w in group.workloads)
    had = source_node is not None and source_node.fabric.rdma is True
    unknown = had and math.isnan(group.use.link_p95["i"])
    if not spans and not unknown and not group.use.matters("i"):
        return None
    if not node.fabric.rdma:
        if unknown and not spans:
            return coded("fabric-not-measured", "its fabric traffic was not measured, and this node has no fabric")
        what = "training that spans nodes" if spans else "work that uses the fabric"
        return coded("fabric-missing", "{what} needs a fabric, and this node has none", what=what)
    if source_node is None or not source_node.fabric.bytes_per_second:
        return None
    here = source_node.fabric.bytes_per_second / source_node.gpu_count
    if not node.fabric.bytes_per_second:
        return coded("fabric-rate-unknown", "fabric rate per GPU unknown")
    there = node.fabric.bytes_per_second / node.gpu_count
    if there < here:
        return CodedText(
            "fabric-slower",
            f"its fabric is slower per GPU ({there * 8e-9:.0f} instead of {here * 8e-9:.0f} Gb/s)",
            {"bytes_per_second": there, "bytes_per_second_today": here},
        )
    return None


def _host_bound(group: Group, source: GpuSku, target: GpuSku) -> CodedText | None:
    shares = group.bottleneck_shares
    busy = 1.0 - shares.get("idle", 0.0)
    waits = sum(shares.get(label, 0.0) for label in ("host-input", "latency")) / busy if busy > 0 else 0.0
    faster = target.mem_bandwidth_bytes_per_second > source.mem_bandwidth_bytes_per_second
    if waits < HOST_BOUND or not faster:
        return None
    return coded(
        "host-bound",
        "it waits for its host and launches in {waits:.0%} of its busy time, and so would a faster GPU "
        "(a published service: 0.65x the speed of H100 on B200)",
        waits=waits,
    )


def has_precision(sku: GpuSku, precision: str) -> bool:
    """Whether a GPU computes in a precision; of other vendors, whether the catalog has its rate."""
    needed, has = PRECISION_CAPABILITY.get(precision), capability(sku)
    if has is None:
        return precision == "int4" or precision in sku.dense_flops
    return needed is None or has >= needed


def capability(sku: GpuSku) -> tuple[int, int] | None:
    """Compute capability as numbers; None where the catalog has none (other vendors)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", sku.compute_capability)
    return (int(match.group(1)), int(match.group(2))) if match else None
