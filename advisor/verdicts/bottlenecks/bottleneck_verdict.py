"""From the labels of a workload's rows to its verdict: shares of its time, how sure, and why, in words with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.labels import KindLabel
from ...core.coded_text import CodedText, Scalar, coded
from ...core.column_rows import ColumnRows, known_mean, known_median
from ...core.dominant_label import leading, ruling
from ...core.formatting import clause, percent
from ...core.verdict_types import BottleneckVerdict, KindVerdict
from ..kinds.clue import Clue
from ..workloads.work_rows import WorkRows
from .links import SETTLES
from .signatures import signatures

Floats = npt.NDArray[np.float64]

# Whose hosts write checkpoints.
_TRAINING: tuple[KindLabel, ...] = ("training", "fine-tuning")
# Work that waits for nobody's requests: where its engine rests, it is the host or the input that it waits for.
_JOBS: tuple[KindLabel, ...] = ("training", "fine-tuning", "batch-inference")
# Work that waits for somebody's requests: where its engine rests, it lacks those, however busy the node's cores are.
_ON_DEMAND: tuple[KindLabel, ...] = ("online-inference", "interactive")
# What an engine that rests looks like while it works: the host shows in none of these.
_MASKS_HOST = ("compute", "hbm-bandwidth", "mixed", "latency", "unknown")
# Confidence where use is held against an assumed efficiency, and where samples are longer than what they should show.
# Judgements, not measurements: one in five such verdicts is expected to be wrong.
_ASSUMED, _COARSE = 0.8, 0.8
# What a person works in rests while they think: from half of its time on that is what it mostly does.
_PERSON_RESTS = 0.5
# A second label is worth naming from this share of the busy time on.
_WORTH_NAMING = 0.1
# A GPU is the suspect where it was the late one for most of the time that somebody was.
_SUSPECT_SHARE_MIN = 0.5


def judge_bottleneck(
    own: ColumnRows,
    workload_rows: WorkRows,
    *,
    kind: KindVerdict,
    clues: Sequence[Clue],
    coverage: float,
    dominant: float,
) -> BottleneckVerdict:
    """One workload's verdict from the labels of its rows: `own`, of the measures, in the order of `workload_rows`.

    `kind`: what it is, or, where nothing is said of that, what it is likelier to be, unless `clues` (what people and
    schedulers say of it) say otherwise.
    `coverage`: share of its time that was observed; `dominant`: share of the busy time that a label needs to rule.
    """
    weights = workload_rows.seconds
    total = float(weights.sum())
    if total <= 0:
        return BottleneckVerdict(
            "unknown", 0.0, {"unknown": 1.0}, (coded("nothing-observed", "No data for this workload."),)
        )
    labels = own["label"]
    # In a row that it began or ended in, the engine also rested because it was not there.
    whole = workload_rows.whole
    if _likely(kind, clues, _JOBS):
        starved = whole & own.flags("starved")
        masked = pd.Series(labels).isin(_MASKS_HOST).to_numpy()
        labels = np.where(starved & masked, "host-input", labels)
    elif _likely(kind, clues, _ON_DEMAND):
        if kind.label != "unknown":
            labels = np.where(labels == "host-input", own["hostless"], labels)
        # Only its busy time counts: how seldom it is asked says nothing of what limits it then.
        labels = np.where((labels == "unknown") & own.flags("thin"), "latency", labels)
    labels = np.where((labels == "host-input") & ~whole, own["hostless"], labels)
    seconds = _by_label(labels, weights)
    shares = {label: round(value / total, 4) for label, value in seconds.items()}
    exact = {label: value / total for label, value in seconds.items()}
    ruled = ruling(exact, dominant)
    # Where somebody sits in front of it, most of the time is theirs: no limit of the GPU holds it back.
    at_rest = kind.label == "interactive" and exact.get("idle", 0.0) >= _PERSON_RESTS
    if kind.label == "idle" or ruled == "idle" or at_rest:
        share = shares.get("idle", 0.0)
        said = coded("idle-share", "Idle {share:.0%} of the time.", share=share)
        return BottleneckVerdict("idle", _confidence(share, coverage), shares, (said,))
    busy = {label: value for label, value in seconds.items() if label != "idle"}
    worked = sum(busy.values())
    if worked <= 0:
        return BottleneckVerdict("unknown", 0.0, shares, (coded("never-at-work", "No activity observed."),))
    lead = leading({label: value for label, value in exact.items() if label != "idle"})
    share = busy[lead] / worked
    evidence = [coded(f"limited-by-{lead}", f"{_NAMES[lead]}: {{share:.0%}} of its busy time.", share=share)]
    if share < dominant:
        names = ", ".join(f"{clause(_NAMES[k])} {percent(v / worked)}" for k, v in busy.items())
        evidence = [
            CodedText("no-single-limit", f"No single bottleneck in its busy time: {names}.", _of_busy(busy, worked))
        ]
    else:
        others = {k: v for k, v in busy.items() if k != lead and v >= _WORTH_NAMING * worked}
        names = ", ".join(f"{clause(_NAMES[k])} {percent(v / worked)}" for k, v in others.items())
        if names:
            evidence.append(CodedText("other-limits", f"Other bottlenecks: {names}.", _of_busy(others, worked)))
    chosen = labels == lead
    ruling_rows = own.where(chosen)
    evidence.extend(_numbers(ruled, ruling_rows, weights[chosen]))
    if ruled == "straggler":
        evidence.extend(_suspect(own, weights))
    working = labels != "idle"
    evidence.extend(signatures(own.where(working), weights[working], trains=kind.label in _TRAINING))
    if ruled == "unknown":
        evidence.extend(_unsettled(ruling_rows))
    doubt, doubts = _doubts(ruled, ruling_rows)
    confidence = round(doubt * _confidence(share, coverage), 3)
    return BottleneckVerdict(ruled, confidence, shares, (*evidence, *doubts))  # type: ignore[arg-type]


def _by_label(labels: npt.NDArray[np.object_], weights: Floats) -> dict[str, float]:
    """Seconds of each label, the most first; of as many, by name."""
    codes, names = pd.factorize(labels)
    sums = np.bincount(codes, weights=weights, minlength=len(names))
    return {str(name): float(sums[n]) for n, name in sorted(enumerate(names), key=lambda one: (-sums[one[0]], one[1]))}


def _likely(kind: KindVerdict, clues: Sequence[Clue], kinds: tuple[KindLabel, ...]) -> bool:
    """Whether it is of one of these kinds, or likelier to be than not where its kind is open."""
    if kind.label != "unknown":
        return kind.label in kinds
    said = {one: sum(clue.weights.get(one, 0.0) for clue in clues) for one in (*_JOBS, *_ON_DEMAND)}
    if max(said.values()) > max(said[one] for one in kinds):
        return False
    return sum(other.confidence for other in kind.alternatives if other.label in kinds) > 0.5


def _doubts(label: str, rows: ColumnRows) -> tuple[float, list[CodedText]]:
    """A factor on the confidence, and a sentence for each reason."""
    factor = 1.0
    said: list[CodedText] = []
    if label in _MASKS_HOST:
        for name, what in (("assumed_c", "compute"), ("assumed_m", "memory bandwidth")):
            if rows[name].any():
                factor = _ASSUMED
                said.append(
                    coded(
                        "efficiency-assumed",
                        "Sustained {what} of this GPU has not been measured. The median of other GPUs is "
                        "assumed for this verdict only.",
                        what=what,
                    )
                )
    if rows.flags("coarse").any() and label not in ("idle", "throttled"):
        seconds = known_median(rows.floats("sample_seconds"))
        factor *= _COARSE
        said.append(
            coded(
                "samples-are-means",
                "Samples of {seconds:.0f} s average over many steps: levels are visible, waits within a step are not.",
                seconds=seconds,
            )
        )
        rival = known_mean(rows.highest(("i", "u_n", "wire")))
        if label == "unknown" and rival >= 0.2:
            said.append(
                coded(
                    "compute-or-link",
                    "Compute at {compute:.0%} and a link at {link:.0%}: either may be the bottleneck. "
                    "Samples of 1 s would show which.",
                    compute=rows.mean("label_c"),
                    link=rival,
                )
            )
        elif label == "compute" and _may_poll(rows):
            said.append(
                coded(
                    "compute-or-rank",
                    "Either compute-bound or waiting for one of its ranks. Samples of 1 s would show which.",
                )
            )
    return factor, said


def _may_poll(rows: ColumnRows) -> bool:
    """Whether ranks with full SMs do less than half of what they could: polling looks like that, too."""
    return bool(rows.flags("several").any() and rows.mean("sm") >= 0.8 and rows.mean("label_c") < 0.5)


def _unsettled(rows: ColumnRows) -> list[CodedText]:
    """Where links that nobody measured leave open what it waits for: which, and what would settle it."""
    lacks = {name for text in set(rows["lacks"]) for name in str(text).split(",") if name}
    if not lacks:
        return []
    return [
        coded(
            "waits-for-launches-or-gpus",
            "Engine active {engine:.0%} of the time, compute and memory hardly used: it waits for kernel "
            "launches or for other GPUs. The missing metrics would show which.",
            engine=rows.mean("g"),
        ),
        *(sentence for name, sentence in SETTLES.items() if name in lacks),
    ]


def _suspect(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    """Which GPU the others wait for: the one that waits least, or does the same work at a lower clock."""
    slowed = rows.flags("late") | rows.flags("waiting")
    if not slowed.any():
        return []
    table, seconds = rows.where(slowed), pd.Series(weights[slowed])
    late = table.flags("late")
    by_gpu = seconds[late].groupby([table[name][late] for name in ("node", "gpu_uuid", "gpu_index")]).sum()
    if by_gpu.empty or by_gpu.max() < _SUSPECT_SHARE_MIN * by_gpu.sum():
        return [coded("no-single-suspect", "No single suspect: the late GPU changes over time.")]
    node, uuid, number = by_gpu.idxmax()
    suspect = (table["gpu_uuid"] == uuid) & late
    one, others = table.where(suspect), table.where(~late)

    def told(name: str) -> tuple[float, float]:
        return one.mean(name), others.mean(name)

    waits, clock, held = told("waits"), told("clock_ratio"), told("throttled")
    who = {"gpu_index": float(number), "node": str(node), "gpu_uuid": str(uuid)}
    said = [
        coded(
            "suspect-waits-least",
            "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It waits {waits:.0%} of the time, the "
            "other GPUs {others_wait:.0%}, for the same work.",
            **who, waits=waits[0], others_wait=waits[1],
        )
        if waits[1] - waits[0] >= _WORTH_NAMING
        else coded(
            "suspect-is-slower",
            "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It does the same work more slowly.",
            **who,
        )
    ]  # fmt: skip
    if clock[0] < 0.95 * clock[1]:
        said.append(
            coded(
                "suspect-is-throttled",
                "SM clock of the suspect: {clock:.0%} of the other GPUs' clock. Throttled "
                "{throttled:.0%} of the time, the others {others_throttled:.0%}.",
                clock=clock[0] / clock[1], throttled=held[0], others_throttled=held[1],
            )
        )  # fmt: skip
    return said


def _of_busy(seconds: Mapping[str, float], busy: float) -> dict[str, Scalar]:
    return {label: value / busy for label, value in seconds.items()}


def _confidence(share: float, coverage: float) -> float:
    """How sure: the share of the time that says so, less where part of the time was not seen."""
    return round(min(0.99, share * (0.5 + 0.5 * min(1.0, coverage))), 3)


_NAMES = {
    "compute": "Compute-bound",
    "hbm-bandwidth": "Memory-bandwidth-bound",
    "nvlink": "NVLink-bound",
    "network": "Bound by the network between nodes",
    "pcie": "PCIe-bound",
    "host-input": "Waiting for the host or its input",
    "straggler": "Waiting in collectives",
    "latency": "Bound by kernel launches and dependencies",
    "throttled": "Throttled",
    "idle": "Idle",
    "mixed": "Bound by compute and memory bandwidth",
    "unknown": "Unknown bottleneck",
}


def _numbers(label: str, rows: ColumnRows, weights: npt.NDArray[np.float64]) -> list[CodedText]:
    """The figures behind the label, over the rows that carry it."""

    def mean(name: str) -> float:
        v = rows.floats(name)
        ok = ~np.isnan(v)
        return float(np.average(v[ok], weights=weights[ok])) if weights[ok].sum() > 0 else float("nan")

    def told(said: CodedText) -> list[CodedText]:
        """The statement, where all that it names was measured."""
        return [] if any(isinstance(value, float) and np.isnan(value) for value in said.fields.values()) else [said]

    use = told(
        coded(
            "use-of-the-gpu",
            "Memory bandwidth {u_m:.0%} and compute {u_c:.0%} of what this GPU sustains; engine active "
            "{engine:.0%} of the time.",
            u_m=mean("label_m"), u_c=mean("label_c"), engine=mean("g"),
        )
    )  # fmt: skip
    i, carried = mean("i"), mean("wire_bytes")
    port = CodedText(
        "port-rate",
        f"Busiest network port: {carried / 1e9:.2g} GB/s.",
        {"bytes_per_second": carried},
    )
    quiet = CodedText(
        "ports-quiet",
        f"Network ports nearly silent: the busiest carries {carried / 1e6:.3g} MB/s.",
        {"bytes_per_second": carried},
    )
    special: dict[str, list[CodedText]] = {
        "network": [
            *told(
                coded(
                    "fabric-use",
                    "Fabric at {fabric:.0%} of line rate (mean); above 50 % in {busy_share:.0%} of seconds.",
                    fabric=i, busy_share=mean("i_share"),
                )
            ),
            *told(_tensor_falls(mean("tensor_fabric_correlation"))),
            *(told(port) if np.isnan(i) else []),
        ],
        "latency": [
            *told(quiet),
            *told(coded("nvlink-quiet", "NVLink nearly silent: {nvlink:.1%} of its peak.", nvlink=mean("n"))),
        ],
        "nvlink": [
            *told(
                coded(
                    "nvlink-use",
                    "NVLink at {nvlink:.0%} of its peak (mean), busy in {busy_share:.0%} of seconds.",
                    nvlink=mean("n"), busy_share=mean("n_share"),
                )
            ),
            *told(_tensor_falls(mean("tensor_nvlink_correlation"))),
        ],
        "pcie": told(
            coded(
                "pcie-use",
                "PCIe at {pcie:.0%} of its peak (mean), {pcie_p95:.0%} at the 95th percentile.",
                pcie=mean("p"), pcie_p95=mean("p_p95"),
            )
        ),
        "throttled": told(
            coded(
                "throttle-reasons",
                "Throttled {throttled:.0%} of the time; SM clock {clock:.0%} of the clock of the peak rate.",
                throttled=mean("throttled"), clock=mean("clock_ratio"),
            )
        ),
        "host-input": told(
            coded(
                "host-use", "Host CPU {cpu:.0%} busy, IO wait {io_wait:.0%}.",
                cpu=mean("cpu"), io_wait=mean("io_wait"),
            )
        ),
        "straggler": told(
            coded(
                "ranks-poll",
                "SMs active {sm:.0%} of the time, tensor cores and memory nearly idle: the ranks poll.",
                sm=mean("sm"),
            )
        ),
    }  # fmt: skip
    return [*special.get(label, []), *use]


def _tensor_falls(correlation: float) -> CodedText:
    return coded(
        "tensor-falls", "Tensor activity falls as link traffic rises (correlation {correlation:.2f}).",
        correlation=correlation,
    )  # fmt: skip
