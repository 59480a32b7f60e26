"""Rows of fabric ports, Ethernet ports and hosts, from our agent's page and from node_exporter.

A node without RDMA communicates over plain Ethernet, and a job whose NCCL falls back to TCP does so on any node. RDMA
of a RoCE NIC is not in the kernel's counters (it has an InfiniBand port), so nothing counts twice. No Ethernet port is
one of a compute fabric unless the settings say so.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from .....agent.model import Role
from .....agent.sources.ports import configured_role
from ..client.range_planner import Ask
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql import HOST_LABELS, PORT_LABELS, agent_node, row_range, selector
from .gpus import Cells, from_bins, scrape_seconds

PortKey = tuple[str, str, int]  # node, device, port
K = TypeVar("K", bound=Hashable)
NodeOf = Callable[[Labels], str | None]
MOST_RATE = 1e13  # bytes per second; beyond is no reading
RATE = "node_infiniband_rate_bytes_per_second"
SPEED = "node_network_speed_bytes"
_PORT = re.compile(r"[0-9]{1,4}")
# Compute fabrics have a port for every one or two GPUs; a node's single fast port may as well lead to storage.
_GPUS_PER_PORT = 2
_COUNTERS = {"tx": "node_network_transmit_bytes_total", "rx": "node_network_receive_bytes_total"}
# Names that kernels, container networks and hypervisors give to what is no physical Ethernet port; ib* is InfiniBand's
# own IP traffic, which its port counts already. Anchored by the query language.
_VIRTUAL = (
    "lo|veth.*|cali.*|cni.*|docker.*|flannel.*|cilium.*|lxc.*|lxd.*|br[0-9-].*|br|bridge.*|virbr.*|vnet.*|vmnet.*|tap.*"
    "|tun.*|tunl.*|vxlan.*|genev.*|geneve.*|gre.*|erspan.*|sit.*|ip6.*|ip_vti.*|wg.*|tailscale.*|kube-.*|nodelocaldns.*"
    "|dummy.*|ifb.*|bond.*|team.*|vlan.*|macvlan.*|macvtap.*|ipvlan.*|ovs-.*|ovn.*|antrea.*|weave.*|nerdctl.*|podman.*"
    "|gke.*|azv.*|eni[0-9a-f]{8,}|ib.*|wl.*|ww.*|usb.*|tunl|.+[.:@].+"
)


@dataclass
class PortRows:
    """Measures by port and moment; `roles` and `layers` as far as known."""

    cells: Cells[PortKey]
    roles: dict[PortKey, str] = field(default_factory=dict)
    layers: dict[PortKey, str] = field(default_factory=dict)


def agent_ports(grid: Grid, answers: Mapping[str, SeriesAnswer]) -> PortRows:
    """From the answers to `queries.agent_fabric_asks` and the ports of `agent_node_asks`, by name."""
    rows = PortRows(Cells(grid))
    cells, key = rows.cells, _port_of(agent_node)
    for labels in answers["ports"].labels if "ports" in answers else ():
        if (port := key(labels)) is not None:
            rows.roles[port] = labels.get("role", "unknown")
            rows.layers[port] = labels.get("link_layer", "InfiniBand")
    measures = {name: a for name, a in answers.items() if name.startswith("fabric ") and name != "fabric util"}
    _put(cells, measures, key)
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    cells.columns["line_rate_bytes_per_second"] = cells.column("line_rate")
    if "fabric util" in answers:
        cells.put_bins("util_bins", answers["fabric util"], key, cells.column("observed_seconds"))
        cells.columns["util_p95"], cells.columns["util_max"] = from_bins(cells.column("util_bins"))
    return rows


def exporter_ports(
    grid: Grid, answers: dict[str, SeriesAnswer], about: Mapping[str, SeriesAnswer], *, node_of: NodeOf,
    gpu_counts: Mapping[str, int], configured: Mapping[str, Role],
) -> PortRows:  # fmt: skip
    """From the answers to `queries.exporter_fabric_asks` and `ethernet_asks`, which are released. `about`: by name
    (`RATE`, `SPEED`), one column each; `node_of`: the GPU node of a series, None for others.

    A port whose speed is unknown (0 or less, or not reported) has no line rate and no use, but its bytes.
    """
    cells, key = Cells[PortKey](grid), _port_of(node_of)
    _put(cells, answers, key, most=MOST_RATE)
    line: dict[PortKey | None, float] = {}
    for answer in (about[name] for name in (RATE, SPEED) if name in about):
        speeds = zip(answer.labels, answer.values[:, 0].tolist(), strict=True)
        line |= {key(labels): value for labels, value in speeds if 0 < value < MOST_RATE}
    plain = [cells.column(f"ethernet {direction}_mean") for direction in _COUNTERS]
    is_ethernet = ~np.isnan(plain).all(axis=(0, 2))
    for direction, values in zip(_COUNTERS, plain, strict=True):
        cells.columns[f"{direction}_mean"] = np.fmax(cells.column(f"{direction}_mean"), values)
        cells.columns[f"{direction}_bytes_per_second_mean"] = cells.columns[f"{direction}_mean"]
    samples = cells.column("n")
    seconds = np.minimum(samples * scrape_seconds(samples, grid.step)[:, None], grid.step)
    rate = np.array([[line.get(port, np.nan)] * grid.count for port in cells.rows]).reshape(samples.shape)
    cells.columns |= {
        "observed_seconds": np.where(~np.isnan(plain).all(axis=0), grid.step, seconds),
        "line_rate_bytes_per_second": rate,
        "util_n": samples,
        "xmit_wait_per_second_mean": cells.column("xmit_wait_mean"),
        "active_fraction": cells.column("active"),
    }
    for statistic in ("mean", "p95", "max"):
        # One way alone is no use of the port: the other one may be full.
        both = np.maximum(cells.column(f"tx_{statistic}"), cells.column(f"rx_{statistic}"))
        cells.columns[f"util_{statistic}"] = both / rate
    layers = dict(zip(cells.rows, np.where(is_ethernet, "Ethernet", "InfiniBand").tolist(), strict=True))
    roles = roles_of([port for port in cells.rows if layers[port] != "Ethernet"], line, gpu_counts, configured)
    others = {port: configured_role(port[1], configured) or "unknown" for port in cells.rows}
    return PortRows(cells, others | roles, layers)


def roles_of(
    ports: Sequence[PortKey], rates: Mapping[PortKey | None, float], gpu_counts: Mapping[str, int],
    configured: Mapping[str, Role],
) -> dict[PortKey, str]:  # fmt: skip
    """What each port is for, which node_exporter does not say: as it is configured; else a node's fastest ports are
    ``compute`` where there is one for every two GPUs at least, and what is slower beside them is ``storage``; else it
    is not known."""
    fastest: dict[str, float] = {}
    for port in ports:
        fastest[port[0]] = max(fastest.get(port[0], 0.0), rates.get(port, 0.0))
    fast = {port for port in ports if rates.get(port, 0.0) == fastest[port[0]] > 0}
    count = Counter(node for node, _, _ in fast)
    shaped = {node for node in fastest if count[node] * _GPUS_PER_PORT >= gpu_counts.get(node, 0) > 0}
    by_shape = {port: "compute" if port in fast else "storage" for port in ports if port[0] in shaped}
    return {port: configured_role(port[1], configured) or by_shape.get(port, "unknown") for port in ports}


def ethernet_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """The traffic of Ethernet ports by node_exporter: means alone, for no other statistic is used."""
    chosen = selector(matches, f'device!~"{_VIRTUAL}"')
    return [
        Ask(f"ethernet {direction}_mean", f"rate({counter}{chosen}{row_range(step)})", (*HOST_LABELS, *PORT_LABELS))
        for direction, counter in _COUNTERS.items()
        if counter in present
    ]


def host_rows(grid: Grid, answers: dict[str, SeriesAnswer], node_of: NodeOf) -> Cells[str]:
    """From the answers to `queries.agent_host_asks` or `exporter_host_asks`, by name, which are released."""
    cells: Cells[str] = Cells(grid)
    _put(cells, answers, node_of)
    if "observed" in cells.columns:
        cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
        return cells
    cells.columns["cpu_util_mean"] = np.clip(1.0 - cells.column("idle_mean") - cells.column("io_wait_mean"), 0.0, 1.0)
    measured = np.any([~np.isnan(cells.column(name)) for name in cells.columns], axis=0)
    cells.columns["observed_seconds"] = np.where(measured, grid.step, np.nan)
    return cells


def merged(first: Cells, second: Cells) -> Cells:
    """`first`, and of `second` the devices whose node `first` does not have at all."""
    nodes = {key[0] if isinstance(key, tuple) else key for key in first.rows}
    kept = {key: at for key, at in second.rows.items() if (key[0] if isinstance(key, tuple) else key) not in nodes}
    at, out = list(kept.values()), Cells(first.grid, {key: row for row, key in enumerate((*first.rows, *kept))})
    for name in {**first.columns, **second.columns}:
        out.columns[name] = np.concatenate([first.column(name), second.column(name)[at]])
    return out


def _put(
    cells: Cells[K], answers: dict[str, SeriesAnswer], key: Callable[[Labels], K | None], most: float = np.inf
) -> None:
    for name in list(answers):
        how = "max" if name.endswith((" observed", " n", "_max")) else "mean"
        cells.put(name.removeprefix("fabric ").removeprefix("host "), answers.pop(name), key, how=how, most=most)


def _port_of(node_of: NodeOf) -> Callable[[Labels], PortKey | None]:
    def port_of(labels: Labels) -> PortKey | None:
        node, device, port = node_of(labels), labels.get("device"), labels.get("port", "1")
        return (node, device, int(port)) if node and device and _PORT.fullmatch(port) else None

    return port_of
