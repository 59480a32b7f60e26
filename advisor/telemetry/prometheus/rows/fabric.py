"""Rows of fabric ports and hosts, from our agent's page and from node_exporter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .....agent.model import Role
from .....agent.sources.fabric.pci_topology import configured_role
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql.labels import agent_node
from .gpus import scrape_seconds
from .series_to_rows import Cells, from_bins

PortKey = tuple[str, str, int]  # node, device, port
# A port that never was in another state than ACTIVE, up to samples at the edge of a row.
MOST_RATE = 1e13
_PORT = re.compile(r"[0-9]{1,4}")
# Compute fabrics have a port for every one or two GPUs; a node's single fast port may as well lead to storage.
_GPUS_PER_PORT = 2


@dataclass
class PortRows:
    """Measures by port and moment; `roles` and `layers` as far as known."""

    cells: Cells[PortKey]
    roles: dict[PortKey, str] = field(default_factory=dict)
    layers: dict[PortKey, str] = field(default_factory=dict)


def agent_ports(grid: Grid, answers: Mapping[str, SeriesAnswer]) -> PortRows:
    """From the answers to `queries.agent_fabric_asks` and the ports of `agent_node_asks`, by name."""
    rows = PortRows(Cells(grid))

    def key(labels: Labels) -> PortKey | None:
        return port_key(labels, agent_node(labels))

    ports = answers.get("ports")
    for labels in ports.labels if ports is not None else ():
        port = key(labels)
        if port is not None:
            rows.roles[port] = labels.get("role", "unknown")
            rows.layers[port] = labels.get("link_layer", "InfiniBand")
    cells = rows.cells
    for name, answer in _of("fabric", answers).items():
        if name != "util":
            cells.put(name, answer, key, how="max" if name == "observed" else "mean")
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    cells.columns["line_rate_bytes_per_second"] = cells.column("line_rate")
    if "fabric util" in answers:
        cells.put_bins("util_bins", answers["fabric util"], key, cells.column("observed_seconds"))
        p95, most = from_bins(cells.bin_column("util_bins"))
        cells.columns["util_p95"], cells.columns["util_max"] = p95, most
    return rows


def exporter_ports(
    grid: Grid,
    answers: dict[str, SeriesAnswer],
    rates: SeriesAnswer,
    *,
    node_of: Callable[[Labels], str | None],
    gpu_counts: Mapping[str, int],
    configured: Mapping[str, Role],
) -> PortRows:
    """From the answers to `queries.exporter_fabric_asks`, which are let go as they are taken in. `rates`: bytes per
    second of each port, one column.

    `node_of`: the GPU node that a series speaks of, None for others. Roles are told by `configured`, else by the shape:
    node_exporter does not say which port serves a GPU.
    """
    rows = PortRows(Cells(grid))

    def key(labels: Labels) -> PortKey | None:
        return port_key(labels, node_of(labels))

    line: dict[PortKey, float] = {}
    for labels, value in zip(rates.labels, rates.values, strict=True):
        port = key(labels)
        if port is not None and 0 < value[0] < MOST_RATE:
            line[port] = float(value[0])
    cells = rows.cells
    told = _of("fabric", answers)
    answers.clear()
    for name in list(told):
        how = "max" if name.endswith("_max") or name == "n" else "mean"
        cells.put(name, told.pop(name), key, how=how, most=MOST_RATE)
    samples = cells.column("n")
    cells.columns["observed_seconds"] = np.minimum(samples * scrape_seconds(samples, grid.step)[:, None], grid.step)
    rate = np.array([line.get(port, np.nan) for port in cells.rows])[:, None]
    cells.columns["line_rate_bytes_per_second"] = np.broadcast_to(rate, (len(cells.rows), grid.count)).copy()
    for direction in ("tx", "rx"):
        cells.columns[f"{direction}_bytes_per_second_mean"] = cells.column(f"{direction}_mean")
    for statistic in ("mean", "p95", "max"):
        # One way alone is no use of the port: the other one may be full.
        both = np.maximum(cells.column(f"tx_{statistic}"), cells.column(f"rx_{statistic}"))
        cells.columns[f"util_{statistic}"] = both / rate if len(both) else both
        for direction in ("tx", "rx"):
            cells.columns.pop(f"{direction}_{statistic}", None)
    cells.columns["util_n"] = samples
    cells.columns["xmit_wait_per_second_mean"] = cells.column("xmit_wait_mean")
    cells.columns["active_fraction"] = cells.column("active")
    rows.roles = roles_of(list(cells.rows), line, gpu_counts, configured)
    rows.layers = dict.fromkeys(cells.rows, "InfiniBand")
    return rows


def roles_of(
    ports: list[PortKey], rates: Mapping[PortKey, float], gpu_counts: Mapping[str, int], configured: Mapping[str, Role]
) -> dict[PortKey, str]:
    """What each port is for: as it is configured; else a node's fastest ports are ``compute`` where there is one for
    every two GPUs at least, and what is slower beside them is ``storage``; else it is not known."""
    fastest: dict[str, float] = {}
    for port in ports:
        fastest[port[0]] = max(fastest.get(port[0], 0.0), rates.get(port, 0.0))
    count = Counter(port[0] for port in ports if rates.get(port, 0.0) == fastest[port[0]] > 0)
    roles: dict[PortKey, str] = {}
    for port in ports:
        node, device, _ = port
        named = configured_role(device, configured)
        enough = count[node] * _GPUS_PER_PORT >= gpu_counts.get(node, 0) > 0
        is_fast = rates.get(port, 0.0) == fastest[node] > 0
        roles[port] = named or ("unknown" if not enough else "compute" if is_fast else "storage")
    return roles


def agent_hosts(grid: Grid, answers: Mapping[str, SeriesAnswer]) -> Cells[str]:
    """From the answers to `queries.agent_host_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    for name, answer in _of("host", answers).items():
        cells.put(name, answer, agent_node, how="max" if name == "observed" or name.endswith("_max") else "mean")
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    return cells


def exporter_hosts(
    grid: Grid, answers: Mapping[str, SeriesAnswer], node_of: Callable[[Labels], str | None]
) -> Cells[str]:
    """From the answers to `queries.exporter_host_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    for name, answer in _of("host", answers).items():
        cells.put(name, answer, node_of, how="max" if name.endswith("_max") else "mean")
    cells.columns["cpu_util_mean"] = np.clip(1.0 - cells.column("idle_mean") - cells.column("io_wait_mean"), 0.0, 1.0)
    known: Floats = np.zeros((len(cells.rows), grid.count), dtype=bool)
    for name in cells.columns:
        known |= ~np.isnan(cells.column(name))
    cells.columns["observed_seconds"] = np.where(known, grid.step, np.nan)
    return cells


