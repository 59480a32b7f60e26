"""Draws docs/demo.svg: what `skuwise demo` finds, as a terminal shows it. Run by `make picture`."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text
from skuwise.advisor.advise import load_rulebook, read_and_advise
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.demo import simulate
from skuwise.advisor.render.text import document_text, sections_text
from skuwise.advisor.views.document import sections
from skuwise.advisor.views.document.advice_page import advice_page
from skuwise.advisor.views.document.model import Bullets, Section, section
from skuwise.advisor.views.document.truncate import SCREEN
from skuwise.advisor.views.finding_groups import best, cases
from skuwise.advisor.views.titles import Titles, gain_text

WIDTH = 112
UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z: the picture is the same whenever it is drawn
LINES, STORY_LINES = 27, 10


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet.db"
        simulate("small", fleet, days=14, seed=0, until=UNTIL)
        _, advice = read_and_advise([fleet], load_rulebook(None, None, UNTIL), now=UNTIL)
    shown = document_text(advice_page(advice), width=WIDTH).splitlines()[:LINES]
    story = sections_text(_dearest_case(advice, "idle-fabric"), width=WIDTH).splitlines()
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in ["$ skuwise demo", "", *shown, "...", "", *story[:STORY_LINES]]:
        bold = line in ("Found", "Workloads") or line.startswith(("$ ", "Advice for", "In words"))
        console.print(Text(line, style="bold" if bold else ""))
    svg = console.export_svg(title="skuwise demo", unique_id="skuwise")
    # Rich names fonts on a foreign server; the reader's own monospace font will do.
    Path("docs/demo.svg").write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))


def _dearest_case(advice: Advice, rule: str) -> tuple[Section, ...]:
    """The dearest case of one rule as plain prose: what was found, each recommendation in a sentence. Empty: no such
    case."""
    found = [case for case in cases(advice) if case.finding.rule == rule]
    if not found:
        return ()
    case, titles = max(found, key=lambda c: c.finding.cost_usd or 0.0), Titles(advice)
    told = section(
        f"The most expensive case of {rule}",
        case.finding.text,
        Bullets(tuple(f"{titles.of(way)} ({gain_text(way, advice)}): {way.text}" for way in case.recommendations)),
        best(case),
        sections.wrong_if(case.finding.would_change_if, SCREEN),
    )
    return (told,)


if __name__ == "__main__":
    main()
