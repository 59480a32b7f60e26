"""Whether confidence is a promise on sources that nothing was fitted on; the first simulator, which was, is last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..scoring import Answer, abstention, accuracy, calibration_error, given

SURE = 0.8


def table(sources: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    """One line a source: how many, right, abstained, of what is said with 0.8 and more how many and the share right,
    and the expected calibration error of all that is said."""
    yield f"\n== confidence, source by source (of what is said with {SURE:g} and more: how many, share right)"
    yield f"{'source':<42} {'n':>5} {'right':>7} {'abstained':>10} {f'said {SURE:g}+':>9} {'right':>7} {'error':>7}"
    for name, answers in sources.items():
        sure = [one for one in given(answers) if one.confidence >= SURE]
        right = f"{accuracy(sure):.1%}" if sure else "none"
        yield (
            f"{name:<42} {len(answers):>5} {accuracy(answers):>7.1%} {abstention(answers):>10.1%} {len(sure):>9} "
            f"{right:>7} {calibration_error(answers):>7.3f}"
        )
