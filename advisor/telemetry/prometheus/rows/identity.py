"""What a server is, beside its address: the labels it names itself by, and the GPUs it held at moments of the past.

Behind one address stands now this server, now that one (a port-forward to one cluster after the other). What a server
holds of a moment that is over does not change: so each day of answers is kept under what it held at that day's ends.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence

import yaml

from ....core.frame import Window
from ..client.cache import DAY
from ..client.client import Client
from ..client.response import Grid
from ..promql.promql import AGENT_ANCHOR, selector

# One series of dcgm-exporter a GPU, beside the agent's. Which does not matter, as long as it is the same from run to
# run; memory in use changes seldom, so that copies of a server mostly agree.
_PRESENT = (
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)  # fmt: skip
_ID_LABELS = ("__name__", "UUID", "gpu_uuid")
_GLOBAL = re.compile(r"^global:[^\n]*\n(?:[ \t#][^\n]*\n|\n)*", re.MULTILINE)


def external_labels(client: Client) -> dict[str, str]:
    """The labels by which a server names itself to others; empty where it does not tell its configuration."""
    config = client.about("config").get("yaml")
    # Scrape configurations may be long; only the global section is parsed.
    section = _GLOBAL.search(f"{config}\n") if isinstance(config, str) else None
    try:
        labels = yaml.safe_load(section.group())["global"]["external_labels"] if section else {}
    except (yaml.YAMLError, LookupError, TypeError):
        return {}
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}


def gpus_at(client: Client, matches: Sequence[str], at: float) -> frozenset[str]:
    """The UUIDs of the GPUs that the server holds at a moment (Unix seconds). Raises SourceError."""
    query = _largest((*_PRESENT, AGENT_ANCHOR), matches, _ID_LABELS[1:])
    return frozenset(value for ids in client.instant(query, at, _ID_LABELS[1:]).labels for value in ids.values())


def held_at_midnights(
    client: Client, names: Collection[str], matches: Sequence[str], window: Window
) -> dict[float, str]:
    """A digest of the GPUs and a value of each, by the ends of the window's UTC days (Unix seconds); midnights
    without a GPU are missing. Values tell fleets apart that share ids, as simulated ones do. Raises SourceError."""
    chosen = [name for name in _PRESENT if name in names][:1] + [AGENT_ANCHOR] * (AGENT_ANCHOR in names)
    grid = Grid(math.floor(window.start / DAY) * DAY, math.floor(window.end / DAY) * DAY, DAY)
    if not chosen or grid.count < 2:
        return {}
    answer = client.range(_largest(chosen, matches, _ID_LABELS), grid, _ID_LABELS)
    held = {}
    for column, values in enumerate(answer.values.T.tolist()):
        pairs = zip(answer.labels, values, strict=True)
        lines = sorted(f"{sorted(labels.items())} {value:.6g}" for labels, value in pairs if not math.isnan(value))
        if lines:
            held[grid.start + column * DAY] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    return held


def _largest(names: Sequence[str], matches: Sequence[str], labels: Sequence[str]) -> str:
    """By labels, of several metrics. Google Managed Prometheus takes exact names only."""
    return f"max by ({', '.join(labels)}) ({' or '.join(f'{name}{selector(matches)}' for name in names)})"
