"""What fits the weights of kinds: signs are kept whatever examples say, and only what may be fitted on is."""

from __future__ import annotations

import numpy as np
import pytest
from skuwise.advisor.classify.kinds.kind_signal import KINDS, KindSignal
from skuwise.advisor.classify.kinds.kind_signals import PROBE
from skuwise.advisor.classify.kinds.kinds import WORKING
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.benchmarks.fit.bounded_fit import EXPECTED, MOST, bounded_fit
from skuwise.benchmarks.fit.kind_examples import Example
from skuwise.benchmarks.fit.train_kinds import REAL_VIEW as VIEW

T, F, O, B, I = range(5)  # noqa: E741


def _shape(name: str, for_: tuple[int, ...], against: tuple[int, ...]) -> KindSignal:
    return KindSignal(
        name, lambda f: f.get(name, 0.0), "So.", tuple(KINDS[k] for k in for_), tuple(KINDS[k] for k in against)
    )


# One that speaks as the examples below do, one that says the opposite of them, one of which they know nothing.
SHAPES = (_shape("right", (T,), (O,)), _shape("round", (O,), (T,)), _shape("unseen", (B,), (I,)))


def _examples(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Trainings show the first two shapes, services neither; the third is shown by nothing."""
    y = np.arange(count) % 2 * O
    x = np.stack([(y == T) * 0.9, (y == T) * 0.9, np.zeros(count)], axis=1)
    return x.astype(float), y.astype(np.int64)


def test_signs_are_kept_whatever_examples_say() -> None:
    x, y = _examples()
    weights, intercepts = bounded_fit(x, y, np.full(len(y), 5.0), SHAPES, KINDS)
    assert weights.shape == (5, 3)
    for k, kind in enumerate(KINDS):
        for s, shape in enumerate(SHAPES):
            low, high = shape.bounds(kind, MOST)
            assert low <= weights[k, s] <= high
    assert weights[T, 0] > EXPECTED > 0 > weights[O, 0]
    assert weights[T, 1] == pytest.approx(0.0)  # it would have to be turned round
    assert weights[O, 1] == pytest.approx(0.0)
    assert np.isfinite(intercepts).all()


def test_what_examples_do_not_show_says_what_was_declared() -> None:
    x, y = _examples()
    weights, _ = bounded_fit(x, y, np.full(len(y), 5.0), SHAPES, KINDS)
    assert weights[B, 2] == pytest.approx(EXPECTED, abs=1e-3)
    assert weights[I, 2] == pytest.approx(-EXPECTED, abs=1e-3)
    assert weights[T, 2] == weights[O, 2] == weights[F, 2] == 0.0


def test_shuffled_labels_leave_a_shape_little_to_say() -> None:
    x, y = _examples()
    lost = np.random.default_rng(4).permutation(y)
    taught, untaught = (bounded_fit(x[:, :1], k, np.full(len(y), 5.0), SHAPES[:1], KINDS)[0] for k in (y, lost))
    assert untaught[T, 0] - untaught[O, 0] < 0.3 < taught[T, 0] - taught[O, 0]


def _example(kind: str, *, real: bool, bottleneck: str = "compute", **features: float) -> Example:
    group = "real/one" if real else "varied/1"
    return Example(group, VIEW if real else "60 s", kind, bottleneck, {**PROBE, "idle_share": 0.0, **features})


def test_real_series_weigh_their_share_however_few_they_are() -> None:
    made = [_example("training", real=False) for _ in range(300)]
    made += [_example("online-inference", real=False) for _ in range(10)]
    real = [_example("online-inference", real=True) for _ in range(3)] + [_example("training", real=True)]
    table = trainer.table_of([*made, *real])
    is_real = np.array([group.startswith("real/") for group in table.groups])
    whole = table.weights.sum()
    assert whole == pytest.approx(trainer.EFFECTIVE_EXAMPLES)
    assert table.weights[is_real].sum() == pytest.approx(trainer.REAL_SHARE * whole)
    for part in (is_real, ~is_real):  # every kind the same within each
        of_kind = [table.weights[part & (table.y == WORKING.index(k))].sum() for k in ("training", "online-inference")]
        assert of_kind[0] == pytest.approx(of_kind[1])


def test_what_stood_idle_or_is_called_so_teaches_no_likeness() -> None:
    kept = _example("training", real=False)
    idle = [_example("idle", real=False), _example("interactive", real=False, idle_share=1.0)]
    assert len(trainer.table_of([kept, *idle]).y) == 1
