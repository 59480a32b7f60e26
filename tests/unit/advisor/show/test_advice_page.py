# pyright: reportOptionalMemberAccess=false
# pyright: reportArgumentType=false
"""The page of `skuwise advise`: two screens whatever the fleet, and what was not judged in every format."""

import random
import re
from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Advice, Configuration, Interval, Recommendation
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.verdict_types import Alternative, KindVerdict
from skuwise.advisor.core.worth import Worth, marked, min_saving, selected
from skuwise.advisor.show.coverage import nothing_found_words, open_verdicts
from skuwise.advisor.show.page_options import PageOptions
from skuwise.advisor.show.pages.advice import note_groups
from skuwise.advisor.show.reader_links import ReaderCommands
from skuwise.advisor.show.titles import gain_text, recommendation_rows, runs_words, usd_per_month
from skuwise.advisor.show.writers.formats import LINES_MAX, render
from skuwise.tests.support.moves_builders import advice_of, fabric, node, usage, verdicts, workload
from skuwise.tests.support.report_fixtures import fleet, way

ACTIONS = (
    "move-sku", "reduce-gpus", "mig-slice", "consolidate", "schedule-off", "swap-placement", "release", "lower-clock",
    "power-cap", "rest-clocks", "fix-first",
)  # fmt: skip
RULES = ("idle", "held-idle", "idle-fabric", "energy", "fix-first", "under-tier", "over-tier", "site-rule")
AGAIN = ReaderCommands("skuwise", "--db '/data/two words.db' --since 7d")


def with_ways(*recommendation: Recommendation, minimum: float = 100.0) -> Advice:
    base = fleet(1, 1)
    named = [replace(r, id=f"r-{n:012x}") for n, r in enumerate(recommendation)]
    summary = replace(base.summary, min_saving_usd_per_month=minimum)
    return marked(replace(base, recommendations=tuple(named), summary=summary))


