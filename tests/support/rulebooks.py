"""The rulebook that ships, read once for all tests, with what a test changes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.rulebook import Rulebook
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.catalog.price_files import TeamPrices
from skuwise.rules.catalog.types import PowerPrice, Price

_TODAY = 1_790_000_000.0  # no prices are dated: any day will do


@cache
def _shipped() -> Rulebook:
    return load_rulebook(None, None, _TODAY)


def rulebook(
    catalog: Catalog | None = None, *, prices: Iterable[Price] = (), power: Iterable[PowerPrice] = (), **changes: object
) -> Rulebook:
    """What ships, with this catalog, these prices of a team, or any other field of a `Rulebook`."""
    shipped = _shipped()
    team_prices = TeamPrices(tuple(prices), tuple(power))
    return replace(shipped, catalog=catalog or shipped.catalog, team=team_prices, **changes)  # type: ignore[arg-type]


def advice_of(frame: Frame, at: float, book: Rulebook | None = None, seed: int = 1) -> Advice:
    """The advice on a frame at a moment, Unix seconds."""
    book = book or rulebook()
    return reason_on(judge(frame, book), book, at, seed, source=frame.source).advice


def rules_folder(root: Path, files: Mapping[str, str]) -> Path:
    """The folder of a site's own rules with these files in it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root
