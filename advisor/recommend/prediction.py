"""How long the same work takes on another GPU: a roofline over what the SKUs sustain, never over printed peaks.

Per row of use on the source: S = (sum_k u_k^3)^(1/3) over compute, memory, NVLink, PCIe and network; the rest of the
engine's time is latency (scales with the clock), the rest of the wall is host or absence of demand. On the target every
u_k is multiplied by the ratio of the sustained rates (docs/method.md). Communication that is exposed is added.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...rules.catalog.types import GpuSku
from ...rules.models import EXPERTS, TRAINING, Z90, MoveModel
from ..core.advice_types import Interval, Risk
from ..core.coded_text import CodedText, coded

# Peak by precision asked for: the first that the GPU has. Four-bit integers are weights only: they compute in 16 bits.
_PEAKS = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "int8": ("int8", "fp16"),
    "fp4": ("fp4", "fp8", "bf16", "fp16"),
    "int4": ("bf16", "fp16"),
}
# Bytes of one weight.
BYTES = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}
PRECISIONS = tuple(_PEAKS)

# The part of each architecture that was measured, for its siblings without a published figure.
_MEASURED = {"hopper": (0.82, 989.4e12 / 700), "ampere": (0.80, 312e12 / 400), "ada": (0.73, 362e12 / 350),
             "blackwell": (0.73, 2250e12 / 1000)}  # fmt: skip
_OTHER = 0.60  # an architecture of which no figure is known at all
_FP32 = 0.75  # SGEMM: 0.73 on H100, 0.88 on A100, 0.28 on L4 (which its 72 W limit)
_MEMORY = 0.84  # the middle of 0.77 to 0.92
_CLOCK_LIMITS = (0.8, 1.25)
_LINK = 0.70  # NVLink all-reduce, measured at 0.66 to 0.80
# Share of PCIe's one-way rate that an all-reduce reaches between GPUs of one node: L40S measured 0.63 with two GPUs and
# about 0.55 under TensorRT-LLM 0.12 with tensor parallelism of 4 and 8, RTX PRO 6000 0.40 (hosts differ much).
PCIE_ALL_REDUCE = 0.55


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one GPU: FLOP/s of matrix products and of vector work, bytes/s of memory and of PCIe, the clock. `all_reduce`:
    bus bandwidth between the GPUs of one node. `assumed`: unpublished figures, in words."""

    matrix: float
    vector: float
    memory: float
    all_reduce: float
    pcie: float
    clock_hertz: float
    assumed: tuple[str, ...]


def rates_of(sku: GpuSku, precision: str = "bf16") -> Rates | None:
    """What `sku` sustains at `precision`; None where the catalog has no matrix rate for it at all."""
    if (peak := next((sku.dense_flops[p] for p in _PEAKS[precision] if p in sku.dense_flops), None)) is None:
        return None
    assumed: list[str] = []
    share = _matrix_share(sku, precision, assumed)
    if (memory := sku.achieved.mem) is None:
        assumed.append(f"the sustained memory bandwidth of {sku.name}")
        memory = _MEMORY
    # Bridges are sold apart, and join two cards: TensorRT-LLM 0.14 on A100-PCIe took three times as long as on A100-SXM
    # with two GPUs and more.
    if sku.link_bytes_per_second and sku.joined_on_board:
        link = sku.link_bytes_per_second * (sku.achieved.link_allreduce or _LINK)
    else:
        link = sku.pcie_bytes_per_second * PCIE_ALL_REDUCE
    return Rates(
        matrix=peak * share,
        vector=sku.dense_flops.get("fp32", peak / 16),
        memory=sku.mem_bandwidth_bytes_per_second * memory,
        all_reduce=link,
        pcie=sku.pcie_bytes_per_second,
        clock_hertz=sku.boost_hertz,
        assumed=tuple(assumed),
    )


def clock_ratio(here_hertz: float, there_hertz: float) -> float:
    """By how much longer latency takes at another clock, within what was ever seen."""
    return min(max(here_hertz / there_hertz, _CLOCK_LIMITS[0]), _CLOCK_LIMITS[1])


def family(sku: GpuSku) -> str:
    """The architecture's family: Blackwell and Blackwell Ultra count as one."""
    name = sku.architecture.lower()
    return "blackwell" if name.startswith("blackwell") else name


