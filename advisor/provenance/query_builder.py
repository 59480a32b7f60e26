"""From a finding to the queries behind its numbers: SELECTs on the judged rows, and where those rows came from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...rules.base.errors import UsageError
from ..core.advice_types import Advice, Evidence
from ..core.number_sources import Outside, Reckoned, Sql
from .judged_rows import BINS, MEASURES
from .literals import number_literal, text_list
from .metric_sources import numbers_of, source_of
from .row_queries import filled_sql, indent, with_clause
from .subject import Subject

_ROW = ("node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds")
_PORT = (
    "node",
    "device",
    "port",
    "role",
    "ts",
    "interval_seconds",
    "observed_seconds",
    "util_mean",
    "util_max",
    "util_p95",
)
_WITH_ROWS = (
    "Numbers are SELECTs on the evaluated rows. To get these rows in a file: --query --rows rows.db",
    "Then save a query as query.sql, and run: sqlite3 -readonly -line rows.db < query.sql",
)


@dataclass(frozen=True, slots=True)
class FindingQueries:
    """What stands behind the numbers of one finding.

    `statement`: one query with one row, a column for each of `numbers` in their order; None where there are none.
    `outside`: numbers that telemetry does not hold, with where they stand. `reckoned`: those that no query gives, with
    the formula and the query of the rows it starts from. `origin`: SELECTs on the views of a database that give what
    the judged rows are made of; empty for other sources.
    """

    statement: str | None
    numbers: tuple[Evidence, ...]
    outside: tuple[tuple[Evidence, str], ...]
    reckoned: tuple[tuple[Evidence, str, str], ...]
    origin: tuple[str, ...] = ()


def queries_for(subject: Subject) -> FindingQueries:
    """The queries behind the numbers of the subject's finding. Raises UsageError for a source that has none."""
    kind = _kind(subject.advice)
    values = subject.values()
    numbers: list[tuple[Evidence, Sql]] = []
    outside: list[tuple[Evidence, str]] = []
    reckoned: list[tuple[Evidence, str, str]] = []
    for evidence in numbers_of(subject.finding):
        source = source_of(subject.finding, evidence.metric)
        if isinstance(source, Sql):
            numbers.append((evidence, source))
        elif isinstance(source, Reckoned):
            rows = with_clause(source.blocks, values) + filled_sql(source.rows, values) + ";"
            reckoned.append((evidence, source.formula, rows))
        else:
            where = source.where if isinstance(source, Outside) else "unknown source"
            outside.append((evidence, where))
    statement = _statement(numbers, values)
    origin = _view_rows(subject) if kind == "sqlite" else ()
    return FindingQueries(statement, tuple(e for e, _ in numbers), tuple(outside), tuple(reckoned), origin)


def how_to_run(advice: Advice) -> tuple[str, ...]:
    """Lines that say what the rows were made of, and how queries run on them. Raises UsageError as `queries_for`."""
    source = advice.source
    if _kind(advice) == "prometheus":
        asked, step = source.get("asked"), source.get("row_seconds")
        seconds = float(step) if isinstance(step, int | float) else 3600.0
        measures = asked.items() if isinstance(asked, Mapping) else ()
        return (
            (
                f"The rows come from {source.get('url')}/api/v1/query_range with "
                f"start={advice.start + seconds:.0f}, end={advice.end:.0f}, step={seconds:g}, one query per "
                "metric:"
            ),
            *(f"  {name}: {query}" for name, queries in measures for query in queries),
            *_WITH_ROWS,
        )
    databases = source.get("databases")
    files = [str(name) for name in databases] if isinstance(databases, list | tuple) else []
    return (
        "The rows come from the public views (listed with each finding) of: " + " ".join(_word(name) for name in files),
        *_WITH_ROWS,
    )


def _kind(advice: Advice) -> str:
    kind = str(advice.source.get("kind"))
    if kind not in ("sqlite", "prometheus"):
        raise UsageError(f"There are no queries for a source of kind {kind!r} yet.", "Use databases with --db.")
    return kind


def _view_rows(subject: Subject) -> tuple[str, ...]:
    """SELECTs on the public views: hours, and minutes of the last ones and of those that a use cuts."""
    measured = dict.fromkeys(name for _, columns in MEASURES.values() for name in columns)
    where = (
        f"WHERE node IN ({text_list(subject.nodes)}) AND ts > {number_literal(subject.advice.start)}"
        f" AND ts <= {number_literal(subject.advice.end)}"
    )
    hours = ", ".join((*_ROW, *measured, *BINS.values()))
    minutes = ", ".join((*_ROW, *measured))
    return (
        f"SELECT {hours} FROM gpu_hours {where};",
        f"SELECT {minutes} FROM gpu_minutes {where};",
        f"SELECT {', '.join(_PORT)} FROM fabric_hours {where} AND role = 'compute';",
        f"SELECT workload_id, node, gpu_uuid, ts_start, ts_end, shared FROM workload_gpus"
        f" WHERE node IN ({text_list(subject.nodes)});",
    )


def _word(name: str) -> str:
    """The name of a file as a word of a shell line; one that begins with a dash is no option."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def _statement(numbers: Sequence[tuple[Evidence, Sql]], values: Mapping[str, str]) -> str | None:
    if not numbers:
        return None
    needed = [name for _, source in numbers for name in source.blocks]
    columns = [
        f"(\n{indent(filled_sql(source.select, {**values, 'pick': _pick(evidence)}))}\n) AS {evidence.metric}"
        for evidence, source in numbers
    ]
    return with_clause(needed, values) + "SELECT\n" + ",\n".join(columns) + ";"


def _pick(evidence: Evidence) -> str:
    """Of several workloads, a rule of one's own looks at the one nearest to its threshold."""
    value, threshold = evidence.value, evidence.threshold
    rising = isinstance(value, float) and isinstance(threshold, float) and value >= threshold
    return "min" if rising else "max"
