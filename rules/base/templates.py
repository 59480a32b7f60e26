"""Sentences with named gaps, ``{like_this}``: plain substitution, no formatting language and nothing evaluated."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from .sanitize import QUOTED_MAX

_GAP = re.compile(r"\{([a-z][a-z0-9_]*)\}")

# What the advisor can put into a rule's sentences, beside the rule's own thresholds. A name it cannot fill reads
# "unknown" in the sentence.
PLACEHOLDERS = frozenset(
    {
        "workload", "node", "nodes", "node_count", "gpus", "gpu_sku", "gpu_count", "node_sku", "kind", "hours",
        "gpu_hours", "cost", "price", "since", "last_active", "fabric", "line_rate", "util", "engine", "sm", "dram",
        "power", "idle_power", "power_words", "held_by", "whose", "mem_used", "u_max", "u_label", "count_needed",
        "confidence", "span", "share", "lost", "link", "limit", "cause", "bottleneck", "cheaper_sku", "mem_gb",
        "traffic",
    }
)  # fmt: skip


def check_template(
    template: str, thresholds: Collection[str], placeholders: Collection[str] = PLACEHOLDERS
) -> str | None:
    """The first placeholder that nobody will fill; None where all are known."""
    for name in gaps(template):
        if name not in placeholders and name not in thresholds:
            return str(name)[:QUOTED_MAX]
    return None


def gaps(template: str) -> list[str]:
    """The names of the gaps of a template."""
    return _GAP.findall(template)


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each gap filled once; a missing value reads "unknown".

    What is filled in is never read again for gaps, so a name from outside cannot reach another value. Escaping for
    the output at hand (HTML, CSV, a terminal) is the renderer's.
    """

    def one(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        if value is None:
            return "unknown"
        return f"{value:g}" if isinstance(value, float) else str(value)

    return _GAP.sub(one, template)
