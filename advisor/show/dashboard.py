"""Links to a site's own dashboard: a template of the settings, filled with names from outside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

# Names a template may hold. `from` and `to`: the window in milliseconds since 1970, as Grafana takes it.
PLACEHOLDERS = ("team", "workload", "node", "from", "to")
_URL_MAX, _NAME_MAX = 500, 200
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
# The characters of a URL (RFC 3986).
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+")


def url_fault(url: str) -> str | None:
    """What is wrong with a template, for a sentence after its name; None: nothing."""
    bare = _PLACEHOLDER.sub("x", url)
    if len(url) > _URL_MAX:
        return f"has more than {_URL_MAX} characters"
    if "{" in bare or "}" in bare:
        return "has an unknown placeholder"
    if not _URL.fullmatch(bare):
        return "is not an http or https URL without spaces and quotes"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a valid URL"
    if not parts.hostname or "{" in parts.netloc:
        return "has no fixed host"
    return "contains a user name" if "@" in parts.netloc else None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`template`: a URL that `url_fault` accepts; empty: no dashboard is set. `team`: of the page; `start`, `end`: its
    window, Unix seconds."""

    template: str = ""
    team: str = ""
    start: float = 0.0
    end: float = 0.0

    def link(self, workload: str = "", node: str = "") -> str:
        """The link of one workload or node, of the whole page without them; empty where no dashboard is set, and for a
        workload or node where the template names neither."""
        if (workload or node) and not re.search(r"\{(workload|node)\}", self.template):
            return ""
        values = {"team": self.team, "workload": workload, "node": node}
        values |= {"from": f"{self.start * 1000:.0f}", "to": f"{self.end * 1000:.0f}"}

        def value(match: re.Match[str]) -> str:
            return quote(values[match[1]][:_NAME_MAX], safe="", errors="backslashreplace")

        return _PLACEHOLDER.sub(value, self.template)


NO_DASHBOARD = Dashboard()
