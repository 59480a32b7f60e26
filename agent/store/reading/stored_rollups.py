"""Rollups as their tables keep them, whole periods as one text each: what a reader scales by itself.

A row of a view costs SQLite a product a cell and Python an object a cell. Here SQLite writes all rows of one hour or
minute as JSON (``[[id, cell ...] ...]``) in one go, and whoever reads turns texts into arrays. The cells are whole
steps (`codec`); `StoredRollup` says how they become the numbers of a view's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from ...model import PERIOD_SECONDS
from ..file.codec import (
    COUNT_DIGITS,
    DEVICES,
    FABRIC_DYNAMICS,
    GPU_DYNAMICS,
    MEASURES,
    RollupMeasure,
    RollupTable,
    rollup_kind,
    rollup_period,
)
from .queries import (
    ACTIVITY,
    ACTIVITY_THINNED,
    FABRIC_HOURS,
    FABRIC_MINUTES,
    GPU_HOURS,
    GPU_MINUTES,
    HOST_HOURS,
    HOST_MINUTES,
    Query,
)

# So many devices a text: their rows stay below the longest cell that a reading allows (`bounds`).
DEVICES_AT_ONCE = 250
STEPS_A_SECOND = 10
COUNTS = Query("SELECT counts, id FROM sample_counts", ("counts",), ("id",))
_DYNAMICS: Mapping[str, Mapping[str, float]] = {"gpu": GPU_DYNAMICS, "fabric": FABRIC_DYNAMICS, "host": {}}
# What a device's row says of each of its rollups: (texts, numbers) beside the node's name and the id.
_DEVICES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gpu": (("gpu_uuid",), ("gpu_index", "mem_total_bytes")),
    "fabric": (("device", "role", "link_layer"), ("port", "line_rate_bytes_per_second")),
    "host": ((), ()),
}
_DEVICE_TABLE: Mapping[str, str] = {"gpu": "gpu", "fabric": "port", "host": "node"}
_OWN = ("id", "samples", "sample_counts", "unobserved_seconds")


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a view from stored cells: (the sum of each cell times its weight) times `step`.

    `terms`: (place among `StoredRollup.cells`, weight, whether a missing cell counts as zero).
    """

    terms: tuple[tuple[int, float, bool], ...]
    step: float


@dataclass(frozen=True, slots=True)
class Count:
    """How many samples a measure has: its `digits` of the row's set of counts; without one the row's samples, or none
    where the measure's mean (at place `mean`) is missing."""

    digits: slice
    mean: int


@dataclass(frozen=True, slots=True)
class StoredRollup:
    """How one query on a view of rollups is answered from its table.

    `rows`: a statement that gives, for each period in (``:start``, ``:end``], its end and the JSON of its rows of the
    devices ``:first`` to ``:last``: first the id, the samples, the set of counts and the time not observed, then
    `cells`. `bins`: the same of the cells of bins, as `codec.encode_bins` writes them; None: it has none.
    `devices`: the columns that a row takes from its device, with the device's id last. `marks`: of each UTC day in the
    span (as a number since 1970, by the ends of its periods) how many rows it has, and sums of what stands in them:
    where they are as before, so are its rows.
    """

    query: Query
    seconds: float
    devices: Query
    rows: Query
    bins: Query | None
    cells: tuple[str, ...]
    numbers: Mapping[str, Cell | Count]
    marks: Query


@cache
def stored_rollups() -> Mapping[Query, StoredRollup]:
    """Of each query on rollups how its tables answer it."""
    tables: Mapping[Query, RollupTable] = {
        GPU_HOURS: "gpu_hour", GPU_MINUTES: "gpu_minute", FABRIC_HOURS: "fabric_hour", FABRIC_MINUTES: "fabric_minute",
        HOST_HOURS: "host_hour", HOST_MINUTES: "host_minute", ACTIVITY: "gpu_minute",
    }  # fmt: skip
    found = {query: _stored(table, query) for query, table in tables.items()}
    thinned = " AND p.ts / 60 % CAST(:every AS INTEGER) = 0"
    return {**found, ACTIVITY_THINNED: _stored("gpu_minute", ACTIVITY_THINNED, thinned)}


