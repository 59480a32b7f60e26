"""Statements: each has a code of its own, documented, and what is decided follows from codes, whatever the words."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace

import jsonschema
import pytest
from skuwise.advisor.core.coded_text import UNSPECIFIED, CodedText, all_of, coded, distinct
from skuwise.advisor.moves.tracking.observation import observation_of
from skuwise.advisor.pipeline import WINDOW_NOTES
from skuwise.advisor.render import render
from skuwise.advisor.render.json import load_schema, to_dict
from skuwise.advisor.report.by_team import split_by_team
from skuwise.advisor.shards.advice_parser import parse_advice
from skuwise.advisor.views.document.select_moves import moves_of
from skuwise.tests.support.golden_files import renewed
from skuwise.tests.support.moves_builders import END, advice_of, founding, node, verdicts, workload
from skuwise.tests.support.report_fixtures import by_namespace
from skuwise.tests.support.statements import HEAD, PAGE, pattern, said_in, statements, table

FORM = re.compile(r"[a-z0-9{}_.]+(-[a-z0-9{}_.]+)*")


def test_every_code_belongs_to_one_template_and_has_the_form_of_a_code() -> None:
    codes = Counter(one.code for one in statements())
    assert len(codes) > 200
    assert [code for code, count in codes.items() if count > 1] == []
    assert [code for code in codes if not FORM.fullmatch(code)] == []


def test_the_page_of_codes_is_that_of_the_code() -> None:
    head = PAGE.read_text("utf-8").partition(HEAD)[0]
    assert renewed(PAGE, head + table()) == head + table()


def test_whatever_the_founding_case_says_is_on_the_page() -> None:
    known = [(pattern(one.code), pattern(one.text)) for one in statements()]
    found = [one for one in said_in(advice_of(founding())) if one.code != "said"]  # the builders' own
    assert len({one.code for one in found}) > 10
    for one in found:
        assert any(code.fullmatch(one.code) and text.fullmatch(one.text) for code, text in known), one


def reworded(value):
    """The same with other words, as another version or language may have them."""
    if isinstance(value, CodedText):
        return replace(value, text=f"?{value.text[::-1]}")
    if is_dataclass(value):
        return replace(value, **{f.name: reworded(getattr(value, f.name)) for f in fields(value) if f.init})
    return tuple(map(reworded, value)) if isinstance(value, tuple) else value


def without_texts(value):
    if isinstance(value, dict):
        return {
            key: without_texts(one)
            for key, one in value.items()
            if not ({"code", "fields"} <= value.keys() and key in ("text", "reason"))
        }
    return [without_texts(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def both():
    late = [
        replace(one, first_seen=END - 40 * 3600, provider=None, node_sku=None) for one in (node("x-1"), node("x-2"))
    ]
    plain = advice_of(verdicts(late, [workload("chat", ("x-1",))]))
    advice = advice_of(founding())
    told = replace(advice, notes=(*advice.notes, *plain.notes))
    assert {one.code for one in told.notes} & WINDOW_NOTES
    return told, reworded(told)


def test_other_words_leave_the_data_as_it_is(both) -> None:
    one, other = both
    assert [a.text for a in said_in(one)] != [b.text for b in said_in(other)]
    assert without_texts(to_dict(one)) == without_texts(to_dict(other))


def test_other_words_decide_nothing_for_moves_mail_and_ledger(both) -> None:
    one, other = both
    assert [m.id for m in moves_of(one)] == [m.id for m in moves_of(other)]
    assert [(r.id, r.counts, r.rank) for r in one.recommendations] == [
        (r.id, r.counts, r.rank) for r in other.recommendations
    ]
    assert replace(observation_of(one), workloads=()) == replace(observation_of(other), workloads=())
    parts, others = (split_by_team(a, by_namespace) for a in both)
    assert {k: [n.code for n in a.notes] for k, a in parts.items()} == {
        k: [n.code for n in a.notes] for k, a in others.items()
    }
    assert any(a.notes for a in parts.values())


def test_codes_and_fields_come_back_from_json_and_texts_of_before_are_read(both) -> None:
    data = json.loads(render(both[0], "json"))
    jsonschema.validate(data, load_schema())
    back = parse_advice(json.dumps(data).encode(), "a.json")
    assert [(n.code, n.text) for n in back.notes] == [(n.code, n.text) for n in both[0].notes]
    assert [dict(n.fields) for n in back.notes] == [note["fields"] for note in data["notes"]]
    data["notes"] = [note["text"] for note in data["notes"]]
    data["recommendations"][0]["rejected"] = [{"sku": "a", "reason": "because"}]
    before = parse_advice(json.dumps(data).encode(), "a.json")
    assert {n.code for n in before.notes} == {UNSPECIFIED}
    assert before.recommendations[0].rejected[0].reason == CodedText(UNSPECIFIED, "because")


def test_statements_join_and_stand_once() -> None:
    first, second = coded("a-b", "{n} rows", n=1), coded("c", "none")
    assert all_of((first,)) is first
    assert all_of((first, second)) == CodedText("several-reasons", "1 rows. None")
    assert all_of((first, second)).fields == {"codes": "a-b c"}
    twice = CodedText("a-b", "1 rows", {"n": 1.01})
    assert distinct((second, twice, first)) == distinct((first, second, twice)) == (first, second)