def _matrix_share(sku: GpuSku, precision: str, assumed: list[str]) -> float:
    achieved = {"fp32": sku.achieved.fp32_gemm, "fp8": sku.achieved.fp8_gemm, "fp4": sku.achieved.fp4_gemm}
    if (measured := achieved.get(precision)) is not None:
        return measured
    if precision in ("fp32", "fp4", "int8", "fp64") and (precision == "fp32" or precision in sku.dense_flops):
        assumed.append(f"the sustained {precision.upper()} rate of {sku.name}")
    if precision == "fp32" or (precision == "fp4" and "fp4" in sku.dense_flops):
        return _FP32 if precision == "fp32" else 0.50  # B200 0.53 to 0.59, B300 0.42 of the printed rate
    if sku.achieved.bf16_gemm is not None:
        return sku.achieved.bf16_gemm
    assumed.append(f"the sustained matrix rate of {sku.name}")
    # A sibling with less power for the same rate clocks lower: dynamic power grows with about the square of the clock.
    # H100-PCIe and H100-NVL behave so in MLPerf Inference 4.1 (0.65 and 0.7 of the SXM part's speed).
    share, flops_per_watt = _MEASURED.get(family(sku), (_OTHER, 0.0))
    peak = sku.dense_flops.get("bf16") or sku.dense_flops.get("fp16")
    return share * min(1.0, math.sqrt(flops_per_watt * sku.tdp_watts / peak)) if peak and flops_per_watt else share


Phase = Literal["training", "serving"]
Array = NDArray[np.float64]

NORM = 3.0  # soft-max exponent with the least error on 96 published SKU pairs (12.9 %)
# Serving on Hopper and newer never scaled wholly: 0.10 of the time per token did not, even above batch 64
# (593 matched configurations, H100 to H200 and to B200).
SERVING_FLOOR = 0.10
LINK_IN_USE = 0.05  # 95th percentile of a link's use from which the work is taken to need it
EXPOSED = -0.3  # tensor activity falls when the link is busy: communication nothing hides
EXPOSED_MAX = 0.20  # share of time on the target from which such communication is not worth predicting (assumed)

# Of the log of the time ratio where no published pair exists (docs/method.md; others: rules/move_model.yaml).
SIGMA_SAME = 0.01
SAME_GPU = "same GPU"  # what a prediction rests on that predicts no change
SIGMA_KNOWN = 0.16
_MODERN = frozenset(("hopper", "blackwell"))
# A use counts as measured where it is known in this share of the observed time.
KNOWN_MIN = 0.99
# What each use is called in a reason, and the metric that measures it.
USE_NAMES: Mapping[str, str] = {
    "u_c": "tensor activity",
    "u_m": "memory bandwidth",
    "u_n": "NVLink traffic",
    "u_i": "network traffic between nodes",
    "u_p": "PCIe traffic",
}


@dataclass(frozen=True)
class Use:
    """Rows of use of one workload on its source over what the SKU sustains; NaN: not measured. `g`: share of time the
    engine was active; `seconds`: weights; `exposed_...`: rows in which the link's traffic stood in the way of compute.
    `apart`: links (of `USE_NAMES`) that the work cannot use."""

    u_c: Array
    u_m: Array
    u_n: Array
    u_i: Array
    u_p: Array
    g: Array
    seconds: Array
    exposed_nvlink: NDArray[np.bool_]
    exposed_network: NDArray[np.bool_]
    apart: frozenset[str] = frozenset()

    def of(self, name: str) -> Array:
        """Use of one resource by row; NaN where it was not measured, but zero of a link that the work cannot use."""
        values: Array = getattr(self, name)
        return np.where(np.isnan(values), 0.0, values) if name in self.apart else values

    def lacking(self, *names: str) -> tuple[str, ...]:
        """Which of these uses were not measured in (nearly) all of the observed time; all of them of no time at all."""
        total = float(self.seconds.sum())
        seconds = {name: float(self.seconds[np.isfinite(self.of(name))].sum()) for name in names}
        return tuple(name for name in names if not total or seconds[name] < KNOWN_MIN * total)

    @cached_property
    def link_p95(self) -> Mapping[str, float]:
        """95th percentile of the use of NVLink (n), the network (i) and PCIe (p); NaN: not measured."""
        measured = {link: values[np.isfinite(values)] for link in "nip" for values in (self.of(f"u_{link}"),)}
        return {link: float(np.percentile(u, 95)) if u.size else math.nan for link, u in measured.items()}

    def matters(self, link: str) -> bool:
        """Whether a link (n, i or p) was measured and is in use at all: 5 % at the 95th percentile."""
        return self.link_p95[link] >= LINK_IN_USE

    def may_matter(self, link: str) -> bool:
        """Whether a link is in use, or was not measured: what was not measured is not quiet."""
        return not self.link_p95[link] < LINK_IN_USE