def _stored(table: RollupTable, query: Query, where: str = "") -> StoredRollup:
    kind, period = rollup_kind(table), rollup_period(table)
    texts, told = _DEVICES[kind]
    measures = {measure.name: (measure, n) for n, measure in enumerate(MEASURES[kind])}
    places: dict[str, int] = {}

    def place(column: str) -> int:
        return places.setdefault(column, len(places))

    numbers: dict[str, Cell | Count] = {}
    for name in query.numbers:
        base, _, statistic = name.rpartition("_")
        if name in _DYNAMICS[kind]:
            numbers[name] = Cell(((place(name), 1.0, False),), 1 / _DYNAMICS[kind][name])
        elif base in measures and name not in told:
            numbers[name] = _of_measure(*measures[base], statistic, place)
    return StoredRollup(
        query,
        PERIOD_SECONDS[period],
        _devices(kind, texts, told),
        _periods(table, (*_OWN, *places), where),
        _periods(table, query.bins, where) if query.bins else None,
        tuple(places),
        numbers,
        _marks(table, tuple(places), query.bins, where),
    )


def _of_measure(measure: RollupMeasure, number: int, what: str, place: Callable[[str], int]) -> Cell | Count:
    mean = place(f"{measure.name}_mean")
    if what == "n":
        return Count(slice(number * COUNT_DIGITS, (number + 1) * COUNT_DIGITS), mean)
    terms = [(mean, 1.0, False)]
    if what in ("p95", "max"):
        terms.append((place(f"{measure.name}_to_p95"), float(measure.spread), what == "max"))
    if what == "max":
        terms.append((place(f"{measure.name}_to_max"), float(measure.spread), False))
    return Cell(tuple(terms), 1 / measure.steps)


def _devices(kind: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Query:
    told = ", ".join(f"d.{name}" for name in (*texts, *numbers, "id"))
    source = "node d" if kind == "host" else f"{_DEVICE_TABLE[kind]} d CROSS JOIN node n ON n.id = d.node_id"
    node = "d.node" if kind == "host" else "n.node"
    return Query(f"SELECT {node}, {told} FROM {source} ORDER BY d.id", ("node", *texts), (*numbers, "id"))  # noqa: S608


def _periods(table: RollupTable, columns: tuple[str, ...], where: str) -> Query:
    period = rollup_period(table)
    first = f"p.ts / {PERIOD_SECONDS[period]:.0f} * {DEVICES}"
    cells = ", ".join(f"r.{name}" for name in columns)
    sql = (
        f"SELECT (SELECT json_group_array(json_array({cells})) FROM {table} r"  # noqa: S608 - constants of the store
        f" WHERE r.id BETWEEN {first} + CAST(:first AS INTEGER) AND {first} + CAST(:last AS INTEGER)) AS rows, p.ts"
        f" FROM {period} p WHERE p.ts > :start AND p.ts <= :end{where}"
    )
    return Query(sql, ("rows",), ("ts",))


def _marks(table: RollupTable, cells: tuple[str, ...], bins: tuple[str, ...], where: str) -> Query:
    period = rollup_period(table)
    first = f"p.ts / {PERIOD_SECONDS[period]:.0f} * {DEVICES}"
    # What shows a change is summed, and no more: a sum of every cell takes as long as reading half of them.
    summed = ("id", "samples", "sample_counts", "unobserved_seconds", *(one for one in cells if one.endswith("_mean")))
    sums = [*(f"total(r.{name})" for name in summed), *(f"total(length(r.{name}))" for name in bins)]
    sql = (
        f"SELECT (p.ts - 1) / 86400 AS day, count(*), {', '.join(sums)}"  # noqa: S608 - constants of the store
        f" FROM {period} p CROSS JOIN {table} r ON r.id BETWEEN {first} AND {first} + {DEVICES - 1}"
        f" WHERE p.ts > :start AND p.ts <= :end{where} GROUP BY day"
    )
    return Query(sql, (), ("day", "count", *(f"sum_{n}" for n in range(len(sums)))))
