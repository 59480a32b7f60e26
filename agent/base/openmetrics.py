"""Metrics as text: OpenMetrics 1.0, and the Prometheus text format 0.0.4 for who does not ask for the newer one.

Pure: families and values in, text out. Label values come from outside (device, pod and port names) and are escaped
here; nothing else escapes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info"]
Sample = tuple[str, float | None]  # labels as `label_text` gives them, value; None: missing, which is not zero


@dataclass(frozen=True, slots=True)
class ExpositionFormat:
    """One of the two formats. `content_type` goes into the answer's head."""

    content_type: str
    is_openmetrics: bool


OPENMETRICS = ExpositionFormat("application/openmetrics-text; version=1.0.0; charset=utf-8", is_openmetrics=True)
PLAIN = ExpositionFormat("text/plain; version=0.0.4; charset=utf-8", is_openmetrics=False)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric family. `name` stands without ``_total`` and ``_info``; `unit`, where there is one, ends the name."""

    name: str
    kind: Kind
    unit: str
    help: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name, re.ASCII):
            raise ValueError(f"{self.name!r} is no metric name")
        if self.unit and not self.name.endswith(f"_{self.unit}"):
            raise ValueError(f"{self.name} does not end with its unit {self.unit}")

    @property
    def series(self) -> str:
        """The name of a sample's series (histograms have three more)."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return f"{self.name}{suffix}"


def label_text(labels: Mapping[str, object]) -> str:
    """``name="value",...`` without braces; a label that is None or empty is left out, which means the same."""
    return ",".join(f'{name}="{escape_label(str(value))}"' for name, value in labels.items() if value not in (None, ""))


def escape_label(value: str) -> str:
    """A label's value, or a help text, between quotes. What is not valid Unicode becomes a question mark."""
    valid = value.encode("utf-8", "replace").decode()
    return valid.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def format_number(value: float) -> str:
    """Both formats' way to write a number: Python's own, which reads back to the same value."""
    if isinstance(value, int):
        return str(value)
    return repr(value) if value - value == 0 else {"inf": "+Inf", "-inf": "-Inf"}.get(repr(value), "NaN")


class MetricsText:
    """Collects families into one page. Samples without a value, and families without samples, are left out."""

    def __init__(self, form: ExpositionFormat) -> None:
        self._form = form
        self._lines: list[str] = []

    def add(self, family: MetricFamily, samples: Iterable[Sample]) -> None:
        """One counter, gauge or info family."""
        name = family.series
        lines = [
            f"{name}{{{labels}}} {format_number(value)}" if labels else f"{name} {format_number(value)}"
            for labels, value in samples
            if value is not None
        ]
        if lines:
            self._head(family)
            self._lines += lines

    def add_histogram(
        self, family: MetricFamily, edges: Sequence[float], samples: Iterable[tuple[str, Sequence[int], float]]
    ) -> None:
        """One histogram family: labels, counts (one per edge and one beyond the last), and the sum of all values."""
        bounds = [f'le="{format_number(float(edge))}"' for edge in edges] + ['le="+Inf"']
        lines: list[str] = []
        for labels, counts, total in samples:
            start, count = f"{labels}," if labels else "", 0
            for bound, more in zip(bounds, counts, strict=True):
                count += more
                lines.append(f"{family.name}_bucket{{{start}{bound}}} {count}")
            inside = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}_count{inside} {count}")
            lines.append(f"{family.name}_sum{inside} {format_number(total)}")
        if lines:
            self._head(family)
            self._lines += lines

    def text(self) -> str:
        """The whole page."""
        end = "# EOF\n" if self._form.is_openmetrics else ""
        return "".join(f"{line}\n" for line in self._lines) + end

    def _head(self, family: MetricFamily) -> None:
        if self._form.is_openmetrics:
            self._lines.append(f"# TYPE {family.name} {family.kind}")
            if family.unit:
                self._lines.append(f"# UNIT {family.name} {family.unit}")
            self._lines.append(f"# HELP {family.name} {escape_label(family.help)}")
        else:
            plain_help = family.help.replace("\\", "\\\\").replace("\n", "\\n")
            kind = "gauge" if family.kind == "info" else family.kind
            self._lines.append(f"# HELP {family.series} {plain_help}")
            self._lines.append(f"# TYPE {family.series} {kind}")
