"""Draws docs/demo.svg: what `skuwise demo` prints, as a terminal shows it. Run by `make picture`."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text
from skuwise.advisor.advise import load_rulebook, read_and_reason
from skuwise.advisor.cli.demo import demo_text
from skuwise.advisor.demo import simulate
from skuwise.advisor.show.reader_links import ReaderCommands

WIDTH = 116
UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z: the picture is the same whenever it is drawn
PICTURE = Path("docs/demo.svg")
# What the picture leaves out of the demo's output.
LEFT_OUT = ("Workloads by cost", "Notes", "Files")


def picture_lines() -> list[str]:
    """The lines of the picture: the demo's output without the sections of `LEFT_OUT`."""
    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet.db"
        simulate("small", fleet, days=14, seed=0, until=UNTIL)
        advice = read_and_reason([fleet], load_rulebook(None, None, UNTIL), now=UNTIL)[1].advice
    text = demo_text(advice, ReaderCommands("skuwise", "--db demo/fleet.db"), Path("demo"), width=WIDTH)
    parts = re.split(r"\n\n(?=[A-Z][a-z ]+\n[- ])", text.rstrip())
    kept = "\n\n".join(part for part in parts if not part.startswith(LEFT_OUT))
    return ["$ skuwise demo --dir demo", "", *kept.replace("\n\nNext", "\n\n...\n\nNext").split("\n")]


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in picture_lines():
        bold = line.startswith(("$ ", "GPU fleet")) or line in ("Recommendations", "Findings", "Next")
        console.print(Text(line, style="bold" if bold else ""))
    svg = console.export_svg(title="skuwise demo", unique_id="skuwise")
    # Rich names fonts on a foreign server; the reader's own monospace font will do.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
