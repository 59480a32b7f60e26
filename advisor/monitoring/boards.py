"""The boards: fleet, teams, waste and fabric."""

from __future__ import annotations

from ..telemetry.prometheus.promql.promql import DCGM_GAUGES
from .panels import Board, Panel, Query

_URL = "http://127.0.0.1:9090"
_ADVISE, _DOCTOR = f"skuwise advise --prometheus {_URL}", f"skuwise doctor --prometheus {_URL}"
_INCIDENTS = "skuwise incidents list"
_IN = 'cluster=~"$cluster"'
_NODE = f'{_IN}, node=~"$node"'
_PORTS = f'* on (node, device, port) group_left () skuwise_fabric_port_info{{{_IN}, role="compute"}}'
_GAUGES = {one.measure: one for one in DCGM_GAUGES}
_TEAM = f'{_IN}, team=~"$team"'


def _dcgm(measure: str) -> str:
    """dcgm-exporter's gauge of a measure, in our unit and under the node's name; releases call it differently."""
    gauge = _GAUGES[measure]
    fields = f'{{__name__=~"{"|".join(gauge.names)}", {_IN}, Hostname=~"$node"}}'
    scaled = fields if gauge.scale == 1 else f"{fields} * {gauge.scale:g}"
    return f'label_replace({scaled}, "node", "$1", "Hostname", "(.*)")'


def _mean(name: str) -> str:
    """The mean of a ratio by node: the agent's integrals, else dcgm-exporter's gauges."""
    agent = (
        f"sum by (node) (rate(skuwise_gpu_{name}_seconds_total{{{_NODE}}}[$__rate_interval]))"
        f" / sum by (node) (rate(skuwise_gpu_{name}_observed_seconds_total{{{_NODE}}}[$__rate_interval]))"
    )
    return f"{agent} or avg by (node) ({_dcgm(name)})"


def _sent(direction: str, counter: str) -> str:
    """Traffic of the compute ports by node; of all InfiniBand ports where node_exporter alone tells it."""
    agent = f"rate(skuwise_fabric_{direction}_bytes_total{{{_NODE}}}[$__rate_interval]) {_PORTS}"
    other = f'rate({counter}{{{_IN}, instance=~"$node(:.*)?"}}[$__rate_interval])'
    named = f'label_replace({other}, "node", "$1", "instance", "([^:]+).*")'
    return f"sum by (node) ({agent}) or sum by (node) ({named})"


def _port_share(part: str, whole: str) -> str:
    """A share of the time of the compute ports, by node."""
    over, under = (
        f"sum by (node) (rate(skuwise_fabric_{one}_seconds_total{{{_NODE}}}[$__rate_interval]) {_PORTS})"
        for one in (part, whole)
    )
    return f"{over} / {under}"


def _stat(title: str, unit: str, about: str, expr: str) -> Panel:
    return Panel(title, unit, about, _ADVISE, (Query(expr),), "stat", width=6, height=4)


