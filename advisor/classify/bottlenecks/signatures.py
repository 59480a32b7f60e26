"""Signatures that the field knows of work on GPUs, each with what it takes of the time: checkpoints and what they cost,
communication, collectives that spin, ranks that wait. They explain a verdict and decide none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.coded_text import CodedText, coded
from ...core.segments import over
from ..features.piece_rows import PieceRows

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_HOUR = 3600.0
# A host writes in a burst where its highest sample is that of a fast disk or more, and several times its mean.
_BURST_BYTES_PER_SECOND, _BURST_OVER_MEAN = 2e8, 5.0
# Hours with and without bursts from which on their work is compared: fewer may differ by chance.
_HOURS_MIN = 3.0
# Large training that is well provided communicates for 0.15 to 0.30 of its time, by published shares; less is no news.
_COMMUNICATION_MIN = 0.15
# Share of the busy time from which on waiting is told.
_WAITING_MIN = 0.1
_LINKS = (
    ("communication-nvlink", "NVLink", "n_share", "u_n", "nvlink_bytes"),
    ("communication-fabric", "the fabric", "i_share", "i", "wire_bytes"),
)


def signatures(rows: PieceRows, trains: Mask) -> list[list[CodedText]]:
    """What is seen of them in the busy rows of each case. `trains`: whether it is training, whose hosts write
    checkpoints."""
    segments = rows.segments
    works = segments.total(rows.seconds) > 0
    writes = rows.where(segments.spread(works & trains))
    several = segments.any(rows.flags("several")) & works
    ranks = rows.where(segments.spread(several))
    out: list[list[CodedText]] = [[] for _ in range(len(segments))]
    for n, writing in _writing(writes):
        out[n] += _checkpoints(writing)
    for code, words, busy, use, carried in _LINKS:
        shares = np.fmax(ranks.mean(busy), ranks.mean(use))
        rates = ranks.mean(carried)
        for n in np.nonzero(np.isfinite(rates) & (shares >= _COMMUNICATION_MIN))[0]:
            out[n].append(_communication(code, words, float(shares[n]), float(rates[n]), trains=bool(trains[n])))
    for n, share in _spinning(ranks):
        out[n].append(
            coded(
                "collectives-spin",
                "Engine busy, tensor cores and memory nearly idle for {share:.0%} of its busy time: typical "
                "of collectives that poll.",
                share=share,
            )
        )
    for n, share, lost in _waiting(ranks):
        out[n].append(_ranks_wait(share, lost))
    return out


@dataclass(frozen=True, slots=True)
class _Writing:
    """Of a case with bursts: the host's highest rate and mean in hours with them (bytes per second), how much of such
    an hour it writes at least, their share of the time; work in them and in the others, how many seconds of both there
    are, and how much of an hour with them the engine rests."""

    rate: float
    mean: float
    filled: float
    share: float
    with_them: float
    without: float
    seconds: float
    rests: float


def _writing(rows: PieceRows) -> Iterator[tuple[int, _Writing]]:
    """Hours in which the host writes in bursts, and how much less is done in them than in the others."""
    segments, weights = rows.segments, rows.seconds
    mean, most = rows.measured("disk_write"), rows.measured("disk_write_max")
    known = np.isfinite(mean) & np.isfinite(most)
    burst = known & (most >= _BURST_BYTES_PER_SECOND) & (most >= _BURST_OVER_MEAN * mean)
    with_them = segments.total(np.where(burst, weights, 0.0))
    if not (with_them > 0).any():
        return
    quiet = known & ~burst
    work, engine = rows.measured("c"), rows.measured("g")
    work = np.where(segments.spread(segments.any(known & np.isfinite(work))), work, engine)

    def in_bursts(values: Floats) -> list[float]:
        return segments.mean(np.where(burst, values, np.nan), weights).tolist()

    filled = np.divide(mean, most, out=np.full(len(mean), np.nan), where=burst)
    without = segments.total(np.where(quiet, weights, 0.0))
    columns = (
        in_bursts(most), in_bursts(mean), in_bursts(filled),
        over(with_them, segments.total(np.where(known, weights, 0.0))).tolist(), in_bursts(work),
        segments.mean(np.where(quiet, work, np.nan), weights).tolist(), np.minimum(with_them, without).tolist(),
        in_bursts(1 - engine),
    )  # fmt: skip
    for n in np.nonzero(with_them > 0)[0].tolist():
        yield n, _Writing(*(column[n] for column in columns))


def _checkpoints(seen: _Writing) -> list[CodedText]:
    """What checkpoints cost: measured where there are hours to compare, else at most what is written or rests."""
    writing, written, share, rate = _HOUR * seen.filled, _HOUR * seen.mean, seen.share, seen.rate
    out = [
        CodedText(
            "checkpoint-bursts",
            f"Host write bursts of {rate / 1e9:.2g} GB/s in {100 * share:.0f} % of its busy hours, "
            f"typical of checkpoints: {written / 1e9:.3g} GB and at least {writing:.0f} s of writing per "
            "such hour.",
            {"bytes_per_second": rate, "share": share, "bytes_per_hour": written, "seconds_per_hour": writing},
        )
    ]
    if seen.seconds >= _HOURS_MIN * _HOUR and seen.without > 0 and math.isfinite(seen.with_them):
        less = min(max(1 - seen.with_them / seen.without, 0.0), 1.0)
        out.append(
            coded(
                "checkpoint-cost",
                "Work in those hours is {less:.1%} lower: a loss of {seconds:.0f} s per such hour, "
                "{of_all:.1%} of all its time.",
                less=less, seconds=_HOUR * less, of_all=less * share,
            )
        )  # fmt: skip
        return out
    rests = _HOUR * seen.rests
    if math.isfinite(rests):
        out.append(
            coded(
                "checkpoint-cost-at-most",
                "Engine idle for {rests:.0f} s of such an hour: a loss of at most {seconds:.0f} s per "
                "such hour.",
                rests=max(rests, 0.0), seconds=min(writing, max(rests, 0.0)),
            )
        )  # fmt: skip
    return out


def _communication(code: str, words: str, share: float, rate: float, *, trains: bool) -> CodedText:
    """The time that a link takes at least: its busy seconds, or what its mean would fill."""
    usual = "; 15 to 30 % is typical of large training" if trains else ""
    share = min(share, 1.0)
    return CodedText(
        code,
        f"Communication over {words}: at least {100 * share:.0f} % of its busy time, "
        f"{rate / 1e9:.3g} GB/s (mean){usual}.",
        {"share": share, "bytes_per_second": rate},
    )


def _spinning(rows: PieceRows) -> Iterator[tuple[int, float]]:
    # Over samples longer than the turns, work and waiting are one mean, and the figure is no measurement.
    waits = np.where(rows.flags("coarse"), np.nan, rows.measured("waits"))
    shares = rows.segments.mean(waits, rows.seconds)
    for n in np.nonzero(shares >= _WAITING_MIN)[0].tolist():
        yield n, float(shares[n])


def _waiting(rows: PieceRows) -> Iterator[tuple[int, float, float]]:
    """Cases whose ranks wait: for which share of the time, and what they lose of it (NaN: not known)."""
    waiting = rows.flags("waiting")
    shares = rows.segments.mean(waiting.astype(np.float64), rows.seconds)
    lost = rows.segments.mean(np.where(waiting, rows.measured("lost"), np.nan), rows.seconds)
    for n in np.nonzero(shares >= _WAITING_MIN)[0].tolist():
        yield n, float(shares[n]), float(lost[n])


def _ranks_wait(share: float, lost: float) -> CodedText:
    if math.isnan(lost):
        return coded("ranks-wait", "Ranks wait for a slow rank {share:.0%} of its busy time.", share=share)
    return coded(
        "ranks-wait-and-lose",
        "Ranks wait for a slow rank {share:.0%} of its busy time and lose {lost:.0%} of that time.",
        share=share, lost=lost,
    )  # fmt: skip
