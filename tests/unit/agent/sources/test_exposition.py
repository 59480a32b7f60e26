"""The text format, its escapes and its limits."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.base.address import Address, parse_listen
from skuwise.agent.base.openmetrics import OPENMETRICS, PLAIN, MetricFamily, MetricsText, format_number, label_text
from skuwise.agent.base.page_url import PageError
from skuwise.agent.service.exporter.answers import negotiate
from skuwise.agent.sources.scrape.prometheus_text import (
    MAX_LABELS,
    MAX_LINE_BYTES,
    MAX_NUMBER_LENGTH,
    MAX_SERIES,
    PageParser,
    Series,
)

WANTED = ("up", "a:b_total")


def parsed(page: bytes, piece: int = 7) -> list[Series]:
    parser = PageParser(WANTED)
    for start in range(0, len(page), piece):
        parser.feed(page[start : start + piece])
    return parser.finish()


def refused(page: bytes) -> str:
    with pytest.raises(PageError) as caught:
        parsed(page, 4096)
    return caught.value.reason


@pytest.mark.parametrize(
    ("line", "series"),
    [
        (b"up 1\n", ("up", {}, "1")),
        (b"up{} 1.5e3\n", ("up", {}, "1.5e3")),
        (b'up\t{a="x",b="y",} -0 1700000000000\n', ("up", {"a": "x", "b": "y"}, "-0")),
        (b'a:b_total{ a = "x" } +Inf # {trace="1"} 2 3\n', ("a:b_total", {"a": "x"}, "+Inf")),
        (b'up{a="a\\\\b\\"c\\nd"} NaN\r\n', ("up", {"a": 'a\\b"c\nd'}, "NaN")),
        (b'up{a="},{=# "} 9223372036854775794\n', ("up", {"a": "},{=# "}, "9223372036854775794")),
        ('up{a="ü\\\\n"} .5\n'.encode(), ("up", {"a": "ü\\n"}, ".5")),
        (b'up{a="\xff\xfe"} 1\n', ("up", {"a": "\ufffd\ufffd"}, "1")),
        (b'up{a="' + b"x" * 4096 + b'"} 1\n', ("up", {"a": "x" * 4096}, "1")),
        (b'up{a="\x1b[31m\x00"} 1\n', ("up", {"a": "\x1b[31m\x00"}, "1")),
    ],
)
def test_a_line_is_read_exactly(line: bytes, series: tuple[str, dict[str, str], str]) -> None:
    assert parsed(b'# HELP up x\n\nother{x="1"} 3\n' + line) == [Series(*series)]


@pytest.mark.parametrize(
    "page",
    [
        b"<html>\n",
        b'{"kv": 1}\n',
        b"up\n",
        b"up one\n",
        b"up 1_000\n",
        b"up " + b"0" * MAX_NUMBER_LENGTH + b"1\n",
        b"up " + b"1" * 60_000 + b"x\n",  # every split of the digits, were there two ways to match them
        "up ١\n".encode(),  # a digit, but not one of the format's
        b'up{a="x} 1\n',
        b'up{a="x",a="y"} 1\n',
        b'up{a="\\t"} 1\n',
        b"up{a=x} 1\n",
        b"up" + b" " * (MAX_LINE_BYTES + 1) + b"1\n",
        b"\x1f\x8b\x08\x00\n",
    ],
)
def test_one_line_out_of_the_format_refuses_the_page(page: bytes) -> None:
    assert refused(b"up 1\n" + page) == "page-malformed"


def test_a_page_without_its_end_is_cut() -> None:
    assert refused(b"up 1\nup 2") == "page-cut"


def test_too_many_series_are_refused() -> None:
    assert refused(b"up 1\n" * (MAX_SERIES + 1)) == "page-too-large"
    labels = ",".join(f'a{number}=""' for number in range(1000)).encode()
    assert refused((b"up{" + labels + b"} 1\n") * (MAX_LABELS // 1000 + 1)) == "page-too-large"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50))
def test_every_label_comes_back_as_it_was(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parsed(f'up{{a="{escaped}"}} 1\n'.encode(), 4096)[0].labels["a"] == text


SECONDS = MetricFamily("skuwise_x_seconds", "counter", "seconds", 'Says "how" much\nand \\ why.')


def test_a_counter_in_both_formats() -> None:
    pages = {}
    for form in (OPENMETRICS, PLAIN):
        page = MetricsText(form)
        page.add(SECONDS, [('a="b"', 1.5), ("", 2)])
        pages[form] = page.text().splitlines()
    assert pages[OPENMETRICS] == [
        "# TYPE skuwise_x_seconds counter",
        "# UNIT skuwise_x_seconds seconds",
        '# HELP skuwise_x_seconds Says \\"how\\" much\\nand \\\\ why.',
        'skuwise_x_seconds_total{a="b"} 1.5',
        "skuwise_x_seconds_total 2",
        "# EOF",
    ]
    assert pages[PLAIN] == [
        '# HELP skuwise_x_seconds_total Says "how" much\\nand \\\\ why.',
        "# TYPE skuwise_x_seconds_total counter",
        'skuwise_x_seconds_total{a="b"} 1.5',
        "skuwise_x_seconds_total 2",
    ]


def test_a_histogram_is_cumulative_and_ends_at_infinity() -> None:
    page = MetricsText(PLAIN)
    page.add_histogram(MetricFamily("h_ratio", "histogram", "ratio", "H."), (0.5, 1.0), [('a="b"', [1, 2, 3], 4.25)])
    assert page.text().splitlines()[2:] == [
        'h_ratio_bucket{a="b",le="0.5"} 1',
        'h_ratio_bucket{a="b",le="1.0"} 3',
        'h_ratio_bucket{a="b",le="+Inf"} 6',
        'h_ratio_count{a="b"} 6',
        'h_ratio_sum{a="b"} 4.25',
    ]


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", '\\"\n\\n', "x" * 5000, "ä€😀", 'a"} 1\nevil_metric 1'])
def test_a_hostile_label_stays_one_value(value: str) -> None:
    text = label_text({"name": value})
    assert "\n" not in text
    (read,) = re.fullmatch(r'name="((?:[^"\\]|\\.)*)"', text).groups()  # type: ignore[union-attr]
    assert re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], read) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (0.1, "0.1"), (1e300, "1e+300"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", PLAIN),
        # Prometheus 2.42
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OPENMETRICS,
        ),
        (";;;,,,=;q", PLAIN),
    ],
)
def test_negotiation(accept: str, form: object) -> None:
    assert negotiate(accept) is form


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9500", Address("127.0.0.1", 9500)),
        ("0.0.0.0:9500", Address("0.0.0.0", 9500)),
        ("node-1:0", Address("node-1", 0)),
        ("[::1]:9500", Address("::1", 9500)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_listen(text) == address
    assert str(parse_listen(str(address))) == str(address)
