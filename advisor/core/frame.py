"""The one tidy frame: the result of every source of telemetry, and the input of the advisor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from .coded_text import CodedText

Ints = npt.NDArray[np.intp]
Key = tuple[str, str]

# With pyarrow installed pandas would store text in it, which refuses lone surrogates; results must not depend on it.
pd.set_option("mode.string_storage", "python")


@dataclass(frozen=True, slots=True)
class GpuKeys:
    """`keys`: node and uuid of each GPU, in order of appearance; `number`: the GPU of each row, an index of `keys`."""

    keys: tuple[Key, ...]
    number: Ints

    @classmethod
    def of(cls, table: pd.DataFrame) -> GpuKeys:
        """From a table with `node` and `gpu_uuid`."""
        if table.empty:
            return cls((), np.empty(0, dtype=np.intp))
        (node, nodes), (uuid, uuids) = (pd.factorize(table[name]) for name in ("node", "gpu_uuid"))
        number, pairs = pd.factorize(node.astype(np.int64) * len(uuids) + uuid)
        keys = tuple((nodes[pair // len(uuids)], uuids[pair % len(uuids)]) for pair in pairs.tolist())
        return cls(keys, number.astype(np.intp))

    def nodes(self) -> tuple[Ints, npt.NDArray[np.object_]]:
        """The number of each row's node, and the names of the nodes, in order of appearance."""
        codes, names = pd.factorize(np.array([node for node, _ in self.keys], dtype=object))
        return codes.astype(np.intp)[self.number], names

    def rows(self) -> Iterator[tuple[Key, Ints]]:
        """Each GPU with its rows, in rising order."""
        order = np.argsort(self.number, kind="stable")
        ends = np.searchsorted(self.number[order], np.arange(len(self.keys) + 1))
        for n, key in enumerate(self.keys):
            yield key, order[ends[n] : ends[n + 1]]

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
        return self.seconds / 3600


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
