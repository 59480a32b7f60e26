# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Every format of the advice: snapshots, the schema, hostile names, figures as people read them."""

import csv
import io
import json
import math
import re
import string
import unicodedata
from dataclasses import replace

import jsonschema
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.formatting import scheduled_words, whose_words
from skuwise.advisor.core.verdict_types import INFERRED, Owner, Scheduled
from skuwise.advisor.show.pages.advice import advice_page
from skuwise.advisor.show.writers.csv import COLUMNS, cell, sheet_text
from skuwise.advisor.show.writers.formats import FORMATS, render
from skuwise.advisor.show.writers.text import document_text
from skuwise.tests.support.golden_files import FOLDER, renewed
from skuwise.tests.support.moves_builders import advice_of, bare, founding, inventory, node, usage, verdicts, workload
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
    text = render(advice, form)
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
    assert [cell(value) for value in (-3.5, math.nan, None, "plain")] == [-3.5, "", "", "plain"]


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
    assert "chat (2 replicas)" in page and "16 H100" in page


def test_work_without_a_name_says_whom_to_ask() -> None:
    inferred = "owner unknown, inferred from activity; ask the users of n1"
    assert whose_words(workload(owner=Owner(), basis=INFERRED)) == inferred
    assert whose_words(workload(owner=Owner(), basis="allocation")) == "owner unknown"
    assert whose_words(workload(owner=Owner(user="ann", account="ml"))) == "user ann, account ml"


ARRAY = Scheduled("slurm", "45", "40", "5", "gpu", "high", "COMPLETED", 2)
IMAGE = Scheduled("kubernetes", controller_kind="Deployment", image="vllm/vllm-openai:v0.11.0")


@pytest.mark.parametrize(
    ("scheduled", "text"),
    [
        (Scheduled(), ""),
        (Scheduled("kubernetes"), ""),
        (ARRAY, "Slurm job 45 (array 40_5), partition gpu, QOS high, COMPLETED, requeued 2 times"),
        (Scheduled("slurm", "45", partition="gpu", restarts=0), "Slurm job 45, partition gpu"),
        (IMAGE, "Kubernetes Deployment, image vllm/vllm-openai:v0.11.0"),
        (Scheduled("docker", image="x"), "Docker, image x"),
    ],
)
def test_what_a_scheduler_reports_in_one_line(scheduled: Scheduled, text: str) -> None:
    assert scheduled_words(scheduled) == text


DELIMITERS = (",", ";", "\t", "|")
FORMULAS = (
    "x;=cmd|' /C calc'!A0;y", "=1+1", " =1+1", "x|=1", "x\t=1", "x,=1", "x\n=1", "x;\r\n=1", 'x;"=1"', '"=1"',
    "x; \"'=1", "x;＝1", "x;﹦1", "x;⁺1", "x;−1", "x;\u200b=1", "x;\xa0=1", "a;;;=1", 'a";=1', 'a"";""=1', ";=1", ";",
    '"', "'=1", "@x", "x;@SUM(1)", "x;+1+cmd", "x;-1+cmd", "x;\x00=1", "x;\ufeff=1", "x,y;", '";"=1', "=", "-", "|calc",
    "%x", "a\x85=1", "a\u2028=1",
)  # fmt: skip
PIECES = st.sampled_from([*";,|\t\n\r\"'=+-@ x1＝\u200b\xa0"])


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may take a cell for one: by its first sign, behind what it may strip; numbers are none."""
    bare = unicodedata.normalize("NFKC", text).lstrip(' \t\r\n"\xa0')  # what is left of an apostrophe is text
    if not bare.startswith(("=", "+", "-", "@", "\u2212")):
        return False
    try:
        float(bare)
    except ValueError:
        return True
    return False


def formulas(text: str) -> list[str]:
    return [
        text_cell
        for delimiter in DELIMITERS
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
        for text_cell in row
        if is_formula(text_cell)
    ]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_reader_sees_a_formula_where_a_name_is_hostile(name: str) -> None:
    assert formulas(sheet_text([[name, "a", -5.0], ["workload", name, -5.0, name], ["b", name]])) == []


@given(st.lists(st.lists(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=12), max_size=4), max_size=4))
@example([["x,y;"], ["=1"]])
def test_no_reader_sees_a_formula_in_any_row(rows: list[list[str]]) -> None:
    text = sheet_text([["row", *row] for row in rows] + [[*row] for row in rows])
    assert formulas(text) == []
    assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in text if c not in "\r\n")


HONEST = st.text(alphabet=string.ascii_letters + string.digits + " äöüß日本_.:/()[]-", min_size=1, max_size=30).filter(
    lambda name: name[0].isalpha() and name == name.strip()
)


@given(st.lists(HONEST, min_size=1, max_size=5), st.sampled_from([", and ", "; and ", " | ", '"', "'s "]))
def test_honest_names_are_read_back(names: list[str], joint: str) -> None:
    cells = [*names, joint.join(names)]
    text = sheet_text([cells])
    assert next(csv.reader(io.StringIO(text, newline=""))) == cells
    read = pd.read_csv(io.StringIO(text), header=None, dtype=str, keep_default_na=False, na_filter=False)
    assert list(read.iloc[0]) == cells
