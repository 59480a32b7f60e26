"""Signatures that the field knows of work on GPUs, each with what it takes of the time: checkpoints and what they cost,
communication, collectives that spin, ranks that wait. They explain a verdict and decide none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.coded_text import CodedText, coded
from ...core.column_rows import ColumnRows

Floats = npt.NDArray[np.float64]

_HOUR = 3600.0
# A host writes in a burst where its highest sample is that of a fast disk or more, and several times its mean.
_BURST_BYTES_PER_SECOND, _BURST_OVER_MEAN = 2e8, 5.0
# Hours with and without bursts from which on their work is compared: fewer may differ by chance.
_HOURS_MIN = 3.0
# Large training that is well provided communicates for 0.15 to 0.30 of its time, by published shares; less is no news.
_COMMUNICATION_MIN = 0.15
# Share of the busy time from which on waiting is told.
_WAITING_MIN = 0.1


def signatures(rows: ColumnRows, weights: Floats, *, trains: bool) -> list[CodedText]:
    """What is seen of them in a workload's busy rows. `weights`: seconds; `trains`: whether it is training, whose hosts
    write checkpoints."""
    if not len(rows) or weights.sum() <= 0:
        return []
    said = _checkpoints(rows, weights) if trains else []
    if rows.flags("several").any():
        said += [*_communication(rows, weights, trains=trains), *_spinning(rows, weights), *_waiting(rows, weights)]
    return said


def _mean(values: npt.ArrayLike, weights: Floats) -> float:
    """The mean by time of what was measured; NaN where nothing was."""
    v = np.asarray(values, dtype=float)
    ok = np.isfinite(v)
    return float(np.average(v[ok], weights=weights[ok])) if weights[ok].sum() > 0 else float("nan")


def _checkpoints(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    """Hours in which the host writes in bursts, and how much less is done in them than in the others."""
    mean, most = (rows.floats(name) for name in ("disk_write", "disk_write_max"))
    known = np.isfinite(mean) & np.isfinite(most)
    burst = known & (most >= _BURST_BYTES_PER_SECOND) & (most >= _BURST_OVER_MEAN * mean)
    if weights[burst].sum() <= 0:
        return []
    writing = _HOUR * _mean(mean[burst] / most[burst], weights[burst])
    rate, written = _mean(most[burst], weights[burst]), _HOUR * _mean(mean[burst], weights[burst])
    share = float(weights[burst].sum() / weights[known].sum())
    out = [
        CodedText(
            "checkpoint-bursts",
            f"Host write bursts of {rate / 1e9:.2g} GB/s in {100 * share:.0f} % of its busy hours, "
            f"typical of checkpoints: {written / 1e9:.3g} GB and at least {writing:.0f} s of writing per "
            "such hour.",
            {"bytes_per_second": rate, "share": share, "bytes_per_hour": written, "seconds_per_hour": writing},
        )
    ]
    quiet = known & ~burst
    work = rows.floats("c")
    if not np.isfinite(work[known]).any():
        work = rows.floats("g")
    with_them, without = _mean(work[burst], weights[burst]), _mean(work[quiet], weights[quiet])
    if min(weights[burst].sum(), weights[quiet].sum()) >= _HOURS_MIN * _HOUR and without > 0 and np.isfinite(with_them):
        less = float(np.clip(1 - with_them / without, 0.0, 1.0))
        out.append(
            coded(
                "checkpoint-cost",
                "Work in those hours is {less:.1%} lower: a loss of {seconds:.0f} s per such hour, "
                "{of_all:.1%} of all its time.",
                less=less, seconds=_HOUR * less, of_all=less * share,
            )
        )  # fmt: skip
        return out
    rests = _HOUR * _mean(1 - rows.floats("g")[burst], weights[burst])
    if np.isfinite(rests):
        most_lost = min(writing, max(rests, 0.0))
        out.append(
            coded(
                "checkpoint-cost-at-most",
                "Engine idle for {rests:.0f} s of such an hour: a loss of at most {seconds:.0f} s per "
                "such hour.",
                rests=max(rests, 0.0), seconds=most_lost,
            )
        )  # fmt: skip
    return out


def _communication(rows: ColumnRows, weights: Floats, *, trains: bool) -> list[CodedText]:
    """The time that each link takes at least: its busy seconds, or what its mean would fill."""
    out: list[CodedText] = []
    usual = "; 15 to 30 % is typical of large training" if trains else ""
    for code, words, busy, use, carried in (
        ("communication-nvlink", "NVLink", "n_share", "u_n", "nvlink_bytes"),
        ("communication-fabric", "the fabric", "i_share", "i", "wire_bytes"),
    ):
        share = np.fmax(_mean(rows[busy], weights), _mean(rows[use], weights))
        rate = _mean(rows[carried], weights)
        if not np.isfinite(share + rate) or share < _COMMUNICATION_MIN:
            continue
        share = min(float(share), 1.0)
        out.append(
            CodedText(
                code,
                f"Communication over {words}: at least {100 * share:.0f} % of its busy time, "
                f"{rate / 1e9:.3g} GB/s (mean){usual}.",
                {"share": share, "bytes_per_second": rate},
            )
        )
    return out


def _spinning(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    # Over samples longer than the turns, work and waiting are one mean, and the figure is no measurement.
    fine = ~rows.flags("coarse")
    share = _mean(np.where(fine, rows.floats("waits"), np.nan), weights)
    if not share >= _WAITING_MIN:
        return []
    return [
        coded(
            "collectives-spin",
            "Engine busy, tensor cores and memory nearly idle for {share:.0%} of its busy time: typical "
            "of collectives that poll.",
            share=share,
        )
    ]


def _waiting(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    waiting = rows.flags("waiting")
    share = float(weights[waiting].sum() / weights.sum())
    if share < _WAITING_MIN:
        return []
    lost = rows.floats("lost")
    known = waiting & np.isfinite(lost)
    if not known.any():
        return [coded("ranks-wait", "Ranks wait for a slow rank {share:.0%} of its busy time.", share=share)]
    return [
        coded(
            "ranks-wait-and-lose",
            "Ranks wait for a slow rank {share:.0%} of its busy time and lose {lost:.0%} of that time.",
            share=share, lost=_mean(lost[known], weights[known]),
        )
    ]  # fmt: skip
