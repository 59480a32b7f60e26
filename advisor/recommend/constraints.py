"""What forbids a move, each with its reason in words. In doubt a gate closes: what is not known is not assumed."""

import math
import re
from collections.abc import Iterator

from ...rules.catalog.types import GpuSku, NodeSku
from ..core.coded_text import CodedText, coded
from .groups import Group
from .prediction import LINK_IN_USE, USE_NAMES

# Share of the time that may be missing: beyond it, what the GPUs did is unknown.
GAP_MAX = 0.01
# What idleness rests on: three signals of different origin, so that no stuck one alone makes a GPU idle.
REST = frozenset({"engine_active", "mem_used", "power"})
# What every statement of use and demand rests on.
WORK = REST | {"tensor_active", "dram_active"}
# Memory a target must leave free: a tenth for growth, then the driver and the CUDA context.
MEMORY_SHARE = 0.90
HOST_BOUND = 0.5  # share of busy time from which the host or launches, not the GPU, set the pace
CPU_HEADROOM = 2.0  # a mean hides peaks: a host must offer twice what is busy on average
NVLINK = ("nvswitch", "nvlink-bridge", "xgmi")
# Compute capability from which NVIDIA's tensor cores have a precision (CUDA C++ programming guide, compute
# capabilities). Weights of four-bit integers compute in 16 bits: kernels for them exist from 7.5 on.
PRECISION_CAPABILITY = {
    "bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0), "int8": (7, 5), "int4": (7, 5),
}  # fmt: skip

# What stands against moves of several kinds.
NODES_MIXED = coded("nodes-of-several-kinds", "its nodes have several types; evaluate each by hand")
WHICH_NODES = coded("nodes-to-give-up-unclear", "its nodes have several types; choose by hand which of them to release")
NODES_SHARED = coded("nodes-shared", "other work runs on the same nodes, so none of them becomes free")
GPUS_SHARED = coded("gpus-shared", "its GPUs are shared with other work that must move as well")


def gates(
    group: Group, source: GpuSku, source_node: NodeSku | None, target: GpuSku, node: NodeSku
) -> tuple[CodedText, ...]:
    """Every reason why `group` must not move to `node`, which carries `target`; empty: nothing forbids it."""
    reasons = (
        *_shared(group), other_stack(source, target), *_precision(source, target), *_memory(group, source, target),
        arm_host(source, target), *_nvlink(group, source_node, node), *_split(group, node, source, target),
        *_host(group, source_node, node), *_fabric(group, source_node, node), *_host_bound(group, source, target),
    )  # fmt: skip
    return tuple(r for r in reasons if r)


def fewer_gpus_gates(group: Group, gpus: int) -> tuple[CodedText, ...]:
    """Every reason why `group` must not shrink to `gpus` GPUs of the same kind."""
    reasons = [*_shared(group)]
    if (excused := group.kept.get("surplus")) is not None:
        reasons.append(coded("kept-by-exception", "exception {id} keeps its GPUs", id=excused.id))
    if group.phase == "training":
        what = "training on fewer GPUs takes proportionally longer and saves nothing"
        reasons.append(coded("training-runs-longer", what))
    if group.demand_p95 is None:
        lacking = " and ".join(USE_NAMES[name] for name in group.lacking) or "its use"
        reasons.append(coded("demand-unknown", "demand unknown: no data on {lacking}", lacking=lacking))
    elif gpus % max(group.gpus_per_replica, 1) and group.may_use_nvlink:
        what = "the GPUs of a replica communicate over NVLink (tensor parallelism), and the required memory is unknown"
        reasons.append(coded("replica-over-nvlink", what))
    return tuple(reasons)


def room_bytes(mem_bytes: float) -> float:
    """What a GPU (or an instance) of so much memory may be asked to hold."""
    return max(MEMORY_SHARE * (mem_bytes - (3.5e9 + 0.4e9)), 0.0)


def _shared(group: Group) -> Iterator[CodedText]:
    if group.sliced:
        yield coded("holds-mig-instances", "it holds MIG instances of GPUs that other work may share")
    elif group.shared:
        yield GPUS_SHARED


def other_stack(source: GpuSku, target: GpuSku) -> CodedText | None:
    if source.vendor.lower() == target.vendor.lower():
        return None
    what = "{sku} needs a different software stack ({vendor})"
    return coded("other-software-stack", what, sku=target.name, vendor=target.vendor)


def arm_host(source: GpuSku, target: GpuSku) -> CodedText | None:
    # Grace superchips (GH200, GB200, GB300) sit beside an Arm processor.
    if re.match(r"G[HB]\d", target.name) and not re.match(r"G[HB]\d", source.name):
        return coded("arm-host", "{sku} has an Arm host, which does not run x86 software", sku=target.name)
    return None


