"""Rows of telemetry in the terms of verdicts: every resource as a share of what the GPU has, and of what it sustains.

Small letters (c, m, n, i, p) are relative to the peak of the SKU or the link, u_c ... u_p to what real kernels sustain
(`GpuSku.achieved`); where that is unknown, u is NaN, never zero. For labels alone `label_c` and `label_m` assume the
middle of what was measured on others (matrix products 0.73 to 0.91 of the peak, memory 0.77 to 0.92); see `assumed_c`,
`assumed_m`.
"""

from statistics import median

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import take

from ....agent.metrics import BIN_EDGES
from ....rules.catalog.loader import Catalog
from ...core.column_rows import BinsArray, with_one_nothing
from ...core.frame import Frame
from ...rulebook import Rulebook
from ..workloads.sku_lookup import GpuIndex

_FABRIC = [
    "node", "ts", "interval_seconds", "util_mean", "util_p95", "util_bins", "xmit_wait_per_second_mean",
]  # fmt: skip
_BLOCK_ROWS = 20_000  # of bins, widened at a time


HOUR = 3600.0
# Idle power where no GPU of the SKU was seen free: nvidia-smi shows 70 of 700 W on an idle H100, 33 of 350 W on L40S,
# 55 of 400 W on A100, 16 of 72 W on L4: an eighth of the power limit lies among them.
IDLE_POWER_SHARE = 0.125
# No GPU idles above this share of its limit (L4 comes nearest, 16 of 72 W): power beyond it was not idle power, and
# must not become the measure of idleness.
IDLE_POWER_SHARE_MAX = 0.3
# Share of the seconds that lie above the 95th percentile.
P95_REST = 0.05
# Tensor or memory activity that never exceeds this is too little to distinguish work from waiting by its swing.
SWING_P95_MIN = 0.05


