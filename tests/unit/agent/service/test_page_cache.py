"""The budget of what others cause, and the page that is made once a tick within it."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import pytest
from skuwise.agent.base.openmetrics import OPENMETRICS, PLAIN, ExpositionFormat
from skuwise.agent.service.answers import parse_request
from skuwise.agent.service.cpu_budget import CpuBudget
from skuwise.agent.service.page_cache import PageCache


def test_a_budget_is_spent_earned_and_no_more_than_its_reserve() -> None:
    budget = CpuBudget(0.01, 0.1, 30.0, now=0.0)
    assert budget.wait_seconds(0.0) == 0
    budget.spend(0.11, 0.0)
    assert budget.wait_seconds(0.0) == pytest.approx(1.0)
    assert budget.wait_seconds(0.0, 0.001) == pytest.approx(1.1)
    assert budget.wait_seconds(1.01) == 0
    budget.spend(0.1, 1e6)  # a long rest earns no more than the reserve
    assert budget.wait_seconds(1e6, 0.001) == pytest.approx(0.1)


class Maker:
    """Makes pages that cost `seconds` of CPU time, by clocks of its own."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.made: list[ExpositionFormat] = []
        self.version = 1
        self.now = self.used = 0.0
        self.seconds = seconds
        self.cache = PageCache(self.render, lambda: self.version, lambda: self.now, lambda: self.used)

    def render(self, form: ExpositionFormat, ended: Mapping[str, int]) -> str:
        self.made.append(form)
        self.used += self.seconds
        return f"page {len(self.made)} {dict(ended)}\n"

    def ask(self, form: ExpositionFormat = PLAIN, *, compressed: bool = False) -> str:
        head, _, body = self.cache.answer(form, {"scraped": 1}, compressed=compressed).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}\r\n".encode() in head and form.content_type.encode() in head
        assert (b"Content-Encoding: gzip" in head) is compressed
        return (gzip.decompress(body) if compressed else body).decode()


def test_a_page_is_made_once_a_tick_however_often_it_is_asked_for() -> None:
    maker = Maker()
    assert {maker.ask(compressed=bool(n % 2)) for n in range(100)} == {"page 1 {'scraped': 1}\n"}
    maker.version += 1
    assert maker.ask() == "page 2 {'scraped': 1}\n" == maker.ask(compressed=True)
    maker.ask(OPENMETRICS)
    assert maker.made == [PLAIN, PLAIN, OPENMETRICS]


def test_requests_are_parsed_strictly() -> None:
    parsed = parse_request(b"GET /metrics?a=b HTTP/1.1\r\nAccept: a\r\naccept: b\r\nX:")
    assert parsed == ("GET", "/metrics", {"accept": "a,b", "x": ""})
    assert parse_request(b"GET /\xff HTTP/1.1") == ("GET", "/\xff", {})