def _precision(source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    here, there = _capability(source), _capability(target)
    if here is None or there is None:
        return
    if there < PRECISION_CAPABILITY["bf16"] <= here:
        yield lacks_precision(target, "BF16")
    elif there < PRECISION_CAPABILITY["fp8"] <= here:
        yield coded("precision-unknown", "precision in use unknown, and {sku} has no FP8", sku=target.name)


def lacks_precision(target: GpuSku, precision: str) -> CodedText:
    what, has = "{sku} has no {precision} (compute capability {compute_capability})", target.compute_capability
    return coded("precision-missing", what, sku=target.name, precision=precision, compute_capability=has)


def _memory(group: Group, source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    there, here = target.mem_bytes, source.mem_bytes
    if there >= here:
        return
    if group.preallocates:
        what = f"{target.name} has {there / 1e9:.0f} GB instead of {here / 1e9:.0f} GB"
        what = f"required memory unknown: the engine allocates all available memory, and {what}"
        fields = {"sku": target.name, "mem_bytes": there, "mem_bytes_today": here}
        yield CodedText("memory-preallocated", what, fields)
    elif group.mem_used_max is None:
        what = "required memory unknown: no memory data, and {sku} has less memory"
        yield coded("memory-not-measured", what, sku=target.name)
    elif (needed := group.mem_used_max * here) > (room := room_bytes(there)):
        what = f"it uses up to {needed / 1e9:.0f} GB per GPU; {target.name} has room for {room / 1e9:.0f} GB"
        yield CodedText("memory-too-small", what, {"sku": target.name, "needed_bytes": needed, "room_bytes": room})


def _nvlink(group: Group, source_node: NodeSku | None, node: NodeSku) -> Iterator[CodedText]:
    together = group.gpus_per_replica
    had = together > 1 and source_node is not None and source_node.intra_node_link in NVLINK
    if source_node is not None:
        together = min(together, source_node.gpu_count)
    if not group.uses_nvlink and not (had and group.may_use_nvlink):
        return
    if node.intra_node_link not in NVLINK:
        code, what = "nvlink-missing", "its GPUs use NVLink"
        if not group.uses_nvlink:
            code, what = "nvlink-not-measured", "NVLink traffic of its GPUs was not measured"
        yield coded(code, f"{what}, and this node connects GPUs only by PCIe")
    elif node.gpu_count < together:
        what = "{together} GPUs work together over NVLink, but this node has {gpu_count}"
        yield coded("nvlink-group-too-small", what, together=together, gpu_count=node.gpu_count)


def _split(group: Group, node: NodeSku, source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    together = max((-(-len(w.gpus) // max(len(w.nodes), 1)) for w in group.now), default=1)
    # Cards that have PCIe alone, and hardly use it, may still hold parts of one model: it must fit where fewer are.
    share = group.mem_needed_max
    fits = share is not None and share * source.mem_bytes * together <= room_bytes(target.mem_bytes) * node.gpu_count
    linked = any(not n.without_nvlink for n in group.nodes)
    quiet = all(group.use.link_p95[link] < LINK_IN_USE for link in "np")  # what was not measured is not quiet
    if node.gpu_count < together and not (quiet and (fits or linked)):
        what = "one workload uses {together} GPUs per node, this node has {gpu_count}, and the work "
        what += "may not be divisible"
        yield coded("node-too-small", what, together=together, gpu_count=node.gpu_count)


def _host(group: Group, source_node: NodeSku | None, node: NodeSku) -> Iterator[CodedText]:
    if source_node is None or not source_node.vcpus or not node.vcpus:
        return
    here, there = source_node.vcpus / source_node.gpu_count, node.vcpus / node.gpu_count
    busy = group.feature("cpu")
    if there < here and busy is None:
        what = "it has {there:.0f} CPU threads per GPU instead of {here:.0f}, and the CPU need was not measured"
        yield coded("cpu-need-unknown", what, there=there, here=here)
    elif there < here and busy is not None and there < CPU_HEADROOM * busy * here:
        what = "it has {there:.0f} CPU threads per GPU, but {busy:.0f} are busy on average"
        yield coded("too-few-cpus", what, there=there, busy=busy * here)


def _fabric(group: Group, source_node: NodeSku | None, node: NodeSku) -> Iterator[CodedText]:
    excused, had = group.kept.get("fabric"), None if source_node is None else source_node.fabric.rdma
    if excused is not None and not node.fabric.rdma and had is not False:
        what = "it may need its fabric (exception {id}), and this node has none"
        yield coded("fabric-by-exception", what, id=excused.id)
        return
    spans = group.phase == "training" and any(len(w.nodes) > 1 for w in group.workloads)
    unknown = had is True and math.isnan(group.use.link_p95["i"])
    if not spans and not unknown and not group.use.matters("i"):
        return
    if not node.fabric.rdma:
        if unknown and not spans:
            yield coded("fabric-not-measured", "its fabric traffic was not measured, and this node has no fabric")
        else:
            what = "training that spans nodes" if spans else "work that uses the fabric"
            yield coded("fabric-missing", "{what} needs a fabric, and this node has none", what=what)
    elif source_node is not None and source_node.fabric.bytes_per_second:
        here = source_node.fabric.bytes_per_second / source_node.gpu_count
        if (there := (node.fabric.bytes_per_second or 0.0) / node.gpu_count) < here:  # 0: not known
            what = f"its fabric is slower per GPU ({there * 8e-9:.0f} instead of {here * 8e-9:.0f} Gb/s)"
            yield CodedText("fabric-slower", what, {"bytes_per_second": there, "bytes_per_second_today": here})


def _host_bound(group: Group, source: GpuSku, target: GpuSku) -> Iterator[CodedText]:
    waits = group.busy_share("host-input", "latency")
    if waits >= HOST_BOUND and target.mem_bandwidth_bytes_per_second > source.mem_bandwidth_bytes_per_second:
        what = "it waits for its host and launches in {waits:.0%} of its busy time, and so would a faster GPU"
        yield coded("host-bound", f"{what} (a published service: 0.65x the speed of H100 on B200)", waits=waits)


def has_precision(sku: GpuSku, precision: str) -> bool:
    """Whether a GPU computes in a precision; of other vendors, whether the catalog has its rate."""
    needed, has = PRECISION_CAPABILITY.get(precision), _capability(sku)
    if has is None:
        return precision == "int4" or precision in sku.dense_flops
    return needed is None or has >= needed


def _capability(sku: GpuSku) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", sku.compute_capability)
    return (int(match.group(1)), int(match.group(2))) if match else None
