"""What each port of a compute fabric carried over the window, of all nodes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.metrics import BIN_EDGES
from ...core.column_rows import ColumnRows, rows_of
from ...core.histogram_array import bins_quantile

_EDGES = np.array(BIN_EDGES)
# A port that exceeds this share of its line rate is in use.
_ACTIVE_MIN = 0.01

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PortTotals:
    """One compute port. `seconds`: observed in which its traffic was counted (`observed_seconds`: in all);
    `still_seconds`: of them those without a byte; `active_share`: the mean share of time in which it was ACTIVE;
    `util_p995`: the 99.5th percentile of its seconds, an upper bound; `util_max`: the highest; `last_active_ts`: the
    end of the last row above 1 % of the line rate. NaN or None: not known."""

    name: str
    link_layer: object
    seconds: float
    observed_seconds: float
    still_seconds: float
    line_rate: float
    active_share: float
    util_max: float
    util_p995: float | None
    last_active_ts: float


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of a node: totals of those of its compute fabric, by name, and the names of the others. `ethernet`:
    whether every port is one of Ethernet."""

    compute: tuple[PortTotals, ...]
    others: tuple[str, ...]
    ethernet: bool


def port_totals(fabric: pd.DataFrame) -> Mapping[str, NodePorts]:
    """The ports of each node that shows any. `fabric`: the frame's."""
    if fabric.empty:
        return {}
    keys = fabric.groupby(["node", "device", "port"], sort=False)
    code = keys.ngroup().to_numpy().astype(np.intp)
    first = fabric.iloc[np.unique(code, return_index=True)[1]]
    names = [f"{device}/{int(port)}" for device, port in zip(first["device"], first["port"], strict=True)]
    is_compute = (fabric["role"] == "compute").to_numpy()
    plain = ~np.isin(np.arange(len(names)), code[(fabric["link_layer"] != "Ethernet").to_numpy()])
    ours = _compute_ports(rows_of(fabric).where(is_compute), code[is_compute], names)
    has_other = np.isin(np.arange(len(names)), code[~is_compute])
    found: dict[str, tuple[list[PortTotals], list[str], bool]] = {}
    for n, node in enumerate(first["node"]):
        compute, others, ethernet = found.get(str(node), ([], [], True))
        compute += [ours[n]] if n in ours else []
        others += [names[n]] if has_other[n] else []
        found[str(node)] = compute, others, ethernet and bool(plain[n])
    return {
        node: NodePorts(tuple(sorted(compute, key=lambda one: one.name)), tuple(sorted(set(others))), ethernet)
        for node, (compute, others, ethernet) in found.items()
    }


def _compute_ports(rows: ColumnRows, code: Ints, names: list[str]) -> dict[int, PortTotals]:
    """The totals of each port that is one of a compute fabric in some row. `code`: the port of each row."""
    count = len(names)
    mean, most, observed, ts = (rows.floats(name) for name in ("util_mean", "util_max", "observed_seconds", "ts"))
    read = np.where(np.isnan(mean), 0.0, np.nan_to_num(observed))
    highest = np.where(np.isnan(most), mean, most)
    active = rows.floats("active_fraction")
    told = ~np.isnan(active)
    with np.errstate(invalid="ignore"):
        share = np.bincount(code[told], active[told], count) / np.bincount(code[told], minlength=count)
        in_use = most >= _ACTIVE_MIN
    seconds, whole = np.bincount(code, read, count), np.bincount(code, np.nan_to_num(observed), count)
    still = np.bincount(code, np.where(highest == 0, read, 0.0), count)
    peak, last = _highest(code, most, count), _highest(code[in_use], ts[in_use], count)
    rate, layers = _last(code, rows.floats("line_rate_bytes_per_second"), count), rows["link_layer"]
    ports, back = np.unique(code[::-1], return_index=True)  # the last row of each
    bins = _seconds_in_bins(rows, code, count)
    return {
        n: PortTotals(
            names[n], layers[end], float(seconds[n]), float(whole[n]), float(still[n]), float(rate[n]), float(share[n]),
            float(peak[n]), bins_quantile(bins[n], 0.995), float(last[n]),
        )
        for n, end in zip(ports.tolist(), (len(code) - 1 - back).tolist(), strict=True)
    }  # fmt: skip


def _highest(code: Ints, values: Floats, count: int) -> Floats:
    """The highest known value of each port; NaN: none."""
    out = np.full(count, np.nan)
    np.fmax.at(out, code, values)
    return out


def _last(code: Ints, values: Floats, count: int) -> Floats:
    """The last known value of each port; NaN: none."""
    out = np.full(count, np.nan)
    known = ~np.isnan(values)
    out[code[known]] = values[known]  # of several the last one stays
    return out


def _seconds_in_bins(rows: ColumnRows, code: Ints, count: int) -> Floats:
    """Each port's seconds by how much of the line rate it used: its rows' bins; a row without bins counts with its
    highest value."""
    bins = rows.table["util_bins"]
    have = ~np.isnan(bins[rows.at, 0])
    at = rows.at[have]
    total = np.zeros((count, len(_EDGES)))
    for n in range(len(_EDGES)):
        total[:, n] = np.bincount(code[have], bins[at, n], count)
    most = rows.floats("util_max")
    bare = ~have & ~np.isnan(most)
    if bare.any():
        weight, whose, from_max = rows.floats("observed_seconds")[bare], code[bare], most[bare]
        # A row whose highest second lies in this bin, and whose 95th percentile lies where it lies: 95 % of its seconds
        # are no higher than the latter.
        p95 = rows.floats("util_p95")[bare]
        for values, share in ((from_max, 0.05), (np.where(np.isnan(p95), from_max, p95), 0.95)):
            slots = np.clip(np.searchsorted(_EDGES, values, side="right") - 1, 0, len(_EDGES) - 1)
            np.add.at(total, (whose, slots), share * weight)
    return total
