"""The texts: subjects, facts, digests of thousands, names from outside."""

import email
import json
import re
import unicodedata
from dataclasses import replace
from email.policy import default as default_policy
from typing import Any, get_args

import pytest
from skuwise.advisor.core.advice_types import Evidence
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.incident_types import Incident, IncidentKind
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.notify.alertmanager import ANNOTATION_MAX, LABEL_MAX, alerts_of, check_alertmanager
from skuwise.advisor.notify.letters import WEBHOOK_MAX, Writing, incident_letter, webhook_json
from skuwise.advisor.notify.mime import compose
from skuwise.advisor.notify.routes import Routes
from skuwise.advisor.show.dashboard import Dashboard
from skuwise.advisor.show.incident_words import Item, as_dict, line_words, phrase_words, title
from skuwise.advisor.show.reader_commands import ReaderCommands
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, MORNING, ended, incident

WRITING = Writing(WatchSettings(), ReaderCommands(source="--prometheus https://prom.example.org"))


def opened(one: Incident) -> Item:
    return Item(one, "opened")


SILENT = incident(1, kind="telemetry-dead", code="node-silent", workload=False, gpus=0, cost=None)


@pytest.mark.parametrize(
    ("name", "one", "kind"),
    [
        ("opened", incident(1), "opened"), ("reminded", incident(1, cost=None), "reminded"),
        ("resolved", ended(incident(1)), "resolved"), ("unowned", incident(1, user=None), "opened"),
        ("silent-node", SILENT, "opened"),
    ],
)  # fmt: skip
def test_a_letter_reads_as_it_did(name: str, one: Incident, kind: Any) -> None:
    letter = incident_letter([Item(one, kind)], "search", MORNING, WRITING)
    text = f"{letter.subject}\n\n{letter.text}"
    assert text == golden(f"letters/{name}.txt", text)
    assert letter.subject.endswith(line_words(Item(one, kind))) and "i-00000001" in letter.html


@pytest.mark.parametrize("code", [
    "worked-before", "never-worked", "no-work-in-view", "no-process", "pattern-ended", "collectives-spin",
    "node-silent", "gpu-missing", "counters-stuck", "source-stale", "slowdown-throttle", "clock-stuck-low",
    "fabric-silent", "port-down", "a-code-of-later",
])  # fmt: skip
@pytest.mark.parametrize("kind", get_args(IncidentKind))
def test_every_kind_and_code_has_words(kind: IncidentKind, code: str) -> None:
    one = incident(1, kind=kind, code=code)
    letter = incident_letter([opened(one)], "", MORNING, WRITING)
    phrase = phrase_words(one)
    assert f"{phrase} for 2.1 h" in letter.subject and f"{kind} ({code})" in letter.text
    assert title(one).partition(": ")[2].casefold() == phrase.casefold() and as_dict(one, MORNING)["kind"] == kind


def test_a_digest_names_the_worst_and_counts_the_rest() -> None:
    items = [opened(incident(n, cost=float(n), user=f"u{n % 3}")) for n in range(1, 31)]
    items[4] = opened(replace(items[4].incident, sighting=replace(items[4].incident.sighting, severity="high")))
    items += [Item(incident(n, cost=1000.0), "reminded") for n in (41, 42)]
    items += [Item(ended(incident(51, cost=2000.0)), "resolved"), Item(ended(incident(52, cost=3.5)), "over")]
    letter = incident_letter(items, "search", MORNING, WRITING)
    assert letter.subject.startswith("[skuwise] 34 incidents (30 new, 2 still open, 1 resolved, 1 ended): $4,4")
    named = set(re.findall(r"i-[0-9a-f]{8}", letter.text))
    assert len(named) == 20 and {"i-00000005", "i-0000002a", "i-0000001e"} <= named  # what goes on before what ended
    text = " ".join(letter.text.split())
    assert "14 more" in text and "Resolved (1)" in text and "held-idle u1" in text
    assert "Worst: 8 H100s" in text
    assert "Cost: at list price, 2026-09-19 (azure.com)." in text


