"""What makes a verdict on a bottleneck less sure, and what would settle one that is open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.coded_text import CodedText, coded
from ..features.piece_rows import PieceRows
from .links import SETTLES
from .row_labels import MASKS_HOST

# Confidence where use is held against an assumed efficiency, and where samples are longer than what they should show.
# Judgements, not measurements: one in five such verdicts is expected to be wrong.
_ASSUMED, _COARSE = 0.8, 0.8


@dataclass(frozen=True)
class Grounds:
    """What doubts rest on, of each case over the rows that carry its label: whether efficiencies were assumed in some,
    samples were longer than the parts of a step, and several ranks worked together; the plain means of some measures
    and of the busiest link (`rival`)."""

    assumed: dict[str, list[bool]]
    coarse: list[bool]
    several: list[bool]
    sample_seconds: list[float]
    rival: list[float]
    compute: list[float]
    sm: list[float]
    engine: list[float]

    @classmethod
    def of(cls, rows: PieceRows) -> Grounds:
        segments = rows.segments

        def some(name: str) -> list[bool]:
            return segments.any(rows.flags(name)).tolist()

        def mean(name: str) -> list[float]:
            return segments.mean(rows.measured(name)).tolist()

        rival = np.fmax(np.fmax(rows.measured("i"), rows.measured("u_n")), rows.measured("wire"))
        return cls(
            {name: some(name) for name in ("assumed_c", "assumed_m")}, some("coarse"), some("several"),
            segments.median(rows.measured("sample_seconds")).tolist(), segments.mean(rival).tolist(),
            mean("label_c"), mean("sm"), mean("g"),
        )  # fmt: skip


def doubts(label: str, grounds: Grounds, n: int) -> tuple[float, list[CodedText]]:
    """A factor on the confidence, and a sentence for each reason. `n`: of which case."""
    factor = 1.0
    said: list[CodedText] = []
    if label in MASKS_HOST:
        for name, what in (("assumed_c", "compute"), ("assumed_m", "memory bandwidth")):
            if grounds.assumed[name][n]:
                factor = _ASSUMED
                said.append(
                    coded(
                        "efficiency-assumed",
                        "Sustained {what} of this GPU has not been measured. The median of other GPUs is "
                        "assumed for this verdict only.",
                        what=what,
                    )
                )
    if grounds.coarse[n] and label not in ("idle", "throttled"):
        factor *= _COARSE
        said.append(
            coded(
                "samples-are-means",
                "Samples of {seconds:.0f} s average over many steps: levels are visible, waits within a step are not.",
                seconds=grounds.sample_seconds[n],
            )
        )
        if label == "unknown" and grounds.rival[n] >= 0.2:
            said.append(
                coded(
                    "compute-or-link",
                    "Compute at {compute:.0%} and a link at {link:.0%}: either may be the bottleneck. "
                    "Samples of 1 s would show which.",
                    compute=grounds.compute[n],
                    link=grounds.rival[n],
                )
            )
        elif label == "compute" and _may_poll(grounds, n):
            said.append(
                coded(
                    "compute-or-rank",
                    "Either compute-bound or waiting for one of its ranks. Samples of 1 s would show which.",
                )
            )
    return factor, said


def _may_poll(grounds: Grounds, n: int) -> bool:
    """Whether ranks with full SMs do less than half of what they could: polling looks like that, too."""
    return grounds.several[n] and grounds.sm[n] >= 0.8 and grounds.compute[n] < 0.5


def unsettled(lacking: set[str], engine: float) -> list[CodedText]:
    """Where links that nobody measured leave open what it waits for: which, and what would settle it."""
    lacks = {name for text in lacking for name in text.split(",") if name}
    if not lacks:
        return []
    return [
        coded(
            "waits-for-launches-or-gpus",
            "Engine active {engine:.0%} of the time, compute and memory hardly used: it waits for kernel "
            "launches or for other GPUs. The missing metrics would show which.",
            engine=engine,
        ),
        *(sentence for name, sentence in SETTLES.items() if name in lacks),
    ]
