# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Every format of the advice: snapshots, the schema, hostile names."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import jsonschema
import pandas as pd
import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.render import FORMATS, render
from skuwise.advisor.render.csv import COLUMNS, cell
from skuwise.advisor.render.text import document_text
from skuwise.advisor.views.document.advice_page import advice_page
from skuwise.tests.support.golden_files import FOLDER, renewed
from skuwise.tests.support.moves_builders import (
    advice_of,
    bare,
    founding,
    inventory,
    node,
    usage,
    verdicts,
    workload,
)
from skuwise.tests.support.report_fixtures import nothing
from skuwise.tests.support.schemas import schema, validate

HOSTILE = (
    "[red]loud[/red]", "=cmd()", "+1+1", "@SUM(A1)", "-2+3", "<script>alert(1)</script>", "a|b|c",
    "\x1b[31mred\x1b[0m",
    "two\nlines", "cr\rback", "tab\tbed", "\u202egnp.exe", "![x](http://e.vil)", "# head", "`code`", "\x9b2J",
    ":smile:", "\ud800", "| --- |", "{util}", "%s%n", "&amp;",
)  # fmt: skip


def read(advice):
    return json.loads(render(advice, "json"))


def hostile_advice(text: str) -> Advice:
    owner, gpus = Owner(team=text, user=text, account=text, namespace=text), tuple(f"{text}{i}" for i in range(8))
    work = replace(workload("chat", (text,), gpus=gpus, owner=owner), name=text)
    free = [bare("spare", i, gpu_uuid=text) for i in range(8)]
    advice = advice_of(verdicts([node(text, cluster=text), node("spare")], [work], bare_gpus=free))
    return replace(advice, source={"kind": "sqlite", "paths": [text]}, notes=(CodedText("said", text),))


@pytest.mark.parametrize("form", FORMATS)
def test_the_founding_case_reads_as_it_did(form):
    advice = advice_of(founding())
    # How a chart's pixels come out is matplotlib's; what it says stands beside it in words.
    text = re.sub(r"data:image/png;base64,[^\"]+", "data:", render(advice, form))
    assert text.encode().decode() == renewed(FOLDER / f"advice_founding{FORMATS[form][1]}", text)


def test_json_keeps_its_schema():
    idle = verdicts([node()], [], bare_gpus=[bare("n1", i) for i in range(8)])
    unpriced = verdicts([node(sku=None)], [workload(node_sku=None)])
    for advice in (nothing(), *map(advice_of, (founding(), idle, unpriced))):
        validate(read(advice), "advice")


def test_the_schema_itself_is_sound_and_refuses_what_is_missing():
    jsonschema.Draft202012Validator.check_schema(schema("advice"))
    data = read(advice_of(founding()))
    del data["summary"]["reconciliation"]["total"]
    with pytest.raises(jsonschema.ValidationError):
        validate(data, "advice")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", FORMATS)
def test_hostile_names_have_no_effect(form, text):
    out = render(hostile_advice(text), form)
    out.encode()
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
    if form == "table":
        assert "\r" not in out and ("[red]loud[/red]" in out) == (text == "[red]loud[/red]")
    if form in ("markdown", "html"):
        assert "<script" not in out
    if form == "markdown":
        assert "![x](" not in out
        assert all(line.endswith("|") for line in out.splitlines() if line.startswith("|"))
    if form == "csv":
        rows = list(csv.reader(io.StringIO(out)))
        assert {len(row) for row in rows} == {len(COLUMNS)}
        for row in rows[1:]:
            assert not any(c[:1] in "=@|%" and c for c in row), row
            assert not any(c[:1] in "+-" and not re.fullmatch(r"-?[\d.e-]+", c) for c in row if c), row
    if form == "json":
        assert json.loads(out)["notes"] == [{"code": "said", "text": text, "fields": {}}]


def test_where_nothing_saves_it_says_so():
    sku = "azure/Standard_ND96isr_H200_v5"
    chat = workload(gpu_sku="H200-SXM", node_sku=sku)
    h200 = node(sku=sku, region="eastus2", gpu_sku="H200-SXM")
    advice = advice_of(verdicts([h200], [chat], uses=[usage(chat, u_n=0.2)]))
    for form in ("table", "markdown"):
        assert "No open recommendation: nothing saves enough now." in " ".join(render(advice, form).split())


def test_numbers_stay_numbers_and_missing_ones_empty():
    assert cell(-3.5) == -3.5 and cell(math.nan) == "" and cell(None) == "" and cell("plain") == "plain"


def test_what_saves_most_is_read_first_and_runs_of_a_series_are_one_line():
    quiet = founding()
    spare = node("spare", fabric=None)
    advice = advice_of(
        replace(quiet, nodes=(*quiet.nodes, spare), bare=tuple(bare("spare", i) for i in range(8)),
                inventory=inventory((*quiet.nodes, spare)),
                occupancy=pd.concat([quiet.occupancy, verdicts([spare]).occupancy], ignore_index=True))
    )  # fmt: skip
    page = document_text(advice_page(advice), width=120)
    assert page.index("Release 8 idle H100s on spare") < page.index("Move chat from")
    assert "chat (2 runs)" in page and "16 H100" in page
