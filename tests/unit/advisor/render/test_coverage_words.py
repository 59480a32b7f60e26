# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
"""What was not observed or not judged, in every renderer: the same count everywhere, and never a zero or a "no"."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Advice, Reconciliation, Summary
from skuwise.advisor.core.timestamps import minute
from skuwise.advisor.render import render
from skuwise.advisor.report.by_team import split_by_team
from skuwise.advisor.report.letters import letter_of
from skuwise.advisor.views import coverage
from skuwise.advisor.views.document.report_content import story_of
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.partly_observed import HOURS, advice, advised, azure, short
from skuwise.tests.support.schemas import validate

NOTHING = Reconciliation(None, None, None, None, None, None, None)
ZEROS = (
    "wasted $0",
    "Wasted $0",
    "No GPU was idle",
    "No GPU was found idle",
    "No waste found in this window",
    "(7.0 days)",
)


def flat(text: str) -> str:
    return " ".join(text.split())


def mailed(a: Advice, team: str | None = None) -> tuple[str, str, str]:
    made = letter_of(story_of(a, None, team=team))
    return made.subject, flat(made.text), flat(made.html)


def test_the_summary_counts_what_exists_what_was_observed_and_what_was_judged() -> None:
    s = advice().summary
    assert (s.gpu_count, s.unobserved_gpu_count, s.judged_gpu_count) == (32, 10, 14)
    assert s.partly_judged
    by_node = {one.node: one for one in s.unobserved if one.code != "not-named"}
    assert by_node["n2"].code == "no-driver"
    assert by_node["n2"].reason == "The NVIDIA driver is not loaded. Load it."
    assert sum(one.gpu_hours for one in s.unobserved) == pytest.approx(10 * HOURS)
    assert sum(one.cost_usd for one in s.unobserved) <= s.reconciliation.unobserved
    assert sum(one.cost_usd for one in s.unobserved) == pytest.approx(10 * HOURS * 98.32 / 8)


def test_coverage_stands_in_the_first_lines() -> None:
    first, _, window, *_ = render(advice(), "table", width=200).splitlines()
    assert first.startswith("GPU fleet: $")
    assert "2 of 2 days observed" in window
    assert "10 not observed" in window
    assert "10 of 32 GPUs not observed" in mailed(advice())[0]
    rows = csv.DictReader(io.StringIO(render(advice(), "csv")))
    assert next(rows)["row"] == "summary"


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_a_week_of_15_hours_is_not_judged_and_states_no_zero(form: str) -> None:
    a = advised(short())
    assert a.summary.wasted_usd is None
    assert a.summary.recoverable_usd_per_month is None
    text = flat(render(a, form, width=200))
    assert "15 of 168 h observed" in text
    assert "not judged" in text
    assert not [zero for zero in ZEROS if zero in text]
    assert minute(a.summary.judged_from) in text
    read = json.loads(render(a, "json"))
    validate(read, "advice")
    assert read["summary"]["wasted_usd"] is None
    assert read["summary"]["judged_gpu_count"] == 0


def test_a_mail_of_15_hours_says_so_from_its_subject_on() -> None:
    subject, text, html = mailed(advised(short()))
    assert "15 of 168 h observed" in subject
    for told in (text, html):
        assert "Wasted" in told
        assert "not judged" in told
        assert "Idleness was not judged on any of the 8 GPUs" in told
        assert not [zero for zero in ZEROS if zero in told]


def test_where_all_was_judged_the_words_are_plain() -> None:
    b = FrameBuilder(hours=HOURS)
    azure(b, "n1")
    b.port(0.4, "n1")
    for n in range(8):
        b.use(TRAINING, "n1", f"GPU-n1-{n}")
    b.work("w", [("n1", f"GPU-n1-{n}") for n in range(8)], name="train", user="ann")
    a = advised(b.frame())
    assert a.summary.judged_gpu_count == a.summary.gpu_count == 8
    assert a.summary.wasted_usd == 0
    text = mailed(a)[1]
    assert "No GPU was idle or held without use." in text
    assert "All 8 GPUs, 384 GPU-hours" in text
    assert mailed(a)[0].count("observed") == 0


def test_a_team_keeps_honest_coverage() -> None:
    parts = split_by_team(advice(), lambda w: w.owner.user, teams=("ann", "bob", "cyd"))
    ann, bob, cyd = (parts[name].summary for name in ("ann", "bob", "cyd"))
    assert (ann.gpu_count, ann.unobserved_gpu_count, ann.judged_gpu_count) == (8, 2, 6)
    assert (bob.gpu_count, bob.unobserved_gpu_count, bob.judged_gpu_count) == (8, 0, 0)
    assert (cyd.gpu_count, cyd.unobserved_gpu_count, cyd.judged_gpu_count) == (8, 0, 8)
    assert {(s.window_hours, s.observed_hours) for s in (ann, bob, cyd)} == {(48.0, 48.0)}
    assert bob.wasted_usd is None
    assert bob.recoverable_usd_per_month is None
    assert cyd.wasted_usd == 0
    assert [one.node for one in parts[None].summary.unobserved] == ["n2"]
    owned = split_by_team(advice(), lambda w: w.owner.user, lambda node: "dan" if node == "n2" else None)
    assert owned["dan"].summary.unobserved_gpu_count == 8
    assert "8 of 8 GPUs not observed" in mailed(owned["dan"], "dan")[0]
    assert "Idleness was judged on 6 of 8 GPUs: none of these" in mailed(parts["ann"], "ann")[1]


def test_a_fabric_that_was_not_observed_is_said_and_is_not_silent() -> None:
    a = advice()
    told = next(note for note in a.notes if note.code == "fabrics-not-observed")
    assert "No fabric data for 2 nodes (n2 and n3), so idle fabrics cannot be found there." in told.text
    assert "node_exporter with --collector.infiniband" in told.text
    lost = [use for use in a.fabrics if use.unseen]
    assert [use.node for use in lost] == ["n2", "n3"]
    assert "not observed" in mailed(a)[1]
    assert "0 of 2 fabrics with a verdict carried no traffic" in mailed(a)[1]


@given(st.floats(0.0, 400.0), st.floats(0.1, 400.0))
def test_observed_time_never_rounds_up_to_all_of_it(seen: float, window: float) -> None:
    s = Summary(1, 1.0, None, None, None, NOTHING, observed_hours=min(seen, window))
    a = Advice(START, START, START + window * HOUR, {}, s, (), (), (), ())
    told = coverage.observed_time(a)
    done, _, rest = told.partition(" of ")
    whole = rest.split()[0]
    if seen < 0.99 * window - 0.1:
        assert float(done.replace(",", "")) < float(whole.replace(",", ""))
    if seen >= window:
        assert done == whole
