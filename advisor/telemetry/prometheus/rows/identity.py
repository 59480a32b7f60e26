"""What a server is, beside its address: the labels it names itself by, and what it held at moments of the past.

Behind one address stands now this server, now that one (a port-forward to one cluster after the other). What a server
says of a moment that is over does not change while time passes and nodes are added, and another cluster's GPUs are
others: so each day of answers is kept under what the server told at that day's ends.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from ....core.frame import Window
from ..client.client import Client
from ..client.range_planner import DAY, MAX_VALUES
from ..client.response import Grid, SeriesAnswer
from ..promql.promql import AGENT_ANCHOR, selector

# One series of dcgm-exporter a GPU, beside the agent's. Which does not matter, as long as it is the same from run to
# run; memory in use changes seldom, so that copies of a server mostly tell the same.
_PRESENT = (
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)  # fmt: skip
_ID_LABELS = ("__name__", "UUID", "gpu_uuid")
_GLOBAL = re.compile(r"^global:[^\n]*\n(?:[ \t#][^\n]*\n|\n)*", re.MULTILINE)
_MAX_CONFIG = 64 * 1024
# Of a fleet with more series than one answer should hold, the GPUs whose ids end so stand for all.
_SAMPLES = (".*", ".*0", ".*00", ".*000")


def external_labels(client: Client) -> dict[str, str]:
    """The labels by which a server names itself to others; empty where it does not tell its configuration."""
    told = client.about("config").get("yaml")
    found = _GLOBAL.search(f"{told}\n") if isinstance(told, str) else None
    if found is None or len(found.group()) > _MAX_CONFIG:
        return {}
    try:
        document = yaml.safe_load(found.group())
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    part = document.get("global") if isinstance(document, dict) else None
    labels = part.get("external_labels") if isinstance(part, dict) else None
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}


def gpus_at(client: Client, matches: Sequence[str], at: float) -> frozenset[str]:
    """The UUIDs of the GPUs that the server tells of at a moment (Unix seconds). Raises SourceError."""
    labels = _ID_LABELS[1:]
    series = selector(matches, _named((*_PRESENT, AGENT_ANCHOR)))
    told = client.instant(f"count by ({', '.join(labels)}) ({series})", at, labels).answer
    return frozenset(value for one in told.labels for value in one.values())


@dataclass(frozen=True, slots=True)
class Past:
    """Moment (Unix seconds) -> what a server held then; moments of which it tells nothing are missing. `query`: what it
    was asked."""

    query: str = ""
    told: Mapping[float, str] = field(default_factory=dict)

    def differs(self, before: Mapping[float, str]) -> bool:
        """Whether another server told `before`: moments that both tell of, and none alike."""
        both = self.told.keys() & before.keys()
        return bool(both) and all(self.told[at] != before[at] for at in both)

    def marks(self, window: Window) -> Callable[[Grid], str | None]:
        """What an answer over a grid within `window` is kept under: what the server told at both ends of its UTC day,
        as far as the window goes. None: it told nothing."""

        def mark(grid: Grid) -> str | None:
            day = math.ceil((grid.end - 0.5) / DAY) * DAY
            ends = [self.told.get(day - DAY, ""), self.told.get(min(day, window.end), "")]
            return " ".join(ends) if any(ends) else None

        return mark


def past_of(client: Client, names: Collection[str], matches: Sequence[str], window: Window, series: int) -> Past:
    """What the server tells of the ends of UTC days up to the window's end, and of that. Two queries, over few moments.

    Raises SourceError where it refuses them.
    """
    found = [name for name in _PRESENT if name in names][:1] + [AGENT_ANCHOR] * (AGENT_ANCHOR in names)
    if not found:
        return Past()
    first, last = math.floor(window.start / DAY) * DAY, math.floor(window.end / DAY) * DAY
    grid = Grid(first, last, DAY)
    query = _query(found, matches, grid.count * series * len(found))
    told = _by_moment(grid, client.range(query, grid, _ID_LABELS).answer)
    if window.end > last:
        told |= _by_moment(Grid(window.end, window.end, DAY), client.instant(query, window.end, _ID_LABELS).answer)
    return Past(query, told)


def _query(names: Sequence[str], matches: Sequence[str], values: int) -> str:
    sample = next((one for n, one in enumerate(_SAMPLES) if values <= MAX_VALUES * 16**n), _SAMPLES[-1])
    own = _named(names)
    if sample != _SAMPLES[0]:
        chosen = {label: selector(matches, own, f'{label}=~"{sample}"') for label in _ID_LABELS[1:]}
        return " or ".join(f"max by (__name__, {label}) ({series})" for label, series in chosen.items())
    return f"max by ({', '.join(_ID_LABELS)}) ({selector(matches, own)})"


def _named(names: Sequence[str]) -> str:
    """The matcher of metrics by their names."""
    return f'__name__=~"{"|".join(names)}"'


def _by_moment(grid: Grid, answer: SeriesAnswer) -> dict[float, str]:
    """What stood at each moment, ids with their values: fleets that share ids (simulated ones do) differ in these."""
    out = {}
    keys = [json.dumps(dict(sorted(one.items()))) for one in answer.labels]
    for column in range(grid.count):
        held = sorted(
            f"{key} {value:.6g}"
            for key, value in zip(keys, answer.values[:, column], strict=True)
            if not math.isnan(value)
        )
        if held:
            out[grid.start + column * grid.step] = hashlib.sha256("\n".join(held).encode()).hexdigest()[:32]
    return out
