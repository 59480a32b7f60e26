"""The figures behind a label, over the rows that carry it, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...core.coded_text import CodedText, coded

# The mean of a measure by time over the rows of the label; NaN where nobody measured it.
Mean = Callable[[str], float]


def figures_behind(label: str, mean: Mean) -> list[CodedText]:
    """What was measured of what the label says, then of the GPU's use."""
    special = _SPECIAL.get(label)
    use = coded(
        "use-of-the-gpu",
        "Memory bandwidth {u_m:.0%} and compute {u_c:.0%} of what this GPU sustains; engine active "
        "{engine:.0%} of the time.",
        u_m=mean("label_m"), u_c=mean("label_c"), engine=mean("g"),
    )  # fmt: skip
    return [*(special(mean) if special else []), *_told(use)]


def _told(said: CodedText) -> list[CodedText]:
    """The statement, where all that it names was measured."""
    return [] if any(isinstance(value, float) and math.isnan(value) for value in said.fields.values()) else [said]


def _network(mean: Mean) -> list[CodedText]:
    fabric, carried = mean("i"), mean("wire_bytes")
    port = CodedText("port-rate", f"Busiest network port: {carried / 1e9:.2g} GB/s.", {"bytes_per_second": carried})
    use = coded(
        "fabric-use",
        "Fabric at {fabric:.0%} of line rate (mean); above 50 % in {busy_share:.0%} of seconds.",
        fabric=fabric, busy_share=mean("i_share"),
    )  # fmt: skip
    return [
        *_told(use), *_told(_tensor_falls(mean("tensor_fabric_correlation"))),
        *(_told(port) if math.isnan(fabric) else []),
    ]  # fmt: skip


def _latency(mean: Mean) -> list[CodedText]:
    carried = mean("wire_bytes")
    quiet = CodedText(
        "ports-quiet",
        f"Network ports nearly silent: the busiest carries {carried / 1e6:.3g} MB/s.",
        {"bytes_per_second": carried},
    )
    silent = coded("nvlink-quiet", "NVLink nearly silent: {nvlink:.1%} of its peak.", nvlink=mean("n"))
    return [*_told(quiet), *_told(silent)]


def _nvlink(mean: Mean) -> list[CodedText]:
    use = coded(
        "nvlink-use",
        "NVLink at {nvlink:.0%} of its peak (mean), busy in {busy_share:.0%} of seconds.",
        nvlink=mean("n"), busy_share=mean("n_share"),
    )  # fmt: skip
    return [*_told(use), *_told(_tensor_falls(mean("tensor_nvlink_correlation")))]


def _pcie(mean: Mean) -> list[CodedText]:
    return _told(
        coded(
            "pcie-use",
            "PCIe at {pcie:.0%} of its peak (mean), {pcie_p95:.0%} at the 95th percentile.",
            pcie=mean("p"), pcie_p95=mean("p_p95"),
        )
    )  # fmt: skip


def _throttled(mean: Mean) -> list[CodedText]:
    return _told(
        coded(
            "throttle-reasons",
            "Throttled {throttled:.0%} of the time; SM clock {clock:.0%} of the clock of the peak rate.",
            throttled=mean("throttled"), clock=mean("clock_ratio"),
        )
    )  # fmt: skip


def _host_input(mean: Mean) -> list[CodedText]:
    return _told(
        coded(
            "host-use", "Host CPU {cpu:.0%} busy, IO wait {io_wait:.0%}.",
            cpu=mean("cpu"), io_wait=mean("io_wait"),
        )
    )  # fmt: skip


def _straggler(mean: Mean) -> list[CodedText]:
    return _told(
        coded(
            "ranks-poll",
            "SMs active {sm:.0%} of the time, tensor cores and memory nearly idle: the ranks poll.",
            sm=mean("sm"),
        )
    )


def _tensor_falls(correlation: float) -> CodedText:
    return coded(
        "tensor-falls", "Tensor activity falls as link traffic rises (correlation {correlation:.2f}).",
        correlation=correlation,
    )  # fmt: skip


_SPECIAL: dict[str, Callable[[Mean], list[CodedText]]] = {
    "network": _network, "latency": _latency, "nvlink": _nvlink, "pcie": _pcie, "throttled": _throttled,
    "host-input": _host_input, "straggler": _straggler,
}  # fmt: skip
