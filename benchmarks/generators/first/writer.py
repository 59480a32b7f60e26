"""Writes nodes as `skuwise.advisor.demo` does, or as a server has them that scrapes an exporter once a minute."""

from collections.abc import Iterator, Sequence
from functools import partial
from zlib import crc32

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.builder import Placed, PlannedNode
from skuwise.advisor.demo.hardware import SimNode
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.writer import (
    HOUR,
    Counters,
    Stretch,
    demand,
    stretches,
    write_inventory,
    write_rollups,
    write_stretch,
)
from skuwise.agent.store.node_writer import NodeWriter

from .nodes import observe
from .rollup import Columns, gpu_columns

_HOURS_AT_ONCE = 36
_SCRAPE_SECONDS = 60
# A scraped gauge is a mean over the exporter's own interval of half a minute: made from so many of its seconds.
_SCRAPE_SPAN_SECONDS, _SECONDS_OF_SCRAPE = 30, 6
_NOT_BY_MINUTE = (
    "duty", "idle_run_seconds", "sm_active_cv", "period_seconds", "period_strength", "tensor_nvlink_correlation",
    "tensor_fabric_correlation",
)  # fmt: skip


def write_node(
    writer: NodeWriter, planned: PlannedNode, placed: Sequence[Placed], *, seed: int, start: float, end: float,
    minutes_from: float, scraped: bool = False,
) -> None:  # fmt: skip
    """`write_node` of the demo; `scraped`: hours alone, each of the 60 values that a scrape a minute would leave."""
    sim = planned.sim
    write_inventory(writer, planned, placed, start, end)
    rng = stream(seed, sim.node.node, "signals")
    if scraped:
        made = scraped_hours(planned, seed=seed, start=start, end=end)
    else:
        made = stretches(planned, placed, seed=seed, start=start, end=end, whole_from=minutes_from)
    for stretch in made:
        t = stretch.seconds.ravel()
        counters = observe(demand(sim, placed, t), sim, rng, stretch.seconds.shape[1], scraped=scraped)
        if scraped:
            columns = partial(_scraped_columns, samples=stretch.seconds.shape[1] // _SECONDS_OF_SCRAPE)
            kept = _as_scraped(counters, sim)
            write_rollups(
                writer, sim, kept, ends=stretch.hours, observed=stretch.observed, period="hour", gpu_columns=columns
            )
            continue
        write_stretch(writer, sim, stretch, counters, minutes_from=minutes_from, gpu_columns=gpu_columns)
    writer.set_node(sim.node, end)


def scraped_hours(planned: PlannedNode, *, seed: int, start: float, end: float) -> Iterator[Stretch]:
    """The hours of [start, end) as a server has them that scrapes once a minute: 60 moments an hour, each with the
    seconds of its exporter's mean before it. Scrapes while no agent ran were missed."""
    gaps = planned.gaps
    phase = float(stream(seed, planned.sim.node.node, "grid").integers(0, _SCRAPE_SECONDS))
    within = np.arange(HOUR // _SCRAPE_SECONDS) * float(_SCRAPE_SECONDS) + phase
    back = np.arange(_SECONDS_OF_SCRAPE - 1, -1, -1) * float(_SCRAPE_SPAN_SECONDS // _SECONDS_OF_SCRAPE)
    ends = np.arange(start + HOUR, end + 1, HOUR)
    torn = np.array([any(a < e and e - HOUR < b for a, b in gaps) for e in ends], dtype=bool)
    index = 0
    while index < len(ends):
        stop = index + 1
        while not torn[index] and stop < len(ends) and stop - index < _HOURS_AT_ONCE and not torn[stop]:
            stop += 1
        hours, moments = ends[index:stop], within
        for a, b in gaps if torn[index] else ():
            ts = ends[index] - HOUR + moments
            moments = moments[(ts <= a) | (ts > b)]
        if len(moments):
            # The first seconds of the window have none before them.
            seconds = np.maximum((moments[:, None] - back[None, :]).ravel(), 1.0)
            observed = np.full(len(hours), float(_SCRAPE_SECONDS * len(moments)))
            yield Stretch(hours, hours[:, None] - HOUR + np.sort(seconds), observed, False)
        index = stop


def _as_scraped(counters: Counters, sim: SimNode) -> Counters:
    """One value a scrape: the exporter's mean of what it counts, and the last of what it merely reads.

    Some exporters read GPU use as the driver has it at that moment, others as their own mean.
    """
    read = {"mem_used_bytes", "power_watts", "throttle_reasons", "sm_clock_hertz", "temperature_celsius"}
    if crc32(sim.node.node.encode()) % 2:
        read.add("gpu_util")

    def scrapes(part: dict[str, npt.NDArray[np.float32]]) -> dict[str, npt.NDArray[np.float32]]:
        groups = {name: v.reshape(*v.shape[:-1], -1, _SECONDS_OF_SCRAPE) for name, v in part.items()}
        return {
            name: values[..., -1] if name in read else values.mean(axis=-1, dtype=np.float64).astype(np.float32)
            for name, values in groups.items()
        }

    return Counters(scrapes(counters.gpus), scrapes(counters.fabric), scrapes(counters.host))


def _scraped_columns(*values: object, samples: int, **about: object) -> Columns:
    """Columns of rows that hold `samples` scrapes each: so many values, and nothing that takes seconds in a row."""
    return {
        name: np.where(np.asarray(rows) > 0, float(samples), 0.0) if name.endswith("_n") else rows
        for name, rows in gpu_columns(*values, **about).items()  # type: ignore[arg-type]
        if name not in _NOT_BY_MINUTE
    }
