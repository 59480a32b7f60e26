"""Fine series of GPUs that nobody holds, asked of a server in bounded cost.

Of each such GPU its use and memory are asked in rows of a scrape or longer, so long that no more than `MAX_VALUES`
values come back: up to 165 GPUs by the minute over 14 days, more by two, five or fifteen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....core.frame import Window
from ...activity import Device, DeviceSeries
from ..client.range_planner import Ask, Runner
from ..client.response import Grid, Labels
from ..discovery import Discovery
from ..promql.agent_queries import agent_gpu_asks
from ..promql.labels import agent_node
from ..promql.promql import GAUGES, DcgmQueries, of_gpus
from .dcgm import KeyOf, readings_of
from .gpus import About
from .series_to_rows import Cells

MAX_VALUES = 10_000_000
# Rows divide an hour, and with it every window.
STEPS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0)
# What counters count is told over at least so many scrapes; as many readings make a mean.
SCRAPES = 3
_DAY_SECONDS = 86400.0
_USE = ("gpu_util_mean", "engine_mean", "sm_active_mean")
_MEMORY = "mem_used_bytes_mean"


@dataclass(frozen=True)
class Fine:
    """Asks for series. `about`: the frame's GPUs by the key of their rows; `key_of`: the key that a series of
    dcgm-exporter speaks of (None: the server has none). `since`: Unix seconds before which the server holds nothing of
    these GPUs: the shorter the time, the finer the rows. `spoiled`: measures of which single samples are no readings.
    """

    runner: Runner
    found: Discovery
    matches: tuple[str, ...]
    about: Mapping[str, About]
    key_of: KeyOf | None
    since: float = 0.0
    spoiled: Collection[str] = ()

    def __call__(self, devices: Sequence[Device], window: Window) -> list[DeviceSeries]:
        # From the day's beginning, so that the cache has the same queries tomorrow.
        window = replace(window, start=max(window.start, self.since // _DAY_SECONDS * _DAY_SECONDS))
        wanted, scrape = set(devices), self.found.scrape_seconds or 60.0
        keys = {key: device for key, one in self.about.items() if (device := (one.node, one.uuid or key)) in wanted}
        # Where most are wanted, all are asked for, so that next week's queries are the same and found in the cache.
        uuids = [] if 2 * len(keys) >= len(self.about) else [uuid for _, uuid in keys.values()]
        step = self._step(len(keys) if of_gpus(uuids) else len(self.about), window, scrape)
        series: dict[str, DeviceSeries] = {}
        if self.key_of is not None:
            has_instances = any("/gi" in uuid for _, uuid in keys.values())
            asks = self._dcgm_asks(step, of_gpus(uuids), has_instances=has_instances)
            series = self._series(asks, keys, step, window, self.key_of)
        left = {key: device for key, device in keys.items() if key not in series}
        if self.found.agent_gpus and left:
            long = next((one for one in STEPS if one >= max(step, SCRAPES * scrape)), STEPS[-1])
            asks = agent_gpu_asks(self.found.names, (*self.matches, *of_gpus(uuids, "gpu_uuid")), long)
            series |= self._series(asks, left, long, window, self._agent_key)
        return [series[key] for key in sorted(series)]

    def _step(self, devices: int, window: Window, scrape: float) -> float:
        """The shortest row that a scrape fills and that keeps the answers within bounds."""
        fits = (one for one in STEPS if one >= scrape and devices * 3 * window.seconds / one <= MAX_VALUES)
        return next(fits, STEPS[-1])

    def _dcgm_asks(self, step: float, own: tuple[str, ...], *, has_instances: bool) -> list[Ask]:
        """Instances have no utilization, so of them the engine's activity is asked."""
        made = DcgmQueries(self.found.names, self.matches, step, scrape_seconds=self.found.scrape_seconds)
        has_use = "DCGM_FI_DEV_GPU_UTIL" in self.found.names and not has_instances
        measures = ("gpu_util", "mem_used_bytes") if has_use else ("gpu_util", "engine", "mem_used_bytes")
        return [ask for name in measures for ask in made.statistics(GAUGES[name], *own, possible=name in self.spoiled)]

    def _agent_key(self, labels: Labels) -> str | None:
        uuid, node = labels.get("gpu_uuid"), agent_node(labels)
        return next((key for key in (f"{uuid}@{node}", uuid) if key in self.about), None)

    def _series(
        self, asks: Sequence[Ask], keys: Mapping[str, Device], step: float, window: Window, key_of: KeyOf
    ) -> dict[str, DeviceSeries]:
        """Use and memory of these devices; of several series of one (a copy for each pod) the mean counts."""
        cells: Cells[str] = Cells(Grid(window.start + step, window.end, step))

        def key(labels: Labels) -> str | None:
            return found if (found := key_of(labels)) in keys else None

        asks = [ask for ask in asks if ask.name in (*_USE, _MEMORY)]
        for ask, answer in self.runner.matrices(asks, window, step, max(len(keys), 1)):
            cells.put(ask.name, readings_of(ask.name, answer) if key_of is self.key_of else answer, key)
        use, memory = np.fmax.reduce([cells.column(name) for name in _USE]), cells.column(_MEMORY)
        seen = ~np.isnan(use) | ~np.isnan(memory)
        ts = window.start + step * np.arange(1, cells.grid.count + 1, dtype=np.float64)
        return {
            one: DeviceSeries(*keys[one], ts[seen[row]], step, use[row][seen[row]], memory[row][seen[row]])
            for one, row in cells.rows.items()
            if seen[row].any()
        }
