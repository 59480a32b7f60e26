"""How long the same work takes on another GPU: a roofline over what the SKUs sustain, never over printed peaks.

Per row of use on the source: S = (sum_k u_k^3)^(1/3) over compute, memory, NVLink, PCIe and network; the rest of the
engine's time is latency (scales with the clock), the rest of the wall is host or absence of demand. On the target every
u_k is multiplied by the ratio of the sustained rates (docs/method.md). Communication that is exposed is added.
"""

from __future__ import annotations

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
from .sustained_rates import clock_ratio, family, rates_of

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
    """Rows of use of one workload on its source, relative to what the SKU sustains; NaN: not measured. `g`: share of
    time the engine was active; `seconds`: each row's weight; `exposed_...`: in which rows the link's traffic stood in
    the way of compute. `apart`: links (of `USE_NAMES`) that the work cannot use where it runs."""

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
        return tuple(
            name
            for name in names
            if not total or float(self.seconds[np.isfinite(self.of(name))].sum()) < KNOWN_MIN * total
        )

    @cached_property
    def link_p95(self) -> Mapping[str, float]:
        """95th percentile of the use of NVLink (n), the network (i) and PCIe (p); NaN: not measured."""
        measured = {link: values[np.isfinite(values)] for link in "nip" for values in (self.of(f"u_{link}"),)}
        return {
            link: float(np.percentile(values, 95)) if values.size else math.nan for link, values in measured.items()
        }

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
        """`n` joint draws of the ratio."""
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
    """Target time over source time for the work that `use` describes, or why that is unknown. `network`: bytes per
    second one way of each GPU, here and there; None: unknown."""
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
        """Share of the engine's time there that is communication which nothing hides."""
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
    the same work takes there (above 1 it falls behind), and how long communication there takes that nothing hides.

    A link that is not there stays at today's rate (callers refuse where it matters), and so does one that was not
    measured and is faster there: no gain is claimed of it. Not measured, it is a part of the engine's remaining time.
    """
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
    """The ratios of what the two SKUs sustain, or the reason why it is unknown."""
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
