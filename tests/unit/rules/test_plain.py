"""What is printed for people: outside text without effect, aligned cells, values with their unit."""

from typing import get_args

import pytest
from skuwise.advisor.core.advice_types import Action
from skuwise.agent.service.diagnostics.once import format_quantity
from skuwise.rules.base.sanitize import clean
from skuwise.rules.base.text_table import columns
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.tests.support.schemas import schema


@pytest.mark.parametrize(
    ("outside", "plain"),
    [
        ("H100 80GB", "H100 80GB"),
        ("Grüße, 日本", "Grüße, 日本"),
        ("a\x00\u202eb", "a\\x00\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("one\ntwo\u2028three", "one\\x0atwo\\u2028three"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
    ],
)
def test_what_is_invisible_is_shown_and_has_no_effect(outside, plain):
    assert clean(outside) == plain


def test_cells_are_aligned_and_cleaned():
    assert columns(("NAME", "W"), [("gpu\x1b", "7"), ("b", "700")], right=(1,)) == (
        "NAME       W\ngpu\\x1b    7\nb        700"
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "watts", "-"),
        (0.0, "watts", "0 W"),
        (0.123, "ratio", "12.3 %"),
        (80e9, "bytes", "80 GB"),
        (999.0, "bytes per second", "999 B/s"),
        (1.5e15, "bytes per second", "1500 TB/s"),
        (5.0, "bitmask", "0x5"),
        (1.98e9, "hertz", "1.98 GHz"),
        (3.0, "ticks per second", "3 ticks per second"),
    ],
)
def test_quantities_carry_their_unit_and_missing_is_a_dash(value, unit, text):
    assert format_quantity(value, unit) == text


def test_the_labels_are_those_of_the_schema():
    enums = [set(node["enum"]) for node in _nodes(schema("advice")) if "enum" in node]
    assert set(get_args(KindLabel)) in enums
    assert set(get_args(BottleneckLabel)) in enums
    assert set(get_args(Action)) in enums


def _nodes(value):
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(item)
