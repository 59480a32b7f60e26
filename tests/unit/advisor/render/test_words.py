"""Figures as people read them."""

import csv
import io
import string
import unicodedata
from collections.abc import Sequence

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from skuwise.advisor.core.formatting import scheduled_words, whose_words
from skuwise.advisor.core.verdict_types import INFERRED, Owner, Scheduled
from skuwise.advisor.render.csv import cell
from skuwise.tests.support.moves_builders import workload


def test_work_without_a_name_says_whom_to_ask() -> None:
    assert whose_words(workload(owner=Owner(), basis=INFERRED)) == (
        "owner unknown, inferred from activity; ask the users of n1"
    )
    assert whose_words(workload(owner=Owner(), basis="allocation")) == "owner unknown"
    assert whose_words(workload(owner=Owner(user="ann", account="ml"))) == "user ann, account ml"


@pytest.mark.parametrize(
    ("scheduled", "told"),
    [
        (Scheduled(), ""),
        (Scheduled("slurm", job_id="42"), "Slurm job 42"),
        (
            Scheduled("slurm", "45", "40", "5", "gpu", "high", "COMPLETED", 2),
            "Slurm job 45 (array 40_5), partition gpu, QOS high, COMPLETED, requeued 2 times",
        ),
        (Scheduled("slurm", "45", partition="gpu", restarts=0), "Slurm job 45, partition gpu"),
        (Scheduled("kubernetes"), ""),
        (
            Scheduled("kubernetes", controller_kind="Deployment", image="vllm/vllm-openai:v0.11.0"),
            "Kubernetes Deployment, image vllm/vllm-openai:v0.11.0",
        ),
        (Scheduled("docker", image="x"), "Docker, image x"),
    ],
)
def test_what_a_scheduler_told_in_one_line(scheduled: Scheduled, told: str) -> None:
    assert scheduled_words(scheduled) == told


DELIMITERS = (",", ";", "\t", "|")
HOSTILE = (
    "x;=cmd|' /C calc'!A0;y", "=1+1", " =1+1", "x|=1", "x\t=1", "x,=1", "x\n=1", "x;\r\n=1", 'x;"=1"', '"=1"',
    "x; \"'=1", "x;＝1", "x;﹦1", "x;⁺1", "x;−1", "x;\u200b=1", "x;\xa0=1", "a;;;=1", 'a";=1', 'a"";""=1', ";=1", ";",
    '"', "'=1", "@x", "x;@SUM(1)", "x;+1+cmd", "x;-1+cmd", "x;\x00=1", "x;\ufeff=1", "x,y;", '";"=1', "=", "-", "|calc",
    "%x", "a\x85=1", "a\u2028=1",
)  # fmt: skip
PIECES = st.sampled_from([*";,|\t\n\r\"'=+-@ x1＝\u200b\xa0"])


def written(rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows([[cell(value) for value in row] for row in rows])
    return out.getvalue()


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
        found
        for delimiter in DELIMITERS
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
        for found in row
        if is_formula(found)
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_reader_sees_a_formula_where_a_name_is_hostile(name: str) -> None:
    assert formulas(written([[name, "a", -5.0], ["workload", name, -5.0, name], ["b", name]])) == []


@given(st.lists(st.lists(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=12), max_size=4), max_size=4))
@example([["x,y;"], ["=1"]])
def test_no_reader_sees_a_formula_in_any_row(rows: list[list[str]]) -> None:
    text = written([["row", *row] for row in rows] + [[*row] for row in rows])
    assert formulas(text) == []
    assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in text if c not in "\r\n")


HONEST = st.text(alphabet=string.ascii_letters + string.digits + " äöüß日本_.:/()[]-", min_size=1, max_size=30).filter(
    lambda name: name[0].isalpha() and name == name.strip()
)


@given(st.lists(HONEST, min_size=1, max_size=5), st.sampled_from([", and ", "; and ", " | ", '"', "'s "]))
def test_honest_names_are_read_back(names: list[str], joint: str) -> None:
    told = [*names, joint.join(names)]
    text = written([told])
    assert next(csv.reader(io.StringIO(text, newline=""))) == told
    read = pd.read_csv(io.StringIO(text), header=None, dtype=str, keep_default_na=False, na_filter=False)
    assert list(read.iloc[0]) == told
