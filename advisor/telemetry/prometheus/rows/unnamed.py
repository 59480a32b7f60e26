"""Fine series of GPUs that nobody holds, asked of a server in bounded cost.

Of each such GPU its use and memory are asked in rows of a scrape or longer, so long that no more than
`MAX_VALUES` values come back: up to 165 GPUs by the minute over 14 days, more by two, five or fifteen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....core.frame import Window
from ...activity import Device, DeviceSeries
from ..client.range_planner import Ask, Runner
from ..client.response import Floats, Labels, SeriesAnswer
from ..discovery import Discovery
from ..promql import agent_queries
from ..promql import promql as queries
from ..promql.labels import agent_node
from .dcgm import KeyOf
from .gpus import About

# 165 GPUs by the minute over 14 days.
MAX_VALUES = 10_000_000
# Rows divide an hour, and with it every window.
STEPS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0)
# What counters count is told over at least so many scrapes; as many readings make a mean.
SCRAPES = 3
# Longer lists of ids make no query: all GPUs are asked for, and the others dropped.
_MOST_NAMED = 200
_DAY_SECONDS = 86400.0
_MEASURES = ("gpu_util_mean", "engine_mean", "mem_used_bytes_mean")
_AGENT_MEASURES = ("gpu_util_mean", "sm_active_mean", "mem_used_bytes_mean")
_USE = ("gpu_util_mean", "engine_mean", "sm_active_mean")


@dataclass(frozen=True)
class Fine:
    """Asks for series. `about`: the frame's GPUs by the key of their rows; `key_of`: the key that a series of
    dcgm-exporter speaks of (None: the server has none). `since`: Unix seconds before which the server holds nothing of
    these GPUs: the shorter the time, the finer the rows."""

    runner: Runner
    found: Discovery
    matches: tuple[str, ...]
    about: Mapping[str, About]
    key_of: KeyOf | None
    since: float = 0.0

    def __call__(self, devices: Sequence[Device], window: Window) -> list[DeviceSeries]:
        # From the day's beginning, so that the cache has the same queries tomorrow.
        window = replace(window, start=max(window.start, self.since // _DAY_SECONDS * _DAY_SECONDS))
        wanted = set(devices)
        keys = {key: (one.node, one.uuid or key) for key, one in self.about.items()}
        keys = {key: device for key, device in keys.items() if device in wanted}
        told: dict[str, dict[str, Floats]] = {}
        scrape = self.found.scrape_seconds or 60.0
        named = self._named(keys.values())
        step = self._step(len(keys) if named else len(self.about), window, scrape)
        if self.key_of is not None:
            asks = self._dcgm_asks(step, named, [uuid for _, uuid in keys.values()])
            self._take(asks, keys, told, step=step, window=window, key_of=self.key_of)
        if self.found.agent_gpus and len(told) < len(keys):
            long = next((one for one in STEPS if one >= max(step, SCRAPES * scrape)), STEPS[-1])
            left = {key: device for key, device in keys.items() if key not in told}
            agents: dict[str, dict[str, Floats]] = {}
            self._take(self._agent_asks(long, named), left, agents, step=long, window=window, key_of=self._agent_key)
            return [*self._series(told, keys, window, step), *self._series(agents, keys, window, long)]
        return self._series(told, keys, window, step)

    def _named(self, devices: Collection[Device]) -> tuple[str, ...]:
        """The ids that are asked for; none: all are. Where most are wanted, all are asked for, so that next week's
        queries are the same and their answers are found in the cache."""
        uuids = tuple(sorted({uuid.partition("/gi")[0] for _, uuid in devices}))
        if 2 * len(devices) >= len(self.about) or len(uuids) > _MOST_NAMED:
            return ()
        return uuids if all(map(queries.is_plain_id, uuids)) else ()

    def _step(self, devices: int, window: Window, scrape: float) -> float:
        """The shortest row that a scrape fills and that keeps the answers within bounds."""
        for step in STEPS:
            if step >= scrape and devices * len(_MEASURES) * window.seconds / step <= MAX_VALUES:
                return step
        return STEPS[-1]

    def _dcgm_asks(self, step: float, named: tuple[str, ...], uuids: Sequence[str]) -> list[Ask]:
        """Instances have no utilization, so of them the engine's activity is asked."""
        chosen = queries.selector(self.matches, *queries.of_gpus(named))
        asks = queries.gauge_asks(queries.DCGM_GAUGES, self.found.names, chosen, step, (), short=True)
        has_use = any(ask.name == _MEASURES[0] for ask in asks) and not any("/gi" in uuid for uuid in uuids)
        return [ask for ask in asks if ask.name in _MEASURES and not (has_use and ask.name == "engine_mean")]

    def _agent_asks(self, step: float, named: tuple[str, ...]) -> list[Ask]:
        own = (f'gpu_uuid=~"{"|".join(named)}"',) if named else ()
        asks = agent_queries.agent_gpu_asks(self.found.names, (*self.matches, *own), step)
        return [ask for ask in asks if ask.name in _AGENT_MEASURES]

    def _agent_key(self, labels: Labels) -> str | None:
        uuid, node = labels.get("gpu_uuid"), agent_node(labels)
        return next((key for key in (f"{uuid}@{node}", uuid) if key in self.about), None)

    def _take(
        self,
        asks: Sequence[Ask],
        keys: Mapping[str, Device],
        told: dict[str, dict[str, Floats]],
        *,
        step: float,
        window: Window,
        key_of: KeyOf,
    ) -> None:
        """Ask, and keep each device's measures; of several series of one (a copy for each pod) the mean counts."""
        for ask, answer in self.runner.matrices(asks, window, step, max(len(keys), 1)):
            for key, rows in _by_key(answer, key_of, keys).items():
                values = _known(answer.values[rows], ask.name)
                told.setdefault(key, {})[ask.name] = values

    def _series(
        self,
        told: Mapping[str, Mapping[str, Floats]],
        keys: Mapping[str, Device],
        window: Window,
        step: float,
    ) -> list[DeviceSeries]:
        count = round(window.seconds / step)
        ts = np.asarray(window.start + step * np.arange(1, count + 1), dtype=np.float64)
        out = []
        for key in sorted(told):
            own = told[key]
            seen = ~np.all([np.isnan(values) for values in own.values()], axis=0)
            if seen.any():
                missing = np.full(count, np.nan)
                use = np.fmax.reduce([missing, *(own[name] for name in _USE if name in own)])
                mem = own.get("mem_used_bytes_mean", missing)
                out.append(DeviceSeries(*keys[key], ts[seen], step, use[seen], mem[seen]))
        return out


def _by_key(answer: SeriesAnswer, key_of: KeyOf, keys: Mapping[str, Device]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row, labels in enumerate(answer.labels):
        key = key_of(labels)
        if key is not None and key in keys:
            found.setdefault(key, []).append(row)
    return found


def _known(values: Floats, name: str) -> Floats:
    scaled = values * queries.scale_of(name)
    with np.errstate(invalid="ignore"):
        scaled = np.where((scaled >= 0) & (scaled <= queries.most_of(name)), scaled, np.nan)
    if len(scaled) == 1:
        return scaled[0]
    number = (~np.isnan(scaled)).sum(axis=0)
    return np.divide(np.nansum(scaled, axis=0), number, out=np.full(scaled.shape[1], np.nan), where=number > 0)
