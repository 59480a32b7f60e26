"""What of an advice a page shows, and the commands that it prints."""

from dataclasses import dataclass
from typing import NamedTuple

from .reader_links import ReaderCommands

# Sections of the page in their order, as ``--section`` takes them; the first four are the short page.
SECTIONS = (
    "recommendations", "findings", "workloads", "notes", "coverage", "energy", "idle", "fabric", "kinds", "levers",
    "market", "method", "prices",
)  # fmt: skip


class Rows(NamedTuple):
    """Rows of each list of the short page. `findings`: rules and single findings together."""

    recommendations: int = 10
    findings: int = 20
    rules: int = 12
    workloads: int = 10
    notes: int = 6


ROWS = Rows()


@dataclass(frozen=True, slots=True)
class PageOptions:
    """`sections`: those to show, in full; empty: the short page. `whole`: every section in full. `verbose`: the
    evidence of each finding and every note too. `again` None: no command is printed. `rows`: of the short page."""

    sections: tuple[str, ...] = ()
    whole: bool = False
    verbose: bool = False
    again: ReaderCommands | None = None
    rows: Rows = ROWS

    def shows(self, section: str) -> bool:
        """Whether it shows a section; the market is in the advice only where it was asked for."""
        return self.whole or section in ((*SECTIONS[:4], "market") if self.short else self.sections)

    @property
    def short(self) -> bool:
        return not self.whole and not self.sections


SHORT = PageOptions()
