"""Alerts on what ``skuwise serve`` tells, as Prometheus reads them. Thresholds are where to begin."""

from __future__ import annotations

import json
from dataclasses import dataclass

_INCIDENTS = "skuwise incidents list"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; `lasting`: for how long before it fires, as Prometheus writes spans."""

    name: str
    expr: str
    lasting: str
    severity: str
    summary: str
    description: str
    command: str = _INCIDENTS


def _incident(name: str, kind: str, severity: str, summary: str, description: str) -> Alert:
    # The watch has judged already: an incident needs no waiting, but for a scrape that finds it twice.
    return Alert(name, f'skuwise_incident_info{{kind="{kind}", state="open"}}', "1m", severity, summary, description)


_WHO = "{{ $labels.workload }} of {{ $labels.user }} ({{ $labels.team }})"
ALERTS = (
    _incident("SkuwiseHeldIdle", "held-idle", "info", f"GPUs held by {_WHO} are idle.",
              "They were not used for longer than the limit of their holder."),
    _incident("SkuwiseJobStopped", "stopped", "warning", f"{_WHO} stopped working.",
              "It worked before and holds its GPUs, or its collectives spin without traffic."),
    _incident("SkuwiseTelemetryDead", "telemetry-dead", "warning", "{{ $labels.workload }} reports no telemetry.",
              "Idle GPUs cannot be found there until it does."),
    _incident("SkuwiseFaultClock", "fault-clock", "warning", "GPUs of {{ $labels.workload }} run at a fault's clock.",
              "Only a fault of the hardware or its cooling explains the clock of a busy GPU."),
    _incident("SkuwiseFabricSilent", "fabric-silent", "warning", f"The fabric under {_WHO} is silent.",
              "A training job that used the fabric sends nothing over it."),
    Alert("SkuwiseAdviceStale", "skuwise_advice_stale == 1 or skuwise_advice_readable == 0", "30m", "warning",
          "The advice on {{ $labels.instance }} is too old or cannot be read.",
          "Its workloads and findings are no longer on the metrics page.", "skuwise serve"),
    Alert("SkuwiseWatchFailing", "increase(skuwise_watch_pass_failures_total[30m]) > 2", "5m", "warning",
          "Passes of the watch on {{ $labels.instance }} fail.", "Incidents are neither opened nor resolved.",
          "skuwise watch --prometheus http://127.0.0.1:9090 --once"),
    Alert("SkuwiseWatchStalled", "time() - skuwise_watch_last_pass_timestamp_seconds > 3600", "5m", "warning",
          "The watch on {{ $labels.instance }} has completed no pass for an hour.",
          "Incidents are neither opened nor resolved.", "skuwise watch --prometheus http://127.0.0.1:9090 --once"),
)  # fmt: skip
_HEAD = "# Alerts on the metrics page of skuwise serve. Written by 'skuwise monitoring rules'.\n"


def rules_text() -> str:
    """The rules file as YAML; texts stand as JSON strings, which YAML takes."""
    lines = [_HEAD + "groups:", "  - name: skuwise-serve", "    rules:"]
    for one in ALERTS:
        lines += [
            f"      - alert: {one.name}", f"        expr: {json.dumps(one.expr)}", f"        for: {one.lasting}",
            f"        labels: {{severity: {one.severity}}}", "        annotations:",
            f"          summary: {json.dumps(one.summary)}", f"          description: {json.dumps(one.description)}",
            f"          command: {json.dumps(one.command)}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"
