"""What of an advice a page shows, and the commands that it prints."""

from dataclasses import dataclass
from typing import NamedTuple

# Sections of the page in their order, as ``--section`` takes them; the first four are the short page.
SECTIONS = (
    "recommendations", "findings", "workloads", "notes", "coverage", "energy", "idle", "fabric", "kinds", "levers",
    "market", "method", "prices",
)  # fmt: skip


class Again(NamedTuple):
    """How to run a command on the same telemetry. `program`: the name of skuwise in a shell; `arguments`: the source
    and other options as they were given, quoted for a shell."""

    program: str
    arguments: str

    def command(self, *words: str) -> str:
        """``skuwise explain --db fleet.db r-5603c79e``: the command, the arguments, then the other words."""
        name, *rest = words
        return " ".join(part for part in (self.program, name, self.arguments, *rest) if part)


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
    again: Again | None = None
    rows: Rows = ROWS

    def shows(self, section: str) -> bool:
        """Whether it shows a section; the market is in the advice only where it was asked for."""
        return self.whole or section in ((*SECTIONS[:4], "market") if self.short else self.sections)

    @property
    def short(self) -> bool:
        return not self.whole and not self.sections


SHORT = PageOptions()
