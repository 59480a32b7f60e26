"""What a fleet's exporters read: dcgm-exporter's means of 30 s and readings of a moment, a scrape a minute."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .findings import Figures, deserved
from .fleet import Fleet, Run, Workload
from .hardware import Machine
from .rhythm import F, jitter
from .work import BYTES, RATIOS, Load, power

SCRAPE = 60
INTERVAL = 30
MEANS = (*RATIOS, "nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")
MOMENTS = ("util", "memory", "watts", "clock")
HOST = ("cpu", "iowait", "read", "write", "fabric_tx", "fabric_rx", "storage_rx", "host_memory")
RESERVED_GIB = 0.6


@dataclass(slots=True)
class Seen:
    """One GPU or instance at each scrape. `labels`: first and last scrape of a pod or job, and its run."""

    values: dict[str, F]
    labels: list[tuple[int, int, Run, int]] = field(default_factory=list)
    is_stuck_from: int | None = None


@dataclass(slots=True)
class Observed:
    """All of a fleet's exporters. `offsets`: seconds from the minute to a node's scrape; `missed`: by node, at which
    scrapes nothing came; `engines`: what serving engines say of themselves, by workload and run."""

    fleet: Fleet
    scrapes: int
    offsets: dict[str, int]
    missed: dict[str, npt.NDArray[np.bool_]]
    gpus: dict[str, dict[str, Seen]]
    hosts: dict[str, dict[str, F]]
    engines: list[tuple[Workload, Run, dict[str, F]]] = field(default_factory=list)


def observe(fleet: Fleet) -> Observed:
    """Let every workload run, and read."""
    n = fleet.seconds // SCRAPE
    rng = fleet.rng(2)
    out = Observed(fleet, n, {}, {}, {}, {})
    for machine in fleet.machines:
        out.offsets[machine.name] = int(rng.integers(0, SCRAPE))
        out.missed[machine.name] = _missed(rng, n)
        out.gpus[machine.name] = {slot.key: _at_rest(rng, machine, n) for slot in machine.slots}
        out.hosts[machine.name] = _host(rng, n)
    figures: dict[int, Figures] = {}
    for workload in fleet.workloads:
        figures[workload.number] = _run(fleet, out, workload)
    _disturb(rng, out)
    silent = _silent(out)
    for workload in fleet.workloads:
        machines = [machine for run in workload.runs for machine, _ in run.members]
        if not machines:
            continue
        if workload.bottleneck == "nvlink" and not machines[0].has_nvlink:
            workload.bottleneck = None
        if _lost(out, workload):
            workload.bottleneck = None
        workload.findings = deserved(workload, figures[workload.number], machines, silent)
    return out


def _missed(rng: np.random.Generator, n: int) -> npt.NDArray[np.bool_]:
    missed = rng.random(n) < rng.choice([0.001, 0.005, 0.02])
    for _ in range(rng.poisson(0.4)):  # the target is away for a while
        at = int(rng.integers(n))
        missed[at : at + int(rng.lognormal(np.log(25), 1))] = True
    return missed


def _at_rest(rng: np.random.Generator, machine: Machine, n: int) -> Seen:
    values = {name: np.zeros(n, np.float32) for name in (*MEANS, *MOMENTS)}
    values["watts"] += np.float32(machine.part.idle_watts)
    values["clock"] += np.float32(rng.choice([0.11, 0.18, 0.3]))
    return Seen(values)


def _host(rng: np.random.Generator, n: int) -> dict[str, F]:
    values = {name: np.zeros(n, np.float32) for name in HOST}
    values["cpu"] += np.float32(rng.uniform(0.3, 1.5)) * jitter(rng, n, 0.3)
    values["write"] += np.float32(rng.uniform(0.05, 1.5) * 1e6) * jitter(rng, n, 0.5)
    values["storage_rx"] += np.float32(rng.uniform(0.05, 2) * 1e6) * jitter(rng, n, 0.5)
    values["host_memory"] += np.float32(rng.uniform(6, 20))
    return values


def _run(fleet: Fleet, out: Observed, workload: Workload) -> Figures:
    parts: dict[str, list[F]] = {"most": [], "compute": [], "memory": [], "nvlink": [], "needed": []}
    rng = fleet.rng(3, workload.number)
    for number, run in enumerate(workload.runs):
        draws = fleet.rng(4, workload.number, number)
        independent = workload.archetype.independent
        load = workload.course(draws, run.end - run.start, fleet.start + run.start)
        rank = 0
        for node, (machine, slots) in enumerate(run.members):
            first, last = _span(out, machine, run)
            if last <= first:
                continue
            at = _moments(out, machine, run, (first, last))
            reading = _Reading(machine, np.maximum(at - int(rng.integers(0, INTERVAL)), 0))
            hosted = _Hosted(at)
            for slot in slots:
                rank_load, which = load, rank
                if independent and rank:
                    rank_load, which = workload.course(draws, run.end - run.start, fleet.start + run.start), 0
                seen = out.gpus[machine.name][slot.key]
                _gpu(rng, machine, seen, rank_load, which, reading, (first, last))
                seen.labels.append((first, last, run, node))
                rank += 1
                hosted.add(out.hosts[machine.name], machine, rank_load, (first, last))
                _figures(parts, machine, seen, out, (first, last))
        if workload.is_scraped and load.queue is not None and run.name.pod is not None:
            out.engines.append((workload, run, _engine(out, run, load)))
            if load.kv_share is not None:
                parts["needed"].append(load.memory[-1:] * (0.35 + 0.65 * np.percentile(load.kv_share, 99.5) / 0.9))
    return _sum(parts)


def _span(out: Observed, machine: Machine, run: Run) -> tuple[int, int]:
    """The first scrape of a run on this node, and the one after its last."""
    offset = out.offsets[machine.name]
    return max(-(-(run.start - offset) // SCRAPE), 0), min(-(-(run.end - offset) // SCRAPE), out.scrapes)


def _moments(out: Observed, machine: Machine, run: Run, span: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Seconds of the run at which the node is scraped."""
    at = np.arange(*span) * SCRAPE + out.offsets[machine.name] - run.start
    return np.clip(at, 0, run.end - run.start - 1)


