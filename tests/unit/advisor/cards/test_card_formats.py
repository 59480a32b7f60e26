"""A card in its formats: bounded, valid, and harmless whatever a job calls itself; and kept in a state file."""

import base64
import csv
import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cards.build import with_kept
from skuwise.advisor.cards.reading import CardReading, Run, named_card, named_run
from skuwise.advisor.core.card_types import Asked, Card, Use
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.ids import AmbiguousError
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.demo import simulate
from skuwise.advisor.show.pages import job as page
from skuwise.advisor.show.writers.admin_comment import MOST_BYTES, admin_comment, compact
from skuwise.advisor.show.writers.csv import csv_text
from skuwise.advisor.show.writers.html import page_html
from skuwise.advisor.show.writers.markdown import document_markdown
from skuwise.advisor.show.writers.text import document_text
from skuwise.advisor.state.cards import keep, listed, named, of_series
from skuwise.advisor.state.file import State
from skuwise.advisor.telemetry.source import Databases
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.tests.support.card_cases import HOSTILE, HOUR, MINUTE, busy_then_idle, card, only_card
from skuwise.tests.support.frame_builder import START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.schemas import validate


def hostile() -> Card:
    return card(
        name=HOSTILE * 5, job_id=HOSTILE, cluster=HOSTILE, nodes=(HOSTILE,) * 9, gpu_sku=HOSTILE,
        owner=Owner(HOSTILE, HOSTILE, HOSTILE, HOSTILE), asked=Asked(reason=HOSTILE), scheduler_state=HOSTILE,
        next_step=CodedText("card-x", HOSTILE * 30), missing={"kwh": HOSTILE * 9}, kwh=None, cost_usd=None, restarts=2,
        namespace=HOSTILE, pod=HOSTILE,
    )  # fmt: skip


def bare() -> Card:
    """A card of which nothing is known."""
    use = Use(observed=card().use.observed)
    return card(use=use, kwh=None, cost_usd=None, idle_usd=None, price=None, compared=None, asked=Asked())


@pytest.mark.parametrize("made", [card(), hostile(), bare()], ids=["whole", "hostile", "bare"])
def test_every_format_is_valid_bounded_and_harmless(made: Card) -> None:
    for document in (page.card_document(made), page.card_document(made, ascii_only=True), page.cards_document([made])):
        lines = document_text(document, width=100).split("\n")
        assert max(map(len, lines)) <= 100 and all(line.isprintable() for line in lines)
        markdown = document_markdown(document)
        rows = [line for line in markdown.split("\n") if line.startswith("|")]
        assert len({line.count("|") - line.count("\\|") for line in rows}) <= 1
        assert "<script>" not in markdown and "<script>" not in page_html(document)
    assert document_text(page.card_document(card(), ascii_only=True)).isascii()
    assert len(document_text(page.card_document(card()), width=100).splitlines()) <= 25
    values = json.loads(page.cards_json(made))
    validate(values, "card")
    assert json.loads(page.cards_json([made])) == {"schema": "skuwise.cards/1", "cards": [values]}
    row = next(csv.DictReader(io.StringIO(csv_text(page.CSV_COLUMNS, page.csv_rows([made])))))
    assert row["name"].startswith(("'=", "train-7b")) and "\x1b" not in row["name"]
    assert (row["cost_usd"] == "") == (made.cost_usd is None)


def test_the_list_is_worst_first_with_a_total() -> None:
    cheap, dear, unknown = card(id="w-1", idle_usd=1.0), card(id="w-2", idle_usd=50.0), card(id="w-3", idle_usd=None)
    assert [made.id for made in page.worst_first([cheap, unknown, dear])] == ["w-2", "w-1", "w-3"]
    assert page.cards_document([cheap, dear, bare()]).window == (
        "Total: 3 jobs, 48.0 GPU-hours, 6.2 of them idle, $393 ($51.00 idle) (idle hours unknown for 1; "
        "cost unknown for 1)"
    )


def js1(nodes: dict[str, object]) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps({"nodes": nodes}).encode(), mtime=0)).decode()


def test_jobstats_reads_its_comment_what_others_wrote_stays_and_an_older_card_is_replaced() -> None:
    """As jobstats.py does: base64 of all behind the prefix, gzip, JSON; sacct's fields end at a bar."""
    for length in range(12):
        nodes: dict[str, object] = {"n" * length: {"cpus": 64}}
        joined = admin_comment(hostile(), js1(nodes))
        assert json.loads(gzip.decompress(base64.b64decode(joined[4:])))["nodes"] == nodes
        assert "|" not in joined and '"' not in joined and "SKW1:" in joined
    for before in ("", "kept by ops", js1({"n": 1}), "a;b;"):
        once = admin_comment(card(), before)
        assert once.startswith(before) and once.count("SKW1:") == 1 and admin_comment(card(), once) == once
        newer = admin_comment(card(gpu_hours=99.0), once)
        assert newer.count("SKW1:") == 1 and "h=99" in newer and newer.startswith(before)
    for before in ("x" * MOST_BYTES, "two\nlines", "JS1:Short", "JS1:None", "JS1:!!!!"):
        with pytest.raises(UsageError):
            admin_comment(card(), before)
    assert re.fullmatch(r"SKW1:[A-Za-z0-9.,=:_-]+", compact(hostile()))