def interval_of(median: float, sigma: float) -> Interval:
    """The 80 % interval of a log-normal ratio; `sigma`: standard deviation of its log."""
    spread = math.exp(Z90 * sigma)
    return Interval(median / spread, median, median * spread)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Log-normal time ratio (target over source): `median` and the standard deviation of its log."""

    median: float
    sigma: float
    basis: str

    @property
    def interval(self) -> Interval:
        return interval_of(self.median, self.sigma)

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        return np.exp(math.log(self.median) + self.sigma * rng.standard_normal(n))

    @property
    def risk(self) -> Risk:
        """How likely the work slows down by more than 10 %."""
        z = (math.log(1.1) - math.log(self.median)) / self.sigma
        return risk_of(0.5 * math.erfc(z / math.sqrt(2)))


def risk_of(chance: float) -> Risk:
    """How likely something goes wrong (0..1): under 2 % very low, 10 % low, 25 % medium, else high."""
    return "very-low" if chance < 0.02 else "low" if chance < 0.10 else "medium" if chance < 0.25 else "high"


@dataclass(frozen=True, slots=True)
class Factors:
    """By how much longer each resource takes there for the same work; below 1 is faster. `latency` scales the rest of
    the engine's time. None: no such link there (callers refuse where it is used)."""

    c: float = 1.0
    m: float = 1.0
    p: float | None = 1.0
    n: float | None = 1.0
    i: float | None = 1.0
    latency: float = 1.0


def predict(
    source: GpuSku,
    target: GpuSku,
    use: Use,
    phase: Phase,
    model: MoveModel,
    *,
    network: tuple[float | None, float | None] = (None, None),
) -> Prediction | CodedText:
    """Target time over source time for the work that `use` describes, or why unknown. `network`: bytes per second one
    way of each GPU here and there."""
    same_network = network[0] == network[1]
    if source.name == target.name and (same_network or not use.may_matter("i")):
        return Prediction(1.0, SIGMA_SAME, SAME_GPU)
    if isinstance(rho := _factors_between(source, target, network), CodedText):
        return rho
    # A link that is as fast there, or faster, takes no more time there, whatever it carried.
    slower = {"u_n": rho.n, "u_i": 1.0 if same_network else rho.i, "u_p": rho.p}
    links = [name for name, rate in slower.items() if rate is None or rate > 1.0]
    if refused := not_measured(use, "u_c", "u_m", *links):
        return refused
    if use.matters("n") and rho.n is None:
        return coded("target-without-nvlink", "the work uses NVLink, and {sku} has none", sku=target.name)
    if use.matters("i") and rho.i is None and not same_network:
        return coded("network-unknown", "the work uses the network between nodes, and that of the target is unknown")

    def exposed_share(factors: Factors) -> float:
        rows, _, busy, exposed = times(use, factors)
        total = float(np.sum(busy * rows.seconds))
        return float(np.sum(exposed * rows.seconds)) / total if total > 0 else 0.0

    here, there = exposed_share(Factors()), exposed_share(rho)
    if there > EXPOSED_MAX and there > here:
        text = "exposed communication would take {there:.0%} of the time (now {here:.0%})"
        return coded("communication-exposed", text, there=there, here=here)
    families = {family(source), family(target)}
    floor = SERVING_FLOOR if phase == "serving" and families <= _MODERN else 0.0
    ratio = max(time_ratio(use, phase, rho, floor), 1e-6)
    if source.name == target.name:
        return Prediction(ratio, SIGMA_KNOWN, "same GPU, different network")
    # Counters do not show experts: serving is taken to be as hard to predict as theirs.
    work = TRAINING if phase == "training" else EXPERTS
    class_ = model.classes[work]
    if families <= class_.architectures:
        return Prediction(ratio, class_.sigma, work)
    return Prediction(ratio, class_.sigma * model.unseen, f"{work}; outside what was measured")


def not_measured(use: Use, *names: str) -> CodedText | None:
    """What a prediction needs and was not measured, as a reason; None: all of it was measured."""
    if not (lacking := use.lacking(*names)):
        return None
    missing, were = " and ".join(USE_NAMES[name] for name in lacking), "was" if len(lacking) == 1 else "were"
    return CodedText("use-not-measured", f"{missing} {were} not measured on the current GPUs", {"lacking": missing})


def demand(use: Use) -> Array:
    """Per row: share of what the present GPUs sustain that the work asked for (the soft maximum of all u_k, 0..1); NaN
    where compute or memory was not measured. A link that was not measured is taken to be as busy as the engine."""
    links = [np.where(np.isnan(u), engine(use), u) for u in (use.of("u_n"), use.of("u_i"), use.of("u_p"))]
    parts = np.maximum(np.stack([use.of("u_c"), use.of("u_m"), *links]), 0.0)
    return np.minimum(np.cbrt((parts * parts * parts).sum(axis=0)), 1.0)