def measures(frame: Frame, index: GpuIndex, ports: pd.DataFrame, book: Rulebook) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row per row of the frame's `gpu`, in the same order; and what its node's ports carried then (`ports`:
    `port_traffic`). `sm_p95`: of SM activity; where missing, the most that it can have been. A second counts as busy
    (`i_share`, `n_share`, `p_share`) from a share of the network's or PCIe's rate, or of what NVLink sustains, on."""
    link_busy, pcie_busy = book.bottlenecks.network_util, book.bottlenecks.pcie_util
    achieved = [sku.achieved for sku in book.catalog.gpus.values()]
    gpu, sku = frame.gpu, index
    out = pd.DataFrame(index=gpu.index)
    out["seconds"] = gpu["observed_seconds"].fillna(0.0)
    out["g"] = gpu["gpu_util_mean"].fillna(gpu["sm_active_mean"]).clip(0, 1)
    out["g_max"] = gpu["gpu_util_max"].fillna(gpu["sm_active_max"])
    out["sm"], out["o"] = gpu["sm_active_mean"], gpu["sm_occupancy_mean"]
    out["clock_ratio"] = gpu["sm_clock_hertz_mean"] / sku["tensor_reference_hertz"]
    # Without a clock the highest is assumed, so that a missing clock never lowers use; of a GPU that the catalog lacks
    # the activity is taken as it is.
    ratio = out["clock_ratio"].fillna((sku["boost_hertz"] / sku["tensor_reference_hertz"]).clip(lower=1.0).fillna(1.0))
    # Tensor activity as a share of what the counter reads at the SKU's peak. Kernels beyond the SKU's limit (integers,
    # FP16 accumulation) show above it, or above what active SMs or power could do: then the pipe's peak counts. (A10G
    # under vLLM: at 0.3 no less than 0.8 of 300 W.)
    peak, tensor = sku["tensor_active_at_peak"].fillna(1.0), gpu["tensor_active_mean"]
    most = gpu["sm_active_mean"].fillna(gpu["power_watts_mean"] / sku["tdp"]).fillna(1.0)
    out["c"] = tensor / peak.mask((gpu["tensor_active_max"] > peak) | (tensor > peak * most), 1.0) * ratio
    out["v"] = gpu[["fp32_active_mean", "fp64_active_mean"]].max(axis=1) * ratio
    top = gpu["mem_clock_hertz_mean"].groupby(sku["name"]).transform("max") if len(gpu) else gpu["mem_clock_hertz_mean"]
    mem_clock = (gpu["mem_clock_hertz_mean"] / top).fillna(1.0).clip(upper=1.0)
    out["m"] = gpu["dram_active_mean"] * mem_clock
    for name, link in (("n", "nvlink"), ("p", "pcie")):
        for tag, suffix in (("", "mean"), ("_p95", "p95")):
            # The busier direction is the link's use; one direction alone may not be it.
            directions = gpu[[f"{link}_{direction}_bytes_per_second_{suffix}" for direction in ("tx", "rx")]]
            out[f"{name}{tag}"] = directions.max(axis=1, skipna=False) / sku[link]
    both = gpu[["nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean"]]
    symmetry = both.min(axis=1, skipna=False) / both.max(axis=1, skipna=False)
    out["nvlink_symmetry"] = symmetry.where(out["n"] >= 0.005)
    for name, measured in (("c", [rates.bf16_gemm for rates in achieved]), ("m", [rates.mem for rates in achieved])):
        etas, eta = [share for share in measured if share], sku[f"eta_{name}"]
        out[f"u_{name}"] = out[name] / eta
        # Activity is a share of what the GPU has, whether the catalog knows its rates or not.
        out[f"assumed_{name}"] = eta.isna() & out[name].notna() & bool(etas)
        out[f"label_{name}"] = out[f"u_{name}"].where(eta.notna(), out[name] / median(etas or [np.nan]))
    # All-reduce is the only link figure that is measured; where it is not, NVLink and PCIe are relative to the peak.
    eta_link = sku["eta_link"].fillna(1.0)
    out["u_n"], out["u_p"] = out["n"] / eta_link, out["p"]
    by_p95 = _share_from_p95(out["n"], out["n_p95"], link_busy * eta_link)
    out["n_share"] = _share_above(gpu["nvlink_bins"], link_busy * eta_link).fillna(by_p95)
    out["p_share"] = _share_from_p95(out["p"], out["p_p95"], pd.Series(pcie_busy, index=gpu.index))
    counts = gpu[["gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n"]].max(axis=1)
    out["sample_seconds"] = (out["seconds"] / counts).where(counts > 0)
    out["waits"] = _waits(gpu, out["g"])
    for name in (
        "duty", "idle_run_seconds", "period_seconds", "period_strength", "tensor_nvlink_correlation",
        "tensor_fabric_correlation", "sm_active_cv",
    ):  # fmt: skip
        out[name] = gpu[name]
    out["throttled"] = gpu["throttled_fraction"]
    out["mem"] = gpu["mem_used_bytes_mean"] / gpu["mem_total_bytes"]
    out["mem_max"] = gpu["mem_used_bytes_max"] / gpu["mem_total_bytes"]
    out["power"] = gpu["power_watts_mean"]
    out["power_of_limit"] = out["power"] / sku["power_limit"]
    out["rated_power"] = out["power"] / sku["tdp"]
    out["idle_power"] = _idle_power(out, sku, book.rest.memory_held_min)
    out["power_over_idle"] = out["power"] / out["idle_power"]
    # A mean hides bursts: where a twentieth of the seconds worked, the GPU was in use.
    out["sm_p95"] = p95_at_most(gpu, "sm_active")
    rows = with_one_nothing(pd.concat([out, _fabric(frame, link_busy), _host(frame)], axis=1))
    return rows, with_one_nothing(_at_rows(gpu, ports))


def p95_at_most(gpu: pd.DataFrame, name: str) -> pd.Series:
    """The 95th percentile; where missing, the most that it can have been by the maximum and the mean, a
    twentieth of which it would be if all other seconds were at rest. NaN: neither is known."""
    bound = np.fmin(gpu[f"{name}_max"].to_numpy(float), gpu[f"{name}_mean"].to_numpy(float) / P95_REST)
    return gpu[f"{name}_p95"].fillna(pd.Series(bound, index=gpu.index))


def _share_above(column: pd.Series, level: pd.Series) -> pd.Series:
    """Share of seconds in bins from the one that holds `level` on; NaN without bins."""
    bins = column.array
    if not isinstance(bins, BinsArray):  # a table without rows
        return pd.Series(np.nan, index=column.index)
    first = np.searchsorted(np.array(BIN_EDGES), level.to_numpy(float) - 1e-9, side="left")
    share = np.full(len(first), np.nan)
    for start in range(0, len(first), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        matrix = bins.matrix[block].astype(float)
        above = (matrix * (np.arange(len(BIN_EDGES)) >= first[block, None])).sum(axis=1)
        total = matrix.sum(axis=1)
        np.divide(above, total, out=share[block], where=total > 0)
    return pd.Series(share, index=column.index)


def _share_from_p95(mean: pd.Series, p95: pd.Series, level: pd.Series) -> pd.Series:
    """The same where only mean and p95 are known: traffic that is either near its p95 or absent."""
    share = (mean / p95).clip(0, 1).where(p95 >= level, 0.0)
    return share.where(mean.notna() & p95.notna())


def _waits(gpu: pd.DataFrame, engine: pd.Series) -> pd.Series:
    """Share of time in which the engine runs while tensor cores and memory stay far below their working level (mean far
    below 95th percentile). Near zero where samples are longer than the turns."""
    filled = pd.concat(
        [
            (gpu[f"{name}_mean"] / gpu[f"{name}_p95"]).where(gpu[f"{name}_p95"] >= SWING_P95_MIN).clip(0, 1)
            for name in ("tensor_active", "dram_active")
        ],
        axis=1,
    ).max(axis=1)
    return (engine - filled).clip(lower=0)


def _idle_power(out: pd.DataFrame, sku: GpuIndex, memory_held: float) -> pd.Series:
    """Idle power of each row's SKU: the lowest decile of its rows below `memory_held`, else of the limit."""
    plausible = ~(out["power"] > IDLE_POWER_SHARE_MAX * sku["power_limit"])
    free = out["power"].where((out["g"] < 0.01) & (out["mem"] < memory_held) & plausible)
    observed = free.groupby(sku["name"]).transform(lambda power: power.quantile(0.1)) if len(out) else free
    # A row far below what the prior says is nearer the truth than the prior.
    lowest = out["power"].groupby(sku["name"]).transform("min") if len(out) else free
    prior = pd.concat([IDLE_POWER_SHARE * sku["power_limit"], lowest], axis=1).min(axis=1)
    return observed.fillna(prior.where(sku["power_limit"].notna()))


