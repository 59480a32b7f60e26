"""How far predicted times were off on moves that a site really made: the ledger's realised moves.

    python -m skuwise.benchmarks.evaluation.realised LEDGER ...

Told are all recommendations that were seen done and whose time was both predicted and measured. Where the load changed
meanwhile, so did the time, and not by the move alone: read the lines.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.outcomes import MoveOutcome, move_outcomes
from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.sanitize import clean


def measured_moves(outcomes: Iterable[MoveOutcome]) -> list[MoveOutcome]:
    """Those whose time was predicted and measured."""
    return [one for one in outcomes if one.predicted_time_ratio is not None and one.realised_time_ratio]


def told(moves: Sequence[MoveOutcome]) -> Iterator[str]:
    """One line a move, and the figures of all."""
    errors, covered = [], []
    for one in moves:
        predicted, measured = one.predicted_time_ratio, one.realised_time_ratio
        assert predicted is not None
        assert measured is not None
        errors.append(abs(predicted.p50 / measured - 1))
        covered.append(predicted.p10 <= measured <= predicted.p90)
        yield (
            f"  {clean(one.action)} of {clean(one.about)}, {clean(one.from_config)} to {clean(one.to_config)}: "
            f"x{measured:.2f}, predicted x{predicted.p50:.2f} ({predicted.p10:.2f} to {predicted.p90:.2f})"
        )
    if not errors:
        yield "no move was both predicted and measured"
        return
    yield (
        f"{len(errors)} moves: median error {np.median(errors):.1%}, p90 {np.percentile(errors, 90):.1%}, "
        f"80 % interval covers {np.mean(covered):.0%}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledgers", type=Path, nargs="+", metavar="LEDGER")
    options = parser.parse_args(argv)
    try:
        entries = [entry for path in options.ledgers for entry in Ledger(path).entries()]
        print("\n".join(told(measured_moves(move_outcomes(entries, time.time())))))
        return EXIT_DONE
    except SkuwiseError as error:
        print(f"realised: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