def engine(use: Use) -> Array:
    """Share of time in which the engine was active; all of it where that was not measured."""
    return np.where(np.isfinite(use.g), np.clip(use.g, 0.0, 1.0), 1.0)


def time_ratio(use: Use, phase: Phase, factors: Factors, floor: float = 0.0) -> float:
    """Time there over time here, weighted by time (of services by busy time). `floor`: least share that is latency."""
    use, busy, there, _ = times(use, factors, floor)
    # Absence of demand does not shrink on a faster GPU, and is no part of a service's speed.
    rest = np.zeros_like(busy) if phase == "serving" else 1.0 - busy
    here = busy + rest
    used = (here > 0.01) & (use.seconds > 0)
    # Services: weight by busy time, so that quiet hours do not dilute the hours that matter.
    weight = use.seconds[used] * (busy[used] if phase == "serving" else 1.0)
    return float(np.average((there + rest)[used] / here[used], weights=weight)) if weight.sum() > 0 else 1.0


def times(use: Use, factors: Factors, floor: float = 0.0) -> tuple[Use, Array, Array, Array]:
    """The rows in which all that changes was measured; by row the engine's time here (share of the wall), the time that
    the same work takes there, and how long communication there takes that nothing hides. A link that is not there stays
    at today's rate (callers refuse where it matters), and so does one that was not measured and is faster there."""
    rates = {"u_c": factors.c, "u_m": factors.m, "u_p": factors.p, "u_n": factors.n, "u_i": factors.i}
    lacking = use.lacking("u_p", "u_n", "u_i")
    measured = np.ones(len(use.seconds), dtype=np.bool_)
    for name, rate in rates.items():
        if rate is None or (name in lacking and rate < 1.0):
            rates[name] = 1.0
        elif rate != 1.0:
            measured &= np.isfinite(use.of(name))
    if not measured.all():
        rows = {f.name: getattr(use, f.name)[measured] for f in fields(use) if f.name != "apart"}
        use = Use(**rows, apart=use.apart)
    cubes_here, cubes_there, exposed_here, exposed_there = (np.zeros_like(use.g) for _ in range(4))
    for name, rate in rates.items():
        assert rate is not None
        u = np.clip(np.nan_to_num(use.of(name), posinf=0.0), 0.0, 1.0)
        exposed = {"u_n": use.exposed_nvlink, "u_i": use.exposed_network}.get(name)
        hidden = u if exposed is None else np.where(exposed, 0.0, u)
        there = hidden * rate
        cubes_here += hidden * hidden * hidden  # NORM is 3, and products take a fraction of the time of powers
        cubes_there += there * there * there
        exposed_here += u - hidden
        exposed_there += (u - hidden) * rate
    busy, device = engine(use), np.cbrt(cubes_here) + exposed_here
    # What the counters say cannot exceed the time the engine ran: clip, and scale the target's part alike.
    clipped = np.minimum(device, busy * (1.0 - floor))
    scale = np.divide(clipped, device, out=np.ones_like(device), where=device > 0)
    latency = (busy - clipped) * factors.latency
    return use, busy, (np.cbrt(cubes_there) + exposed_there) * scale + latency, exposed_there


def _factors_between(source: GpuSku, target: GpuSku, network: tuple[float | None, float | None]) -> Factors | CodedText:
    here, there = rates_of(source), rates_of(target)
    for sku, rates in ((source, here), (target, there)):
        if rates is None:
            return coded("rate-not-in-catalog", "the catalog has no 16-bit tensor rate of {sku}", sku=sku.name)
        if rates.assumed:
            text = "no published data on {rates}; nominal peaks are misleading"
            return coded("rates-not-published", text, rates=" or ".join(rates.assumed))
    assert here is not None and there is not None

    def over(value: float | None, other: float | None) -> float | None:
        return value / other if value and other else None

    nvlink = over(source.link_bytes_per_second, target.link_bytes_per_second)
    # Two measured efficiencies, or none: a measured one against a prior would compare methods, not links.
    if nvlink is not None and source.achieved.link_allreduce and target.achieved.link_allreduce:
        nvlink *= source.achieved.link_allreduce / target.achieved.link_allreduce
    return Factors(
        c=here.matrix / there.matrix,
        m=here.memory / there.memory,
        p=here.pcie / there.pcie,
        n=nvlink,
        i=over(*network),
        latency=clock_ratio(here.clock_hertz, there.clock_hertz),
    )


def percentiles(draws: Array) -> Interval:
    """10th, 50th and 90th percentile of joint draws."""
    return Interval(*(float(x) for x in np.percentile(draws, (10, 50, 90))))