def hostile(number: int = 1) -> Incident:
    one = incident(number, user=HOSTILE, node=HOSTILE, name=HOSTILE, namespace=HOSTILE)
    subject = replace(one.sighting.subject, job_id=HOSTILE, pod=HOSTILE, gpu_sku=HOSTILE, workload_id=HOSTILE)
    sighting = replace(
        one.sighting, subject=subject, price_source=HOSTILE, text=CodedText("x", HOSTILE), code=HOSTILE,
        do_next=CodedText("x", HOSTILE), evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
    )  # fmt: skip
    return replace(one, sighting=sighting, acknowledged_by=HOSTILE)


@pytest.mark.parametrize("count", [1, 2])
def test_names_from_outside_end_no_header_and_are_no_markup(count: int) -> None:
    items = [opened(hostile(n)) for n in range(count)]
    writing = replace(WRITING, dashboard=Dashboard("https://g.example.org/{workload}/{node}/{team}"))
    letter = incident_letter(items, HOSTILE, MORNING, writing)
    content = compose(letter, Routes(), ("a@example.org",), message_id="<x@example.org>", date=MORNING)
    message = email.message_from_bytes(content, policy=default_policy)
    assert message["Bcc"] is None and message["To"] == "a@example.org"
    assert "\n" not in str(message["Subject"]) and content.isascii()
    assert "<b>" not in letter.html and "<!channel>" not in letter.html
    for text in (letter.subject, letter.text.replace("\n", ""), letter.html.replace("\n", "")):
        assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")}
    load = json.loads(webhook_json(incident_letter(items, "search", MORNING, writing)))["text"]
    assert "<" not in load and load.count("```") == 2 and len(load) <= WEBHOOK_MAX
    assert "\u202e" not in load and "\x1b" not in load


WRITING_ALERTS = Writing(WatchSettings())


def alerts(*incidents: Incident, now: float = MORNING, writing: Writing = WRITING_ALERTS) -> list[dict[str, Any]]:
    return json.loads(json.dumps(alerts_of(incidents, now, writing, lambda _: "search")))


def test_an_open_incident_lasts_three_passes_and_has_what_routes_need() -> None:
    (one,) = alerts(incident(1, severity="high"))
    assert one["labels"] == {
        "alertname": "SkuwiseHeldIdle", "severity": "critical", "incident": "i-00000001", "kind": "held-idle",
        "subject": "workload:w-000001", "workload": "train-llm", "job_id": "4711", "holder": "job", "team": "search",
        "user": "alice", "node": "gpu-009", "gpu_sku": "H100-SXM5",
    }  # fmt: skip
    assert parse_moment(one["startsAt"]) == MORNING - 2.1 * HOUR and parse_moment(one["endsAt"]) == MORNING + 900
    assert one["annotations"]["summary"].endswith("(alice, job 4711): $51 so far")
    assert one["annotations"]["command"] == "skuwise job w-000001" and "generatorURL" not in one
    linked = alerts(
        incident(1), writing=replace(WRITING_ALERTS, dashboard=Dashboard("https://g.example.org/{workload}"))
    )
    assert linked[0]["generatorURL"] == "https://g.example.org/w-000001"


def test_what_ended_is_sent_for_an_hour_with_its_end() -> None:
    over = ended(incident(1), MORNING + 600)
    (one,) = alerts(over, now=MORNING + 900)
    assert parse_moment(one["endsAt"]) == MORNING + 600 and alerts(over, now=MORNING + 600 + HOUR) == []


def test_names_from_outside_are_bounded_and_no_markup() -> None:
    one = incident(1, user=HOSTILE * 20, node=HOSTILE, name=HOSTILE, namespace=HOSTILE, team=HOSTILE)
    (found,) = alerts(replace(one, acknowledged_by=HOSTILE * 100))
    for name, value in found["labels"].items():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)
        assert 0 < len(value) <= LABEL_MAX and not set(value) & set("<>\n\x1b\u202e")
    assert len(found["labels"]) <= 16
    assert all(0 < len(value) <= ANNOTATION_MAX for value in found["annotations"].values())
    assert not any(set(value) & set("<>\x1b\u202e") for value in found["annotations"].values())


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://alerts.example.org:9093", "not encrypted"), ("https://a.example.org/?x=1", "a query or a fragment")],
)
def test_an_address_that_would_leak_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_alertmanager(url)
