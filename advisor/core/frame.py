"""The one tidy frame: the result of every source of telemetry, and the input of the advisor."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.base.errors import NothingToDo
from .coded_text import CodedText
from .formatting import clause, listed

Ints = npt.NDArray[np.intp]
Key = tuple[str, str]

# id: Slurm's job id (of tasks that wait ``22_[1-10]``), or ``NAMESPACE/POD`` (of pods that wait together the oldest).
# jobs: how many jobs the row stands for. gpus: that each asks for, in whole GPUs. nodes: that each asks for, one for
# each pod; NaN: any number. gpu_type: as asked for (``h100``, ``1g.10gb``, several with commas between); None: any.
# since: Unix seconds. reason: the scheduler's word. blocked: a code of `telemetry/waiting.py` where it waits for
# something else than GPUs; None: for GPUs.
WAITING = [
    "scheduler", "cluster", "id", "namespace", "name", "user", "account", "partition", "jobs", "gpus", "nodes",
    "gpu_type", "since", "reason", "blocked",
]  # fmt: skip

# With pyarrow installed pandas would store text in it, which refuses lone surrogates; results must not depend on it.
pd.set_option("mode.string_storage", "python")


@dataclass(frozen=True, slots=True)
class GpuKeys:
    """`keys`: node and uuid of each GPU, in order of appearance; `number`: the GPU of each row, an index of `keys`."""

    keys: tuple[Key, ...]
    number: Ints

    @classmethod
    def of(cls, table: pd.DataFrame) -> "GpuKeys":
        """From a table with `node` and `gpu_uuid`."""
        names = table.reindex(columns=["node", "gpu_uuid"])
        number = names.groupby(["node", "gpu_uuid"], sort=False).ngroup()
        return cls(tuple(names.drop_duplicates().itertuples(index=False, name=None)), np.asarray(number, dtype=np.intp))

    def nodes(self) -> tuple[Ints, npt.NDArray[np.object_]]:
        """The number of each row's node, and the names of the nodes, in order of appearance."""
        codes, names = pd.factorize(np.array([node for node, _ in self.keys], dtype=object))
        return codes.astype(np.intp)[self.number], names

    def rows(self) -> Iterator[tuple[Key, Ints]]:
        """Each GPU with its rows, in rising order."""
        order = np.argsort(self.number, kind="stable")
        begins = np.searchsorted(self.number[order], np.arange(1, len(self.keys)))
        return zip(self.keys, np.split(order, begins), strict=False)

    def among(self, chosen: Iterable[Key]) -> npt.NDArray[np.bool_]:
        """Whether each row is of one of these GPUs."""
        wanted = set(chosen)
        return np.array([key in wanted for key in self.keys], dtype=np.bool_)[self.number]


