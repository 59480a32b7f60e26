"""Links to a site's own dashboard: a template of the settings, filled with names from outside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

# Names a template may hold. `from` and `to`: the window in milliseconds since 1970, as Grafana takes it.
PLACEHOLDERS = ("team", "workload", "node", "from", "to")
URL_MAX = 500
_NAME_MAX = 200  # characters of a name in a link
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# The characters of a URL (RFC 3986), and braces around placeholders.
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%{}-]+")


def url_fault(url: str) -> str | None:
    """What is wrong with a template, for a sentence after its name; None: nothing."""
    if len(url) > URL_MAX:
        return f"has more than {URL_MAX} characters"
    if not _URL.fullmatch(url):
        return "is not an http or https URL without spaces and quotes"
    unknown = sorted({name for name in _PLACEHOLDER.findall(url) if name not in PLACEHOLDERS})
    if unknown:
        return f"has the unknown placeholder {{{unknown[0]}}}"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", url)):
        return "has a brace without its pair"
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

    @property
    def page(self) -> str:
        """The link of a whole page; empty where no dashboard is set."""
        return self._filled("", "")

    def of(self, workload: str, node: str) -> str:
        """The link of one workload or node; empty where the template names neither: it is the page's link then."""
        return self._filled(workload, node) if re.search(r"\{(workload|node)\}", self.template) else ""

    def _filled(self, workload: str, node: str) -> str:
        values = {
            "team": self.team, "workload": workload, "node": node,
            "from": f"{self.start * 1000:.0f}", "to": f"{self.end * 1000:.0f}",
        }  # fmt: skip

        def value(match: re.Match[str]) -> str:
            return quote(values[match[1]][:_NAME_MAX], safe="", errors="backslashreplace")

        return _PLACEHOLDER.sub(value, self.template)


NO_DASHBOARD = Dashboard()
