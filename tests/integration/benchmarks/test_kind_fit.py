"""What fits the weights of kinds: signs are kept whatever examples say, and only what may be fitted on is."""

import numpy as np
import pytest
from skuwise.advisor.classify.kinds.shapes import SHAPES as SHIPPED
from skuwise.advisor.classify.kinds.shapes import Shape
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.benchmarks.fit.bounded_fit import EXPECTED, MOST, bounded_fit, declared
from skuwise.rules.policy.labels import WORKING_KINDS as KINDS

T, F, O, B, I = range(5)  # noqa: E741


def _shape(name: str, for_: tuple[int, ...], against: tuple[int, ...]) -> Shape:
    return Shape(
        name, lambda f: f.get(name, 0.0), "So.", tuple(KINDS[k] for k in for_), tuple(KINDS[k] for k in against)
    )


# One that speaks as the examples below do, one that says the opposite of them, one of which they know nothing.
SHAPES = (_shape("right", (T,), (O,)), _shape("round", (O,), (T,)), _shape("unseen", (B,), (I,)))


CENTRE = declared(SHAPES, KINDS)


def _examples(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Trainings show the first two shapes, services neither; the third is shown by nothing."""
    y = np.arange(count) % 2 * O
    x = np.stack([(y == T) * 0.9, (y == T) * 0.9, np.zeros(count)], axis=1)
    return x.astype(float), y.astype(np.int64)


def test_signs_are_kept_whatever_examples_say() -> None:
    x, y = _examples()
    weights, intercepts = bounded_fit(x, y, np.full(len(y), 5.0), SHAPES, KINDS, centre=CENTRE)
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
    weights, _ = bounded_fit(x, y, np.full(len(y), 5.0), SHAPES, KINDS, centre=CENTRE)
    assert weights[B, 2] == pytest.approx(EXPECTED, abs=1e-3)
    assert weights[I, 2] == pytest.approx(-EXPECTED, abs=1e-3)
    assert weights[T, 2] == weights[O, 2] == weights[F, 2] == 0.0


def test_every_owner_weighs_the_same_and_the_sample_does_not_set_the_prior() -> None:
    """One owner of many services beside many of one training each: what nothing tells apart comes out as the site's."""
    x = np.zeros((90, len(SHIPPED)))
    y = np.array([O] * 80 + [T] * 10, dtype=np.int64)
    owners = ["one"] * 80 + [f"owner {n}" for n in range(10)]
    found = trainer.fit_real(x, y, owners, declared(SHIPPED, KINDS))
    said = trainer.softmax(found.intercepts[None, :])[0]
    assert said[T] / said[O] == pytest.approx(trainer.SITE["training"] / trainer.SITE["online-inference"], rel=0.2)