def _fabric(frame: Frame, link_busy: float) -> pd.DataFrame:
    """Traffic of the node's compute ports at each GPU row: i, i_share, q, q_rank."""
    names = ["i", "i_share", "q", "q_rank"]
    fabric = frame.fabric
    compute = fabric.loc[fabric["role"] == "compute", _FABRIC] if not fabric.empty else fabric
    if compute.empty:
        return pd.DataFrame(np.nan, index=frame.gpu.index, columns=names)
    level = pd.Series(link_busy, index=compute.index)
    table = pd.DataFrame(
        {
            "node": compute["node"],
            "ts": compute["ts"],
            "interval_seconds": compute["interval_seconds"],
            "i": compute["util_mean"],
            "i_share": _share_above(compute["util_bins"], level).fillna(
                _share_from_p95(compute["util_mean"], compute["util_p95"], level)
            ),
            "q": compute["xmit_wait_per_second_mean"],
            "q_rank": compute["xmit_wait_per_second_mean"].rank(pct=True),
        }
    )
    return _at_rows(frame.gpu, table.groupby(["node", "ts", "interval_seconds"])[names].mean())


def _host(frame: Frame) -> pd.DataFrame:
    """The host at each GPU row: cpu, io_wait, disk_write, disk_write_max (bytes per second)."""
    columns = {
        "cpu_util_mean": "cpu",
        "io_wait_mean": "io_wait",
        "disk_write_bytes_per_second_mean": "disk_write",
        "disk_write_bytes_per_second_max": "disk_write_max",
    }
    if frame.host.empty:
        return pd.DataFrame(np.nan, index=frame.gpu.index, columns=list(columns.values()))
    keyed = frame.host.set_index(["node", "ts", "interval_seconds"])[list(columns)].rename(columns=columns)
    return _at_rows(frame.gpu, keyed[~keyed.index.duplicated()])


def _at_rows(gpu: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """`table` (by node, ts, interval) at each GPU row; a minute without its own minute takes the hour around it."""
    if table.empty:
        return table.reindex(range(len(gpu))).set_axis(gpu.index)
    node, ts, length = gpu["node"].to_numpy(object), gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)
    values = {str(name): table[name].to_numpy(np.float64) for name in table.columns}
    places = _places(table.index, node, ts, length)
    # Column by column: of a matrix none goes as long as one of them is needed.
    columns = {name: take(column, places, allow_fill=True) for name, column in values.items()}
    missing = np.logical_and.reduce([np.isnan(column) for column in columns.values()])
    if missing.any():
        hour = np.ceil(ts[missing] / HOUR) * HOUR
        around = _places(table.index, node[missing], hour, np.full(len(hour), HOUR))
        for name, column in columns.items():
            column[missing] = take(values[name], around, allow_fill=True)
    return pd.DataFrame(columns, index=gpu.index, copy=False)


def _places(index: pd.Index, *wanted: npt.NDArray) -> npt.NDArray[np.intp]:
    """The place of each moment of a node in an index of them; -1 where it has none. By number: texts are slow keys."""
    key = np.zeros(len(index) + len(wanted[0]), dtype=np.int64)
    for level, column in enumerate(wanted):
        codes, names = pd.factorize(np.concatenate([index.get_level_values(level).to_numpy(column.dtype), column]))
        key = key * len(names) + codes
    return pd.Index(key[: len(index)]).get_indexer(pd.Index(key[len(index) :]))