_USD = "currencyUSD"
FLEET = Board(
    "skuwise-fleet",
    "skuwise: fleet",
    (
        _stat("Spend per hour", _USD, "Cost of all GPUs in USD per hour.",
              f"sum(skuwise_fleet_spend_usd_per_hour{{{_IN}}})"),
        _stat("Waste per hour", _USD, "Cost of wasted GPU time in USD per hour, counted once.",
              f"sum(skuwise_fleet_wasted_usd_per_hour{{{_IN}}})"),
        _stat("Recoverable per hour", _USD, "What the recommendations save, in USD per hour.",
              f"sum(skuwise_fleet_recoverable_usd_per_hour{{{_IN}}})"),
        _stat("Age of the advice", "s", "Time since the advice was made.",
              f"max(skuwise_advice_age_seconds{{{_IN}}})"),
        Panel("SM active", "percentunit", "Share of time with work on the SMs, mean of a node's GPUs.", _ADVISE,
              (Query(_mean("sm_active"), "{{node}}"),), needs="either"),
        Panel("Tensor active", "percentunit", "Share of time with work on the tensor cores.", _ADVISE,
              (Query(_mean("tensor_active"), "{{node}}"),), needs="either"),
        Panel("Power", "watt", "Power of a node's GPUs.", _ADVISE,
              (Query(f"sum by (node) (skuwise_gpu_power_watts{{{_NODE}}}) or sum by (node) ({_dcgm('power_watts')})",
                     "{{node}}"),), needs="either"),
        Panel("Time slowed down", "percentunit", "Share of time with a power, thermal or hardware slowdown.", _DOCTOR,
              (Query(f"sum by (node) (rate(skuwise_gpu_throttled_seconds_total{{{_NODE}}}[$__rate_interval])) / "
                     "sum by (node) (rate(skuwise_gpu_throttle_reasons_observed_seconds_total"
                     f"{{{_NODE}}}[$__rate_interval]))", "{{node}}"),), needs="agent"),
        Panel("Open incidents", "short", "Incidents that are not over, by kind.", _INCIDENTS,
              (Query(f"sum by (kind) (skuwise_incident_open{{{_IN}}})", "{{kind}}"),)),
        Panel("Missing telemetry", "short", "GPU metrics that a node does not report.", _DOCTOR,
              (Query(f'count by (node) (skuwise_absence{{{_NODE}, scope="gpu"}} > 0)', "{{node}}"),), needs="agent"),
    ),
)  # fmt: skip
TEAM = Board(
    "skuwise-team",
    "skuwise: teams",
    (
        Panel("Cost by team", _USD, "Cost of the workloads of a team in USD per hour.", _ADVISE,
              (Query(f"sum by (team) (skuwise_workload_cost_usd_per_hour{{{_TEAM}}})", "{{team}}"),)),
        Panel("Waste by team", _USD, "Cost of a team's findings in USD per hour; findings overlap.", _ADVISE,
              (Query(f"sum by (team) (skuwise_finding_wasted_usd_per_hour{{{_TEAM}}})", "{{team}}"),)),
        Panel("GPUs by team", "short", "GPUs that the workloads of a team hold.", _ADVISE,
              (Query(f"sum by (team) (skuwise_workload_gpus{{{_TEAM}}})", "{{team}}"),)),
        Panel("GPUs by bottleneck", "short", "GPUs by what bounds the workload on them.", _ADVISE,
              (Query("sum by (bottleneck) (skuwise_workload_gpus * on (instance, workload_id, team) group_left "
                     f"(bottleneck) skuwise_workload_info{{{_TEAM}}})", "{{bottleneck}}"),)),
        Panel("Most expensive workloads", _USD, "The ten most expensive workloads, USD per hour.", _ADVISE,
              (Query(f"topk(10, skuwise_workload_cost_usd_per_hour{{{_TEAM}}})", "{{workload}} {{user}}"),),
              "bargauge", height=10),
        Panel("Idle workloads", "s", "Time since a workload that holds GPUs last used them.", _INCIDENTS,
              (Query(f"topk(10, skuwise_workload_idle_seconds{{{_TEAM}}})", "{{workload}} {{user}}"),),
              "bargauge", height=10),
    ),
)  # fmt: skip
WASTE = Board(
    "skuwise-waste",
    "skuwise: waste",
    (
        Panel("Cost by use", _USD, "Where every dollar goes, USD per hour.", _ADVISE,
              (Query(f"sum by (use) (skuwise_fleet_use_usd_per_hour{{{_IN}}})", "{{use}}"),)),
        Panel("Waste by rule", _USD, "Cost of the findings of a rule in USD per hour; findings overlap.", _ADVISE,
              (Query(f"sum by (rule) (skuwise_finding_wasted_usd_per_hour{{{_TEAM}}})", "{{rule}}"),)),
        Panel("Findings", _USD, "The twenty most expensive findings, USD per hour.", _ADVISE,
              (Query(f"topk(20, skuwise_finding_wasted_usd_per_hour{{{_TEAM}}})",
                     "{{rule}} {{workload}} {{node}}"),), "bargauge", height=12),
        Panel("Incidents", _USD, "Cost of open incidents so far, USD.", _INCIDENTS,
              (Query(f"topk(20, skuwise_incident_cost_usd{{{_TEAM}}})", "{{kind}} {{workload}} {{node}}"),),
              "bargauge", height=12),
        Panel("Longest idle GPUs", "s", "How long a GPU has done no work by now.", _ADVISE,
              (Query(f"topk(20, skuwise_gpu_idle_run_seconds{{{_NODE}}})", "{{node}} GPU {{gpu_index}}"),),
              "bargauge", "agent", height=12),
        Panel("GPU utilization", "percentunit", "Share of time with any kernel, mean of a node's GPUs.", _ADVISE,
              (Query(f"avg by (node) (skuwise_gpu_util_ratio{{{_NODE}}}) or avg by (node) ({_dcgm('gpu_util')})",
                     "{{node}}"),), needs="either", height=12),
    ),
)  # fmt: skip
FABRIC = Board(
    "skuwise-fabric",
    "skuwise: fabric",
    (
        Panel("Compute fabric, sent", "Bps", "Traffic of the compute ports.", _ADVISE,
              (Query(_sent("tx", "node_infiniband_port_data_transmitted_bytes_total"), "{{node}}"),), needs="fabric"),
        Panel("Compute fabric, received", "Bps", "Traffic of the compute ports.", _ADVISE,
              (Query(_sent("rx", "node_infiniband_port_data_received_bytes_total"), "{{node}}"),), needs="fabric"),
        Panel("NVLink, sent", "Bps", "Traffic between the GPUs of a node.", _ADVISE,
              (Query(f"sum by (node) (rate(skuwise_gpu_nvlink_tx_bytes_total{{{_NODE}}}[$__rate_interval])) or "
                     f"sum by (node) ({_dcgm('nvlink_tx_bytes_per_second')})", "{{node}}"),), needs="either"),
        Panel("Ports that are up", "percentunit", "Share of time in which the compute ports were ACTIVE.", _DOCTOR,
              (Query(_port_share("active", "state_observed"), "{{node}}"),), needs="agent"),
        Panel("Fabric silent", "percentunit", "Share of time with less than 0.1 % of the line rate.", _ADVISE,
              (Query(_port_share("silent", "util_observed"), "{{node}}"),), needs="agent"),
    ),
)  # fmt: skip
BOARDS = (FLEET, TEAM, WASTE, FABRIC)
