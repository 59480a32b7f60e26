"""From a finding to the query behind its numbers, in the language of the source that was read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...rules.base.errors import UsageError
from ..core.advice_types import Advice, Evidence
from ..core.number_sources import Outside, Reckoned, Sql
from .metric_sources import numbers_of, source_of
from .query_context import Subject
from .sql_blocks import VIEWS, filled, indent, with_clause

_VIEWS = re.compile(rf"\b({'|'.join(VIEWS)})\b")
_TIMED = frozenset({"gpu_hours", "gpu_minutes", "fabric_hours", "fabric_minutes"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What stands behind the numbers of one finding.

    `statement`: one query with one row, a column for each of `numbers` in their order; None where there are none.
    `outside`: numbers that telemetry does not hold, with where they stand. `reckoned`: those that no query gives, with
    the formula and the query of the rows it starts from.
    """

    statement: str | None
    numbers: tuple[Evidence, ...]
    outside: tuple[tuple[Evidence, str], ...]
    reckoned: tuple[tuple[Evidence, str, str], ...]


class Language(Protocol):
    """Queries for one kind of source (``kind`` of the advice's ``source``)."""

    def answer(self, subject: Subject) -> Answer:
        """What stands behind the numbers of the subject's finding."""
        ...

    def how_to_run(self, advice: Advice, answers: Sequence[Answer]) -> tuple[str, ...]:
        """Lines that say how the queries are run on this source."""
        ...


class SqliteLanguage:
    """SELECTs on the public views, for sqlite3 3.26 or newer."""

    def answer(self, subject: Subject) -> Answer:
        values = subject.values()
        numbers: list[tuple[Evidence, Sql]] = []
        outside: list[tuple[Evidence, str]] = []
        reckoned: list[tuple[Evidence, str, str]] = []
        for evidence in numbers_of(subject.finding):
            source = source_of(subject.finding, evidence.metric)
            if isinstance(source, Sql):
                numbers.append((evidence, source))
            elif isinstance(source, Reckoned):
                rows = with_clause(source.blocks, values) + filled(source.rows, values) + ";"
                reckoned.append((evidence, source.formula, rows))
            else:
                where = source.where if isinstance(source, Outside) else "nobody said where it comes from"
                outside.append((evidence, where))
        return Answer(
            _statement(numbers, values), tuple(e for e, _ in numbers), tuple(outside), tuple(reckoned)
        )  # fmt: skip

    def how_to_run(self, advice: Advice, answers: Sequence[Answer]) -> tuple[str, ...]:
        why = _only_as_rows(advice.source)
        if why is not None:
            return (
                f"{why} To have these rows, name a file: --query --rows rows.db",
                "Then save a query as query.sql, and: sqlite3 -readonly -line rows.db < query.sql",
            )
        databases = advice.source.get("databases")
        files = [str(name) for name in databases] if isinstance(databases, list | tuple) else []
        if len(files) < 2:
            file = _word(files[0]) if files else "FILE"
            return (f"Save a query as query.sql, then: sqlite3 -readonly -line {file} < query.sql",)
        views = sorted({view for a in answers for sql in _all_sql(a) for view in _VIEWS.findall(sql)})
        return (
            f"{len(files)} databases were read. The queries ask all of them at once, so gather what they read in one "
            "scratch file first (the views become tables of the same names; no file is attached or changed):",
            *gather(files, views, advice),
            "Then save a query as query.sql, and: sqlite3 -readonly -line together.db < query.sql",
            "Of a node that stands in several of the files, gather one alone: the advice counts each moment once.",
        )


