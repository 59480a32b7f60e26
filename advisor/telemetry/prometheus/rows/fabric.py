"""Rows of fabric ports, Ethernet ports and hosts, from our agent's page and from node_exporter.

A node without RDMA communicates over plain Ethernet, and a job whose NCCL falls back to TCP does so on any node. RDMA
of a RoCE NIC is not in the kernel's counters (it has an InfiniBand port), so nothing counts twice. Only physical ports
are read. None of those of Ethernet is a compute fabric unless the settings say so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .....agent.model import Role
from .....agent.sources.fabric.pci_topology import configured_role
from ..client.range_planner import Ask
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql.labels import HOST_LABELS, PORT_LABELS, agent_node
from ..promql.promql import row_range, selector
from .gpus import scrape_seconds
from .series_to_rows import Cells, from_bins

PortKey = tuple[str, str, int]  # node, device, port
NodeOf = Callable[[Labels], str | None]
MOST_RATE = 1e13  # bytes per second; beyond is no reading
RATE = "node_infiniband_rate_bytes_per_second"
SPEED = "node_network_speed_bytes"
INFO = "node_network_info"
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
# operstate of drivers that do not keep it is "unknown" while they work.
_UP = frozenset({"up", "unknown"})


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
    for name, answer in _of("fabric", answers).items():
        if name != "util":
            cells.put(name, answer, key, how="max" if name == "observed" else "mean")
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
    """From the answers to `queries.exporter_fabric_asks` and `ethernet_asks`, which are emptied. `about`: by name
    (`RATE`, `SPEED`, `INFO`), one column each; `node_of`: the GPU node of a series, None for others.

    A port whose speed is unknown (0 or less, or not reported) has no line rate and no use, but its bytes.
    """
    cells, key = Cells[PortKey](grid), _port_of(node_of)
    ethernet = {key(labels) for answer in _of("ethernet", answers).values() for labels in answer.labels}
    for name in dict.fromkeys(name.partition(" ")[2] for name in answers):
        parts = [answers.pop(f"{layer} {name}") for layer in ("fabric", "ethernet") if f"{layer} {name}" in answers]
        joined = SeriesAnswer(tuple(one for part in parts for one in part.labels), np.vstack([p.values for p in parts]))
        cells.put(name, joined, key, how="max" if name.endswith("_max") or name == "n" else "mean", most=MOST_RATE)
    line: dict[PortKey | None, float] = {}
    for answer in (about[name] for name in (RATE, SPEED) if name in about):
        speeds = zip(answer.labels, answer.values[:, 0].tolist(), strict=True)
        line |= {key(labels): value for labels, value in speeds if 0 < value < MOST_RATE}
    up: dict[PortKey | None, float] = {}
    for labels in about[INFO].labels if INFO in about else ():
        if labels.get("operstate"):
            up[key(labels)] = max(up.get(key(labels), 0.0), float(labels["operstate"] in _UP))
    ways = [cells.column(f"{way}_mean") for way in _COUNTERS]
    samples, rate = cells.column("n"), _constant(cells, line)
    seconds = np.minimum(samples * scrape_seconds(samples, grid.step)[:, None], grid.step)
    is_ethernet = np.array([port in ethernet for port in cells.rows], dtype=bool)[:, None]
    cells.columns |= {
        "observed_seconds": np.where(is_ethernet & ~np.isnan(ways).all(axis=0), grid.step, seconds),
        "line_rate_bytes_per_second": rate,
        "util_n": samples,
        "xmit_wait_per_second_mean": cells.column("xmit_wait_mean"),
        "active_fraction": np.where(is_ethernet, _constant(cells, up), cells.column("active")),
        **{f"{way}_bytes_per_second_mean": values for way, values in zip(_COUNTERS, ways, strict=True)},
    }
    for statistic in ("mean", "p95", "max"):
        # One way alone is no use of the port: the other one may be full.
        both = np.maximum(cells.column(f"tx_{statistic}"), cells.column(f"rx_{statistic}"))
        cells.columns[f"util_{statistic}"] = both / rate
    roles = roles_of([port for port in cells.rows if port not in ethernet], line, gpu_counts, configured)
    roles |= {port: configured_role(port[1], configured) or "unknown" for port in cells.rows if port in ethernet}
    return PortRows(cells, roles, {port: "Ethernet" if port in ethernet else "InfiniBand" for port in cells.rows})


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
    is_fast = {port: rates.get(port, 0.0) == fastest[port[0]] > 0 for port in ports}
    count = Counter(port[0] for port in ports if is_fast[port])
    roles: dict[PortKey, str] = {}
    for port in ports:
        enough = count[port[0]] * _GPUS_PER_PORT >= gpu_counts.get(port[0], 0) > 0
        by_shape = "unknown" if not enough else "compute" if is_fast[port] else "storage"
        roles[port] = configured_role(port[1], configured) or by_shape
    return roles


def ethernet_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """The traffic of Ethernet ports by node_exporter: means alone, for no other statistic is used."""
    chosen = selector(matches, f'device!~"{_VIRTUAL}"')
    return [
        Ask(f"ethernet {way}_mean", f"rate({counter}{chosen}{row_range(step)})", (*HOST_LABELS, *PORT_LABELS))
        for way, counter in _COUNTERS.items()
        if counter in present
    ]


def agent_hosts(grid: Grid, answers: Mapping[str, SeriesAnswer]) -> Cells[str]:
    """From the answers to `queries.agent_host_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    for name, answer in _of("host", answers).items():
        cells.put(name, answer, agent_node, how="max" if name == "observed" or name.endswith("_max") else "mean")
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    return cells


def exporter_hosts(grid: Grid, answers: Mapping[str, SeriesAnswer], node_of: NodeOf) -> Cells[str]:
    """From the answers to `queries.exporter_host_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    for name, answer in _of("host", answers).items():
        cells.put(name, answer, node_of, how="max" if name.endswith("_max") else "mean")
    cells.columns["cpu_util_mean"] = np.clip(1.0 - cells.column("idle_mean") - cells.column("io_wait_mean"), 0.0, 1.0)
    known = np.any([~np.isnan(cells.column(name)) for name in cells.columns], axis=0)
    cells.columns["observed_seconds"] = np.where(known, grid.step, np.nan)
    return cells


