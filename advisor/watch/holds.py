"""What each workload did in each span, by all of its GPUs, its own engine and its hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...rules.policy.watch import WatchRules
from ..core.recent import Recent, Values
from .signs import GpuSigns
from .timeline import Floats, Mask, Timeline, joined, low_level

_BASE = 0.1
_HOST = ("disk_bytes_per_second", "network_bytes_per_second")
_FABRIC = ("fabric_bytes_per_second", "fabric_line_bytes_per_second")
_QUEUE = ("requests_running", "requests_waiting", "tokens_per_second")


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
    shape = (count := len(recent.holds), line.count)
    nobody = np.zeros(line.count, dtype=np.bool_)

    def of_gpus(mask: Mask, judge: Callable[..., Mask]) -> Mask:
        """Of each hold, whether any, or all, of its GPUs; of one without GPUs, no."""
        found = [judge(mask[list(hold.gpus)], axis=0) if hold.gpus else nobody for hold in recent.holds]
        return np.array(found, dtype=np.bool_).reshape(shape)

    working, spin, held = (of_gpus(mask, np.any) for mask in (gpus.work, gpus.spin, gpus.held))
    rest, stall = (of_gpus(mask, np.all) for mask in (gpus.rest, gpus.rest | gpus.spin))
    # By the engine's own metrics; NaN, where it has none, is no request.
    queue = np.any([joined(recent.service, name, count, line) > 0 for name in _QUEUE], axis=0)
    inside = line.ends > np.array([[hold.since] for hold in recent.holds]).reshape(count, 1) + 1e-6
    host, host_known, fabric = _hosts(recent, line, working | spin, rules)
    return HoldSigns(
        work=(working | spin | queue) & inside, progress=(working | queue) & inside, rest=rest & ~queue & inside,
        stall=stall & ~queue & inside, spin=spin & ~working & inside, host=host & inside, queue=queue & inside,
        fabric=fabric, host_known=host_known, free=~held & inside,
    )  # fmt: skip


def _hosts(
    recent: Recent, line: Timeline, working: Mask, rules: WatchRules
) -> tuple[Mask, npt.NDArray[np.bool_], Values]:
    """Of each hold: spans in which a host of it was busy and no other workload there worked; whether its hosts are
    measured; what its fabric carried, as a share of line rate."""
    values = {name: joined(recent.node, name, len(recent.nodes), line) for name in (*_HOST, "cpu_util", *_FABRIC)}
    base = {name: np.nan_to_num(low_level(values[name], _BASE))[:, None] for name in (*_HOST, "cpu_util")}
    busy = values["cpu_util"] >= base["cpu_util"] + rules.host_cpu_rise_min
    for name in _HOST:
        busy |= values[name] >= np.maximum(rules.host_bytes_per_second_min, rules.host_times * base[name])
    is_known = {name: np.isfinite(values[name]).any(axis=1) for name in base}
    known = is_known["cpu_util"] & np.logical_or.reduce([is_known[name] for name in _HOST])
    with np.errstate(invalid="ignore", divide="ignore"):
        # Both ways over what one way can carry twice.
        share = values[_FABRIC[0]] / (2 * values[_FABRIC[1]])
    place = {node.node: n for n, node in enumerate(recent.nodes)}
    homes = [place.get(gpu.node) for gpu in recent.gpus]
    of_hold = [sorted({home for gpu in hold.gpus if (home := homes[gpu]) is not None}) for hold in recent.holds]
    load = np.zeros(busy.shape, dtype=np.intp)
    for n, own in enumerate(of_hold):
        load[own] += working[n]
    host = np.zeros(working.shape, dtype=np.bool_)
    host_known = np.zeros(len(of_hold), dtype=np.bool_)
    fabric = np.full(working.shape, np.nan, dtype=np.float32)
    for n, own in enumerate(of_hold):
        if own:
            host[n] = (busy[own] & (load[own] == working[n])).any(axis=0)
            host_known[n] = known[own].all()
            fabric[n] = share[own].max(axis=0)  # NaN in any is NaN: silence of a part is not known
    return host, host_known, fabric


def last_true(mask: Mask, line: Timeline) -> Floats:
    """The end of the last span of each row that is true; NaN where none is."""
    if not mask.shape[1]:
        return np.full(len(mask), np.nan)
    at = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
    return np.where(mask.any(axis=1), line.ends[at], np.nan)
