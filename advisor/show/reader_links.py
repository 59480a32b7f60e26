"""Where the reader of a page goes on: complete commands, and links to the site's own dashboard."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from ..core.timestamps import day, rfc3339

# Names that the URL of a dashboard may hold. `from` and `to`: milliseconds since 1970, as Grafana takes them.
PLACEHOLDERS = ("team", "workload", "node", "from", "to")
_URL_MAX, _NAME_MAX = 500, 200
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
# The characters of a URL (RFC 3986).
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+")


def is_template(url: str) -> bool:
    """Whether this is an http or https URL of a fixed host without a user name, with no placeholder but ours."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    bare = _PLACEHOLDER.sub("x", url)
    is_fixed = bool(parts.hostname) and not {"{", "@"} & set(parts.netloc)
    return is_fixed and len(url) <= _URL_MAX and "{" not in bare and "}" not in bare and bool(_URL.fullmatch(bare))


@dataclass(frozen=True, slots=True)
class ReaderCommands:
    """How the reader of a page runs skuwise on the telemetry of that page. All are words of a shell, quoted already.

    `program`: what starts skuwise. `source`: the options that name the telemetry, with absolute paths; empty: unknown.
    `book`: those for rules and prices. `state`: that for the state file; empty: the fleet's default. `window`: those of
    the page's window. `host`: the machine on which they run; empty: any.
    """

    program: str = "skuwise"
    source: str = ""
    book: str = ""
    state: str = ""
    window: str = ""
    host: str = ""

    @property
    def where(self) -> str:
        """What stands behind a sentence that announces a command."""
        return f" (run on {self.host})" if self.host else ""

    def advice(self, command: str, *words: str) -> str:
        """``advise`` or ``explain`` on the telemetry, window, prices and state of the page."""
        return self.run(command, *words, options=f"{self.source} {self.window} {self.book} {self.state}")

    def stored(self, command: str, *words: str) -> str:
        """A command of ``ledger`` or ``incidents`` on the page's state file."""
        return self.run(command, *words, options=self.state)

    def run(self, command: str, *words: str, options: str = "") -> str:
        """`command` with `words`, which are quoted, and `options`, which are quoted already."""
        return " ".join(filter(None, (self.program, command, *map(shlex.quote, words), " ".join(options.split()))))


NO_COMMANDS = ReaderCommands()


@dataclass(frozen=True, slots=True)
class ReaderLinks:
    """`dashboard`: the template of a URL, or empty. `team`, `start`, `end` (Unix seconds): of the page."""

    commands: ReaderCommands = NO_COMMANDS
    dashboard: str = ""
    team: str = ""
    start: float = 0.0
    end: float = 0.0

    def of_window(self, team: str, start: float, end: float, observed_until: float | None = None) -> ReaderLinks:
        """The same for a team's page of a window. `observed_until`: end of the commands' window, if it is earlier."""
        until = end if observed_until is None else min(end, observed_until)
        hours = (until - start) / 3600
        length = f"{hours:g}h" if hours % 24 else f"{hours / 24:g}d"
        moment = day(until) if until % 86400 == 0 else rfc3339(until)
        window = f"--since {length} --until {moment}" if until > start else ""
        return ReaderLinks(replace(self.commands, window=window), self.dashboard, team, start, end)

    def link(self, workload: str = "", node: str = "") -> str:
        """The dashboard's link of one workload or node, of the whole page without them; empty without a dashboard, and
        for a workload or node where the template names neither."""
        if (workload or node) and not re.search(r"\{(workload|node)\}", self.dashboard):
            return ""
        values = {"team": self.team, "workload": workload, "node": node}
        values |= {"from": f"{self.start * 1000:.0f}", "to": f"{self.end * 1000:.0f}"}

        def value(match: re.Match[str]) -> str:
            return quote(values[match[1]][:_NAME_MAX], safe="", errors="backslashreplace")

        return _PLACEHOLDER.sub(value, self.dashboard)


NO_LINKS = ReaderLinks()