def crowded(seed: int, nodes: int) -> Advice:
    """A fleet of so many nodes with hundreds of findings, long names, blocked options, and notes of every kind."""
    rng = random.Random(seed)
    base = fleet(nodes // 4, 4)
    workloads = [replace(w, name=f"{w.name}-{'x' * rng.choice((0, 5, 60, 400))}") for w in base.workloads]
    findings = [
        replace(f, id=f"f-{n:012x}", rule=rng.choice((*RULES, f"own-{n % 40}")), cost_usd=rng.choice((None, 9.0, 9e6)))
        for n, f in enumerate(base.findings * 3)
    ]
    moves = []
    for n, r in enumerate(base.recommendations * 5):
        p50 = rng.choice((1.34, 2.35, 1676.0, 71_774.0, -30.0))
        wide = rng.choice((0.0, 0.2, 3.0)) * abs(p50)
        saving = None if rng.random() < 0.4 else Interval(p50 - wide, p50, p50 + wide)
        moves.append(
            replace(
                r, id=f"r-{n:012x}", action=rng.choice(ACTIONS), saving_usd_per_month=saving, excludes=(),
                freed_gpu_hours_per_month=rng.choice((0.0, 3.0, 2920.0)), findings=(rng.choice(findings).id,),
                energy_saving_kwh_per_month=rng.choice((None, Interval(-5.0, 40.0, 90.0), Interval(9e4, 1e5, 2e5))),
                blocked_by=() if rng.random() < 0.5 else (CodedText("because", "of a long reason " * 20),),
                target=rng.choice((r.target, Configuration("L40S", f"aws/{'g6e' * 30}", 4))),
            )
        )  # fmt: skip
    notes = tuple(
        CodedText(f"code-{n % 30}", f"note {n} {'of some length ' * rng.choice((1, 30))}") for n in range(500)
    )
    advice = replace(
        base, workloads=tuple(workloads), findings=tuple(findings), recommendations=tuple(moves), notes=notes,
        market=tuple(moves[:50]) if rng.random() < 0.5 else None,
    )  # fmt: skip
    return marked(advice)


@pytest.mark.parametrize("nodes", [4, 62, 1000])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_page_fits_two_screens_whatever_the_fleet(nodes: int, width: int, seed: int = 7) -> None:
    advice = crowded(seed + nodes, nodes)
    text = render(advice, "table", width=width, page=PageOptions(again=AGAIN))
    assert text.count("\n") <= LINES_MAX == 90
    assert all(title in text for title in ("Recommendations", "Findings", "Workloads by cost", "Notes", "Next"))


@pytest.mark.parametrize("seed", range(8))
def test_each_recommendation_is_in_one_group_and_the_groups_keep_the_order_of_the_json(seed: int) -> None:
    advice = crowded(seed, 40)
    worth, chosen = Worth(advice), selected(advice)
    groups = (chosen.shown, chosen.small, chosen.blocked, chosen.decided, chosen.excluded)
    assert sorted(r.id for same in groups for r in same) == sorted(r.id for r in advice.recommendations)
    assert all(list(same) == sorted(same, key=lambda r: r.rank) for same in groups)
    assert [r.id for r in advice.recommendations if r.shown] == [r.id for r in chosen.shown]
    assert all(worth.usd(r).p50 >= worth.minimum and worth.usd(r).p10 > 0 for r in chosen.shown)
    assert not any(r.blocked_by for r in chosen.shown)


def test_what_is_below_the_minimum_or_uncertain_is_folded_and_stays_in_the_json() -> None:
    advice = with_ways(way((-25, 1.34, 29)), way((-10, 5000, 9000)), way((80, 99, 120)), way((90, 101, 120)))
    assert [r.saving_usd_per_month.p50 for r in advice.recommendations if r.shown] == [101]
    assert (len(selected(advice).small), selected(advice).worth.minimum) == (3, 100.0)
    assert '"shown": false' in render(advice, "json")
    assert "3 below $100/month or uncertain (total $5,100/month)" in " ".join(render(advice, "table").split())


def test_energy_and_freed_hours_are_compared_in_dollars() -> None:
    energy = way(None, 0.0, energy_saving_kwh_per_month=Interval(900.0, 1000.0, 1100.0), realisation="energy")
    few = way(None, 8.0)  # 98 US dollars at their price
    advice = with_ways(energy, few, way(None, 9.0))
    assert [r.shown for r in advice.recommendations] == [True, False, True]
    assert gain_text(energy) == "saves 1,000 kWh/month"


def test_a_dearer_fabric_needs_its_reason() -> None:
    added = CodedText("fabric-added", "InfiniBand 3200 Gb/s instead of Ethernet")
    reason = CodedText("fabric-included", "H100-SXM5 is sold only with InfiniBand here")
    advice = with_ways(way((900, 1000, 1100), changes=(added,)), way((900, 1000, 1100), changes=(added, reason)))
    assert [r.shown for r in advice.recommendations] == [False, True]
    assert "sold only with InfiniBand" in render(advice, "table", width=200)


def test_the_minimum_is_the_lesser_of_100_dollars_and_a_percent_of_the_spend() -> None:
    summary = replace(fleet(1, 1).summary, window_hours=730.0)
    assert min_saving(replace(summary, cost_usd=1e6)) == 100.0
    assert min_saving(replace(summary, cost_usd=2000.0)) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (71_774.0, None, "$71,774"), (71_774.0, (71_774.0, 71_774.0, 71_774.0), "$71,774"),
        (71_774.0, (60_000.0, 71_774.0, 80_000.0), "$72k"), (1676.0, (900.0, 1676.0, 2500.0), "$1,700"),
        (1_234_567.0, (9e5, 1_234_567.0, 2e6), "$1.2M"), (42.0, (20.0, 42.0, 60.0), "$42"),
    ],
)  # fmt: skip
def test_figures_are_rounded_to_what_their_interval_supports(value, interval, text) -> None:
    assert usd_per_month(value, Interval(*interval) if interval else None) == f"{text}/month"


