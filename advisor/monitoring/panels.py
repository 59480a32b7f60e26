"""What boards are made of: panels with a title, a unit, queries and the command that explains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["timeseries", "stat", "table", "bargauge"]
# Which exporters a panel needs. "either": our agent, or dcgm-exporter alone; "fabric": our agent, or node_exporter.
Needs = Literal["serve", "agent", "either", "fabric"]

NEEDS_TEXT = {
    "serve": "Needs the metrics page of skuwise serve.",
    "agent": "Needs the agent of skuwise.",
    "fabric": "Works with the agent of skuwise or with the InfiniBand counters of node_exporter.",
    "either": "Works with the agent of skuwise or with dcgm-exporter alone.",
}


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with Grafana's variables, and what names its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `unit` is Grafana's name of it. `about`: what it shows; `command` explains it."""

    title: str
    unit: str
    about: str
    command: str
    queries: tuple[Query, ...]
    shape: Shape = "timeseries"
    needs: Needs = "serve"
    width: int = 12
    height: int = 8

    @property
    def description(self) -> str:
        return f"{self.about} {NEEDS_TEXT[self.needs]} Details: {self.command}"


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
