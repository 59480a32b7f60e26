"""Answers from documents of commands: pages, names, freshness, and what is refused."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from skuwise.advisor.api.answers import Answers, CommandError, NotReady
from skuwise.advisor.api.store import PAGE_BYTES, StaleCursor, Stored
from skuwise.rules.base.errors import NothingToDo, UsageError
from skuwise.tests.support.api_documents import PROMPT, Commands, advice, answering, idle, workload, write_json

MANY = advice(*map(workload, range(1000)), workload(1000, name=PROMPT))


def size(answer: Any) -> int:
    return len(msgspec.json.encode(answer))


def every_page(answers: Answers, section: str, limit: int, **filters: str) -> list[Any]:
    items, after = [], ""
    while True:
        page = answers.section(section, after=after, limit=limit, **filters)
        assert size(page) <= 100_000
        items += page[section]
        after = page["page"]["next"]
        if after is None:
            assert len(items) == page["page"]["total"]
            return items


def test_a_list_is_read_in_pages_and_nothing_is_left_out_or_changed() -> None:
    with answering(Commands(advise=MANY)) as answers:
        summary = answers.summary()
        assert summary["sections"] == {"workloads": 1001, "findings": 1002, "recommendations": 1001, "notes": 1}
        assert summary["summary"] == {"gpu_count": 1001} and summary["notes"] == MANY["notes"]
        assert every_page(answers, "workloads", 200) == MANY["workloads"]
        assert every_page(answers, "findings", 37) == MANY["findings"]


@pytest.mark.parametrize(
    ("section", "filters", "count"),
    [
        ("workloads", {"node": "n7"}, 1), ("workloads", {"team": "ml"}, 500), ("findings", {"team": "ml"}, 500),
        ("findings", {"workload": "w-0007aaaaaaaa"}, 1), ("findings", {"node": "bare", "rule": "idle"}, 1),
        ("findings", {"node": "bare", "team": "ml"}, 0), ("recommendations", {"rule": "idle"}, 0),
        ("recommendations", {"node": "n7", "team": "ml"}, 1), ("recommendations", {"node": "bare"}, 0),
        ("workloads", {"node": "n7' OR 1=1 --"}, 0), ("workloads", {"team": None}, 1001),
    ],
)  # fmt: skip
def test_filters_leave_the_items_that_have_all_of_them(section: str, filters: dict[str, Any], count: int) -> None:
    with answering(Commands(advise=MANY)) as answers:
        assert len(every_page(answers, section, 200, **filters)) == count


@pytest.mark.parametrize(
    ("asked", "subject", "id_"),
    [
        ("w-0007aaaaaaaa", "workload", "w-0007aaaaaaaa"), ("w-0007", "workload", "w-0007aaaaaaaa"),
        ("4707", "workload", "w-0007aaaaaaaa"), ("train-7", "workload", "w-0007aaaaaaaa"),
        ("train-7@n7", "workload", "w-0007aaaaaaaa"), ("n7", "workload", "w-0007aaaaaaaa"),
        ("f-0007", "finding", "f-0007aaaaaaaa"), ("r-0007aaaaaaaa", "recommendation", "r-0007aaaaaaaa"),
        ("bare", "finding", "f-b0de00000000"), (PROMPT, "workload", "w-03e8aaaaaaaa"),
    ],
)  # fmt: skip
def test_a_subject_is_named_as_for_a_command_and_comes_with_what_belongs_to_it(asked, subject, id_) -> None:
    with answering(Commands(advise=MANY)) as answers:
        answer = answers.explain(asked)
    assert (answer["subject"], answer["id"]) == (subject, id_)
    related = [item["id"][2:6] for name in ("findings", "recommendations") for item in answer[name]]
    assert related == ([id_[2:6]] if asked == "bare" else [id_[2:6]] * 2)
    assert (answer["workload"] or {}).get("id") == (None if asked == "bare" else f"w-{id_[2:]}")


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda a: a.section("secrets"), UsageError, "Use one of: workloads, findings"),
        (lambda a: a.section("findings", limit=10**9), UsageError, "1 to 200"),
        (lambda a: a.section("findings", limit=0), UsageError, "1 to 200"),
        (lambda a: a.section("findings", after="../../etc/passwd"), UsageError, "Invalid cursor"),
        (lambda a: a.section("findings", after="00000000.3"), StaleCursor, "Begin again"),
        (lambda a: a.section("findings", source="/other.db"), UsageError, "Unknown filter 'source'"),
        (lambda a: a.explain("trian-7"), NothingToDo, "No match for 'trian-7'. Did you mean train-"),
        (lambda a: a.explain("0001"), NothingToDo, "No match"),
        (lambda a: a.explain("0007aaaa"), UsageError, "matches 3 items"),
        (lambda a: a.explain("w-000"), UsageError, "matches 16 items. Use one of: w-0000aaaaaaaa, "),
        (lambda a: a.plan("everything"), UsageError, "cash, nodes, capacity, energy"),
        (lambda a: a.idle("n1", 60.0), UsageError, "5m to 3d"),
        (lambda a: a.doctor(), CommandError, "^No such database: /nodes. Check it.$"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence_with_a_remedy(ask, error, words) -> None:
    commands = Commands(advise=MANY, doctor="No such database: /nodes. Check it.")
    with answering(commands) as answers, pytest.raises(error, match=words):
        ask(answers)
    assert all("secrets" not in call and "/other.db" not in call for call in commands.called)


def test_the_source_is_that_of_the_start_and_no_caller_s_word_enters_a_command() -> None:
    commands = Commands(advise=MANY, idle={"answers": [idle("node:n1", "node", "n1")]}, job={"cards": []})
    with answering(commands) as answers:
        answers.explain("4707")
        with pytest.raises(NothingToDo):
            answers.idle("--db=/other.db", 7200.0)
        with pytest.raises(NothingToDo):
            answers.job("../../etc/passwd")
    source, book, state = "--db /nodes", "--prices /p.yaml", "--state /s.db"
    assert [" ".join(call) for call in commands.called] == [
        f"advise {source} --since 14d {book} {state} --format json",
        f"idle --each --longer-than 7200s {source} {book} --format json",
        f"job --no-keep {source} --since 14d {book} {state} --format json",
    ]


def test_idle_means_the_node_before_its_gpus_and_is_never_old() -> None:
    now, every = [0.0], [idle("node:n1", "node", "n1"), idle("GPU-1", "GPU", "n1"), idle("w-1", "workload", "n1")]
    commands = Commands(idle={"schema": "skuwise.idles/1", "generated_at": "2026-11-16T00:00:00Z", "answers": every})
    with answering(commands, lambda: now[0]) as answers:
        answer = answers.idle("n1", 7200.0)
        assert (answer["schema"], answer["target"], answer["what"]) == ("skuwise.idle/1", "n1", "node n1")
        assert "jobs" not in answer and answer["generated_at"] == "2026-11-16T00:00:00Z"
        now[0] = 290.0
        commands.go.clear()
        assert answers.idle("n1", 7200.0) == answer  # the older one, while a newer one is made
        answers._patience_seconds, now[0] = 0.01, 310.0
        with pytest.raises(NotReady, match="Ask again"):
            answers.idle("n1", 7200.0)
    assert len(commands.called) == 2


def test_one_command_runs_for_all_who_ask_and_a_failure_is_not_repeated_at_once() -> None:
    now, commands = [0.0], Commands(advise="It failed. Fix it.")
    with answering(commands, lambda: now[0]) as answers:
        for _ in range(3):
            with pytest.raises(CommandError, match="It failed"):
                answers.summary()
        assert len(commands.called) == 1
        now[0], commands.documents["advise"] = 31.0, MANY
        assert answers.summary()["summary"] == {"gpu_count": 1001}
        commands.go.clear()
        now[0], answers._patience_seconds = 1000.0, 0.0
        assert all(answers.summary()["summary"] == {"gpu_count": 1001} for _ in range(3))
        assert len(commands.called) <= 3


def test_the_documents_that_were_asked_for_last_are_kept() -> None:
    """Schedulers ask for many spans of time; one document is made again while it is dropped."""
    now, every = [0.0], [idle("node:n1", "node", "n1")]
    document = {"schema": "skuwise.idles/1", "generated_at": "2026-11-16T00:00:00Z", "answers": every}
    with answering(Commands(advise=MANY, plan={"goal": "cash"}, idle=document), lambda: now[0]) as answers:
        answers.plan()
        running = answers._running.pop(("plan", "--goal", "cash"))
        for n in range(20):
            answers.summary()
            now[0] = float(n)
            assert answers.idle("n1", 3600.0 + n)["state"] == "idle"
        assert running.done() and len(answers._stored) == 16
        assert len([words for words in answers._stored if words[0] == "advise"]) == 1


def test_advice_that_another_process_writes_is_taken_and_a_page_of_the_older_refused(tmp_path: Path) -> None:
    file, commands = tmp_path / "advice.json", Commands(advise=MANY)
    how = {"advice_file": write_json(file, advice(workload(1), workload(2))), "advice_seconds": 3600.0}
    os.utime(file, (1000, 1000))
    with answering(commands, lambda: 2000.0, **how) as answers:
        page = answers.section("workloads", limit=1)
        assert page["page"]["total"] == 2 and not commands.called
        write_json(file, advice(workload(3)))
        os.utime(file, (1900, 1900))
        answers.summary()
        answers._slow.shutdown()  # what was begun is done
        assert answers.summary()["sections"]["workloads"] == 1 and not commands.called
        with pytest.raises(StaleCursor):
            answers.section("workloads", after=page["page"]["next"])


def test_a_job_that_ran_twice_is_its_newest_run_and_two_jobs_of_a_name_are_refused() -> None:
    run = {"name": "a", "scheduler": "slurm", "job_id": "7", "cluster": "x"}
    cards = [
        {"id": "w-aaaa1", **run, "start": "2026-11-01T00:00:00Z"},
        {"id": "w-aaaa2", **run, "start": "2026-11-02T00:00:00Z"},
        {"id": "w-bbbb1", "name": "a", "scheduler": "kubernetes", "pod": "p", "namespace": "ns", "cluster": "x"},
    ]  # fmt: skip
    with answering(Commands(job={"schema": "skuwise.cards/1", "cards": cards})) as answers:
        assert answers.job("7")["id"] == "w-aaaa2" and answers.job("ns/p")["id"] == "w-bbbb1"
        with pytest.raises(UsageError, match="matches 3 items"):
            answers.job("a")


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"id": "w-1", "nodes": ["n1"], "gpus": [f"GPU-{n:040}" for n in range(5000)]}, ["gpus"]),
        ({"id": "w-1", "text": "x" * 300_000}, ["text"]),
        ({"id": "w-1", "kept": {f"node-{n}": "reason" * 10 for n in range(5000)}}, ["kept"]),
        ({"id": "w-1", "members": [{"gpus": ["GPU"] * 40_000}]}, ["members.gpus"]),
        ({"id": "w-1", "gpus": ["GPU"]}, []),
    ],
)
def test_an_item_larger_than_a_page_is_cut_and_says_where(value: dict[str, Any], fields: list[str]) -> None:
    whole = msgspec.json.decode(msgspec.json.encode(value))
    with answering(Commands(advise=advice(workload(1), value | workload(2, **value), workload(3)))) as answers:
        pages = [answers.section("workloads", limit=2)]
        pages.append(answers.section("workloads", after=pages[0]["page"]["next"]))
        assert [len(page["workloads"]) for page in pages] == ([1, 1] if fields else [2, 1])
        assert all(size(page) <= 100_000 for page in pages)
    cut = Stored(sqlite3.connect(":memory:"), 0.0).shorten(whole)
    assert [(entry["id"], entry["field"]) for entry in cut] == [("w-1", field) for field in fields]
    assert size(whole) <= PAGE_BYTES
    for entry in cut:
        if entry["field"] in whole:
            assert entry["left_out"] + len(whole[entry["field"]]) == len(value[entry["field"]])
