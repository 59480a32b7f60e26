# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
"""What was not observed or not judged, in every renderer: the same count everywhere, and never a zero or a "no"."""

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.advice_types import Advice, Reconciliation, Summary
from skuwise.advisor.core.energy_types import Energy, NodeEnergy, StatedFigure
from skuwise.advisor.core.timestamps import minute
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.notify.letters import report_letter
from skuwise.advisor.notify.report import split_by_team
from skuwise.advisor.show import coverage
from skuwise.advisor.show.page_options import PageOptions
from skuwise.advisor.show.pages import energy as words
from skuwise.advisor.show.pages.advice import advice_page
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.show.writers.formats import render
from skuwise.advisor.show.writers.text import document_text
from skuwise.rules.catalog.price_files import SiteEnergy, SiteFigure
from skuwise.tests.support.frame_builder import HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.moves_builders import advice_of, drawing, founding, node, verdicts, workload
from skuwise.tests.support.partly_observed import HOURS, advice, advised, azure, short
from skuwise.tests.support.schemas import validate

NOTHING = Reconciliation(None, None, None, None, None, None, None)
ZEROS = (
    "wasted $0", "Wasted $0", "No GPU was idle", "No GPU was found idle", "No waste found in this window", "(7.0 days)",
)  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def mailed(a: Advice, team: str | None = None) -> tuple[str, str, str]:
    made = report_letter(story_of(a, None, team=team))
    return made.subject, flat(made.text), flat(made.html)


def paged(a: Advice, team: str | None = None) -> str:
    """The whole page that goes with a mail."""
    return flat(document_text(advice_page(a, PageOptions(whole=True, verbose=True), team)))


def test_the_summary_counts_what_exists_what_was_observed_and_what_was_judged() -> None:
    s = advice().summary
    assert (s.gpu_count, s.unobserved_gpu_count, s.judged_gpu_count) == (32, 10, 14) and s.partly_judged
    by_node = {u.node: u for u in s.unobserved if u.code != "not-named"}
    assert by_node["n2"].code == "no-driver"
    assert by_node["n2"].reason == "The NVIDIA driver is not loaded. Load it."
    assert sum(u.gpu_hours for u in s.unobserved) == pytest.approx(10 * HOURS)
    assert sum(u.cost_usd for u in s.unobserved) <= s.reconciliation.unobserved
    assert sum(u.cost_usd for u in s.unobserved) == pytest.approx(10 * HOURS * 98.32 / 8)


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_a_week_of_15_hours_is_not_judged_and_states_no_zero(form: str) -> None:
    a = advised(short())
    assert a.summary.wasted_usd is None and a.summary.recoverable_usd_per_month is None
    text = flat(render(a, form, width=200))
    assert "15 of 168 h observed" in text and "not judged" in text
    assert not [zero for zero in ZEROS if zero in text]
    assert minute(a.summary.judged_from) in text
    read = json.loads(render(a, "json"))
    validate(read, "advice")
    assert read["summary"]["wasted_usd"] is None and read["summary"]["judged_gpu_count"] == 0
    subject, *bodies = mailed(a)
    assert "15 of 168 h observed" in subject
    assert "Idle GPUs: not judged yet; possible from" in paged(a)
    for body in bodies:
        assert "not judged" in body and not [zero for zero in ZEROS if zero in body]


def test_where_all_was_judged_the_words_are_plain() -> None:
    b = FrameBuilder(hours=HOURS)
    azure(b, "n1")
    b.port(0.4, "n1")
    for n in range(8):
        b.use(TRAINING, "n1", f"GPU-n1-{n}")
    b.work("w", [("n1", f"GPU-n1-{n}") for n in range(8)], name="train", user="ann")
    a = advised(b.frame())
    assert a.summary.judged_gpu_count == a.summary.gpu_count == 8 and a.summary.wasted_usd == 0
    assert "No GPU was idle or held without use." in paged(a)
    assert "all 8 GPUs, 384 GPU-hours" in mailed(a)[1] and mailed(a)[0].count("observed") == 0


def test_a_team_keeps_honest_coverage() -> None:
    parts = split_by_team(advice(), lambda w: w.owner.user, teams=("ann", "bob", "cyd"))
    ann, bob, cyd = summaries = [parts[name].summary for name in ("ann", "bob", "cyd")]
    counts = [(s.gpu_count, s.unobserved_gpu_count, s.judged_gpu_count) for s in summaries]
    assert counts == [(8, 2, 6), (8, 0, 0), (8, 0, 8)]
    assert {(s.window_hours, s.observed_hours) for s in summaries} == {(48.0, 48.0)} and ann.partly_judged
    assert bob.wasted_usd is None and bob.recoverable_usd_per_month is None and cyd.wasted_usd == 0
    assert [u.node for u in parts[None].summary.unobserved] == ["n2"]
    owned = split_by_team(advice(), lambda w: w.owner.user, lambda node: "dan" if node == "n2" else None)
    assert owned["dan"].summary.unobserved_gpu_count == 8
    assert "8 of 8 GPUs not observed" in mailed(owned["dan"], "dan")[0]
    assert "No GPU was idle or held without use (judged on 6 of 8 GPUs)." in paged(parts["ann"], "ann")


def test_a_fabric_that_was_not_observed_is_said_and_is_not_silent() -> None:
    a = advice()
    (case,) = (case for case in a.not_judged if case.reason.code == "fabric-not-observed")
    assert case.nodes == ("n2", "n3")
    assert "node_exporter --collector.infiniband" in " ".join(coverage.open_verdicts(a, 9))
    lost = [use for use in a.fabrics if use.unseen]
    assert [use.node for use in lost] == ["n2", "n3"] and "not observed" in mailed(a)[1]
    assert "0 of 2 fabrics with a verdict carried no traffic" in paged(a)


