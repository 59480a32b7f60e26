"""The move model's figures: what typical work is made of, and how far predictions were off where they could be checked.

``move_profiles.yaml`` is stated by hand, ``move_model.yaml`` made by ``make move-model``; both are text to be reviewed.
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

PROFILES_FILE = "move_profiles.yaml"
MODEL_FILE = "move_model.yaml"
PROFILES_SCHEMA = "skuwise.move-profiles/1"
MODEL_SCHEMA = "skuwise.move-model/1"
PARTS = ("matrix", "memory", "vector", "latency")
DECODE_SECONDS = ("layer_seconds", "expert_layer_seconds", "exchange_seconds", "sequence_seconds")
DECODE_FACTORS = ("weights", "cache", "products")


@dataclass(frozen=True, slots=True)
class Profiles:
    """`shares`: profile -> part -> share of time on `reference`.

    `prefill_latency`: (tokens in flight up to, share of the time that no faster GPU shortens), rising.
    """

    reference: str
    shares: Mapping[str, Mapping[str, float]]
    prefill_latency: tuple[tuple[int, float], ...]
    sequences_max: int

    def prompt_latency_share(self, tokens: float) -> float:
        """Share of the time to read prompts that a faster GPU does not shorten, with so many tokens in flight."""
        return _step(self.prefill_latency, tokens)


@dataclass(frozen=True, slots=True)
class DecodeFactors:
    """What a step of generation takes beyond what GPUs sustain, fitted to measured times per output token.

    Seconds: of launching one layer (`expert_layer_seconds`: one with experts), of one exchange between GPUs, of the
    engine's own work for one sequence (sampling, scheduling). Factors over the time at sustained rates: of reading
    weights and the cache, and of products.
    """

    layer_seconds: float
    expert_layer_seconds: float
    exchange_seconds: float
    sequence_seconds: float
    weights: float
    cache: float
    products: float


@dataclass(frozen=True, slots=True)
class Residuals:
    """One group of moves. `sigma`: standard deviation of the log of observed over predicted time, as calibrated.

    `pairs`, `models`, `sources`: what it rests on; 0 pairs: a prior, and `basis` says whose.
    """

    sigma: float
    pairs: int
    models: int
    sources: int
    basis: str


@dataclass(frozen=True, slots=True)
class CalibratedRange:
    """What the lines behind one class of work were of. `params`, `batch`: least and most; None: no line tells it."""

    params: tuple[float, float] | None
    batch: tuple[float, float] | None
    precisions: frozenset[str]
    architectures: frozenset[str]


@dataclass(frozen=True, slots=True)
class MoveModel:
    """`offsets`: class of work -> architecture -> log of time beyond what the profile says, Hopper being 0.

    `ranges`: class of work -> what it was calibrated on; a class that is not there was calibrated on nothing.
    """

    profiles: Profiles
    decode: DecodeFactors
    offsets: Mapping[str, Mapping[str, float]]
    groups: Mapping[str, Residuals]
    ranges: Mapping[str, CalibratedRange]

    def offset(self, kind: str, architecture: str) -> float:
        """Log of the time that this architecture takes beyond the profile's; 0 where nobody published any."""
        return self.offsets.get(kind, {}).get(architecture, 0.0)


def load_profiles(file: Traversable | Path | None = None) -> Profiles:
    """The constants stated by hand. Raises RulesError, with file and line, for anything that is not strictly that."""
    top = packaged_fields(file, PROFILES_FILE, PROFILES_SCHEMA)
    shares: dict[str, Mapping[str, float]] = {}
    for name, entry in top.subtable("profiles").entries(lambda name: f"profile {quoted(name)}"):
        parts = {part: entry.number(part, minimum=0, maximum=1) for part in PARTS}
        entry.text("reason")
        if abs(sum(parts.values()) - 1) > 1e-6:
            raise entry.fault(None, "the shares do not sum to 1", "Correct them.")
        shares[name] = MappingProxyType(parts)
    prefill = _steps(top, "prefill_latency", "tokens_up_to")
    for key in ("prefill_latency", "sequences_max"):
        top.text(f"{key}_reason")
    top.date("as_of")
    profiles = Profiles(top.text("reference"), MappingProxyType(shares), prefill, top.whole("sequences_max", minimum=1))
    top.done()
    return profiles


def _steps(top: Fields, key: str, up_to: str) -> tuple[tuple[int, float], ...]:
    steps = [
        (entry.whole(up_to, minimum=1, maximum=10**9), entry.number("share", minimum=0, maximum=0.9))
        for entry in top.tables(key)
    ]
    if not steps or steps != sorted(steps):
        raise top.fault(key, f"{quoted(key)} must rise", "Order the entries.")
    return tuple(steps)


def _step(steps: tuple[tuple[int, float], ...], value: float) -> float:
    return next((share for up_to, share in steps if value <= up_to), steps[-1][1])


@cache
def load_move_model() -> MoveModel:
    """Profiles and calibration that ship, read once: files of the package do not change under a running program."""
    return read_move_model()


def read_move_model(file: Traversable | Path | None = None, profiles: Profiles | None = None) -> MoveModel:
    """As `load_move_model`, from another calibration file. Raises RulesError, with file and line."""
    top = packaged_fields(file, MODEL_FILE, MODEL_SCHEMA, "Make it again with `make move-model`.")
    decode = _decode(top.subtable("decode"))
    offsets = {
        kind: {name: entry.number(name, minimum=-1, maximum=1) for name in entry.table}
        for kind, entry in top.subtable("offsets").entries(lambda name: f"offsets of {quoted(name)}")
    }
    groups = {
        name: Residuals(
            entry.number("sigma", above=0, maximum=2), entry.whole("pairs"), entry.whole("models"),
            entry.whole("sources"), entry.text("basis"),
        )
        for name, entry in top.subtable("groups").entries(lambda name: f"group {quoted(name)}")
    }  # fmt: skip
    ranges = {
        kind: CalibratedRange(
            _span(entry, "params"), _span(entry, "batch"),
            frozenset(entry.texts("precisions")), frozenset(entry.texts("architectures")),
        )
        for kind, entry in top.subtable("ranges").entries(lambda name: f"range of {quoted(name)}")
    }  # fmt: skip
    made = top.subtable("made")
    for key in made.table:
        made.text(key)
    top.done()
    return MoveModel(
        profiles or load_profiles(), decode, MappingProxyType(offsets), MappingProxyType(groups),
        MappingProxyType(ranges),
    )  # fmt: skip


def _span(entry: Fields, key: str) -> tuple[float, float] | None:
    if key not in entry.table:
        return None
    span = entry.subtable(key)
    return span.number("least", above=0), span.number("most", above=0)


def _decode(table: Fields) -> DecodeFactors:
    seconds = {name: table.number(name, above=0, maximum=1e-2) for name in DECODE_SECONDS}
    factors = {name: table.number(name, minimum=0.1, maximum=10) for name in DECODE_FACTORS}
    return DecodeFactors(**seconds, **factors)
