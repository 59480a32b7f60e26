# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Energy as people and programs read it: in every format, in a team's mail."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_file import parse_advice
from skuwise.advisor.core.energy_types import Energy, NodeEnergy, StatedFigure
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.render import render
from skuwise.advisor.render.html import mail_html
from skuwise.advisor.render.text import mail_text
from skuwise.advisor.report.by_team import split_by_team
from skuwise.advisor.views import energy as words
from skuwise.advisor.views.document.energy_section import energy_section
from skuwise.advisor.views.document.mail_document import mail_document
from skuwise.advisor.views.document.report_content import story_of
from skuwise.advisor.views.document.truncate import Lengths
from skuwise.rules.catalog.site_energy import SiteEnergy, SiteFigure
from skuwise.tests.support.moves_builders import advice_of, drawing, founding, node, verdicts, workload
from skuwise.tests.support.schemas import validate

SITE = SiteEnergy(
    SiteFigure((0.10,), "utility bill", "2026-11-01"), SiteFigure((1.3,), "meter", "2026-10-01"),
    SiteFigure(tuple(200.0 + hour for hour in range(24)), "grid operator", "2026-11-01"),
)  # fmt: skip
NOTHING = {"kwh": None, "counted_kwh": None, "idle_kwh": None, "measured_gpu_hours": 0.0, "unmeasured_gpu_hours": 8.0}


def fleet(**rules):
    """Two teams: one serves with an engine that tells tokens, the other holds a node at rest."""
    served = workload("chat", ("n1",), owner=Owner(team="search"))
    held = workload("left", ("n2",), owner=Owner(team="ads"))
    given = verdicts([node("n1"), node("n2"), node("n3")], [served, held], idle_hours={"w-left": 8 * 14 * 24.0})
    drawn = drawing(given, 250.0, tokens_a_joule=4.0)
    tokens = {key: one for key, one in drawn.tokens.items() if key == "w-chat"}
    return advice_of(replace(drawn, tokens=tokens), energy=SITE, **rules)


def read(advice):
    return json.loads(render(advice, "json"))


def section_text(advice, **story):
    (section,) = energy_section(story_of(advice, None, **story), Lengths())
    return section


def test_the_json_keeps_its_schema_and_reads_back():
    advice = fleet()
    values = read(advice)
    validate(values, "advice")
    back = parse_advice(json.dumps(values).encode(), "a")
    assert read(back) == values
    e = values["summary"]["energy"]
    each = 8 * 0.25 * 14 * 24
    assert e["kwh"] == pytest.approx(3 * each) and e["idle_held_kwh"] == pytest.approx(each)
    assert e["idle_free_kwh"] == pytest.approx(each) and e["joules_per_token"] == pytest.approx(0.25)
    assert [one["owner"] for one in e["owners"]] == ["ads", "search"]
    assert {p["phase"]: p["kwh"] for p in e["phases"]} == {"decode": pytest.approx(each), "idle": pytest.approx(each)}


def test_a_teams_week_is_told_in_kwh_dollars_carbon_and_joules_a_token():
    advice = fleet()
    part = split_by_team(advice, lambda w: w.owner.team)["search"]
    each = 8 * 0.25 * 14 * 24
    e = part.summary.energy
    assert (e.kwh, e.usd) == (pytest.approx(each), pytest.approx(each * 1.3 * 0.10))
    assert e.co2_kg == pytest.approx(each * 1.3 * 0.2115) and e.by_use is None and part.node_energy == ()
    story = story_of(part, part, team="search")
    page = mail_document(story, {}, Lengths())
    text = mail_text(page)
    assert "The team's workloads drew 672 kWh, by the GPUs' energy counters." in text.replace("\n", " ")
    assert "0.25 J per generated token, 4 tokens per second per watt" in text
    flat = re.sub(r"\s+", " ", text)
    assert "$87.36 of power and 185 kg of CO2, by the site's figures: $0.1 per kWh, 2026-11-01 (utility bill)" in flat
    assert "PUE 1.3, 2026-10-01 (meter); 200 to 223 g of CO2 per kWh by the hour, UTC, 2026-11-01" in flat
    assert "The week before: 672 kWh (as before)." in flat and words.APART in flat
    assert "Energy" in mail_html(page)


def test_the_section_says_what_was_at_rest_and_what_a_site_may_set():
    said = [block for block in section_text(fleet()).blocks if isinstance(block, str)]
    assert "At rest: 1,344 kWh (67 %): 672 kWh on held GPUs, 672 kWh on free GPUs." in said
    bare = [block for block in section_text(advice_of(founding())).blocks if isinstance(block, str)]
    assert words.NO_FIGURES in bare
    power = advice_of(founding(), energy=SiteEnergy(SITE.usd_per_kwh))
    told = [block for block in section_text(power).blocks if isinstance(block, str)]
    assert words.NO_CARBON in told and "No PUE is set: cooling and losses are not included." in told
    carbon = advice_of(founding(), energy=replace(SITE, usd_per_kwh=None))
    assert words.NO_PRICE in [block for block in section_text(carbon).blocks if isinstance(block, str)]


def test_csv_has_energy_of_fleet_workloads_and_nodes():
    rows = list(csv.DictReader(io.StringIO(render(fleet(), "csv"))))
    by_row = {}
    for one in rows:
        by_row.setdefault(one["row"], []).append(one)
    assert float(by_row["summary"][0]["energy_kwh"]) == pytest.approx(2016)
    chat = next(one for one in by_row["workload"] if one["name"] == "chat")
    assert (chat["energy_basis"], float(chat["joules_per_token"])) == ("counter", 0.25)
    assert [(one["node"], one["rated_watts"]) for one in by_row["node"]] == [(n, "5600.0") for n in ("n1", "n2", "n3")]


def test_what_was_not_measured_is_never_told_as_zero():
    assert words.kwh(None) == "unknown" and words.watts(None) == "unknown" and words.small(None) == "-"
    nothing = Energy(**NOTHING)
    assert words.drawn_words(nothing, "the GPUs") == (
        "Energy of the GPUs: unknown. No energy counter and no power reading is available."
    )
    assert words.node_words(NodeEnergy(**NOTHING, node="n1")) == "energy not measured"
    half = Energy(10.0, 4.0, 5.0, 5.0, 0.0, basis="both")
    assert words.drawn_words(half, "the GPUs").startswith(
        "The GPUs drew 10.0 kWh, 40 % by the GPUs' energy counters, the rest power times time; measured in 50 % of "
        "10.0 GPU-hours."
    )


def test_hostile_sources_of_figures_are_escaped():
    told = words.figure_words(StatedFigure("pue", 1.2, (), "<b>\x1b[31m\nx", "2026-11-01", "\x9b"))
    assert "\x1b" not in told and "\x9b" not in told and "\n" not in told
    bad = replace(SITE, pue=SiteFigure((1.2,), "<script>alert(1)</script>", "2026-11-01"))
    assert "<script>alert" not in render(advice_of(founding(), energy=bad), "html")