def merged(first: Cells, second: Cells) -> Cells:
    """`first`, and of `second` the devices whose node `first` does not have at all."""

    def node(key: object) -> object:
        return key[0] if isinstance(key, tuple) else key

    nodes = {node(key) for key in first.rows}
    kept = {key: row for key, row in second.rows.items() if node(key) not in nodes}
    at, out = list(kept.values()), Cells(first.grid, {key: row for row, key in enumerate((*first.rows, *kept))})
    for name in dict.fromkeys([*first.columns, *second.columns]):
        out.columns[name] = np.concatenate([first.column(name), second.column(name)[at]])
    return out


def _of(kind: str, answers: Mapping[str, SeriesAnswer]) -> dict[str, SeriesAnswer]:
    return {name.removeprefix(f"{kind} "): a for name, a in answers.items() if name.startswith(f"{kind} ")}


def _constant(cells: Cells[PortKey], values: Mapping[PortKey | None, float]) -> np.ndarray:
    column = np.array([values.get(port, np.nan) for port in cells.rows], dtype=float)
    return np.repeat(column[:, None], cells.grid.count, axis=1)


def _port_of(node_of: NodeOf) -> Callable[[Labels], PortKey | None]:
    """The port of a series; None where its labels name none."""

    def port_of(labels: Labels) -> PortKey | None:
        node, device, port = node_of(labels), labels.get("device"), labels.get("port", "1")
        return (node, device, int(port)) if node and device and _PORT.fullmatch(port) else None

    return port_of
