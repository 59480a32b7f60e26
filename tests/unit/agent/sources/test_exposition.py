"""What the metrics page writes: the text format in both forms, and addresses."""

from __future__ import annotations

import math
import re

import pytest
from skuwise.agent.base.address import Address, parse_listen
from skuwise.agent.base.openmetrics import OPENMETRICS, PLAIN, MetricFamily, MetricsText, format_number, label_text
from skuwise.agent.service.answers import negotiate

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
