"""Figures as people read them."""

from __future__ import annotations

import pytest
from skuwise.advisor.words import price_note
from skuwise.rules.catalog import Price


@pytest.mark.parametrize(
    ("as_of", "told"),
    [
        (["2026-07-20"], "at list price, 2026-07-20"),
        (["2026-09-19", "2026-07-20", "2026-08-26"], "at list price, 2026-07-20 to 2026-09-19"),
        (["2026-07-20", "commit 3f5f6971"], "at list price, 2026-07-20 and commit 3f5f6971"),
        (["commit 3f5f6971"], "at list price, commit 3f5f6971"),
        ([], "no price known"),
    ],
)
def test_a_range_of_days_ends_in_a_day(as_of: list[str], told: str) -> None:
    prices = [Price(f"p{n}", "sku", "r", 1.0, "list", "source", when) for n, when in enumerate(as_of)]
    assert price_note(prices) == told
