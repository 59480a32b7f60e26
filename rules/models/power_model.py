"""Reads ``power_model.yaml``: power, time and energy of one GPU under a power cap or at a lower SM clock.

Made by ``make power-model`` from measured runs under caps; a text to be reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import Fields, packaged_fields

POWER_FILE = "power_model.yaml"
POWER_SCHEMA = "skuwise.power-model/1"
# The classes of caps by the slowdown that is predicted, the mildest first.
CLASSES = ("without effect", "light", "heavy", "deep")


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Six figures, fitted on measured runs (what each means physically: docs/method.md).

    `follows`: share of the power above rest that follows the SM clock; above 1 where some of the rest does as well.
    `clock_exponent`: by which power of the clock. `clocked`: share of the kernels' work (in cubes of time) that follows
    the clock; the rest waits for memory. `bursts`: the exponent by which the mean draw tells the share of time in which
    kernels run. `overlap`: how sharply the longer of host and kernels rules. `drawn_of_cap`: what a GPU that is held by
    its cap draws of it on average.
    """

    follows: float
    clock_exponent: float
    clocked: float
    bursts: float
    overlap: float
    drawn_of_cap: float


@dataclass(frozen=True, slots=True)
class Spread:
    """How far predictions of one class were off. `time`, `energy`: standard deviations of the logs of observed over
    predicted; `time_elsewhere`, `energy_elsewhere`: the same for an architecture of which no run was measured (the
    worst of the GPUs that were left out one by one). `lines`: how many measured lines it rests on.
    """

    time: float
    energy: float
    time_elsewhere: float
    energy_elsewhere: float
    lines: int


@dataclass(frozen=True, slots=True)
class PowerModel:
    """`classes`: (predicted slowdown up to, spread), rising; infinity last. `architectures`: those with measured runs.

    `lowest_cap_share`: the lowest cap that any run was measured under, as a share of the highest limit. `typical`:
    class of work -> share of the room between rest and rated power that it draws where nobody measured it;
    `typical_sigma`: of the log of that share.
    """

    curve: PowerCurve
    classes: tuple[tuple[float, Spread], ...]
    architectures: frozenset[str]
    lowest_cap_share: float
    typical: Mapping[str, float]
    typical_sigma: float
    lines: int
    runs: int
    source: str

    def spread(self, slowdown: float, architecture: str) -> tuple[float, float]:
        """Sigmas of the log of time and of energy where `slowdown` (a time ratio) is predicted."""
        found = next(one for up_to, one in self.classes if slowdown <= up_to)
        if self.measured(architecture):
            return found.time, found.energy
        return found.time_elsewhere, found.energy_elsewhere

    def measured(self, architecture: str) -> bool:
        """Whether any run under a cap was measured on a GPU of this architecture."""
        return architecture.casefold() in self.architectures


@cache
def load_power_model() -> PowerModel:
    """The model that ships, read once: files of the package do not change under a running program."""
    return read_power_model()


def read_power_model(file: Traversable | Path | None = None) -> PowerModel:
    """As `load_power_model`, from another file. Raises RulesError, with file and line, where it is not such a file."""
    top = packaged_fields(file, POWER_FILE, POWER_SCHEMA, "Make it again with `make power-model`.")
    fitted = top.subtable("curve")
    curve = PowerCurve(
        follows=fitted.number("follows", above=0, maximum=2),
        clock_exponent=fitted.number("clock_exponent", above=0, maximum=6),
        clocked=fitted.number("clocked", above=0, maximum=1),
        bursts=fitted.number("bursts", minimum=0, maximum=1),
        overlap=fitted.number("overlap", minimum=1, maximum=50),
        drawn_of_cap=fitted.number("drawn_of_cap", above=0, maximum=1.2),
    )
    classes = tuple(_class(one) for one in top.tables("classes"))
    bounds = [up_to for up_to, _ in classes]
    if bounds != sorted(set(bounds)) or not bounds or bounds[-1] != float("inf"):
        raise top.fault("classes", "'classes' must rise, the last without 'up_to'", "Make it again.")
    typical = top.subtable("typical")
    shares: dict[str, float] = {}
    for name, entry in typical.entries(lambda name: f"typical {quoted(name)}"):
        shares[name] = entry.number("share", above=0, maximum=1)
        entry.text("reason")
    made = top.subtable("made")
    made.date("date")
    model = PowerModel(
        curve=curve,
        classes=classes,
        architectures=frozenset(name.casefold() for name in top.texts("architectures")),
        lowest_cap_share=top.number("lowest_cap_share", above=0, maximum=1),
        typical=MappingProxyType(shares),
        typical_sigma=top.number("typical_sigma", above=0, maximum=2),
        lines=made.whole("lines"),
        runs=made.whole("runs"),
        source=made.text("source"),
    )
    top.text("typical_sigma_reason")
    top.done()
    return model


def _class(entry: Fields) -> tuple[float, Spread]:
    up_to = entry.number_or_none("up_to", minimum=1)
    entry.text("name", CLASSES)
    return float("inf") if up_to is None else up_to, Spread(
        entry.number("time", above=0, maximum=2),
        entry.number("energy", above=0, maximum=2),
        entry.number("time_elsewhere", above=0, maximum=2),
        entry.number("energy_elsewhere", above=0, maximum=2),
        entry.whole("lines"),
    )
