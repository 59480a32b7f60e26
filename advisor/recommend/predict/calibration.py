"""What moves that were done here say of the predicted times: a factor for the site, shrunk towards none.

With e_i the log of measured over predicted time of move i, whose error has the standard deviation sigma_i, and a site's
own factor b drawn from N(0, tau^2), the mean of b given the moves is sum(e_i / sigma_i^2) / (1 / tau^2 + sum(1 /
sigma_i^2)) (Gelman et al., Bayesian Data Analysis, section 2.5). One move of sigma 0.16 counts for 26 %, ten for 78 %.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...core.advice_types import Interval
from ...core.coded_text import CodedText
from ...core.formatting import percent, usd
from ..prediction import Z90, Prediction


@dataclass(frozen=True, slots=True)
class Site:
    """`factor`: time on another GPU over what the model says, from `cases` measured moves. `saved`: US dollars a month
    that were predicted, and that were measured, of `savings` moves that were done."""

    factor: float = 1.0
    cases: int = 0
    saved: tuple[float, float] = (0.0, 0.0)
    savings: int = 0

    def applied(self, prediction: Prediction | CodedText) -> Prediction | CodedText:
        """The prediction as this site bears it out. Its spread stays: few moves narrow nothing."""
        if not self.cases or isinstance(prediction, CodedText):
            return prediction
        basis = f"{prediction.basis}, times {self.factor:.2f} from {_moves(self.cases)} measured here"
        return replace(prediction, median=prediction.median * self.factor, basis=basis)

    @property
    def notes(self) -> tuple[CodedText, ...]:
        said, (predicted, measured) = [], self.saved
        if self.cases:
            sentence = f"{self.factor:.2f}x those of the model, based on {_moves(self.cases)} measured here."
            fields = {"factor": self.factor, "moves": self.cases}
            said.append(CodedText("site-factor", f"Predicted times on other GPUs are {sentence}", fields))
        if self.savings and predicted > 0:
            text = f"{_moves(self.savings).capitalize()} completed here saved {usd(measured)}/month, "
            text += f"{percent(measured / predicted)} of the predicted {usd(predicted)}/month. "
            text += "Predictions are not scaled by this."
            fields = {"moves": self.savings, "predicted_usd_per_month": predicted, "measured_usd_per_month": measured}
            said.append(CodedText("savings-measured", text, fields))
        return tuple(said)


NO_SITE = Site()


def site_factor(cases: Iterable[tuple[Interval, float, float]]) -> tuple[float, int]:
    """The factor, and how many moves to another GPU it rests on. `cases`: of each the time ratio that was predicted,
    that was measured, and the site's factor that the prediction held."""
    # Standard deviation of the log of a site's own factor. Assumed: below the spread of the model's residuals between
    # sources of published pairs (0.10 to 0.17, rules/move_model.yaml), of which it is a part.
    weighted, weights, count = 0.0, 1.0 / 0.10**2, 0
    for p, measured, factor in cases:
        if 0 < p.p10 <= p.p50 <= p.p90 and measured > 0 and factor > 0:
            # A measured time is itself uncertain by so much: weeks differ. Assumed.
            sigma = math.hypot(math.log(p.p90 / p.p10) / (2 * Z90), 0.05)
            weighted += math.log(measured * factor / p.p50) / sigma**2
            weights += 1.0 / sigma**2
            count += 1
    return math.exp(weighted / weights), count


def _moves(count: int) -> str:
    return "one move" if count == 1 else f"{count} moves"
