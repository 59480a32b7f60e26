"""The one tidy frame: what every road of telemetry gives and everything in the advisor reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from .coded_text import CodedText


@dataclass(frozen=True, slots=True)
class Window:
    """The span that advice is about, Unix seconds (UTC)."""

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
    """Telemetry of a window, one row per device and interval.

    `gpu`: the columns of the view ``gpu_hours`` (``node, gpu_uuid, gpu_index, ts, interval_seconds, observed_seconds,
    <metric>_mean/_max/_p95/_n``, the dynamics), with NaN where missing. Rows are hours; where only minutes or samples
    exist (the edges of a window or of a workload, the last hour) they are shorter, and `interval_seconds` says so.
    The ``*_bins`` columns hold seconds per bin of ``BIN_EDGES`` (`bins.BinsArray`), None where there are none.
    `fabric`, `host`: likewise from ``fabric_hours`` and ``host_hours``.
    `nodes`, `gpus`, `workloads`, `uses` (the view ``workload_gpus``), `absences`: the views, cut to the window.
    `fabric_history`: per port, beyond the window as far as the hours reach: ``node, device, port, role,
    last_active_ts`` (end of the last hour in which some second exceeded 1 % of line rate, NaN: never), ``first_ts,
    hours``; empty where the road cannot look back.
    `serving`: what inference servers told, ``node, workload_id, engine, kv_percent, samples, preemptions, seconds,
    generated_tokens, prompt_tokens, running_seconds, running_max, waiting_seconds, waiting_max`` (requests times
    seconds, and the most at once): how many samples fell on each percent of KV cache in use; empty where the road or no
    server tells.
    `requests`: GPUs that pods asked for, ``node, namespace, pod, container, resource, count, ts_start, ts_end``
    (resource as kube-state-metrics spells it: nvidia_com_gpu, nvidia_com_mig_1g_10gb ...); empty where the road tells
    none. `jobs`: Slurm's job table, the columns of the view ``slurm_jobs``; empty where there is none.
    `external_labels`: by which a server says who it is; empty where the road or the server tells none.
    `source`: how the data was reached, for the advice's ``source`` field. `notes`: what the reader could not read.
    """

    window: Window
    nodes: pd.DataFrame
    gpus: pd.DataFrame
    gpu: pd.DataFrame
    fabric: pd.DataFrame
    host: pd.DataFrame
    workloads: pd.DataFrame
    uses: pd.DataFrame
    absences: pd.DataFrame
    source: Mapping[str, object]
    notes: tuple[CodedText, ...] = ()
    fabric_history: pd.DataFrame = field(default_factory=pd.DataFrame)
    serving: pd.DataFrame = field(default_factory=pd.DataFrame)
    requests: pd.DataFrame = field(default_factory=pd.DataFrame)
    jobs: pd.DataFrame = field(default_factory=pd.DataFrame)
    external_labels: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def parents(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Each MIG instance and the GPU it is a part of, by node and uuid."""
        if self.gpus.empty:
            return {}
        instances = self.gpus[(self.gpus["kind"] == "mig") & self.gpus["parent_uuid"].notna()]
        whose = zip(instances["node"], instances["gpu_uuid"], instances["parent_uuid"], strict=True)
        return {(str(node), str(uuid)): (str(node), str(parent)) for node, uuid, parent in whose}
