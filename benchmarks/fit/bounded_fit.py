"""Multinomial logistic regression in which every weight keeps the sign that its shape declares.

What the simulated fleets happen to show must not turn an argument round: the fit chooses how much a shape says for or
against a kind, never which way. L2 penalty of 1 on the distance from what the shapes declare, none to speak of over
intercepts, minimised by L-BFGS-B.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from skuwise.advisor.classify.kinds.kind_signal import KindSignal

Matrix = npt.NDArray[np.float64]
MOST = 3.0  # log-odds of one shape: twenty to one, and never more
# What a shape says before any example: two to one for each kind it declares. The penalty draws towards this and not
# towards nothing, so that what a shape means does not hang on whether a simulator happened to show it.
EXPECTED = 0.7


def bounded_fit(
    x: Matrix, y: npt.NDArray[np.int64], sample_weights: Matrix, shapes: Sequence[KindSignal], kinds: Sequence[str]
) -> tuple[Matrix, Matrix]:
    """Weights (kind, shape) and intercepts (kind,) for levels `x` (example, shape) and kinds `y` as positions."""
    k, s = len(kinds), len(shapes)
    bounds = [shape.bounds(kind, MOST) for kind in kinds for shape in shapes] + [(-8.0, 8.0)] * k
    declared: Matrix = np.array(
        [[EXPECTED * ((kind in s.speaks_for) - (kind in s.speaks_against)) for s in shapes] for kind in kinds]
    )
    hot: Matrix = np.zeros((len(y), k))
    hot[np.arange(len(y)), y] = 1.0

    def loss(flat: Matrix) -> tuple[float, Matrix]:
        w, b = flat[: k * s].reshape(k, s), flat[k * s :]
        scores = x @ w.T + b
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        own = (scores * hot).sum(axis=1) - np.log(total[:, 0])
        error = (shares - hot) * sample_weights[:, None]
        gradient = np.concatenate([(error.T @ x + w - declared).ravel(), error.sum(axis=0) + 1e-3 * b])
        return float(-(sample_weights * own).sum() + 0.5 * ((w - declared) ** 2).sum() + 5e-4 * (b**2).sum()), gradient

    start = np.concatenate([declared.ravel(), np.zeros(k)])
    done = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1500})
    flat: Matrix = np.asarray(done.x, dtype=np.float64)
    return flat[: k * s].reshape(k, s), flat[k * s :]