def test_many_notes_of_a_kind_are_one_line() -> None:
    over = [CodedText("work-is-over", f"run-{n} has ended and did not recur.") for n in range(84)]
    advice = replace(fleet(1, 1), notes=(*over, CodedText("prices-missing", "No price.")))
    assert len(note_groups(advice.notes)) == 2
    text = render(advice, "table")
    assert text.index("Findings") < text.index("(83 more notes)") and "run-7 has ended" not in text
    for page in (PageOptions(verbose=True), PageOptions(whole=True)):
        assert "run-83 has ended" in render(advice, "table", page=page)
    assert "run-83 has ended" in render(advice, "html")


def test_all_is_all_and_ids_of_the_page_link_to_their_block() -> None:
    advice = crowded(3, 40)
    text = " ".join(render(advice, "table", page=PageOptions(whole=True)).split())
    assert all(row.id in text for row in recommendation_rows(advice)) and "more:" not in text
    html = render(advice, "html")
    targets, ids = set(re.findall(r'href="#([^"]+)"', html)), re.findall(r' id="([^"]+)"', html)
    assert targets and targets <= set(ids) and 'class="group"' in html and 'class="member"' in html


def test_runs_of_a_service_at_one_time_are_replicas() -> None:
    first = workload("chat")
    later = replace(first, id="w-2", start=first.end, end=first.end + 9.0)
    batch = replace(first, kind=KindVerdict("training", 0.9))
    assert runs_words([first]) == ""
    assert runs_words([first, replace(first, id="w-2")]) == " (2 replicas)"
    assert runs_words([first, later]) == runs_words([batch, batch]) == " (2 runs)"


def test_commands_are_whole_and_quoted_as_they_were_given() -> None:
    text = render(fleet(), "table", width=60, page=PageOptions(again=AGAIN))
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("skuwise ")]
    assert re.fullmatch(r"skuwise explain r-w-\S+ --db '/data/two words.db' --since 7d", commands[0])
    assert commands[1] == "skuwise advise --all --db '/data/two words.db' --since 7d"


def test_the_page_has_no_escape_sequence_in_a_pipe_and_is_plain_ascii_but_for_names() -> None:
    text = render(fleet(), "table", page=PageOptions(again=AGAIN))
    assert "\x1b" not in text and "\x1b[" in render(fleet(), "table", color=True) and text.isascii()


def served(training: float, **silent: object) -> Advice:
    """A service that uses its GPUs, and may be training."""
    kind = KindVerdict("online-inference", 0.99 - training, (), (Alternative("training", training),))
    w = workload("chat", kind=kind)
    return advice_of(verdicts([node(fabric=fabric(**silent))], [w], uses=[usage(w, u_c=0.6, u_n=0.4)]))


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_what_was_not_judged_stands_in_the_head_with_its_price_and_what_settles_it(form: str) -> None:
    advice = served(0.4)
    (verdict,) = open_verdicts(advice)
    assert "$7,177/month at stake" in verdict and "names of its jobs" in verdict
    page = " ".join(render(advice, form).split())
    assert "Not judged" in page and "$7,177/month at stake" in page.replace("\\", "")
    assert "No waste found" not in page and "No waste found" not in nothing_found_words(advice)


def test_no_waste_is_found_where_all_was_judged() -> None:
    advice = served(0.0, util_p995=0.2, util_max=0.4)
    assert not advice.findings and not open_verdicts(advice)
    assert nothing_found_words(advice) == "No waste found in this window."


def test_the_most_at_stake_comes_first_and_the_rest_is_counted() -> None:
    advice = served(0.4)
    (fabric_verdict,) = [n for n in advice.not_judged if n.rule == "idle-fabric"]
    others = [
        replace(fabric_verdict, rule=rule, usd_per_month=usd) for rule, usd in (("idle", 2.0), ("held-idle", None))
    ]
    lines = open_verdicts(replace(advice, not_judged=(*others, fabric_verdict)), most=2)
    assert [text.partition(":")[0] for text in lines] == [
        "network fabric unused", "idle GPUs", "1 more (see advise --all)",
    ]  # fmt: skip
