"""The text format, its escapes and its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.base.page_url import PageError
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
