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
MODEL_SCHEMA = "skuwise.move-model/2"
PARTS = ("matrix", "memory", "vector", "latency")
TRAINING, EXPERTS = "training", "serving of experts"  # classes of work by which telemetry is told too
Z90 = 1.2815515655446004  # standard normal quantile of 0.9: half an 80 % interval in standard deviations


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
        steps = self.prefill_latency
        return next((share for up_to, share in steps if tokens <= up_to), steps[-1][1])


@dataclass(frozen=True, slots=True)
class WorkClass:
    """One class of work, as measured. `width`: half of the 80 % interval of the log of the time ratio, for a source and
    a model family that nobody measured; `lines`, `sources`, `families`: what it rests on.

    `params`, `batch`: least and most of these lines; None: no line tells it.
    """

    width: float
    lines: int
    sources: int
    families: int
    params: tuple[float, float] | None
    batch: tuple[float, float] | None
    precisions: frozenset[str]
    architectures: frozenset[str]

    @property
    def sigma(self) -> float:
        """Standard deviation of the log of the time ratio."""
        return self.width / Z90


@dataclass(frozen=True, slots=True)
class MoveModel:
    """`classes`: class of work -> how far predictions of it are off. `unseen`: by how much wider the interval is where
    an architecture was not measured with such work, or a sustained rate was never published."""

    profiles: Profiles
    classes: Mapping[str, WorkClass]
    unseen: float


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
    prefill = [
        (entry.whole("tokens_up_to", minimum=1, maximum=10**9), entry.number("share", minimum=0, maximum=0.9))
        for entry in top.tables("prefill_latency")
    ]
    if not prefill or prefill != sorted(prefill):
        raise top.fault("prefill_latency", "'prefill_latency' must rise", "Order the entries.")
    for key in ("prefill_latency", "sequences_max"):
        top.text(f"{key}_reason")
    top.date("as_of")
    sequences_max = top.whole("sequences_max", minimum=1)
    profiles = Profiles(top.text("reference"), MappingProxyType(shares), tuple(prefill), sequences_max)
    top.done()
    return profiles


@cache
def load_move_model() -> MoveModel:
    """Profiles and calibration that ship, read once: files of the package do not change under a running program."""
    return read_move_model()


def read_move_model(file: Traversable | Path | None = None, profiles: Profiles | None = None) -> MoveModel:
    """As `load_move_model`, from another calibration file. Raises RulesError, with file and line."""
    top = packaged_fields(file, MODEL_FILE, MODEL_SCHEMA, "Make it again with `make move-model`.")
    unseen = top.number("unseen", minimum=1, maximum=3)
    classes = {
        name: WorkClass(
            entry.number("width", above=0, maximum=3), entry.whole("lines", minimum=1),
            entry.whole("sources", minimum=1), entry.whole("families", minimum=1),
            _span(entry, "params"), _span(entry, "batch"),
            frozenset(entry.texts("precisions")), frozenset(entry.texts("architectures")),
        )
        for name, entry in top.subtable("classes").entries(lambda name: f"class {quoted(name)}")
    }  # fmt: skip
    made = top.subtable("made")
    for key in made.table:
        made.text(key)
    top.done()
    return MoveModel(profiles or load_profiles(), MappingProxyType(classes), unseen)


def _span(entry: Fields, key: str) -> tuple[float, float] | None:
    if key not in entry.table:
        return None
    span = entry.subtable(key)
    return span.number("least", above=0), span.number("most", above=0)
