"""What the compute fabric of each node carried: whether it can be judged, how full it was, and when it last moved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.metrics import BIN_EDGES
from ...core.coded_text import CodedText, coded
from ...core.frame import Frame
from ...core.histogram_array import BinsArray, Matrix, bins_quantile
from ...core.records import records, text
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
    absences, ports = _absences(frame), _ports(frame.fabric)
    history = frame.fabric_history
    beyond = history[history["role"] == "compute"] if not history.empty else history
    by_node = {str(node): rows for node, rows in beyond.groupby("node")} if not beyond.empty else {}
    out: dict[str, FabricFacts] = {}
    for node in {**dict.fromkeys(absences), **dict.fromkeys(ports)}:
        absent, own = absences.get(node), ports.get(node)
        if own is None or not own["compute"].any():
            layer = None
            if absent is None:  # then there are ports
                count = len(ports[node])
                which, one = ("its only port", "it") if count == 1 else (f"any of its {count} ports", "one")
                reason = f"Unknown whether {which} belongs to a compute fabric. Set fabric_roles if {one} does."
                absent, layer = (
                    CodedText("no-compute-port", reason),
                    "Ethernet" if ports[node]["ethernet"].all() else None,
                )
            out[node] = FabricFacts((), False, absent.text, None, None, 0.0, None, None, layer, code=absent.code)
            continue
        own = own[own["compute"]]
        last, hours = own["last_active_ts"].max(), float(own["observed"].min()) / 3600
        if not history.empty:  # the road looks back beyond the window
            told = by_node.get(node, history.iloc[:0])
            last = np.fmax(last, told["last_active_ts"].max()) if len(told) else math.nan
            hours = float(told["hours"].min()) if len(told) else 0.0
        reason, peak = _unreadable(own, absent), own["util_p995"]
        read, rate = own["seconds"] > 0, own["line_rate"]
        out[node] = FabricFacts(
            ports_compute=tuple(own["name"]), readable=reason is None,
            reason=reason.text if reason is not None else None, code=reason.code if reason is not None else None,
            util_p995=float(peak.max()) if reason is None and peak.notna().all() else None,
            util_max=_known(own["util_max"].max()), last_active_ts=_known(last),
            hours=float(own["seconds"].min()) / 3600,
            line_rate_bytes_per_second=None if rate.isna().any() else float(rate.sum()),
            link_layer=text(own["link_layer"].iloc[-1]), hours_known=hours,
            still_share=float((own["still"] / own["seconds"])[read].max()) if read.any() else 0.0,
        )  # fmt: skip
    return out


def _unreadable(own: pd.DataFrame, absent: CodedText | None) -> CodedText | None:
    """Why the compute ports of a node cannot be judged; None: they can."""
    down, unread = own[own["active"] < ACTIVE_SHARE_MIN], own[own["seconds"] <= 0]
    unrated = own[own["line_rate"].isna()]
    if len(down):
        return coded(
            "port-down", "Port {port} was ACTIVE only {share:.0%} of the time. A port that is down does not count as "
                    "an idle fabric.",
            port=down["name"].iloc[0], share=float(down["active"].iloc[0]),
        )  # fmt: skip
    if len(unread):
        return absent or coded(
            "port-counters-unread", "No counters available for port {port}.", port=unread["name"].iloc[0]
        )
    if len(unrated):
        return coded("line-rate-unknown", "Unknown line rate of port {port}.", port=unrated["name"].iloc[0])
    return None


def _ports(fabric: pd.DataFrame) -> dict[str, pd.DataFrame]:
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
    return {str(node): own.sort_values("name") for node, own in ports.groupby("node", sort=False)}


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


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _absences(frame: Frame) -> dict[str, CodedText]:
    """Why the fabric of a node cannot be read, in the words the agent left and with its code; the first that tells."""
    found: dict[str, CodedText] = {}
    absences = frame.absences
    unread = (absences["scope"] == "fabric") | (absences["reason"] == FAILED) & (absences["device"] == "infiniband")
    for row in records(absences[unread & (absences["reason"] != "no-fabric")]):
        reason = str(row["reason"])
        said = CodedText(reason, text(row["detail"]) or f"Fabric counters not available ({reason}).")
        found.setdefault(str(row["node"]), said)
    return found
