"""Latencies in words: one figure, and all that is known of a service in one line."""

from __future__ import annotations

from collections.abc import Mapping

from .verdict_types import Latency, LatencyFigures

# What is limited or measured, as people call it.
MEASURES: Mapping[str, str] = {"first_token": "time to first token", "output_token": "time per token"}
_BASES: Mapping[str, str] = {
    "site": "set by the site",
    "measured": "measured from its engine",
    "kind": "default for its kind",
}


def seconds_words(seconds: float) -> str:
    """``48 ms``, ``4.8 ms`` or ``2.3 s``."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"


def latency_words(latency: Latency) -> str:
    """The class, where it comes from and what was measured, in one line."""
    measured = [
        f"{MEASURES[name]} {_figures(figures)}"
        for name, figures in (("first_token", latency.first_token), ("output_token", latency.output_token))
        if figures is not None and figures.p50 is not None
    ]
    label = f"{latency.label}, {_BASES[latency.basis]}" if latency.label else "none, for it keeps none today"
    if not measured:
        return f"{label}; not measured"
    hours = "1 busy hour" if latency.busy_hours == 1 else f"{latency.busy_hours:g} busy hours"
    return f"{label}; over {hours}: {'; '.join(measured)}"


def _figures(figures: LatencyFigures) -> str:
    told = (("p50", figures.p50), ("p90", figures.p90), ("p99", figures.p99))
    return ", ".join(f"{name} {seconds_words(value)}" for name, value in told if value is not None)
