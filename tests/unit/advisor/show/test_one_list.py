# pyright: reportOptionalMemberAccess=false
"""One fleet, one list: every surface shows the same recommendations in the same order with the same gains, counts what
it leaves out, and says what its sums contain."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Advice, Decision
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.worth import compatible, counted_recommendations, marked, selected
from skuwise.advisor.notify.letters import report_letter
from skuwise.advisor.recommend.waste import slowed_usd
from skuwise.advisor.show.pages.report import report_document
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.show.titles import left_out_words, recommendation_rows
from skuwise.advisor.show.writers.formats import render
from skuwise.advisor.show.writers.text import document_text
from skuwise.tests.support.report_fixtures import END, fleet, way

LARGE, CASH, SWAP, HOURS, FIX = (f"r-{n}{n * 7}aaaa" for n in "12345")
SMALL, BLOCKED, GONE = (f"r-{n}{n * 7}aaaa" for n in "678")
SHOWN = {
    LARGE: "saves $23,922/month", CASH: "saves $14,355/month", SWAP: "frees 5,304 GPU-hours/month",
    HOURS: "frees 2,920 GPU-hours/month", FIX: "frees up to 95.0 GPU-hours/month",
}  # fmt: skip


def surfaces() -> Advice:
    """Cash, an alternative to it that frees more, capacity, a fix, what is small, blocked, set aside or excluded."""
    blocked = (CodedText("load-too-high", "The load is too high."),)
    moves = (
        way(12.0, id=SMALL), way(None, 2920.0, id=HOURS, action="release", risk="low"),
        way(None, 95.0, id=FIX, action="fix-first"),
        way(None, 5304.0, id=SWAP, action="swap-placement", excludes=(CASH,)),
        way(14_355.0, id=CASH, excludes=(SWAP,)), way(23_922.0, 5840.0, id=LARGE, action="release"),
        way(None, id=BLOCKED, blocked_by=blocked),
        way(9000.0, id=GONE, decision=Decision("dismissed", END, why="a warm standby")),
    )  # fmt: skip
    base = fleet(1, 1)
    slow = replace(base.findings[0], id="f-slow", rule="under-tier", cost_usd=3000.0)
    fault = replace(slow, id="f-fault", rule="fix-first", cost_usd=400.0, workload="w-other")
    findings = (*base.findings, slow, fault)
    summary = replace(
        base.summary, wasted_usd=1651.8, slowed_usd=slowed_usd(findings), recoverable_usd_per_month=38_277.0,
        min_saving_usd_per_month=100.0,
    )  # fmt: skip
    return marked(replace(base, recommendations=moves, findings=findings, summary=summary))


def decided(advice: Advice, decisions: dict[str, Decision]) -> Advice:
    held = {r.id: r.decision for r in advice.recommendations if r.decision is not None}
    return marked(advice, {**held, **decisions})


def mail(advice: Advice) -> str:
    return document_text(report_document(story_of(advice), 8), width=250)


SURFACES: dict[str, Callable[[Advice], str]] = {
    "table": lambda advice: render(advice, "table", width=200),
    "markdown": lambda advice: render(advice, "markdown").replace("\\", ""),
    "html": lambda advice: re.sub("<[^>]*>", "", render(advice, "html")),
    "mail": mail,
    "mail as html": lambda advice: re.sub("<[^>]*>", "", report_letter(story_of(advice)).html),
    "screen": lambda advice: " ".join(
        f"{row.id} {row.gain}" for row in recommendation_rows(advice) if not row.left_out
    ),
}  # fmt: skip


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_has_one_list_in_one_order_with_the_same_gains(surface: str) -> None:
    text = " ".join(SURFACES[surface](surfaces()).split())
    text = text[max(text.find("Recommendations"), 0) :]
    for wanted in ([id_[:10] for id_ in SHOWN], list(SHOWN.values())):
        places = [text.find(part) for part in wanted]
        assert -1 not in places and places == sorted(places), (surface, dict(zip(wanted, places, strict=True)))
    assert f"instead of {CASH[:10]}" in text.replace("Instead", "instead") or surface == "screen"


def test_programs_get_the_same_list() -> None:
    advice = surfaces()
    load = json.loads(render(advice, "json"))["recommendations"]
    assert [r["id"] for r in load if r["shown"]] == list(SHOWN)
    rows = [row for row in csv.DictReader(io.StringIO(render(advice, "csv"))) if row["shown"] == "yes"]
    usd, hours = "saving_usd_per_month_p50", "freed_gpu_hours_per_month"
    listed = [(row["id"], f"{float(row[usd] or row[hours]):,.0f}") for row in rows]
    assert listed == list(zip(SHOWN, ("23,922", "14,355", "5,304", "2,920", "95"), strict=True))


@pytest.mark.parametrize("surface", ["table", "mail", "mail as html"])
def test_what_a_surface_leaves_out_it_counts(surface: str) -> None:
    said = left_out_words(recommendation_rows(surfaces()))
    assert said == "Not shown: 1 below $100/month or uncertain (total $12.00/month); 1 dismissed; 1 blocked."
    text = " ".join(SURFACES[surface](surfaces()).split())
    assert said in text and not any(id_[:10] in text for id_ in (SMALL, BLOCKED, GONE))


def test_what_was_accepted_stays_in_the_list_and_both_sums_until_it_is_done() -> None:
    accepted = decided(surfaces(), {CASH: Decision("accepted", END, "ann"), HOURS: Decision("accepted", END, "ann")})
    chosen = selected(accepted)
    assert [r.id for r in chosen.shown] == [LARGE, CASH, HOURS, FIX]
    assert [r.id for r in chosen.excluded] == [SWAP]
    assert chosen.capacity_gpu_hours == selected(surfaces()).capacity_gpu_hours == 2920.0 + 95.0
    assert sum(r.saving_usd_per_month.p50 for r in chosen.shown if r.counts) == pytest.approx(38_277)
    text = " ".join(mail(accepted).split())
    assert "accepted by ann" in text and "No open recommendation" not in text
    done = decided(accepted, {CASH: Decision("done", END), HOURS: Decision("done", END)})
    assert [r.id for r in selected(done).shown] == [LARGE, FIX] and selected(done).capacity_gpu_hours == 95.0


OWN, FREE = "r-99999999aaaa", "r-00000000aaaa"


@pytest.mark.parametrize("state", ["accepted", "done", "dismissed", "snoozed", "regressed", None])
@pytest.mark.parametrize("ids", [(LARGE,), (CASH,), (SWAP,), (HOURS,), (LARGE, CASH, OWN), (LARGE, SWAP), (SMALL,)])
@pytest.mark.parametrize("only", [None, (CASH, SWAP), (CASH, OWN), (SMALL,), (HOURS, FREE)])
def test_after_a_decision_subject_headline_and_list_agree(
    state: str | None, ids: tuple[str, ...], only: tuple[str, ...] | None
) -> None:
    base = surfaces()
    more = (way(20_000.0, id=OWN, excludes=(CASH,)), way(None, 500.0, id=FREE, action="release", excludes=(HOURS,)))
    moves = [
        replace(r, excludes=(*r.excludes, *(m.id for m in more if r.id in m.excludes))) for r in base.recommendations
    ]
    base = marked(replace(base, recommendations=tuple(r for r in (*moves, *more) if only is None or r.id in only)))
    total = sum(r.saving_usd_per_month.p50 for r in counted_recommendations(base.recommendations))
    base = replace(base, summary=replace(base.summary, recoverable_usd_per_month=total))
    advice = decided(base, {id_: Decision(state, END, "ann") for id_ in ids} if state else {})  # type: ignore[arg-type]
    page, chosen = report_document(story_of(advice), 8), selected(advice)
    text, listed = " ".join(document_text(page, width=250).split()), (*chosen.shown, *chosen.small)
    cash = [r for r in listed if r.counts]
    assert {r.id for r in counted_recommendations(advice.recommendations)} <= {r.id for r in cash}
    assert ("recoverable" in page.title) == bool(cash) == ("recoverable" in page.heading)
    assert (advice.summary.recoverable_usd_per_month or 0.0) > 0 if cash else "$0" not in page.title
    assert ("No open recommendation" in text) == (not listed) and not ("recoverable" in page.title and not listed)
    # Cash and capacity count an accepted one alike, and neither counts what was set aside or cannot be had any more.
    free = any(r.saving_usd_per_month is None for r in compatible(sorted(listed, key=lambda r: r.rank)))
    assert bool(chosen.capacity_gpu_hours) == free == ("up to" in text.partition("Recommendations")[0])
    assert all(r.id not in text for r in (*chosen.decided, *chosen.excluded))
    for r in chosen.shown:
        assert r.id[:10] in text and (f"ledger accept {r.id}" in text) == (r.decision is None or state == "regressed")


def test_slowed_counts_a_workload_that_waits_for_several_things_once() -> None:
    (finding,) = fleet(1, 1).findings
    lost = [
        replace(finding, rule="under-tier", cost_usd=3000.0),
        replace(finding, rule="fix-first", cost_usd=400.0),
        replace(finding, rule="fix-first", cost_usd=70.0, workload="w-other"),
        replace(finding, rule="under-tier", cost_usd=None, workload="w-unmeasured"),
    ]
    assert slowed_usd((finding, *lost)) == 3070.0