def test_the_compact_form_of_a_card() -> None:
    assert compact(card()) == (
        "SKW1:w=1f2e3d4c5b6a7988,gpus=8,h=16,idle=3.1,sm=42,tc=12,mem=72,kind=training,bn=host-input:62:compute:38,"
        "kwh=6.2,usd=197,next=host-input"
    )


@pytest.mark.parametrize(
    ("busy", "idle", "used", "code"),
    [(6, 0, 8, "card-nothing"), (5, 3, 8, "card-stopped"), (2, 0, 4, "card-unused-gpus")],
)
def test_a_card_says_what_to_change_and_what_idle_hours_cost(busy: int, idle: int, used: int, code: str) -> None:
    made = only_card(busy_then_idle(busy, idle, used=used))
    hours, since, rate, idle_hours = busy + idle, made.use.idle_since, 98.32 / 8, 8 * idle + (8 - used) * busy
    assert made.state == "running" and made.gpu_hours == pytest.approx(8 * hours) and made.next_step.code == code
    assert made.use.idle_gpu_hours == pytest.approx(idle_hours, abs=0.5) and made.use.unused == 8 - used
    assert (since is not None and abs(since - START - busy * HOUR) <= 2 * MINUTE) == bool(idle)
    assert made.use.sm_active == pytest.approx(0.85 * busy / hours * used / 8, abs=0.01)
    assert made.cost_usd == pytest.approx(8 * hours * rate, rel=0.01)
    assert made.idle_usd == pytest.approx(idle_hours * rate, rel=0.03)
    assert made.price is not None and "list price" in made.price.text and made.price.as_of in made.price.text


@pytest.mark.parametrize(("minutes", "code"), [(40, "card-nothing"), (1, "card-too-little")])
def test_forty_minutes_are_enough_for_facts_and_one_is_not(minutes: int, code: str) -> None:
    built = FrameBuilder(hours=1)
    (uuid,) = built.node("n1", gpus=1)
    built.use(TRAINING, uuid=uuid, interval=MINUTE)
    built.work("w-1", [("n1", uuid)], end=minutes / 60, scheduler="slurm", job_id="7")
    made = only_card(built)
    assert made.elapsed_seconds == pytest.approx(60 * minutes) and made.next_step.code == code
    assert len(made.course.sm_active) == minutes
    assert sum(made.judged.time_shares.values()) == pytest.approx(1) or minutes == 1


def test_missing_is_told_with_its_reason_and_is_no_zero() -> None:
    built = FrameBuilder(hours=2)
    (uuid,) = built.node("n1", gpus=1, sku=None, name_of_gpu="Unknown GPU")
    built.use({"gpu_util": 0.5, "mem_used_bytes": 1e9}, uuid=uuid, interval=MINUTE)
    built.work("w-1", [("n1", uuid)])
    made = only_card(built)
    assert made.use.sm_active is made.use.fabric is made.kwh is made.cost_usd is made.idle_usd is None
    assert made.missing.keys() >= {"sm_active", "fabric", "kwh", "cost_usd"} and all(made.missing.values())


def test_kept_runs_of_the_series_count_where_telemetry_has_fewer() -> None:
    now = card(compared=None)
    before = [replace(now, id=f"w-{n}", start=now.start - n * HOUR, gpu_hours=float(n)) for n in (1, 2, 3)]
    compared = with_kept(now, [now, *before]).compared
    assert compared is not None and compared.runs == 3 and compared.gpu_hours == 2.0
    assert with_kept(now, [now]).compared is None


DAY = 86400.0
NOW, KEEP = card().end + HOUR, 30 * DAY


