"""The rulebook that ships, read once for all tests, with what a test changes of it."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from skuwise.advisor.advise import load_rulebook
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
    own = TeamPrices(tuple(prices), tuple(power))
    return replace(shipped, catalog=catalog or shipped.catalog, own=own, **changes)  # type: ignore[arg-type]
