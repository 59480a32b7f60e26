"""What the compute fabric of each node carried: whether it can be judged, how full it was, and when it last moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.metrics import BIN_EDGES
from ...core.coded_text import CodedText, coded
from ...core.frame import Frame
from ...core.histogram_array import BinsArray, Matrix, bins_quantile
from ...core.scalars import Record, records, text
from ..features.port_traffic import FAILED
from ..types import FabricFacts

# A port that was ACTIVE in less than this share of its observed time was down: its silence proves nothing.
ACTIVE_SHARE_MIN = 0.99
_EDGES = np.array(BIN_EDGES)
# A port that exceeds this share of its line rate is in use.
_ACTIVE_MIN = 0.01
_READ = [
    "ts", "observed_seconds", "util_mean", "util_max", "util_p95", "active_fraction", "line_rate_bytes_per_second",
    "link_layer",
]  # fmt: skip
Ints = npt.NDArray[np.intp]


def fabric_facts(frame: Frame) -> Mapping[str, FabricFacts]:
    """Of each node that shows a port, or of which an absence tells why it shows none."""
    absences, ports = dict[str, CodedText](), _ports(frame.fabric)
    unread = (frame.absences["scope"] == "fabric") | (
        (frame.absences["reason"] == FAILED) & (frame.absences["device"] == "infiniband")
    )
    for row in records(frame.absences[unread & (frame.absences["reason"] != "no-fabric")]):  # the first tells why
        reason = str(row["reason"])
        said = CodedText(reason, text(row["detail"]) or f"Fabric counters not available ({reason}).")
        absences.setdefault(str(row["node"]), said)
    history = frame.fabric_history
    beyond = history[history["role"] == "compute"] if not history.empty else history
    by_node = {str(node): rows for node, rows in beyond.groupby("node")} if not beyond.empty else {}
    out: dict[str, FabricFacts] = {}
    for node in {**dict.fromkeys(absences), **dict.fromkeys(ports)}:
        absent, every = absences.get(node), ports.get(node, [])
        own = [port for port in every if port["compute"]]
        if not own:
            layer = None
            if absent is None:  # then there are ports
                which, one = ("its only port", "it") if len(every) == 1 else (f"any of its {len(every)} ports", "one")
                reason = f"Unknown whether {which} belongs to a compute fabric. Set fabric_roles if {one} does."
                absent = CodedText("no-compute-port", reason)
                layer = "Ethernet" if all(port["ethernet"] for port in every) else None
            out[node] = FabricFacts((), False, absent.text, None, None, 0.0, None, None, layer, code=absent.code)
            continue
        ever, hours = [port["last_active_ts"] for port in own], min(port["observed"] for port in own) / 3600
        if not history.empty:  # the road looks back beyond the window
            told = by_node.get(node, history.iloc[:0])
            ever = [*ever, float(told["last_active_ts"].max())] if len(told) else []
            hours = float(told["hours"].min()) if len(told) else 0.0
        reason, peaks = _unreadable(own, absent), [port["util_p995"] for port in own]
        rates = [port["line_rate"] for port in own]
        out[node] = FabricFacts(
            ports_compute=tuple(port["name"] for port in own), readable=reason is None,
            reason=reason.text if reason is not None else None, code=reason.code if reason is not None else None,
            util_p995=_highest(peaks) if reason is None and not np.isnan(peaks).any() else None,
            util_max=_highest([port["util_max"] for port in own]), last_active_ts=_highest(ever),
            hours=min(port["seconds"] for port in own) / 3600,
            line_rate_bytes_per_second=None if np.isnan(rates).any() else sum(rates),
            link_layer=text(own[-1]["link_layer"]), hours_known=hours,
            still_share=max((port["still"] / port["seconds"] for port in own if port["seconds"] > 0), default=0.0),
        )  # fmt: skip
    return out


def _unreadable(own: Sequence[Record], absent: CodedText | None) -> CodedText | None:
    """Why the compute ports of a node cannot be judged; None: they can."""
    for port in own:
        if port["active"] < ACTIVE_SHARE_MIN:
            return coded(
                "port-down", "Port {port} was ACTIVE only {share:.0%} of the time. A port that is down does not count "
                "as an idle fabric.", port=port["name"], share=port["active"],
            )  # fmt: skip
    for port in own:
        if port["seconds"] <= 0:
            return absent or coded("port-counters-unread", "No counters available for port {port}.", port=port["name"])
    unrated = [port["name"] for port in own if np.isnan(port["line_rate"])]
    return coded("line-rate-unknown", "Unknown line rate of port {port}.", port=unrated[0]) if unrated else None


def _ports(fabric: pd.DataFrame) -> dict[str, list[Record]]:
    """Node -> its ports by ``name``: whether it is one of a ``compute`` fabric in some row, and whether one of
    ``ethernet`` in all; and over its rows as such: ``seconds`` in which its traffic was counted (``observed``: in all),
    ``still`` without a byte, mean share of time in which it was ``active`` (0..1), ``line_rate`` (bytes a second),
    ``util_max`` and ``util_p995`` (an upper bound), shares of the line rate, ``last_active_ts``: end of the last row
    above 1 % of it. NaN: not known."""
    if fabric.empty:
        return {}
    of_port = fabric.groupby(["node", "device", "port"], sort=False)
    first = fabric[["node", "device", "port"]].drop_duplicates()
    names = [f"{device}/{int(port)}" for device, port in zip(first["device"], first["port"], strict=True)]
    code = of_port.ngroup().to_numpy().astype(np.intp)
    is_compute, layer = (fabric["role"] == "compute").to_numpy(), fabric["link_layer"]
    ports = pd.DataFrame({"node": first["node"].astype(str).to_numpy(), "name": names})
    ports["ethernet"] = (layer == "Ethernet").groupby(code).all()
    ports["compute"] = pd.Series(is_compute).groupby(code).any()
    rows, port = fabric.loc[is_compute, _READ], code[is_compute]
    observed = rows["observed_seconds"].fillna(0.0)
    read = observed.where(rows["util_mean"].notna(), 0.0)
    highest = rows["util_max"].fillna(rows["util_mean"])
    totals = pd.DataFrame(
        {
            "seconds": read, "observed": observed, "still": read.where(highest == 0, 0.0),
            "active": rows["active_fraction"].astype(float), "line_rate": rows["line_rate_bytes_per_second"],
            "util_max": rows["util_max"], "last_active_ts": rows["ts"].where(rows["util_max"] >= _ACTIVE_MIN),
            "link_layer": rows["link_layer"],
        }
    )  # fmt: skip
    how = {"seconds": "sum", "observed": "sum", "still": "sum", "active": "mean", "line_rate": "last"}
    how |= {"util_max": "max", "last_active_ts": "max", "link_layer": "last"}
    ports = ports.join(totals.groupby(port).agg(how))
    bins = cast("BinsArray", fabric["util_bins"].array).matrix
    seconds = _seconds_in_bins(rows, bins, np.flatnonzero(is_compute), port, len(ports))
    ports["util_p995"] = np.array([bins_quantile(own, 0.995) for own in seconds], dtype=float)
    out: dict[str, list[Record]] = {}
    for row in records(ports.sort_values("name", kind="stable")):
        out.setdefault(row["node"], []).append(row)
    return out


def _seconds_in_bins(rows: pd.DataFrame, bins: Matrix, at: Ints, port: Ints, count: int) -> npt.NDArray[np.float64]:
    """Each port's seconds by how much of the line rate it used: the `bins` `at` its rows; a row without bins counts
    with its highest value."""
    most, p95, seconds = (rows[name].to_numpy(float) for name in ("util_max", "util_p95", "observed_seconds"))
    have = ~np.isnan(bins[at, 0])
    total = np.zeros((count, len(_EDGES)))
    for n in range(len(_EDGES)):
        total[:, n] = np.bincount(port[have], bins[at[have], n], count)
    bare = ~have & ~np.isnan(most)
    # A row whose highest second lies in this bin, and whose 95th percentile lies where it lies: 95 % of its seconds are
    # no higher than the latter.
    for values, share in ((most[bare], 0.05), (np.where(np.isnan(p95), most, p95)[bare], 0.95)):
        slots = np.clip(np.searchsorted(_EDGES, values, side="right") - 1, 0, len(_EDGES) - 1)
        np.add.at(total, (port[bare], slots), share * seconds[bare])
    return total


def _highest(values: Sequence[float]) -> float | None:
    return max((value for value in values if not math.isnan(value)), default=None)