def test_cards_of_finished_jobs_come_back_as_they_were(tmp_path: Path) -> None:
    state = State(tmp_path / "fleet.db")
    others = [card(id="w-r", state="running"), card(id="w-u", state="unknown")]  # what runs is not kept
    odd = replace(hostile(), id="w-odd", name="\udc80", series_id="s-2")
    with state.writing() as db:
        assert keep(db, [card(), *others, odd], NOW, KEEP) == 2
    with state.reading() as db:
        for asked in ("4711", "eu/4711", "w-1f2e3d4c5b6a7988", "1f2e", "train-7b"):
            assert named(db, asked) == (replace(card(), kept_at=NOW),)
        assert named(db, HOSTILE) == (replace(odd, kept_at=NOW),)
        assert [run.id for run in of_series(db, "s-1")] == ["w-1f2e3d4c5b6a7988"]
        ann, nobody = {"user": "ann", "account": None}, {"user": "bob"}
        assert len(listed(db, NOW - DAY, None, ann)) == 1 and not listed(db, NOW - DAY, None, nobody)
        assert not listed(db, NOW, None, ann) and not listed(db, 0.0, card().start, ann)
        assert named(db, "1f2") == named(db, "gpu-001") == named(db, "") == ()


def test_the_card_of_more_of_a_jobs_life_stays_for_as_long_as_cards_are_kept(tmp_path: Path) -> None:
    with State(tmp_path / "fleet.db").writing() as db:
        assert keep(db, [card()], NOW, KEEP) == 1
        assert keep(db, [card(gpu_hours=4.0)], NOW + DAY, KEEP) == 0
        (kept,) = named(db, "4711")
        assert kept.gpu_hours == with_kept(card(gpu_hours=4.0), [kept]).gpu_hours == 16.0
        assert keep(db, [card(gpu_hours=17.0)], NOW + DAY, KEEP) == 1
        assert keep(db, [], NOW + KEEP, KEEP) == 0
        assert named(db, "4711") == ()


ONE = Run("w-1f2e3d4c", "s-1", "train-7b", 1000.0, 5000.0, "slurm", ("4711",), cluster="eu", nodes=("n1",))
AGAIN = replace(ONE, id="w-2222", start=6000.0, end=7000.0)
TASKS = [
    replace(ONE, id=f"w-aaaa{n}", name="sweep", jobs=(f"{4800 + n}", f"4800_{n}"), array_job_id="4800")
    for n in range(1, 4)
]
POD = Run("w-bbbb0001", "s-2", "chat", 0.0, 9.0, "kubernetes", namespace="ads", pod="chat-7f9c", nodes=("n2",))
ALL = [ONE, *TASKS, POD]


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (ONE, ["w-1f2e3d4c", "1f2e", "4711", "eu/4711", "4711@eu", "train-7b"]), (TASKS[1], ["4800_2", "4802"]),
        (POD, ["chat-7f9c", "ads/chat-7f9c", " chat "]),
    ],
)  # fmt: skip
def test_a_job_is_found_by_all_that_it_is_called(run: Run, names: list[str]) -> None:
    assert [named_run(name, ALL, str)[0] for name in names] == [run] * len(names)


def test_of_a_requeued_job_it_is_the_newest_run_and_several_jobs_are_listed() -> None:
    assert named_run("4711", [ONE, AGAIN], str) == (AGAIN, (ONE,))
    again = card(id="w-2", start=START + HOUR)
    assert named_card("4711", [card(), again], str) == again
    tasks = [card(id=f"w-{n}", job_id=f"4800_{n}", name="sweep") for n in range(3)]
    for asked in ("4800", "sweep"):
        with pytest.raises(AmbiguousError) as raised:
            named_run(asked, ALL, str)
        assert all(run.id[:4] in raised.value.remedy for run in TASKS)
        with pytest.raises(AmbiguousError):
            named_card(asked, tasks, str)


@pytest.mark.parametrize("asked", ["train-8b", "9999", "us/4711", "", "n1", "';DROP TABLE cards;--"])
def test_what_names_nothing_is_nothing_to_work_on(asked: str) -> None:
    with pytest.raises(NothingToDo) as raised:
        named_run(asked, [], str, lambda: ALL)
    assert raised.value.exit_status == 3
    assert "train-7b" in raised.value.remedy or asked != "train-8b"


def test_of_a_folder_one_jobs_node_is_read_and_the_fleet_is_that_of_all_nodes(tmp_path: Path) -> None:
    end = 1_790_000_000.0 // 3600 * 3600
    simulate("founding", tmp_path / "nodes", days=0.25, seed=4, until=end, nodes=("serve-01", "serve-02"))
    reading = CardReading(Databases((tmp_path / "nodes",)), rulebook(), end, DAY, None, lambda _: None, str)
    every = reading.cards(lambda _: True)
    for run in every.cards:
        read = reading.card(run.id)
        (made,) = read.cards
        assert (made.nodes, made.gpu_count, made.state) == (run.nodes, 8, "running") and read.others == ()
        assert (made.start, made.end) == (run.start, run.end) and made.gpu_hours == pytest.approx(run.gpu_hours)
        assert read.fleet.members == every.fleet.members and len(read.fleet.members) == 16
    assert {run.nodes for run in every.cards} == {("serve-01",), ("serve-02",)}
