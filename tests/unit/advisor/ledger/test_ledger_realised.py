"""Moves of a site's own ledger, scored as published pairs are."""

from pathlib import Path

from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.ledger.outcomes import MoveOutcome
from skuwise.benchmarks.evaluation import realised


def outcome(predicted: Interval | None, measured: float | None) -> MoveOutcome:
    return MoveOutcome(
        id="r1", about="chat\x1b[31m", action="move-sku", from_config="8 x A", to_config="8 x B", state="done",
        accepted_at=None, done_at=1.0, predicted_saving_usd_per_month=None, realised_saving_usd_per_month=None,
        predicted_time_ratio=predicted, realised_time_ratio=measured, realisation="cash-now", why="",
        reason_missing=None,
    )  # fmt: skip


def test_moves_that_were_predicted_and_measured_are_scored() -> None:
    moves = realised.measured_moves(
        [outcome(Interval(0.7, 0.8, 0.9), 1.0), outcome(Interval(0.9, 1.1, 1.3), 1.0), outcome(None, 1.0),
         outcome(Interval(0.9, 1.1, 1.3), None)]
    )  # fmt: skip
    lines = list(realised.told(moves))
    assert len(lines) == 3
    assert "\x1b" not in lines[0]
    assert "x1.00, predicted x0.80 (0.70 to 0.90)" in lines[0]
    assert lines[-1] == "2 moves: median error 15.0%, p90 19.0%, 80 % interval covers 50%"


def test_a_ledger_without_such_moves_says_so(tmp_path: Path, capsys) -> None:
    assert list(realised.told([])) == ["no move was both predicted and measured"]
    assert realised.main([str(tmp_path / "none.db")]) != 0
    assert "realised:" in capsys.readouterr().err
