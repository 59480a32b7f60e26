"""How well work without labels is found: detected workloads against the true jobs of a fleet that nobody labelled.

A true job is found where a detected workload has exactly its GPUs and overlaps it in time with an intersection over
union of at least one half; each is counted once. F1 is over true jobs and detected workloads of more than ten minutes.
What only holds memory need not be found, and may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from skuwise.advisor.core.frame import Frame
from skuwise.tests.fleets.jobs import GPUS, LEAST
from skuwise.tests.fleets.unlabelled import MINUTE, BareFleet, JobTruth, Lived

IOU = 0.5


@dataclass(frozen=True)
class Detected:
    """`gpus`: (node, UUID); times in Unix seconds."""

    gpus: frozenset[tuple[str, str]]
    start: float
    end: float


@dataclass
class Score:
    """`asked`, `found`: true jobs by scene, "all" for each of them. `extra`: detected workloads that are none of them.
    `missed`: why the others were not found, by scene. `busy`, `covered`: GPU-minutes."""

    asked: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)
    extra: int = 0
    busy: int = 0
    covered: int = 0

    @property
    def f1(self) -> float:
        return 2 * self.found["all"] / max(self.asked["all"] + self.found["all"] + self.extra, 1)

    @property
    def recall(self) -> float:
        return self.found["all"] / max(self.asked["all"], 1)

    @property
    def precision(self) -> float:
        return self.found["all"] / max(self.found["all"] + self.extra, 1)

    @property
    def coverage(self) -> float:
        return self.covered / max(self.busy, 1)

    def __add__(self, other: Score) -> Score:
        return Score(
            self.asked + other.asked, self.found + other.found, self.missed + other.missed, self.extra + other.extra,
            self.busy + other.busy, self.covered + other.covered,
        )  # fmt: skip


def of_frame(frame: Frame, basis: str = "activity") -> list[Detected]:
    """The workloads of a frame whose uses rest on `basis`."""
    uses = frame.uses[frame.uses["basis"] == basis]
    return [
        Detected(
            frozenset(zip(rows["node"].astype(str), rows["gpu_uuid"].astype(str), strict=True)),
            float(rows["ts_start"].min()), float(rows["ts_end"].max()),
        )
        for _, rows in uses.groupby("workload_id")
    ]  # fmt: skip


def overlap(one: JobTruth, other: Detected) -> float:
    """Intersection over union of two times."""
    common = min(one.end, other.end) - max(one.start, other.start)
    whole = max(one.end, other.end) - min(one.start, other.start)
    return max(common, 0.0) / whole if whole > 0 else 0.0


def matched(truths: Sequence[JobTruth], detected: Sequence[Detected]) -> dict[int, int]:
    """Number of a true job -> number of the detected workload that is it. The best pairs first, each once."""
    by_gpus: dict[frozenset[tuple[str, str]], list[int]] = {}
    for number, one in enumerate(detected):
        by_gpus.setdefault(one.gpus, []).append(number)
    pairs = sorted(
        (-share, number, other)
        for number, one in enumerate(truths)
        for other in by_gpus.get(one.gpus, ())
        if (share := overlap(one, detected[other])) >= IOU
    )
    pairs.sort(key=lambda pair: (not truths[pair[1]].asked, pair[0]))
    found: dict[int, int] = {}
    taken: set[int] = set()
    for _, number, other in pairs:
        if number not in found and other not in taken:
            found[number] = other
            taken.add(other)
    return found


def scenes(one: JobTruth) -> list[str]:
    """The headings under which a true job is counted."""
    size = len(one.gpus)
    sized = "1 GPU" if size == 1 else "2 to 8 GPUs" if size <= GPUS else "more than 8 GPUs"
    return ["all", sized, one.kind, *sorted(one.scenes - {one.kind})]


def score(truths: Sequence[JobTruth], detected: Sequence[Detected]) -> Score:
    """Jobs alone; `covered` adds the busy time."""
    pairs, out = matched(truths, detected), Score()
    for number, one in enumerate(truths):
        if not one.asked:
            continue
        out.asked.update(scenes(one))
        if number in pairs:
            out.found.update(scenes(one))
        else:
            why = _why(one, detected)
            out.missed.update((scene, why) for scene in scenes(one))
    taken = set(pairs.values())
    out.extra = sum(one.end - one.start > LEAST for n, one in enumerate(detected) if n not in taken)
    return out


def _why(one: JobTruth, detected: Sequence[Detected]) -> str:
    """What stands in the place of a job that was not found: the workload that overlaps it most."""
    near = [
        (min(one.end, other.end) - max(one.start, other.start), other)
        for other in detected
        if other.gpus & one.gpus and other.end > one.start and other.start < one.end
    ]
    if not near:
        return "nothing there"
    most = max(near, key=lambda pair: pair[0])[1]
    if most.gpus == one.gpus:
        return "cut in time" if most.end - most.start < one.end - one.start else "merged in time"
    if most.gpus > one.gpus:
        return "merged with other GPUs"
    return "split into fewer GPUs" if most.gpus < one.gpus else "other GPUs"


def covered(fleet: BareFleet, lived: Lived, uses: Iterable[tuple[str, str, float, float]]) -> tuple[int, int]:
    """Busy GPU-minutes and those of them that lie within a use: (node, UUID, start, end)."""
    busy = lived.busy()
    rows = {fleet.key((node, gpu)): node * GPUS + gpu for node in range(len(fleet.nodes)) for gpu in range(GPUS)}
    inside = np.zeros_like(busy)
    for node, uuid, start, end in uses:
        row = rows.get((node, uuid))
        if row is not None:
            first, last = ((moment - fleet.start) / MINUTE - 0.5 for moment in (start, end))
            inside[row, max(0, int(np.ceil(first))) : max(0, int(np.floor(last)) + 1)] = True
    # Where no telemetry is, nobody can say that a GPU worked.
    minutes = busy.shape[1]
    seen = lived.seen[:, : minutes * MINUTE].reshape(-1, minutes, MINUTE).mean(axis=2) > 0.5
    busy = busy & np.repeat(seen, GPUS, axis=0)
    return int(busy.sum()), int((busy & inside).sum())


def score_frame(fleet: BareFleet, lived: Lived, truths: Sequence[JobTruth], frame: Frame) -> Score:
    """All figures of a frame that was read from a fleet."""
    out = score(truths, of_frame(frame))
    uses = zip(*(frame.uses[name] for name in ("node", "gpu_uuid", "ts_start", "ts_end")), strict=True)
    out.busy, out.covered = covered(fleet, lived, ((str(a), str(b), float(c), float(d)) for a, b, c, d in uses))
    return out


def score_spans(
    fleet: BareFleet, lived: Lived, truths: Sequence[JobTruth], detected: Sequence[Detected]
) -> Score:  # fmt: skip
    """All figures of detected workloads."""
    out = score(truths, detected)
    uses = ((*gpu, one.start, one.end) for one in detected for gpu in one.gpus)
    out.busy, out.covered = covered(fleet, lived, uses)
    return out


def table(total: Score) -> pd.DataFrame:
    """Recall by scene, and why the others were missed."""
    whys = sorted({why for _, why in total.missed})
    rows = [
        {"scene": scene, "jobs": count, "found": total.found[scene], "recall": total.found[scene] / count,
         **{why: total.missed[scene, why] for why in whys}}
        for scene, count in total.asked.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("scene")