def merged(first: Cells, second: Cells) -> Cells:
    """`first`, and of `second` the devices whose node `first` does not have at all."""

    def node(key: object) -> object:
        return key[0] if isinstance(key, tuple) else key

    nodes = {node(key) for key in first.rows}
    return _joined(first, second, [key for key in second.rows if node(key) not in nodes])


def beside(first: PortRows, second: PortRows) -> PortRows:
    """The ports of both; of a port that both have, the first's."""
    keep = [key for key in second.cells.rows if key not in first.cells.rows]
    return PortRows(
        _joined(first.cells, second.cells, keep), {**second.roles, **first.roles}, {**second.layers, **first.layers}
    )


def _joined(first: Cells, second: Cells, keep: list) -> Cells:
    if not first.rows and not first.columns and not first.bins and len(keep) == len(second.rows):
        return second
    out: Cells = Cells(first.grid)
    for key in (*first.rows, *keep):
        out.rows[key] = len(out.rows)
    at = [second.rows[key] for key in keep]
    for name in dict.fromkeys([*first.columns, *second.columns]):
        out.columns[name] = np.concatenate([first.column(name), second.column(name)[at]])
    for name in dict.fromkeys([*first.bins, *second.bins]):
        out.bins[name] = np.concatenate([first.bin_column(name), second.bin_column(name)[at]])
    return out


def _of(kind: str, answers: Mapping[str, SeriesAnswer]) -> dict[str, SeriesAnswer]:
    return {name.removeprefix(f"{kind} "): a for name, a in answers.items() if name.startswith(f"{kind} ")}


def port_key(labels: Labels, node: str | None) -> PortKey | None:
    """The port that a series speaks of; None where its labels name none."""
    device, port = labels.get("device"), labels.get("port", "1")
    return (node, device, int(port)) if node and device and _PORT.fullmatch(port) else None
