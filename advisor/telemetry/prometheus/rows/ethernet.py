"""Rows of plain Ethernet ports from node_exporter's collectors netdev and netclass.

A node without RDMA communicates over these, and a job whose NCCL falls back to TCP does so on any node. Their counters
are the kernel's: RDMA of a RoCE NIC is not in them (it stands under its InfiniBand port), so nothing counts twice. Only
names of physical ports: what bridges, bonds, VLANs, tunnels and containers carry passes one of those. None of them is a
compute fabric unless the settings say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from .....agent.model import Role
from .....agent.sources.fabric.pci_topology import configured_role
from ..client.range_planner import Ask
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql.labels import NODE_LABELS, PORT_LABELS
from ..promql.promql import row_range, selector
from .fabric import MOST_RATE, PortKey, PortRows, port_key
from .series_to_rows import Cells

SPEED = "node_network_speed_bytes"
INFO = "node_network_info"
COLLECTORS = "node_scrape_collector_success"
_COUNTERS = {"tx": "node_network_transmit_bytes_total", "rx": "node_network_receive_bytes_total"}
_LAYER = "Ethernet"
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


def has_ethernet(present: Collection[str]) -> bool:
    return any(name in present for name in _COUNTERS.values())


def ethernet_asks(present: Collection[str], matches: Sequence[str], step: float) -> list[Ask]:
    """What node_exporter says of the traffic of Ethernet ports: means alone, for no other statistic is used."""
    chosen = selector(matches, f'device!~"{_VIRTUAL}"')
    kept = (*NODE_LABELS, *PORT_LABELS)
    return [
        Ask(f"ethernet {way}_mean", f"rate({counter}{chosen}{row_range(step)})", kept)
        for way, counter in _COUNTERS.items()
        if counter in present
    ]


def ethernet_ports(
    grid: Grid,
    answers: Mapping[str, SeriesAnswer],
    about: Mapping[str, SeriesAnswer],
    *,
    node_of: Callable[[Labels], str | None],
    configured: Mapping[str, Role],
) -> PortRows:
    """From the answers to `ethernet_asks`. `about`: by name (`SPEED`, `INFO`), one column each.

    A port whose speed is unknown (0 or less, or not told) has no line rate and no use, but its bytes.
    """
    rows = PortRows(Cells(grid))

    def key(labels: Labels) -> PortKey | None:
        return port_key(labels, node_of(labels))

    for way in _COUNTERS:
        answer = answers.get(f"ethernet {way}_mean")
        if answer is not None:
            rows.cells.put(f"{way}_bytes_per_second_mean", answer, key, most=MOST_RATE)
    speed: dict[PortKey, float] = {}
    for labels, value in _each(about.get(SPEED)):
        port = key(labels)
        if port is not None and 0 < value < MOST_RATE:
            speed[port] = value
    active: dict[PortKey, float] = {}
    for labels, _ in _each(about.get(INFO)):
        port = key(labels)
        if port is not None and labels.get("operstate"):
            active[port] = max(active.get(port, 0.0), float(labels["operstate"] in _UP))
    cells = rows.cells
    shape = (len(cells.rows), grid.count)
    rate = _spread([speed.get(port, np.nan) for port in cells.rows], shape)
    ways = [cells.column(f"{way}_bytes_per_second_mean") for way in _COUNTERS]
    # One way alone is no use of the port: the other one may be full.
    both = np.maximum.reduce(ways)
    cells.columns["line_rate_bytes_per_second"] = rate
    cells.columns["util_mean"] = both / rate
    cells.columns["active_fraction"] = _spread([active.get(port, np.nan) for port in cells.rows], shape)
    cells.columns["observed_seconds"] = np.where(np.isnan(ways).all(axis=0), np.nan, grid.step)
    rows.roles = {port: configured_role(port[1], configured) or "unknown" for port in cells.rows}
    rows.layers = dict.fromkeys(cells.rows, _LAYER)
    return rows


def without_rdma(
    collectors: SeriesAnswer | None, seen: Collection[str], node_of: Callable[[Labels], str | None]
) -> set[str]:
    """Nodes whose node_exporter looked for RDMA devices and found none.

    `collectors`: `COLLECTORS` of the collector infiniband, which without a device gives no data; `seen`: nodes with
    InfiniBand series. Where the collector did not run, nothing is known.
    """
    found = {}
    for labels, value in _each(collectors):
        node = node_of(labels)
        if node is not None:
            found[node] = max(found.get(node, 0.0), value)
    return {node for node, value in found.items() if value == 0.0} - set(seen)


def _each(answer: SeriesAnswer | None) -> list[tuple[Labels, float]]:
    if answer is None:
        return []
    return [(labels, float(value[0])) for labels, value in zip(answer.labels, answer.values, strict=True)]


def _spread(values: list[float], shape: tuple[int, int]) -> np.ndarray:
    return np.broadcast_to(np.array(values, dtype=float)[:, None], shape).copy()