class PrometheusLanguage(SqliteLanguage):
    """PromQL for the rows, and the SELECTs of a database on them: a server reduces samples to rows, the advice rows to
    numbers."""

    def how_to_run(self, advice: Advice, answers: Sequence[Answer]) -> tuple[str, ...]:  # noqa: ARG002 - the same rows
        source = advice.source
        asked = source.get("asked")
        step = source.get("row_seconds")
        seconds = float(step) if isinstance(step, int | float) else 3600.0
        told = asked.items() if isinstance(asked, Mapping) else ()
        return (
            f"The rows were asked of {source.get('url')}/api/v1/query_range with start={advice.start + seconds:.0f}, "
            f"end={advice.end:.0f}, step={seconds:g}, a measure each:",
            *(f"  {name}: {query}" for name, queries in told for query in queries),
            "Numbers are SELECTs on these rows. To have them as tables, name a file: --query --rows rows.db",
            "Then save a query as query.sql, and: sqlite3 -readonly -line rows.db < query.sql",
        )


LANGUAGES: Mapping[str, Language] = {"sqlite": SqliteLanguage(), "prometheus": PrometheusLanguage()}


def _only_as_rows(source: Mapping[str, object]) -> str | None:
    """Why queries on the databases themselves would not give the advice's numbers; None: they do."""
    if source.get("slurm_runs"):
        return "Slurm's job table was joined: the uses of GPUs are cut to the runs of jobs."
    if any(source.get(name) for name in ("believed", "implausible", "renamed")):
        return (
            "Not all that these databases tell was believed (the advice's notes say what): the advice has other rows."
        )
    return None


def language_of(advice: Advice) -> Language:
    """The language of the source that the advice was read from. Raises UsageError for one that has none yet."""
    kind = str(advice.source.get("kind"))
    found = LANGUAGES.get(kind)
    if found is None:
        raise UsageError(f"There are no queries for a source of kind {kind!r} yet.", "Read databases with --db.")
    return found


def gather(files: Sequence[str], views: Sequence[str], advice: Advice) -> tuple[str, ...]:
    """Shell lines that copy what queries read of these views, of all files, into tables of ``together.db``."""
    tables = " ".join(f"CREATE TABLE {view} ({', '.join(VIEWS[view])});" for view in views)
    return (
        "rm -f together.db; {",
        f'  echo "BEGIN; {tables}"',
        f"  for db in {' '.join(map(_word, files))}; do",
        *(f'    sqlite3 -readonly -cmd ".mode insert {view}" "$db" "{gathered(view, advice)}"' for view in views),
        '  done; echo "COMMIT;"; } | sqlite3 together.db',
    )


def gathered(view: str, advice: Advice) -> str:
    """The SELECT of the rows of a view that queries of this advice may read.

    The fabric's hours are taken from their beginning: how long it is known reaches beyond the window.
    """
    every = f"SELECT {', '.join(VIEWS[view])} FROM {view}"
    if view not in _TIMED:
        return f"{every};"
    since = "" if view == "fabric_hours" else f"ts > {advice.start!r} AND "
    return f"{every} WHERE {since}ts < {advice.end + 60!r};"


def _word(name: str) -> str:
    """The name of a file as a word of a shell line; one that begins with a dash is no option."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def _all_sql(answer: Answer) -> tuple[str, ...]:
    return (answer.statement or "", *(rows for _, _, rows in answer.reckoned))


def _statement(numbers: Sequence[tuple[Evidence, Sql]], values: Mapping[str, str]) -> str | None:
    if not numbers:
        return None
    needed = [name for _, source in numbers for name in source.blocks]
    columns = [
        f"(\n{indent(filled(source.select, {**values, 'pick': _pick(evidence)}))}\n) AS {evidence.metric}"
        for evidence, source in numbers
    ]
    return with_clause(needed, values) + "SELECT\n" + ",\n".join(columns) + ";"


def _pick(evidence: Evidence) -> str:
    """Of several workloads, a rule of one's own looks at the one nearest to its threshold."""
    value, threshold = evidence.value, evidence.threshold
    rising = isinstance(value, float) and isinstance(threshold, float) and value >= threshold
    return "min" if rising else "max"