def _means(values: F, at: npt.NDArray[np.int64], seconds: int) -> F:
    """Means of so many seconds before each moment, what lies before the begin is 0."""
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    return ((total[at] - total[np.maximum(at - seconds, 0)]) / seconds).astype(np.float32)


def _gpu(
    rng: np.random.Generator,
    machine: Machine,
    seen: Seen,
    load: Load,
    rank: int,
    reading: _Reading,
    span: tuple[int, int],
) -> None:
    here = slice(*span)
    read = reading.of(load, rank)
    count = span[1] - span[0]
    level = np.float32(rng.normal(1, 0.015))
    is_shared = any(label[0] < span[1] and label[1] > span[0] for label in seen.labels)
    for name in MEANS:
        if name in BYTES and machine.part.nvlink == 0 and name.startswith("nvlink"):
            continue
        mean = read[name]
        if name != "engine":
            mean = mean * level * jitter(rng, count, 0.012)
        seen.values[name][here] += mean
    # GPU_UTIL is what NVML saw in its last sixth of a second: all or nothing more than a share.
    engine = read["engine_now"]
    util = np.where(
        (engine > 0.05) & (engine < 0.9), np.where(rng.random(count) < 0.5, engine, rng.random(count) < engine), engine
    )
    seen.values["util"][here] = np.minimum(seen.values["util"][here] + util, 1)
    share = 1.0 if not is_shared else 0.33
    memory = np.minimum(read["memory"], 0.985) * share
    seen.values["memory"][here] = np.minimum(seen.values["memory"][here] * (1 if is_shared else 0) + memory, 0.985)
    watts = read["watts"] * jitter(rng, count, 0.015)
    seen.values["watts"][here] = np.maximum(watts, seen.values["watts"][here]) if is_shared else watts
    clock = np.where(read["memory"] > 0.01, read["clock"], seen.values["clock"][here])
    seen.values["clock"][here] = clock
    if is_shared:
        for name in RATIOS:
            seen.values[name][here] = np.minimum(seen.values[name][here], 0.99)


class _Reading:
    """Reads courses at a node's scrapes, each course once however many GPUs follow it. `past`: the seconds of the run
    of the exporter's page, which is older than the scrape."""

    def __init__(self, machine: Machine, past: npt.NDArray[np.int64]) -> None:
        self._machine, self._past = machine, past
        self._read: dict[tuple[int, int], dict[str, F]] = {}
        self._kept: list[Load] = []  # an id is one's own for as long as it lives

    def of(self, load: Load, rank: int) -> dict[str, F]:
        key = id(load), rank if rank in load.ranks else -1
        if key not in self._read:
            self._kept.append(load)
            past = self._past
            names = [name for name in MEANS if self._machine.part.nvlink or not name.startswith("nvlink")]
            read = {name: _means(load.of(name, rank), past, INTERVAL) for name in names}
            read["engine_now"] = load.of("engine", rank)[past]
            read["tensor"] = read["tensor"] * np.float32(self._machine.part.tensor_counter)
            read["memory"], read["clock"] = load.of("memory", rank)[past], load.of("clock", rank)[past]
            read["watts"] = power(self._machine.part, load, rank, self._machine.context_share, past)
            self._read[key] = read
        return self._read[key]


