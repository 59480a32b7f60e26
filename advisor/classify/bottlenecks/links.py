"""What work may wait for beside its GPU: links inside its node, ports between nodes, and ranks that are late.

A collective keeps the engine busy and a few SMs active while tensor cores and memory rest, which in a mean looks like
work that waits for launches, except for the bytes on the links. So silence must be seen: an unmeasured link is not
quiet and not busy. A node's wires are known where every port was read, or where it has no RDMA port.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Levels
from ...core.coded_text import CodedText
from ...core.column_rows import ColumnRows, Columns
from ...core.frame import Frame
from ...core.segments import Floats, Ints, Mask, Segments, grouped, runs
from ...rulebook import Rulebook
from ..workloads.attribution import Attribution
from ..workloads.session import Session
from ..workloads.sku_lookup import GpuIndex, whole_gpus
from .evidence import say

# Schedulers that name all nodes of a job. A pod or a process may be one of several that work together.
_WHOLE_JOBS = frozenset({"slurm"})
# What operators of distributed jobs append to the job's name, by the pod's part in it.
PART = re.compile(r"-(master|worker|launcher|chief|leader|ps)$")
# Workloads of one series whose lives begin within this time of one another may be parts of one job.
_TOGETHER_SECONDS = 900.0
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Links:
    """Per row of the frame's `gpu`. `inside`: its workload has several GPUs of this node; `apart`: it is on several
    nodes; `spans`: it is, or has its node to itself and may be a part of a job on several; `alone`: nothing else works
    on its node meanwhile. `wire`: the node's busiest port, mean rate over what an exchange can reach (NaN: no port was
    read); `wire_bytes`: bytes per second of the busiest; `ethernet`: the busiest of plain Ethernet over line rate;
    `wire_quiet`: every port was read and carried next to nothing. `within`: NVLink, else PCIe, over what it sustains
    (NaN: not measured). `bridged`: the GPU has NVLink. `lacks`: missing measurements (keys of `evidence.SETTLES`)."""

    inside: Mask
    spans: Mask
    apart: Mask
    alone: Mask
    wire: Floats
    wire_bytes: Floats
    ethernet: Floats
    wire_quiet: Mask
    within: Floats
    bridged: Mask
    lacks: npt.NDArray[np.object_]


def links_of(  # noqa: PLR0917
    frame: Frame, index: GpuIndex, rows: pd.DataFrame, ports: pd.DataFrame, attribution: Attribution, book: Rulebook
) -> Links:
    """`rows`: the frame's measures; `ports`: what the ports of each row's node carried. Linear in the rows."""
    inside, spans, apart, job = _works(frame, attribution)
    columns = {str(name): ports[name].to_numpy(float) for name in ports.columns}
    read, sure = columns["ports"] > 0, columns["sure"] == 1.0
    # RDMA ports that carry nothing of a job on several nodes are not the ones it uses; then Ethernet must be seen. And
    # little on RDMA is no silence where Ethernet may carry the rest.
    ethernet = columns["has_ethernet"] == 1.0
    used = (columns["rdma"] >= book.bottlenecks.network_used_min) | ethernet
    is_known = (columns["known"] == 1.0) & (used | ~spans)
    silent = is_known & (columns["loud"] == 0.0)
    unseen = silent & spans & ~ethernet
    # Work that is surely on several nodes sends something: counters of which not one moves stand still.
    still = silent & apart & ethernet & (columns["rdma"] == 0.0)
    # Missing data of one node of a job are not replaced by the silence of the others.
    quiet, at = silent & ~unseen & ~still, np.nonzero(job >= 0)[0]
    moments = [job[at], *(frame.gpu[name].to_numpy(float)[at] for name in ("ts", "interval_seconds"))]
    for mask in (is_known, quiet):  # a row without a job speaks for itself
        mask[at] = pd.Series(mask[at]).groupby(moments).transform("min").to_numpy(bool)
    has_nvlink = index["nvlink"].notna().to_numpy(bool)
    nvlink, pcie = rows["u_n"].to_numpy(float), rows["p"].to_numpy(float)
    within = np.where(has_nvlink, nvlink, np.where(index["pcie"].notna().to_numpy(bool), pcie, np.nan))
    observable = (
        ("nvlink", inside & has_nvlink & np.isnan(nvlink)),
        ("pcie", inside & ~has_nvlink & np.isnan(within)),
        ("ports", spans & ~read),
        ("rdma", spans & read & ~sure),
        ("ethernet", (spans & sure & ~used) | unseen),
        ("gap", spans & sure & used & ~is_known),
        ("still", still),
    )
    words = [
        ",".join(name for n, (name, _) in enumerate(observable) if code >> n & 1)
        for code in range(1 << len(observable))
    ]
    bits = np.sum([mask.astype(np.intp) << n for n, (_, mask) in enumerate(observable)], axis=0)
    lacks = np.array(words, dtype=object)[bits]
    return Links(
        inside=inside, spans=spans, apart=apart, alone=_alone(frame, rows, attribution), wire=columns["wire"],
        wire_bytes=columns["bytes"], ethernet=columns["ethernet"], wire_quiet=quiet, within=within,
        bridged=has_nvlink, lacks=lacks,
    )  # fmt: skip


def _works(frame: Frame, attribution: Attribution) -> tuple[Mask, Mask, Mask, Ints]:
    """Per row, whether work has several GPUs of this node, may span nodes, surely does, and its job (-1: none)."""
    rows = attribution.workload_rows
    at, (codes, ids) = rows["row"].to_numpy(np.intp), pd.factorize(rows["workload_id"])
    node_codes, nodes = frame.gpu_keys.nodes()
    # Each workload on each of its nodes, and the rows of it there.
    pairs = grouped(codes, node_codes[at], len(ids))
    mates, numbers = _mates(attribution.sessions), dict[str, int]()
    per_node = Counter(node for node, _ in whole_gpus(frame))
    carried = np.zeros((len(pairs), 3), dtype=np.bool_)
    jobs = np.full(len(ids), -1, dtype=np.intp)
    sessions = {session.workload_id: session for session in attribution.sessions}
    for n, key in enumerate(map(str, ids)):
        if (session := sessions.get(key)) is None:
            continue
        held = Counter(name for name, _ in session.gpus)
        apart = len(session.nodes) > 1 or key in mates
        for pair in range(pairs.each.bounds[n], pairs.each.bounds[n + 1]):
            node = str(nodes[pairs.keys[pair]])
            several, filled = held[node] > 1, held[node] >= per_node.get(node, 1)
            carried[pair] = several, apart or (several and filled and session.scheduler not in _WHOLE_JOBS), apart
        if apart:
            jobs[n] = numbers.setdefault(mates.get(key, key), len(numbers))
    inside, spans, surely = (np.zeros(len(frame.gpu), dtype=np.bool_) for _ in range(3))
    for column, out in enumerate((inside, spans, surely)):
        out[at[carried[pairs.of_row, column]]] = True
    # Of a row that several workloads share, the job of the last of them.
    job = np.full(len(frame.gpu), -1, dtype=np.intp)
    order = np.argsort(codes, kind="stable")
    order = order[jobs[codes[order]] >= 0]
    job[at[order]] = jobs[codes[order]]
    return inside, spans, surely, job


def _alone(frame: Frame, rows: pd.DataFrame, attribution: Attribution) -> Mask:
    out = np.zeros(len(frame.gpu), dtype=np.bool_)
    workload_rows = attribution.workload_rows
    at = workload_rows["row"].to_numpy(int)
    works = ~rows["quiet"].to_numpy(bool)[at]
    at, code = at[works], pd.factorize(workload_rows["workload_id"])[0][works]
    # Rows of different lengths of one moment lie in the same hour.
    hour = np.ceil(frame.gpu["ts"].to_numpy(float)[at] / HOUR).astype(np.int64)
    nodes, names = frame.gpu_keys.nodes()
    groups = grouped(nodes[at], hour, len(names))
    first = np.zeros(len(groups), dtype=np.intp)
    first[groups.of_row] = code  # of one of its workloads
    several = np.zeros(len(groups), dtype=np.bool_)
    several[groups.of_row[code != first[groups.of_row]]] = True
    out[at] = ~several[groups.of_row]
    return out


def _mates(sessions: Sequence[Session]) -> dict[str, str]:
    """Workloads that may be parts of one job, with the job's name: of one name (but for their part in it), and begun
    together on several nodes. Schedulers that name all nodes of a job need no such guess."""
    by_name: dict[tuple[str | None, str], list[Session]] = {}
    for session in sessions:
        if session.scheduler not in _WHOLE_JOBS:
            by_name.setdefault((session.namespace, PART.sub("", session.name)), []).append(session)
    jobs: dict[str, str] = {}
    for (namespace, name), group in by_name.items():
        for before, after in itertools.pairwise(sorted(group, key=lambda session: session.first_seen)):
            if after.first_seen - before.first_seen <= _TOGETHER_SECONDS and set(before.nodes) != set(after.nodes):
                jobs |= dict.fromkeys((before.workload_id, after.workload_id), f"{namespace}/{name}")
    return jobs


# A GPU is the suspect where it was the late one for most of the time that somebody was.
_SUSPECT_SHARE_MIN = 0.5
# A difference in waiting is worth telling from this share of the time on.
_WAITS_MIN = 0.1


def lateness(gpu: pd.DataFrame, rows: pd.DataFrame, workload_rows: pd.DataFrame, levels: Levels) -> Columns:
    """Who waits for whom, per row of the measures. `several`: its workload has several ranks; `waiting`: for another;
    `late`: it is the one waited for; `lost`: share of time that the waiting ranks of its workload lose (NaN where none
    waits). `workload_rows`: whose they are; those of shared GPUs are left out."""
    t = vars(levels)
    several, waiting, late = (np.zeros(len(gpu), dtype=np.bool_) for _ in range(3))
    share = np.full(len(gpu), np.nan)
    workload_row = workload_rows[workload_rows["whole"].to_numpy(bool) & ~workload_rows["shared"].to_numpy(bool)]
    at, code = workload_row["row"].to_numpy(int), pd.factorize(workload_row["workload_id"])[0]
    works = ~(rows["idle"].to_numpy(bool) | rows["fault"].to_numpy(bool))[at]
    at, code = at[works], code[works]
    # Rows end on the minute or the hour: moments of nodes whose clocks differ a little fall together.
    moment, length = gpu["ts"].to_numpy(float)[at], gpu["interval_seconds"].to_numpy(float)[at]
    order = np.lexsort((length, moment, code))
    at = at[order]
    if len(at):
        first = np.nonzero(runs(code[order], moment[order], length[order]))[0]
        size = np.diff(np.append(first, len(at)))
        at, ranks = at[np.repeat(size >= 2, size)], Segments.of_lengths(size[size >= 2])
        values = {name: rows[name].to_numpy(float)[at] for name in ("waits", "c", "g", "clock_ratio")}
        apart, lost = np.zeros(len(at), dtype=np.bool_), np.full(len(ranks), np.nan)
        # Waiting counts before the rest: it shows what is lost whatever makes the rank late.
        for signal in ("g", "clock_ratio", "waits") if len(ranks) else ():
            behind, loses = _one_apart(ranks, values, signal, t)
            apart = np.where(ranks.spread(~np.isnan(loses)), behind, apart)
            lost = np.where(np.isnan(loses), lost, loses)
        slowed = ranks.spread(~np.isnan(lost))
        several[at] = True
        waiting[at], late[at] = slowed & ~apart, slowed & apart
        share[at] = ranks.spread(lost)
    return {"several": several, "waiting": waiting, "late": late, "lost": share}


def _one_apart(
    ranks: Segments, values: Mapping[str, Floats], signal: str, t: Mapping[str, float]
) -> tuple[Mask, Floats]:
    """Which ranks stand apart as late by one signal, and per moment the share of time that the others lose. waits: the
    others wait so much more; clock_ratio: the late run at so much less of the others' clock; g: the late engine rests
    so much more. NaN: no rank differs, too many do, or they do not share their steps."""
    level, count, first = values[signal], ranks.lengths, ranks.bounds[:-1]
    ranked = level[np.lexsort((level, ranks.number))]  # NaN last
    lowest, usual = ranked[first], ranked[first + 1 + (count - 2) // 2]  # the middle one of the others
    lost = 1 - lowest / usual if signal == "clock_ratio" else usual - lowest
    late = level < ranks.spread((usual + lowest) / 2)
    incomplete = np.logical_and.reduce([~np.isnan(values[name]) for name in (signal, "c", "g")])
    apart = ranks.all(incomplete) & (lost >= t["straggler_wait_min"])
    apart &= ranks.count(late) <= np.maximum(1, count * t["straggler_late_share_max"])
    apart &= usual >= {"waits": t["straggler_wait_min"], "g": t["spin_engine_min"]}.get(signal, 0.0)
    (work, busy), (work_of_others, busy_of_others) = (
        [ranks.mean(np.where(chosen, values[name], np.nan)) for name in ("c", "g")] for chosen in (late, ~late)
    )
    within = t["straggler_work_within"]
    apart &= np.abs(work - work_of_others) <= within * np.maximum(work, work_of_others)
    # The others do not finish early and rest: they are as busy as the late one, in a collective.
    apart &= busy_of_others >= (1 - within) * busy
    return late, np.where(apart, lost, np.nan)


def suspect(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    """Which GPU the others wait for: the one that waits least, or does the same work at a lower clock."""
    slowed = rows.flags("late") | rows.flags("waiting")
    if not slowed.any():
        return []
    table, seconds = rows.where(slowed), pd.Series(weights[slowed])
    late = table.flags("late")
    by_gpu = seconds[late].groupby([table[name][late] for name in ("node", "gpu_uuid", "gpu_index")]).sum()
    if by_gpu.empty or by_gpu.max() < _SUSPECT_SHARE_MIN * by_gpu.sum():
        return [say("no-single-suspect")]
    node, uuid, number = cast("tuple[str, str, float]", by_gpu.idxmax())
    column_rows, others = table.where((table["gpu_uuid"] == uuid) & late), table.where(~late)
    waits, clock, held = ((column_rows.mean(name), others.mean(name)) for name in ("waits", "clock_ratio", "throttled"))
    who = {"gpu_index": float(number), "node": str(node), "gpu_uuid": str(uuid)}
    differs = waits[1] - waits[0] >= _WAITS_MIN
    said = [say("suspect-is-slower", **who)]
    if differs:
        said = [say("suspect-waits-least", **who, waits=waits[0], others_wait=waits[1])]
    if clock[0] < 0.95 * clock[1]:
        ratio = clock[0] / clock[1]
        said.append(say("suspect-is-throttled", clock=ratio, throttled=held[0], others_throttled=held[1]))
    return said