@dataclass(frozen=True, slots=True)
class Window:
    """The span of the advice, Unix seconds (UTC)."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def hours(self) -> float:
        return (self.end - self.start) / 3600


@dataclass(frozen=True)
class Frame:
    """Telemetry of a window. NaN is missing; optional tables are empty where the source lacks them.

    Rows of `gpu`, `fabric` and `host` are hours, as in the views ``gpu_hours``, ``fabric_hours`` and ``host_hours``
    (``node, gpu_uuid, gpu_index, ts, interval_seconds, observed_seconds, <metric>_mean/_max/_p95/_n``, the dynamics).
    Where only minutes or samples exist (edges of a window or a workload, the last hour) rows are shorter, and
    `interval_seconds` shows it. ``*_bins`` columns hold seconds per bin of ``BIN_EDGES`` (`BinsArray`).
    """

    window: Window
    nodes: pd.DataFrame  # the view, cut to the window, as are gpus, workloads, uses (workload_gpus) and absences
    gpus: pd.DataFrame
    gpu: pd.DataFrame
    fabric: pd.DataFrame
    host: pd.DataFrame
    workloads: pd.DataFrame
    uses: pd.DataFrame
    absences: pd.DataFrame
    source: Mapping[str, object]  # the `source` of the advice
    notes: tuple[CodedText, ...] = ()  # data that could not be read
    # Ports beyond the window: node, device, port, role, last_active_ts (end of the last hour in which some second
    # exceeded 1 % of line rate; NaN: never), first_ts, hours.
    fabric_history: pd.DataFrame = field(default_factory=pd.DataFrame)
    # Inference servers: node, workload_id, engine, kv_percent, samples (with that percentage of KV cache in use),
    # preemptions, seconds, generated_tokens, prompt_tokens, {running,waiting}_{seconds,max} (requests times seconds,
    # and the most at once), requests (answered).
    serving: pd.DataFrame = field(default_factory=pd.DataFrame)
    # The same by hour: node, workload_id, engine, ts (end of the hour), seconds (with a count), generated_tokens,
    # queue_seconds (with a queue length), running_seconds, waiting_seconds.
    tokens: pd.DataFrame = field(default_factory=pd.DataFrame)
    # GPU requests of pods: node, namespace, pod, container, resource (nvidia_com_gpu, nvidia_com_mig_1g_10gb ...,
    # as kube-state-metrics has it), count, ts_start, ts_end.
    requests: pd.DataFrame = field(default_factory=pd.DataFrame)
    jobs: pd.DataFrame = field(default_factory=pd.DataFrame)  # the view slurm_jobs
    # Jobs that want GPUs and have not begun, as of `waiting_at` (Unix seconds; None: no queue is known): the columns
    # `WAITING`, a row for each job or for the tasks of an array.
    waiting: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=WAITING))
    waiting_at: float | None = None
    external_labels: Mapping[str, str] = field(default_factory=dict)  # of the server
    telemetry_span: tuple[float, float] | None = None  # of the whole source, where the frame has a part of its nodes

    @cached_property
    def gpu_keys(self) -> GpuKeys:
        """The GPU of each row of `gpu`."""
        return GpuKeys.of(self.gpu)

    @cached_property
    def parents(self) -> Mapping[Key, Key]:
        """Each MIG instance and its GPU, by node and uuid."""
        if self.gpus.empty:
            return {}
        instances = self.gpus[(self.gpus["kind"] == "mig") & self.gpus["parent_uuid"].notna()]
        rows = zip(instances["node"], instances["gpu_uuid"], instances["parent_uuid"], strict=True)
        return {(str(node), str(uuid)): (str(node), str(parent)) for node, uuid, parent in rows}


@dataclass(frozen=True, slots=True)
class Blind:
    """`reason`: a stable code (agent/model.py, `Absence`); `detail`: a sentence; `remedy`: may be empty."""

    reason: str
    detail: str
    remedy: str

    @property
    def words(self) -> str:
        return f"{self.detail} {self.remedy}".strip()


def blind_nodes(absences: pd.DataFrame) -> Mapping[str, Blind]:
    """Node -> why its agent reads no GPU: of several reasons the one that lasted longest."""
    if absences.empty:
        return {}
    # The agent's source "nvml" is the driver: without it all GPUs are missing.
    whole = absences[(absences["scope"] == "source") & (absences["metric"] == "*") & (absences["device"] == "nvml")]
    texts = whole[["node", "reason", "detail", "remedy"]].fillna("").assign(
        lasted=(whole["until"].astype(float) - whole["since"].astype(float)).fillna(np.inf)
    )  # fmt: skip
    longest = texts[texts["detail"] != ""].sort_values("lasted", ascending=False, kind="stable").drop_duplicates("node")
    rows = longest[["node", "reason", "detail", "remedy"]].itertuples(index=False, name=None)
    return {str(node): Blind(str(reason), detail, remedy) for node, reason, detail, remedy in rows}


def unreadable(nodes: Mapping[str, Blind]) -> NothingToDo:
    """The error for telemetry without any readable GPU. `nodes`: at least one."""
    by_reason: dict[Blind, list[str]] = {}
    for node, why in nodes.items():
        by_reason.setdefault(why, []).append(node)
    reasons = [f"GPUs of {listed(sorted(names))} cannot be read: {clause(b.detail)}." for b, names in by_reason.items()]
    remedies = dict.fromkeys(why.remedy for why in by_reason if why.remedy)
    return NothingToDo(" ".join(reasons), " ".join((*remedies, "For details run 'skuwise agent doctor' on the node.")))


_KEPT = ("nodes", "gpus", "workloads", "uses", "absences", "requests", "fabric")
# GPU rows that are judged at once: 25 nodes of eight GPUs over ten days of hours. Judging takes about 1 kB a row.
ROWS_AT_ONCE = 50_000


def node_groups(frame: Frame, rows_of: Mapping[str, int], rows_at_once: int = ROWS_AT_ONCE) -> list[list[str]]:
    """The nodes in groups of about `rows_at_once` rows, by name; nodes that share a series stay together. `rows_of`:
    node -> GPU rows."""
    joined = {node: [node] for node in sorted(frame.nodes["node"].astype(str))}
    series = dict(zip(frame.workloads["workload_id"], frame.workloads["series_id"], strict=True))
    uses = frame.uses[["workload_id", "node"]].drop_duplicates()
    for _, nodes in uses.groupby([series.get(workload) or workload for workload in uses["workload_id"]])["node"]:
        parts = {id(part): part for node in nodes if (part := joined.get(str(node)))}
        merged = [node for part in parts.values() for node in part]
        joined |= dict.fromkeys(merged, merged)
    groups: list[list[str]] = []
    size = 0
    for nodes in {id(part): part for part in joined.values()}.values():
        rows = sum(rows_of.get(node, 0) for node in nodes)
        if not groups or size + rows > rows_at_once:
            groups.append([])
            size = 0
        groups[-1] += sorted(nodes)
        size += rows
    return groups


def of_nodes(frame: Frame, nodes: Collection[str]) -> Frame:
    """The part of a frame about these nodes, without notes, which are about all of it."""
    tables = {
        table.name: rows[rows["node"].isin(nodes)].reset_index(drop=True)
        for table in fields(frame)
        if table.name != "jobs" and isinstance(rows := getattr(frame, table.name), pd.DataFrame) and "node" in rows
    }
    held = frame.workloads["workload_id"].isin(set(tables["uses"]["workload_id"]))
    tables["workloads"] = frame.workloads[held].reset_index(drop=True)
    # When the first and the last telemetry of any node was observed; without any the window.
    first, last = frame.nodes["first_seen"].astype(float).min(), frame.nodes["last_seen"].astype(float).max()
    start, end = frame.window.start, frame.window.end
    span = (start if pd.isna(first) else float(first), end if pd.isna(last) else float(last))
    return replace(frame, **tables, notes=(), telemetry_span=frame.telemetry_span or span)


def parts_of(frame: Frame, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[Frame]:
    """A frame group by group; whole if it is small. The notes come with the first part."""
    if len(frame.gpu) <= rows_at_once:
        yield frame
        return
    rows = {str(node): int(count) for node, count in frame.gpu.groupby("node").size().items()}
    for n, nodes in enumerate(node_groups(frame, rows, rows_at_once)):
        part = of_nodes(frame, set(nodes))
        yield part if n else replace(part, notes=frame.notes)


def together(outlines: Sequence[Frame]) -> Frame:
    """The outlines of all groups (small tables, no rows of GPUs and hosts) as that of one frame, with the source of
    the last."""
    if len(outlines) == 1:
        return outlines[0]
    parts = {name: [rows for part in outlines if len(rows := getattr(part, name))] for name in _KEPT}
    tables = {name: pd.concat(filled, ignore_index=True) for name, filled in parts.items() if filled}
    return replace(outlines[-1], telemetry_span=None, **tables)