_COLUMNS = ("wire", "bytes", "ethernet", "rdma", "ports", "known", "loud", "has_ethernet", "sure")
# Reason of an absence: node_exporter's collector ended with an error, so that what it did not report may exist.
FAILED = "collector-failed"
_USED = [
    "node", "device", "port", "link_layer", "role", "ts", "interval_seconds", "line_rate_bytes_per_second",
    "active_fraction", "util_mean", "tx_bytes_per_second_mean", "rx_bytes_per_second_mean",
]  # fmt: skip


def port_traffic(frame: Frame, book: Rulebook) -> pd.DataFrame:
    """By node, moment and length of row: what its ports carried, and whether all of them were read (`known`). `wire`,
    `bytes`, `ethernet`: of the busiest port, the share of what an exchange can reach, the bytes per second, and of
    plain Ethernet the share of its line rate. `rdma`: the busiest RDMA port's use. `ports`: how many were read; `loud`,
    `has_ethernet`, `sure` (it is known whether the node has RDMA ports): 0 or 1."""
    levels = book.bottlenecks
    rdma = _rdma(frame, book.catalog)
    keys = ["node", "ts", "interval_seconds"]
    # A storage port carries no exchange.
    ports = frame.fabric.loc[frame.fabric["role"] != "storage", _USED] if not frame.fabric.empty else frame.fabric
    if ports.empty:
        return pd.DataFrame(columns=list(_COLUMNS), dtype=float)
    plain = (ports["link_layer"] == "Ethernet") & (ports["role"] != "compute")
    line = ports["line_rate_bytes_per_second"]
    line = line.where(line > 0)
    used = ports["util_mean"]
    bytes_ = ports[["tx_bytes_per_second_mean", "rx_bytes_per_second_mean"]]
    # One direction alone may be the quiet one.
    rate = bytes_.max(axis=1, skipna=False).fillna(used * line)
    reach = line.where(~plain, line.fillna(np.inf).clip(upper=levels.network_tcp_bytes_per_second_max))
    use = (rate / reach).fillna(used.where(~plain))
    # Of a port of unknown speed, the share is the least that it can be; only few bytes are surely quiet.
    quiet = (use <= levels.network_quiet_max) & (line.notna() | (rate <= levels.network_quiet_bytes_per_second_max))
    read, down = use.notna(), ports["active_fraction"] == 0.0
    port = ports.groupby(["node", "device", "port"], sort=False, dropna=False).ngroup()
    ever = (read | ~down).groupby(port).transform("any")
    table = pd.DataFrame(
        {
            **{key: ports[key] for key in keys},
            "wire": use, "bytes": rate,
            "ethernet": (rate / line).fillna(use).where(plain).clip(upper=1.0), "rdma": use.where(~plain),
            "ports": read.astype(float), "settled": (read | down).where(ever, False).astype(float),
            "loud": (read & ~quiet).astype(float), "has_ethernet": (plain & read).astype(float),
            "is_rdma": (~plain & read).astype(float),
        }
    )  # fmt: skip
    by = table.groupby(keys)
    out = by[["wire", "bytes", "ethernet", "rdma", "loud", "has_ethernet", "is_rdma"]].max()
    out["ports"] = by["ports"].sum()
    count = port[ever].groupby(ports["node"][ever]).nunique()
    node = out.index.get_level_values("node")
    expected = pd.Series(node.map(count.to_dict()), index=out.index).fillna(0.0)
    has = pd.Series(node.map(rdma), index=out.index, dtype=object)
    sure = (out["is_rdma"] == 1.0) | (has == False)  # noqa: E712 - None: not known
    # Where it is said to have none and shows one, or the other way round, what is seen counts.
    out["sure"] = sure.astype(float)
    out["known"] = (sure & (out["ports"] > 0) & (by["settled"].sum() >= expected)).astype(float)
    return out[list(_COLUMNS)]


def _rdma(frame: Frame, catalog: Catalog) -> dict[str, bool]:
    """Whether a node has RDMA ports: by the catalog, else where a source looked and found none."""
    out: dict[str, bool] = {}
    absences = frame.absences
    if not absences.empty:
        none, failed = (set(absences.loc[absences["reason"] == why, "node"]) for why in ("no-fabric", FAILED))
        out |= dict.fromkeys(map(str, none - failed), False)
    for node, name in zip(frame.nodes["node"], frame.nodes["node_sku"], strict=True):
        sku = catalog.node(name) if isinstance(name, str) and name else None
        if sku is not None and sku.fabric.rdma is not None:
            out[str(node)] = sku.fabric.rdma
    return out
