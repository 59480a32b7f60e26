"""What each workload did in each span, by all of its GPUs, its own engine and its hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...rules.policy.watch import WatchRules
from ..core.recent import Recent, Values
from .signs import GpuSigns
from .timeline import Floats, Mask, Timeline, joined, low_level

_BASE = 0.1
_HOST = ("disk_bytes_per_second", "network_bytes_per_second")


@dataclass(frozen=True)
class HoldSigns:
    """Masks of (holds, spans) from each hold's begin on: `work`: a GPU worked, or its engine had requests; `progress`:
    work beyond a spin; `rest`: every GPU rested; `stall`: every GPU rested or spun. `host`: its
    hosts were busy with what nobody else on them explains. `queue`: its engine had requests waiting or running.
    `host_known`: of each hold, whether its hosts are measured at all. `fabric`: share of line rate of the compute
    ports of all of its nodes (NaN: not measured). `free`: no GPU of it held memory."""

    work: Mask
    progress: Mask
    rest: Mask
    stall: Mask
    spin: Mask
    host: Mask
    queue: Mask
    fabric: Values
    host_known: npt.NDArray[np.bool_]
    free: Mask


def hold_signs(recent: Recent, line: Timeline, gpus: GpuSigns, rules: WatchRules) -> HoldSigns:
    """The signs of all holds of a reading."""
    count = len(recent.holds)
    flat = np.array([gpu for hold in recent.holds for gpu in hold.gpus], dtype=np.intp)
    sizes = [len(hold.gpus) for hold in recent.holds]
    working = _any(gpus.work, flat, sizes)
    rest = _all(gpus.rest, flat, sizes)
    stall = _all(gpus.rest | gpus.spin, flat, sizes)
    spin = _any(gpus.spin, flat, sizes)
    held = _any(gpus.held, flat, sizes)
    queue = _queue(recent, line)
    inside = line.ends > np.array([[hold.since] for hold in recent.holds]).reshape(count, 1) + 1e-6
    work = (working | spin | queue) & inside
    host, host_known, fabric = _hosts(recent, line, working | spin, rules)
    return HoldSigns(
        work=work, progress=(working | queue) & inside, rest=rest & ~queue & inside, stall=stall & ~queue & inside,
        spin=spin & ~working & inside, host=host & inside, queue=queue & inside, fabric=fabric, host_known=host_known,
        free=~held & inside,
    )  # fmt: skip


def _any(mask: Mask, flat: npt.NDArray[np.intp], sizes: Sequence[int]) -> Mask:
    """Of each hold, whether any of its GPUs; of one without GPUs, no."""
    out = np.zeros((len(sizes), mask.shape[1]), dtype=np.bool_)
    filled = np.flatnonzero(sizes)
    if len(filled):
        starts = (np.cumsum(sizes) - sizes).astype(np.intp)
        out[filled] = np.logical_or.reduceat(mask[flat], starts[filled], axis=0)
    return out


def _all(mask: Mask, flat: npt.NDArray[np.intp], sizes: Sequence[int]) -> Mask:
    """Of each hold, whether all of its GPUs; of one without GPUs, no."""
    return ~_any(~mask, flat, sizes) & (np.array(sizes, dtype=np.intp) > 0)[:, None]


def _queue(recent: Recent, line: Timeline) -> Mask:
    """Spans in which a workload's engine had anything to do, by its own metrics."""
    count = len(recent.holds)
    found = np.zeros((count, line.count), dtype=np.bool_)
    if not any(hold.engine for hold in recent.holds):
        return found
    with np.errstate(invalid="ignore"):
        for name in ("requests_running", "requests_waiting", "tokens_per_second"):
            found |= joined(recent.service, name, count, line) > 0
    return found


def _hosts(
    recent: Recent, line: Timeline, working: Mask, rules: WatchRules
) -> tuple[Mask, npt.NDArray[np.bool_], Values]:
    """Of each hold: spans in which a host of it was busy and no other workload there worked; whether its hosts are
    measured; what its fabric carried, as a share of line rate."""
    nodes = len(recent.nodes)
    place = {node.node: n for n, node in enumerate(recent.nodes)}
    busy = np.zeros((nodes, line.count), dtype=np.bool_)
    known = np.zeros(nodes, dtype=np.bool_)
    with np.errstate(invalid="ignore", divide="ignore"):
        for name in _HOST:
            values = joined(recent.node, name, nodes, line)
            known |= np.isfinite(values).any(axis=1)
            base = np.nan_to_num(low_level(values, _BASE))[:, None]
            busy |= values >= np.maximum(rules.host_bytes_per_second_min, rules.host_times * base)
        cpu = joined(recent.node, "cpu_util", nodes, line)
        base = np.nan_to_num(low_level(cpu, _BASE))[:, None]
        busy |= cpu >= base + rules.host_cpu_rise_min
        rate = joined(recent.node, "fabric_line_bytes_per_second", nodes, line)
        # Both ways over what one way can carry twice.
        share = joined(recent.node, "fabric_bytes_per_second", nodes, line) / (2 * rate)
    known &= np.isfinite(cpu).any(axis=1)
    on_node: dict[int, list[int]] = {}
    of_hold: list[list[int]] = []
    for n, hold in enumerate(recent.holds):
        own = sorted({place[recent.gpus[gpu].node] for gpu in hold.gpus if recent.gpus[gpu].node in place})
        of_hold.append(own)
        for node in own:
            on_node.setdefault(node, []).append(n)
    host = np.zeros((len(recent.holds), line.count), dtype=np.bool_)
    host_known = np.zeros(len(recent.holds), dtype=np.bool_)
    fabric = np.full((len(recent.holds), line.count), np.nan, dtype=np.float32)
    for n, own in enumerate(of_hold):
        for node in own:
            others = [other for other in on_node[node] if other != n]
            alone = ~working[others].any(axis=0) if others else True
            host[n] |= busy[node] & alone
        if own:
            host_known[n] = bool(known[own].all())
            fabric[n] = share[own].max(axis=0)  # NaN in any is NaN: silence of a part is not known
    return host, host_known, fabric


def last_true(mask: Mask, line: Timeline) -> Floats:
    """The end of the last span of each row that is true; NaN where none is."""
    if not mask.shape[1]:
        return np.full(len(mask), np.nan)
    at = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
    return np.where(mask.any(axis=1), line.ends[at], np.nan)
