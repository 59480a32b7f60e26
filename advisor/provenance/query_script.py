"""The queries behind the numbers of findings, as a script that runs as it is: what is no query is a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ...rules.base.sanitize import clean
from ..core.advice_types import Evidence, Finding
from ..core.formatting import NONE
from .query_builder import FindingQueries


def render_queries(
    asked: Sequence[tuple[Finding, FindingQueries]], how_to_run: Sequence[str], *, width: int = 100
) -> str:
    """Each finding's query with the numbers it gives, then what no query gives and why."""
    lines: list[str] = []

    def note(sentence: str, indent: str = "") -> None:
        lines.extend(
            textwrap.wrap(
                clean(sentence), width, initial_indent=f"-- {indent}", subsequent_indent=f"-- {indent}",
                break_long_words=False, break_on_hyphens=False,
            )
        )  # fmt: skip

    for line in how_to_run:
        lines.append(f"-- {clean(line)}")
    for finding, answer in asked:
        lines.append("")
        note(f"Finding {finding.id}, {finding.rule}: {finding.text}")
        if answer.origin:
            note("Its rows come from these, where the data is valid:")
            lines.extend(f"--   {line}" for line in answer.origin)
        if answer.statement is not None:
            note("Result:")
            lines.extend(f"--   {_line_of(e)}" for e in answer.numbers)
            lines.append(answer.statement)
        if answer.outside:
            note("Not from telemetry:")
            for evidence, where in answer.outside:
                note(f"{_line_of(evidence)}: from {where}", "  ")
        for formula, rows, evidence in _by_formula(answer):
            note("Computed from the rows below, not by a query:")
            for one in evidence:
                note(_line_of(one), "  ")
            for sentence in formula:
                note(sentence, "  ")
            lines.append(rows)
    if not asked:
        note("No finding: it does not depend on a number from telemetry alone.")
    return "\n".join(lines) + "\n"


def _line_of(e: Evidence) -> str:
    value = NONE if e.value is None else e.value if isinstance(e.value, str) else repr(e.value)
    return clean(f"{e.metric} = {value} {e.unit}".rstrip())


def _by_formula(answer: FindingQueries) -> Iterable[tuple[list[str], str, list[Evidence]]]:
    """What no query gives, by the rows it is reckoned from: their formulas, the rows' query, the numbers."""
    found: dict[str, tuple[list[str], list[Evidence]]] = {}
    for evidence, formula, rows in answer.reckoned:
        formulas, numbers = found.setdefault(rows, ([], []))
        formulas.append(f"{evidence.metric}: {formula}")
        numbers.append(evidence)
    return [(formulas, rows, numbers) for rows, (formulas, numbers) in found.items()]
