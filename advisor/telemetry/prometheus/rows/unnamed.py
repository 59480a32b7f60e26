"""Fine series of GPUs that nobody holds: their use and memory in rows of a scrape or longer, so long that no more than
`MAX_VALUES` values come back: up to 165 GPUs by the minute over 14 days, more by two, five or fifteen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....core.frame import Window
from ...activity import Device, DeviceSeries
from ..client.response import Grid, Labels
from ..promql.agent_queries import agent_gpu_asks
from ..promql.labels import agent_node
from ..promql.promql import GAUGES, DcgmQueries, of_gpus
from ..questions import Questions
from .dcgm import KeyOf, readings_of
from .gpus import About
from .series_to_rows import Cells

MAX_VALUES = 10_000_000
# Rows divide an hour, and with it every window.
STEPS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0)
SCRAPES = 3  # the growth of counters is known over at least so many
_AGENT = "agent "
_USE = ("gpu_util_mean", "engine_mean", f"{_AGENT}gpu_util_mean", f"{_AGENT}sm_active_mean")
_MEMORY = ("mem_used_bytes_mean", f"{_AGENT}mem_used_bytes_mean")


def fine_series(
    asked: Questions, about: Mapping[str, About], key_of: KeyOf | None, devices: Sequence[Device], window: Window
) -> list[DeviceSeries]:
    """Series of `devices`. `about`: the frame's GPUs by the key of their rows; `key_of`: the key that a series of
    dcgm-exporter speaks of (None: the server has none)."""
    found, wanted = asked.found, set(devices)
    keys = {key: device for key, one in about.items() if (device := (one.node, one.uuid or key)) in wanted}
    # Where most are wanted, all are asked for, so that next week's queries are the same and found in the cache.
    uuids = [] if 2 * len(keys) >= len(about) else [uuid for _, uuid in keys.values()]
    count = len(keys) if of_gpus(uuids) else len(about)
    shortest = (found.scrape_seconds or 60.0) * (SCRAPES if found.agent_gpus else 1)
    fits = (one for one in STEPS if one >= shortest and count * 3 * window.seconds / one <= MAX_VALUES)
    step = next(fits, STEPS[-1])
    asks = []
    if key_of is not None:
        made = DcgmQueries(found.names, asked.matches, step, scrape_seconds=found.scrape_seconds)
        # Instances have no utilization, so of them the engine's activity is asked.
        has_use = "DCGM_FI_DEV_GPU_UTIL" in found.names and not any("/gi" in uuid for _, uuid in keys.values())
        for name in ("gpu_util", "mem_used_bytes") if has_use else ("gpu_util", "engine", "mem_used_bytes"):
            asks += made.statistics(GAUGES[name], *of_gpus(uuids))
    if found.agent_gpus:
        own = agent_gpu_asks(found.names, (*asked.matches, *of_gpus(uuids, "gpu_uuid")), step)
        asks += [replace(ask, name=f"{_AGENT}{ask.name}") for ask in own]
    cells: Cells[str] = Cells(Grid(window.start + step, window.end, step))

    def key(labels: Labels) -> str | None:
        uuid, own = labels.get("gpu_uuid"), key_of(labels) if key_of is not None else None
        several = (own,) if uuid is None else (f"{uuid}@{agent_node(labels)}", uuid)
        return next((one for one in several if one in keys), None)

    # Of several series of one (a copy for each pod) the mean counts.
    asks = [ask for ask in asks if ask.name in (*_USE, *_MEMORY)]
    for ask, answer in asked.runner.matrices(asks, window, step, max(len(keys), 1)):
        cells.put(ask.name, readings_of(ask.name, answer), key)
    use, memory = (np.fmax.reduce([cells.column(name) for name in names]) for names in (_USE, _MEMORY))
    seen, ts = ~np.isnan(use) | ~np.isnan(memory), window.start + step * np.arange(1.0, cells.grid.count + 1)
    return [
        DeviceSeries(*keys[one], ts[own], step, use[row][own].astype(float), memory[row][own].astype(float))
        for one, row in sorted(cells.rows.items())
        if (own := seen[row]).any()
    ]
