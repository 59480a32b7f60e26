"""What is printed for people: outside text without effect, aligned cells, values with their unit."""

import io
import re
from typing import get_args

import pytest
from skuwise.advisor.core.advice_types import Action
from skuwise.agent.service.doctor import format_quantity
from skuwise.rules.base.progress import Progress
from skuwise.rules.base.sanitize import clean
from skuwise.rules.base.text_table import columns
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.tests.support.schemas import schema


@pytest.mark.parametrize(
    ("outside", "plain"),
    [
        ("H100 80GB", "H100 80GB"), ("Grüße, 日本", "Grüße, 日本"), ("a\x00\u202eb", "a\\x00\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"), ("one\ntwo\u2028three", "one\\x0atwo\\u2028three"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
    ],
)  # fmt: skip
def test_what_is_invisible_is_shown_and_has_no_effect(outside, plain):
    assert clean(outside) == plain


def test_cells_are_aligned_and_cleaned():
    assert columns(("NAME", "W"), [("gpu\x1b", "7"), ("b", "700")], right=(1,)) == (
        "NAME       W\ngpu\\x1b    7\nb        700"
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "watts", "-"), (0.0, "watts", "0 W"), (0.123, "ratio", "12.3 %"), (80e9, "bytes", "80 GB"),
        (999.0, "bytes per second", "999 B/s"), (1.5e15, "bytes per second", "1500 TB/s"), (5.0, "bitmask", "0x5"),
        (1.98e9, "hertz", "1.98 GHz"), (3.0, "ticks per second", "3 ticks per second"),
    ],
)  # fmt: skip
def test_quantities_carry_their_unit_and_missing_is_a_dash(value, unit, text):
    assert format_quantity(value, unit) == text


def test_the_labels_are_those_of_the_schema():
    def enums(value):
        if isinstance(value, dict):
            yield from [set(value["enum"])] if "enum" in value else []
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            yield from enums(item)

    found = list(enums(schema("advice")))
    assert all(set(get_args(labels)) in found for labels in (KindLabel, BottleneckLabel, Action))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(stream: io.StringIO) -> list[str]:
    """The lines that stood there one after the other, each in place of the one before."""
    return re.split(r"\r\x1b\[K", stream.getvalue())[1:]


def test_without_a_terminal_there_is_one_line_whatever_happens() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("reading telemetry", "databases", stream=stream, live=False, clock=clock) as progress:
        for done in range(1, 63):
            clock.now += 1.0
            progress.step(done, 62)
        progress.stage("evaluating workloads")
    assert stream.getvalue() == "reading telemetry ...\n"


def test_on_a_terminal_it_counts_with_percent_and_time_left_and_is_gone_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("reading telemetry", "databases", stream=stream, live=True, clock=clock) as progress:
        clock.now += 1.0
        progress.step(1, 62)
        clock.now += 0.1
        progress.step(2, 62)  # too soon after the last to be shown
        clock.now += 30.0
        progress.step(31, 62)
        clock.now += 31.0
        progress.step(62, 62)
        progress.stage("evaluating workloads")
    assert shown(stream) == [
        "reading telemetry ...", "reading telemetry: 1 of 62 databases, 1 %",
        "reading telemetry: 31 of 62 databases, 50 %, 31 s left", "reading telemetry: 62 of 62 databases, 100 %",
        "evaluating workloads ...", "",
    ]  # fmt: skip


def test_where_the_number_is_unknown_it_counts_alone_and_long_times_are_minutes() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("reading", "measures", stream=stream, live=True, clock=clock) as progress:
        clock.now += 10.0
        progress.step(40, None)
        clock.now += 50.0
        progress.step(1, 11)
    assert shown(stream)[1:3] == ["reading: 40 measures", "reading: 1 of 11 measures, 9 %, 10 min left"]


def test_the_line_is_removed_where_the_work_fails_and_a_name_from_outside_has_no_effect() -> None:
    stream = Terminal()
    hostile = Progress("reading \x1b[31mred\n", "nodes", stream=stream, live=True, clock=Clock())
    with pytest.raises(KeyError), hostile:
        raise KeyError
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\x1b[31m" not in stream.getvalue() and "\n" not in stream.getvalue()
