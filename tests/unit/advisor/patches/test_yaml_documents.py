"""Manifests read as kubectl reads them, and values written so that it takes them for what they are."""

from __future__ import annotations

import pytest
from skuwise.advisor.patches.yaml_documents import read_documents, read_values
from skuwise.rules.base.errors import UsageError

HEAD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
# Words that readers of YAML disagree on.


def test_numbers_and_dates_are_what_kubectl_takes_them_for() -> None:
    (found,) = read_documents((HEAD + "spec: {a: 1e3, b: 2026-11-25, c: '8', d: 8, e: true}").encode(), "m.yaml")
    assert found["spec"] == {"a": 1000.0, "b": "2026-11-25", "c": "8", "d": 8, "e": True}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("10:30", "10:30"), ("190:20:30", "190:20:30"), ("1:30.5", "1:30.5"), ("0o17", 15), ("017", 15), ("0x1F", 31),
        ("1_000", 1000), ("-0b11", -3), ("08", 8.0), ("1_0.5", 10.5), ("+.5e1", 5.0), ("5.", 5.0), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_numbers_are_those_of_kubectl(word: str, value: object) -> None:
    assert read_values(f"[{word}]".encode(), "m.yaml") == [[value]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x 1\nb: *x\n", "anchors"), ("a: 1\na: 2\n", "repeated"), ("1: 2\n", "not text"),
        ("a: [", "not valid YAML"),
        ("[" * 200 + "]" * 200, "nested"), ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("apiVersion: v1\n", "without apiVersion"), ("- a\n", "without apiVersion"),
        ("apiVersion: v1\nkind: 1\nmetadata: {}\n", "without apiVersion"),
    ],
)  # fmt: skip
def test_what_kubectl_would_not_print_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_documents(text.encode(), "m.yaml")