@given(st.floats(0.0, 400.0), st.floats(0.1, 400.0))
def test_observed_time_never_rounds_up_to_all_of_it(seen: float, window: float) -> None:
    s = Summary(1, 1.0, None, None, None, NOTHING, observed_hours=min(seen, window))
    a = Advice(START, START, START + window * HOUR, {}, s, (), (), (), ())
    done, _, rest = coverage.observed_time(a).partition(" of ")
    whole = rest.split()[0]
    if seen < 0.99 * window - 0.1:
        assert float(done.replace(",", "")) < float(whole.replace(",", ""))
    if seen >= window:
        assert done == whole


SITE = SiteEnergy(
    SiteFigure("utility bill", "2026-11-01", 0.10), SiteFigure("meter", "2026-10-01", 1.3),
    SiteFigure("grid operator", "2026-11-01", by_hour_utc=tuple(200.0 + hour for hour in range(24))),
)  # fmt: skip
NOTHING_WORDS = {
    "kwh": None, "counted_kwh": None, "idle_kwh": None, "measured_gpu_hours": 0.0, "unmeasured_gpu_hours": 8.0,
}  # fmt: skip


def fleet(**rules):
    """Two teams: one serves with an engine that reports tokens, the other holds an idle node."""
    served = workload("chat", ("n1",), owner=Owner(team="search"))
    held = workload("left", ("n2",), owner=Owner(team="ads"))
    given = verdicts([node("n1"), node("n2"), node("n3")], [served, held], idle_hours={"w-left": 8 * 14 * 24.0})
    drawn = drawing(given, 250.0, tokens_a_joule=4.0)
    tokens = {key: tokens for key, tokens in drawn.tokens.items() if key == "w-chat"}
    return advice_of(replace(drawn, tokens=tokens), energy=SITE, **rules)


def test_the_json_keeps_its_schema():
    values = json.loads(render(fleet(), "json"))
    validate(values, "advice")
    e = values["summary"]["energy"]
    each = 8 * 0.25 * 14 * 24
    assert e["kwh"] == pytest.approx(3 * each) and e["idle_held_kwh"] == pytest.approx(each)
    assert e["idle_free_kwh"] == pytest.approx(each) and e["joules_per_token"] == pytest.approx(0.25)
    assert [owner["owner"] for owner in e["owners"]] == ["ads", "search"]
    assert {p["phase"]: p["kwh"] for p in e["phases"]} == {"decode": pytest.approx(each), "idle": pytest.approx(each)}


def test_a_teams_week_is_in_kwh_dollars_carbon_and_joules_per_token():
    advice = fleet()
    part = split_by_team(advice, lambda w: w.owner.team)["search"]
    each = 8 * 0.25 * 14 * 24
    e = part.summary.energy
    assert (e.kwh, e.usd) == (pytest.approx(each), pytest.approx(each * 1.3 * 0.10))
    assert e.co2_kg == pytest.approx(each * 1.3 * 0.2115) and e.by_use is None and part.node_energy == ()
    text = paged(part, "search")
    assert "The team's workloads drew 672 kWh, by the GPUs' energy counters." in text
    assert "0.25 J per generated token, 4 tokens per second per watt" in text
    assert "$87.36 of power and 185 kg of CO2, by the site's figures: $0.1 per kWh, 2026-11-01 (utility bill)" in text
    assert "PUE 1.3, 2026-10-01 (meter); 200 to 223 g of CO2 per kWh by the hour, UTC, 2026-11-01" in text
    assert words.APART in text and "Every node-hour" not in text


def test_csv_has_energy_of_fleet_workloads_and_nodes():
    rows = list(csv.DictReader(io.StringIO(render(fleet(), "csv"))))
    assert [float(row["energy_kwh"]) for row in rows if row["row"] == "summary"] == [pytest.approx(2016)]
    chat = next(row for row in rows if (row["row"], row["name"]) == ("workload", "chat"))
    assert (chat["energy_basis"], float(chat["joules_per_token"])) == ("counter", 0.25)
    assert [row["rated_watts"] for row in rows if row["row"] == "node"] == ["5600.0"] * 3


def test_what_was_not_measured_is_never_zero():
    assert words.kwh(None) == "unknown" and words.watts(None) == "unknown" and words.small(None) == "-"
    nothing = Energy(**NOTHING_WORDS)
    assert words.drawn_words(nothing, "the GPUs") == (
        "Energy of the GPUs: unknown. No energy counter and no power reading is available."
    )
    assert words.node_words(NodeEnergy(**NOTHING_WORDS, node="n1")) == "energy not measured"
    half = Energy(10.0, 4.0, 5.0, 5.0, 0.0, basis="both")
    assert words.drawn_words(half, "the GPUs").startswith(
        "The GPUs drew 10.0 kWh, 40 % by the GPUs' energy counters, the rest power times time; measured in 50 % of "
        "10.0 GPU-hours."
    )


def test_hostile_sources_of_figures_are_escaped():
    stated = StatedFigure("pue", 1.2, (), "<b>\x1b[31m\nx", "2026-11-01", "\x9b")
    text = " ".join(words.money_words(replace(fleet().summary.energy, figures=(stated,))))
    assert not {"\x1b", "\x9b", "\n"} & set(text)
    bad = SiteEnergy(
        SITE.usd_per_kwh, SiteFigure("<script>alert(1)</script>", "2026-11-01", 1.2), SITE.co2_grams_per_kwh
    )
    assert "<script>alert" not in render(advice_of(founding(), energy=bad), "html")
