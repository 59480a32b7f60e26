"""The strict reader: what it takes, and that everything else is refused with file and line."""

from __future__ import annotations

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.typed_fields import Fields
from skuwise.rules.base.yaml_loader import MAX_BYTES, Items, Table, parse_table


def parse(text: str) -> Table:
    return parse_table(text.encode(), "file.yaml")


def refused(text: str | bytes) -> str:
    with pytest.raises(RulesError) as caught:
        parse_table(text if isinstance(text, bytes) else text.encode(), "file.yaml")
    assert caught.value.remedy
    assert caught.value.exit_status == 2
    return str(caught.value)


def test_values_are_read_as_yaml_1_2_and_keep_their_lines():
    table = parse("a: 1\nb:\n  - 2.5\n  - no\nc: {d: 2026-09-19, e: '7', f: null, g: true, h: 1:30}\n")
    assert table == {"a": 1, "b": [2.5, "no"], "c": {"d": "2026-09-19", "e": "7", "f": None, "g": True, "h": "1:30"}}
    assert table.lines == {"a": 1, "b": 2, "c": 5}
    items = table["b"]
    assert isinstance(items, Items)
    assert items.lines == [3, 4]


def test_a_key_given_twice_names_both_lines():
    assert "file.yaml:4: key 'a' is given twice (first in line 1)" in refused("a: 1\nb: 2\n\na: 3\n")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system",
        "a: !custom 1",
        "!!map {a: 1}",
        "a: !!str 1",
    ],
)
def test_tags_are_refused(text):
    assert "file.yaml:1: tags" in refused(text)


def test_an_alias_bomb_is_refused_at_its_first_anchor():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}, *{p}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "file.yaml:1: anchors" in refused(bomb)


def test_a_large_file_is_refused_unread():
    message = refused(b"a: " + b"x" * 10 * MAX_BYTES)
    assert "is larger than 1024 KiB" in message


def test_too_many_values_are_refused():
    assert "values" in refused("a: [" + "1," * 60_000 + "]")


@pytest.mark.parametrize("text", ["[" * 100_000, "a: " + "{a: " * 50_000, "a: " + "[" * 13 + "]" * 13])
def test_deep_nesting_is_refused(text):
    assert refused(text).startswith("file.yaml")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "does not hold a mapping"),
        ("just text", "does not hold a mapping"),
        ("a: 1\n---\nb: 2\n", "file.yaml:2: a second document"),
        ("a: 1\n b: 2\n", "file.yaml:2: this is not valid YAML"),
        ("a: 'x\n", "this is not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be plain text"),
        ("{a: b}: 1\n", "a key must be plain text"),
        ("a: \x01\n", "this is not valid YAML"),
        ("%YAML 3.0\n---\na: 1\n", "this is not valid YAML"),
    ],
)
def test_what_is_no_mapping_is_refused(text, part):
    assert part in refused(text)


def test_what_is_no_utf8_is_refused_with_its_line():
    assert "file.yaml:2: this is not UTF-8" in refused(b"a: 1\nb: \xff\xfe\n")


def entry(text: str) -> Fields:
    return Fields("file.yaml", parse(text), "gpu 'H100-SXM5'")


def test_an_unknown_key_is_named_with_its_line_and_a_suggestion():
    fields = entry("tdp_watts: 700\ntdp_wats: 700\n")
    fields.number("tdp_watts")
    with pytest.raises(RulesError) as caught:
        fields.done()
    assert str(caught.value) == ("file.yaml:2: unknown key 'tdp_wats' in gpu 'H100-SXM5'. Did you mean tdp_watts?")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x: 1", lambda f: f.text("x")),
        ("x: true", lambda f: f.number("x")),
        ("x: true", lambda f: f.whole("x")),
        ("x: 1.5", lambda f: f.whole("x")),
        ("x: yes", lambda f: f.flag_or_none("x")),
        ("x: .nan", lambda f: f.number("x")),
        ("x: 1e999", lambda f: f.number("x")),
        ("x: -1", lambda f: f.number("x", minimum=0)),
        ("x: 0", lambda f: f.number("x", above=0)),
        ("x: 3", lambda f: f.number("x", maximum=2)),
        ("x: null", lambda f: f.number("x")),
        ("y: 1", lambda f: f.text("x")),
        ("x: 2026-13-01", lambda f: f.date("x")),
        ("x: yesterday", lambda f: f.as_of("x")),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_line(text, read):
    with pytest.raises(RulesError, match=r"file\.yaml:1: ") as caught:
        read(entry(text))
    assert caught.value.remedy


def test_what_is_absent_reads_as_none_where_it_may_be():
    fields = entry("x: null")
    assert fields.number_or_none("x") is None
    assert fields.text_or_none("y") is None
    assert fields.flag_or_none("y") is None
    assert fields.texts("y") == ()
