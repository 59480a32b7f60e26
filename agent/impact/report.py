"""The result of an impact measurement, for a person and for a program."""

from __future__ import annotations

import statistics

from ...rules.base.sanitize import clean
from ...rules.base.text_table import columns
from .agent_process import OFF
from .measure import Impact, ModeResult
from .statistics import LEVEL, MIN_ROUNDS, Slowdown

NO_GPU = "No GPU was read, so this is the host's share alone: what reading a GPU costs the work on it is not in here."


def impact_json(impact: Impact) -> dict[str, object]:
    """Everything, with the seconds of each run. Slowdowns and shares are ratios: 0.01 is one percent."""
    return {
        "work": impact.work,
        "gpus": impact.gpus,
        "level": LEVEL,
        "seconds": {name: list(seconds) for name, seconds in impact.seconds.items()},
        "modes": [_mode(result) for result in impact.modes],
    }


def _mode(result: ModeResult) -> dict[str, object]:
    slowdown = result.slowdown
    return {
        "mode": result.mode.name,
        "meaning": result.mode.meaning,
        "slowdown": {"median": slowdown.median, "low": slowdown.low, "high": slowdown.high, "rounds": slowdown.rounds},
        "distinguishable": slowdown.is_distinguishable,
        "agent_cpu_share": result.cost.cpu_share,
        "agent_rss_bytes": result.cost.rss_bytes,
    }


def impact_table(impact: Impact, notes: tuple[str, ...] = ()) -> str:
    """For a person: a line a mode, and what the figures are of."""
    rows = [
        (
            result.mode.name,
            f"{result.slowdown.median:+.2%}",
            _interval(result.slowdown),
            {True: "yes", False: "no", None: f"needs {MIN_ROUNDS} rounds"}[result.slowdown.is_distinguishable],
            f"{result.cost.cpu_share:.2%} of a core",
            f"{result.cost.rss_bytes / 1e6:.0f} MB",
        )
        for result in impact.modes
    ]
    head = ("AGENT", "WORK SLOWER BY", f"{LEVEL:.0%} INTERVAL", "DETECTABLE FROM", "ITS OWN CPU", "ITS MEMORY")
    alone = impact.seconds[OFF.name]
    parts = [
        columns(head, rows),
        "",
        clean(f"Work: {impact.work}; {statistics.median(alone):.3f} s alone (median of {len(alone)})."),
        *(f"{result.mode.name}: {result.mode.meaning}." for result in impact.modes),
        *([NO_GPU] if not impact.gpus else []),
        *notes,
    ]
    return "\n".join(parts)


def _interval(slowdown: Slowdown) -> str:
    return "-" if slowdown.low is None or slowdown.high is None else f"{slowdown.low:+.2%} to {slowdown.high:+.2%}"