class _Hosted:
    """Adds to a host what its GPUs' work takes there."""

    def __init__(self, at: npt.NDArray[np.int64]) -> None:
        self._at = at
        self._last: tuple[Load | None, dict[str, F]] = None, {}

    def add(self, host: dict[str, F], machine: Machine, load: Load, span: tuple[int, int]) -> None:
        here = slice(*span)
        if self._last[0] is not load:
            names = [name for name in HOST[:-1] if name == "cpu" or getattr(load, name).any()]
            self._last = load, {name: _means(getattr(load, name), self._at, SCRAPE) for name in names}
        for name, values in self._last[1].items():
            host[name][here] += values / (max(len(machine.slots), 1) if name in ("iowait", "write") else 1)
        host["host_memory"][here] += np.float32(4)


def _figures(parts: dict[str, list[F]], machine: Machine, seen: Seen, out: Observed, span: tuple[int, int]) -> None:
    part, here, v = machine.part, slice(*span), seen.values
    tensor = v["tensor"][here] / part.tensor_counter
    compute = tensor / part.eta_compute * v["clock"][here] * (part.boost_mhz / part.reference_mhz)
    nvlink = np.maximum(v["nvlink_tx"], v["nvlink_rx"])[here] / (part.nvlink or np.inf)
    pcie = np.maximum(v["pcie_tx"], v["pcie_rx"])[here] / part.pcie
    shape = machine.shape
    fabric = out.hosts[machine.name]["fabric_tx"][here] / (shape.ports * shape.port_bits / 8)
    parts["most"].append(np.maximum.reduce([compute, v["dram"][here] / part.eta_hbm, nvlink, pcie, fabric]))
    parts["compute"].append(compute)
    parts["memory"].append(v["memory"][here])
    parts["nvlink"].append(nvlink)


def _sum(parts: dict[str, list[F]]) -> Figures:
    def of(name: str, rank: float) -> float:
        return float(np.percentile(np.concatenate(parts[name]), rank)) if parts[name] else 0.0

    needed = max((float(part[0]) for part in parts["needed"]), default=None)
    return Figures(of("most", 99), of("compute", 95), of("memory", 99.5), of("nvlink", 99.5), needed)


def _engine(out: Observed, run: Run, load: Load) -> dict[str, F]:
    machine = run.members[0][0]
    at = _moments(out, machine, run, _span(out, machine, run))
    zero = np.zeros(load.seconds, np.float32)
    tokens = np.cumsum(load.tokens if load.tokens is not None else zero, dtype=np.float64)
    queue = load.queue if load.queue is not None else zero
    kv = load.kv_share if load.kv_share is not None else zero
    return {"running": np.round(queue[at]), "kv": kv[at], "tokens": np.round(tokens[at])}


def _disturb(rng: np.random.Generator, out: Observed) -> None:
    """PROF gauges that stay at 0 after an XID, on a GPU or two."""
    whole = [(m, s) for m in out.fleet.machines for s in m.slots if s.instance is None]
    for index in rng.choice(len(whole), int(rng.integers(1, 3)), replace=False):
        machine, slot = whole[int(index)]
        seen = out.gpus[machine.name][slot.key]
        seen.is_stuck_from = int(out.scrapes * rng.uniform(0.05, 0.5))
        for name in MEANS:
            seen.values[name][seen.is_stuck_from :] = 0


def _lost(out: Observed, workload: Workload) -> bool:
    held = [(machine, slot) for run in workload.runs for machine, slots in run.members for slot in slots]
    return any(out.gpus[machine.name][slot.key].is_stuck_from is not None for machine, slot in held)


def _silent(out: Observed) -> dict[str, bool | None]:
    """Nodes with InfiniBand -> whether none of its ports carried a hundredth of what it can; None where something
    trains within the node: a fabric is not asked of who trains, and it is not used either."""
    silent: dict[str, bool | None] = {}
    for machine in (machine for machine in out.fleet.machines if machine.shape.fabric == "ib"):
        host, rate = out.hosts[machine.name], machine.shape.ports * machine.shape.port_bits / 8
        quiet = bool(np.percentile(np.maximum(host["fabric_tx"], host["fabric_rx"]), 99.5) < 0.01 * rate)
        learning = (w for w in out.fleet.workloads if w.kind in ("training", "fine-tuning", None))
        trains = any(member is machine for w in learning for run in w.runs for member, _ in run.members)
        silent[machine.name] = None if quiet and trains else quiet
    return silent
