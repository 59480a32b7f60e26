"""Multinomial logistic regression in which every weight keeps the sign that its shape declares.

What examples happen to show must not turn an argument round: the fit chooses how much a shape says for or against a
kind, never which way. L2 penalties on the distance from weights that are expected, minimised by L-BFGS-B:
scikit-learn's regression has no bounds and no such centre.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from skuwise.advisor.classify.kinds.shapes import Shape

Matrix = npt.NDArray[np.float64]
MOST = 3.0  # log-odds of one shape: twenty to one, and never more
# What a shape says before any example: two to one for each kind it declares. The penalty draws towards this and not
# towards nothing, so that what a shape means does not hang on whether a simulator happened to show it.
EXPECTED = 0.7


def declared(shapes: Sequence[Shape], kinds: Sequence[str]) -> Matrix:
    """What the shapes say before any example, (kind, shape)."""
    return np.array(
        [[EXPECTED * ((kind in s.speaks_for) - (kind in s.speaks_against)) for s in shapes] for kind in kinds],
        dtype=np.float64,
    )


def bounded_fit(
    x: Matrix, y: npt.NDArray[np.int64], weights: Matrix, shapes: Sequence[Shape], kinds: Sequence[str],
    *, centre: Matrix, offset: Matrix | None = None, penalty: float = 1.0, intercept_penalty: float = 1e-3,
) -> tuple[Matrix, Matrix]:  # fmt: skip
    """Weights (kind, shape) and intercepts (kind,) for levels `x` (example, shape) and kinds `y` as positions.

    `centre`: the weights that the penalty draws towards; `offset`: log-odds of each kind in the sample, which the
    intercepts shall not explain."""
    k, s = len(kinds), len(shapes)
    bounds = [shape.bounds(kind, MOST) for kind in kinds for shape in shapes] + [(-8.0, 8.0)] * k
    hot: Matrix = np.zeros((len(y), k))
    hot[np.arange(len(y)), y] = 1.0
    prior = np.zeros(k) if offset is None else offset

    def loss(flat: Matrix) -> tuple[float, Matrix]:
        w, b = flat[: k * s].reshape(k, s), flat[k * s :]
        scores = x @ w.T + b + prior
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        log_likelihood = (scores * hot).sum(axis=1) - np.log(total[:, 0])
        error = (shares - hot) * weights[:, None]
        gradient = np.concatenate(
            [(error.T @ x + penalty * (w - centre)).ravel(), error.sum(axis=0) + intercept_penalty * b]
        )
        distance = penalty * ((w - centre) ** 2).sum() + intercept_penalty * (b**2).sum()
        return float(-(weights * log_likelihood).sum() + 0.5 * distance), gradient

    start = np.concatenate([centre.ravel(), np.zeros(k)])
    done = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300, "ftol": 1e-9})
    flat: Matrix = np.asarray(done.x, dtype=np.float64)
    return flat[: k * s].reshape(k, s), flat[k * s :]
