# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false
"""The mails of incidents and of a week, and alerts: texts, addresses, names from outside."""

import email
import html
import json
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from email.headerregistry import Address
from email.policy import default as default_policy
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from skuwise.advisor.core.advice_types import Decision, Evidence, Reconciliation
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.incident_types import Incident, IncidentKind
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.core.worth import marked
from skuwise.advisor.notify import letters
from skuwise.advisor.notify.incidents import ANNOTATION_MAX, LABEL_MAX, alerts_of
from skuwise.advisor.notify.report import split_by_team
from skuwise.advisor.notify.routes import (
    ReportSettings,
    Routes,
    checked_url,
    load_mail_settings,
    load_routes,
    routes_of,
)
from skuwise.advisor.show.coverage import DRAINED, NO_WORKLOAD, NOT_OBSERVED, holdings, hours_by_kind
from skuwise.advisor.show.incident_words import Item, as_dict, line_words, phrase_words, title
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.show.reader_links import NO_LINKS, ReaderCommands, ReaderLinks
from skuwise.advisor.watch.settings import WatchSettings
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, MORNING, ended, incident
from skuwise.tests.support.ledger_builders import moved
from skuwise.tests.support.moves_builders import workload
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet, unpriced

SETTINGS, LINKS = WatchSettings(), ReaderLinks(ReaderCommands(source="--prometheus https://prom.example.org"))


ROUTES = Routes(sender=Address("GPU report", addr_spec="gpus@example.org"), list_unsubscribe="mailto:ops@example.org")


def opened(shown: Incident) -> Item:
    return Item(shown, "opened")


def composed(letter: letters.Letter, *to: str) -> bytes:
    return letters.compose(letter, ROUTES, to or ("a@example.org",), message_id="<1@example.org>", date=END)


SILENT = incident(1, kind="telemetry-dead", code="node-silent", workload=False, gpus=0, cost=None)


@pytest.mark.parametrize(
    ("name", "shown", "kind"),
    [
        ("opened", incident(1), "opened"), ("reminded", incident(1, cost=None), "reminded"),
        ("resolved", ended(incident(1)), "resolved"), ("unowned", incident(1, user=None), "opened"),
        ("silent-node", SILENT, "opened"),
    ],
)  # fmt: skip
def test_a_letter_reads_as_it_did(name: str, shown: Incident, kind: Any) -> None:
    letter = letters.incident_letter([Item(shown, kind)], "search", MORNING, SETTINGS, LINKS)
    text = f"{letter.subject}\n\n{letter.text}"
    assert text == golden(f"letters/{name}.txt", text)
    assert letter.subject.endswith(line_words(Item(shown, kind))) and "i-00000001" in letter.html


@pytest.mark.parametrize("code", [
    "worked-before", "never-worked", "no-work-in-view", "no-process", "pattern-ended", "collectives-spin",
    "node-silent", "gpu-missing", "counters-stuck", "source-stale", "slowdown-throttle", "clock-stuck-low",
    "fabric-silent", "port-down", "a-code-of-later",
])  # fmt: skip
@pytest.mark.parametrize("kind", get_args(IncidentKind))
def test_every_kind_and_code_has_words(kind: IncidentKind, code: str) -> None:
    shown = incident(1, kind=kind, code=code)
    letter = letters.incident_letter([opened(shown)], "", MORNING, SETTINGS, LINKS)
    phrase = phrase_words(shown)
    assert f"{phrase} for 2.1 h" in letter.subject and f"{kind} ({code})" in letter.text
    assert title(shown).partition(": ")[2].casefold() == phrase.casefold() and as_dict(shown, MORNING)["kind"] == kind


def test_a_digest_names_the_worst_and_counts_the_rest() -> None:
    items = [opened(incident(n, cost=float(n), user=f"u{n % 3}")) for n in range(1, 31)]
    items[4] = opened(replace(items[4].incident, sighting=replace(items[4].incident.sighting, severity="high")))
    items += [Item(incident(n, cost=1000.0), "reminded") for n in (41, 42)]
    items += [Item(ended(incident(51, cost=2000.0)), "resolved"), Item(ended(incident(52, cost=3.5)), "over")]
    letter = letters.incident_letter(items, "search", MORNING, SETTINGS, LINKS)
    assert letter.subject.startswith("[skuwise] 34 incidents (30 new, 2 still open, 1 resolved, 1 ended): $4,4")
    named = set(re.findall(r"i-[0-9a-f]{8}", letter.text))
    assert len(named) == 20 and {"i-00000005", "i-0000002a", "i-0000001e"} <= named  # what goes on before what ended
    text = " ".join(letter.text.split())
    assert "12 more, of lower severity or cost." in text and "Resolved (1)" in text
    assert "Worst: 8 H100s" in text
    assert "Cost: at list price, 2026-09-19 (azure.com)." in text


def hostile(number: int = 1) -> Incident:
    shown = incident(number, user=HOSTILE, node=HOSTILE, name=HOSTILE, namespace=HOSTILE)
    subject = replace(shown.sighting.subject, job_id=HOSTILE, pod=HOSTILE, gpu_sku=HOSTILE, workload_id=HOSTILE)
    sighting = replace(
        shown.sighting, subject=subject, price_source=HOSTILE, text=CodedText("x", HOSTILE), code=HOSTILE,
        do_next=CodedText("x", HOSTILE), evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
    )  # fmt: skip
    return replace(shown, sighting=sighting, acknowledged_by=HOSTILE)


@pytest.mark.parametrize("count", [1, 2])
def test_names_from_outside_end_no_header_and_are_no_markup(count: int) -> None:
    items = [opened(hostile(n)) for n in range(count)]
    links = replace(LINKS, dashboard="https://g.example.org/{workload}/{node}/{team}")
    letter = letters.incident_letter(items, HOSTILE, MORNING, SETTINGS, links)
    message = email.message_from_bytes(content := composed(letter), policy=default_policy)
    assert message["Bcc"] is None and message["To"] == "a@example.org"
    assert "\n" not in str(message["Subject"]) and content.isascii()
    assert "<b>" not in letter.html and "<!channel>" not in letter.html
    for text in (letter.subject, letter.text.replace("\n", ""), letter.html.replace("\n", "")):
        assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")}
    load = json.loads(letters.webhook_json(letters.incident_letter(items, "search", MORNING, SETTINGS, links)))["text"]
    assert "<" not in load and load.count("```") == 2 and len(load) <= letters.WEBHOOK_MAX
    assert "\u202e" not in load and "\x1b" not in load


def alerts(*incidents: Incident, now: float = MORNING, links: ReaderLinks = NO_LINKS) -> list[dict[str, Any]]:
    return json.loads(json.dumps(alerts_of(incidents, now, SETTINGS, links, lambda _: "search")))


def test_an_open_incident_lasts_three_passes_and_has_what_routes_need() -> None:
    (shown,) = alerts(incident(1, severity="high"))
    assert shown["labels"] == {
        "alertname": "SkuwiseHeldIdle", "severity": "critical", "incident": "i-00000001", "kind": "held-idle",
        "subject": "workload:w-000001", "workload": "train-llm", "job_id": "4711", "holder": "job", "team": "search",
        "user": "alice", "node": "gpu-009", "gpu_sku": "H100-SXM5",
    }  # fmt: skip
    assert parse_moment(shown["startsAt"]) == MORNING - 2.1 * HOUR and parse_moment(shown["endsAt"]) == MORNING + 900
    assert shown["annotations"]["summary"].endswith("(alice, job 4711): $51 so far")
    assert shown["annotations"]["command"] == "skuwise job w-000001" and "generatorURL" not in shown
    linked = alerts(incident(1), links=ReaderLinks(dashboard="https://g.example.org/{workload}"))
    assert linked[0]["generatorURL"] == "https://g.example.org/w-000001"
    over = ended(incident(1), MORNING + 600)  # sent for an hour with its end
    (shown,) = alerts(over, now=MORNING + 900)
    assert parse_moment(shown["endsAt"]) == MORNING + 600 and alerts(over, now=MORNING + 600 + HOUR) == []


def test_names_from_outside_are_bounded_and_no_markup() -> None:
    shown = incident(1, user=HOSTILE * 20, node=HOSTILE, name=HOSTILE, namespace=HOSTILE, team=HOSTILE)
    (matches,) = alerts(replace(shown, acknowledged_by=HOSTILE * 100))
    for name, value in matches["labels"].items():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)
        assert 0 < len(value) <= LABEL_MAX and not set(value) & set("<>\n\x1b\u202e")
    assert len(matches["labels"]) <= 16
    assert all(0 < len(value) <= ANNOTATION_MAX for value in matches["annotations"].values())
    assert not any(set(value) & set("<>\x1b\u202e") for value in matches["annotations"].values())


HTML_MAX = 98_000  # bytes: Gmail shows no more than 102 kB of a mail
WEEK_LINKS = ReaderLinks(ReaderCommands("skuwise", state="--state /s.db"))
HOSTILE_TEXTS = (
    "<script>alert(1)</script>", "\" onload=\"x", "a\r\nBcc: all@example.org", "=cmd|' /C calc'!A0", "\u202egnp.exe",
    "\x1b[31mred\x1b[0m", "{{ 7 * 7 }}", "{% raw %}", "&amp;&#x3c;", "'; --", "\ud800", "$x^2$", "-- \nsignature",
    "</td></tr></table>", "<!--[if mso]>", "x" * 10_000, "\U0001f600" * 5000, '"&<>' * 2500,
)  # fmt: skip


def letter_of(advice=None, before=None, **weeks):
    return letters.report_letter(story_of(fleet() if advice is None else advice, before, **weeks), WEEK_LINKS)


def test_the_mail_of_a_week_reads_as_it_did_and_html_has_the_same_order():
    freed = moved("r-3", predicted_saving_usd_per_month=None, saving_usd_per_month=None, time_ratio=1.05)
    waits, back = moved("r-2", act="accepted"), moved("r-4", "chat-9", act="regressed", why="It holds 16 GPUs again.")
    weeks = {"before": fleet(end=END - WEEK, scale=0.5), "moves": (moved(since=END - 3600.0), waits, freed, back)}
    made = letter_of(teams=split_by_team(fleet(), by_namespace), reported=frozenset({"r-w-1-1"}), **weeks)
    text = f"{made.subject}\n\n{made.text}"
    assert text == golden("letters/week.txt", text)
    lines, order = text.splitlines(), re.findall(r"<h2[^>]*>([^<]*)</h2>", made.html)
    assert len(order) == 5 and [line for line, under in pairwise(lines) if under and not under.strip("-")][:5] == order


def test_ten_recommendations_with_their_commands_and_the_rest_counted():
    advice = fleet(8, 2)
    taken = replace(advice.recommendations[0], decision=Decision("accepted", END, "ann"))
    advice = marked(replace(advice, recommendations=(taken, *advice.recommendations[1:])))
    story = story_of(advice, reported=frozenset({"r-w-1-1"}))
    made = letters.report_letter(story, WEEK_LINKS)
    commands = re.findall(r"skuwise ledger accept (\S+) --state /s.db", made.text)
    listed = [row.recommendation for row in story.listed[:10]]
    assert commands == [r.id for r in listed if r.decision is None] and len(commands) >= 9
    assert set(story.proposed) == set(commands) - {"r-w-1-1"} and made.text.count("in an earlier report") == 1
    assert "Not shown: 6 more" in " ".join(made.text.split())


def test_a_mail_has_the_whole_page_and_lists_as_far_as_there_is_room():
    made = letter_of(teams=split_by_team(fleet(), by_namespace))
    name = "skuwise-2026-11-09"
    ends = (".html", "-teams.csv", "-teams.json", ".csv", ".json")
    assert [file.name for file in made.attachments] == [f"{name}{end}" for end in ends]
    assert b"Method and reconciliation" in made.attachments[0].data
    assert "Method and" not in made.text.partition("Evid")[0]
    large = letter_of(fleet(60, 4), teams=split_by_team(fleet(60, 4), by_namespace))
    names = [file.name for file in large.attachments]
    assert f"{name}.html" not in names and f"{name}.csv.gz" in names and names[0] in " ".join(large.text.split())
    assert all(len(composed(shown)) <= letters.MAIL_MAX and len(shown.html) < HTML_MAX for shown in (made, large))


def test_without_prices_hours_are_told_and_no_dollar_is():
    made = letter_of(unpriced(fleet()), unpriced(fleet(end=END - WEEK)))
    assert "$" not in made.subject + made.text + made.html and "5,840 GPU-hours/month" in made.text


def test_a_team_is_told_of_its_own_only():
    made = letter_of(split_by_team(fleet(3, 3), by_namespace)["team-001"], team="team-001")
    weeks = made.html + made.text + "".join(a.data.decode() for a in made.attachments)
    assert "chat-1-0" in weeks and not re.search(r"chat-[02]-|team-00[02]|node-[02]-", weeks)
    assert "the hours that the team's workloads held alone" in made.attachments[0].data.decode().replace("&#39;", "'")
    assert not any("teams" in a.name for a in made.attachments)


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: ascii(text)[:20])
def test_hostile_names_are_text_and_nothing_else(text):
    calm, odd = (letter_of(fleet(2, 2, name=lambda n, t=t: t + n), team=t) for t in ("calm", text))
    # Long ones leave no room for some files, and their sentences are away: nothing is there beside. A span keeps a
    # figure whole.
    plain, marked_up = (Counter(re.findall(r"<(?!span)([a-z][a-z0-9]*)", made.html)) for made in (calm, odd))
    assert not marked_up - plain and not re.search(r"<[^>]*\s(on\w+|src)=", odd.html)
    assert odd.subject.isprintable() and len(odd.subject) <= letters.SUBJECT_MAX
    for line in odd.text.splitlines():
        assert line.isprintable() and len(line) <= 72
    assert len(odd.html.encode()) <= HTML_MAX and len(odd.text) < 20_000 and len(composed(odd)) <= letters.MAIL_MAX


def test_hours_of_no_workload_are_those_of_the_accounting_however_gpus_are_shared():
    advice = fleet(1, 2)
    held = advice.summary.gpu_hours
    uses = Reconciliation(held, 0.0, 0.0, 500.0, 40.0, 0.0, held + 540.0)
    roomy = replace(advice, summary=replace(advice.summary, gpu_hours=held + 540.0, gpu_hours_by_use=uses))
    shared = replace(roomy, workloads=tuple(replace(w, shared=True) for w in roomy.workloads))
    for shown in (roomy, shared):
        weeks = hours_by_kind(shown)
        assert (weeks[NO_WORKLOAD], weeks[DRAINED]) == (pytest.approx(500.0), pytest.approx(40.0))
        assert NOT_OBSERVED not in weeks
    assert NO_WORKLOAD not in hours_by_kind(advice)


def test_idle_gpus_are_summed_by_owner_and_unpriced_ones_are_not_free():
    advice = fleet(2, 2)
    bare = replace(advice.findings[1], id="f-bare", rule="idle", workload=None, nodes=("n9",), cost_usd=None)
    held = [replace(f, workload=advice.workloads[1].id) for f in advice.findings if f.rule == "held-idle"]
    weeks = {h.owner: h for h in holdings(replace(advice, findings=(bare, *held)))}
    assert weeks[None].names == ("n9",) and weeks[None].cost_usd is None
    owner = weeks["user ann, namespace team-000"]
    assert owner.gpu_hours == pytest.approx(2 * 8 * 168)
    assert owner.cost_usd == pytest.approx(sum(f.cost_usd for f in held))


URL = "https://grafana.example.org/d/gpu?var-job={workload}&var-node={node}&from={from}&to={to}#t={team}"


def test_links_are_filled_with_encoded_names_and_stay_within_their_attribute() -> None:
    bad = "a\"><script>&'\r\n \u202e/../{team}"
    links = ReaderLinks(dashboard=URL)
    made = letters.report_letter(story_of(fleet(2, 2, name=lambda n: bad + n), team=bad), links)
    matches = [html.unescape(url) for url in re.findall(r'href="([^"]*)"', made.html)]
    assert len(matches) == 6  # the page's, twice, and one of each recommendation
    for url in matches:
        assert re.fullmatch(r"https://grafana\.example\.org/d/gpu\?[A-Za-z0-9%._~&=#-]+", url)
        assert f"from={(END - WEEK) * 1000:.0f}&to={END * 1000:.0f}" in url
    assert "<script" not in made.html and all(line.isprintable() for line in made.text.splitlines())


def test_commands_of_a_mail_name_source_window_and_machine() -> None:
    commands = ReaderCommands("skuwise", "--db '/srv/gpu data/fleet.db'", host="gpu-admin")
    made = letters.report_letter(story_of(fleet(), None), ReaderLinks(commands))
    joined = re.sub(r"\\\n\s+", "", made.text)
    explain = "skuwise explain r-w-0-1 --db '/srv/gpu data/fleet.db' --since 7d --until 2026-11-16"
    for wanted in (explain, "skuwise ledger accept r-w-0-1", "run its command on gpu-admin"):
        assert wanted in joined and wanted in html.unescape(re.sub(r"<[^>]+>", "", made.html))


def test_a_message_has_its_parts_and_no_header_but_its_own() -> None:
    letter = letters.Letter(
        "Grüße: 3\r\nBcc: all@example.org\r\n\r\n\x1b[2J\u202e moves" + "x" * 10_000, "<p>ü</p>", "ü and all of it\n",
    )  # fmt: skip
    files = (("list.csv", "text/csv", "a,ü\n".encode()), ("x.json.gz", "application/gzip", b"\x1f"))
    letter = replace(letter, attachments=tuple(letters.Attachment(*file) for file in files))
    content = composed(letter, "a@example.org", "b@example.org")
    assert content.isascii() and max(map(len, content.split(b"\r\n"))) <= 998  # RFC 5322
    assert b"\n" not in content.replace(b"\r\n", b"")
    message: Any = email.message_from_bytes(content, policy=default_policy)
    assert message["Subject"].startswith("Grüße: 3") and len(message["Subject"]) <= 200 and message["Bcc"] is None
    assert [a.addr_spec for a in message["To"].addresses] == ["a@example.org", "b@example.org"]
    assert (message["From"], message["Message-ID"]) == ("GPU report <gpus@example.org>", "<1@example.org>")
    assert message["List-Unsubscribe"] == "<mailto:ops@example.org>" and message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime.timestamp() == END
    kinds = [part.get_content_type() for part in message.walk() if not part.is_multipart()]
    assert kinds == ["text/plain", "text/html", "text/csv", "application/gzip"]
    files = {part.get_filename(): part.get_content() for part in message.iter_attachments()}
    assert files == {"list.csv": "a,ü\r\n", "x.json.gz": b"\x1f"}


def test_previews_of_any_teams_lie_side_by_side() -> None:
    teams = ("", "a/b", "a_b", "A/B", "..", "fleet", "Fleet", "ß", "con\n", "index", "\u202eexe", "\U0001f680")
    teams = (*teams, "cafe\u0301", "caf\u00e9", "-rf", ".x", "x" * 500, "x" * 501, "a b", "a-b", "b")
    names = letters.file_names(teams)
    assert len({name.casefold() for name in names}) == len(teams)
    assert all(re.fullmatch(r"[a-z0-9_-]{1,90}", name) for name in names)
    assert names[0] == "fleet" and names[-1] == "b" and "index" not in names


GOOD = """
administrators = ["platform@example.org"]

[teams.search]
namespace = ["search", "search-*"]
account = ["srch"]
to = ["search@example.org", "Lead+gpu@example.org"]

[teams."ads & more"]
label = ["ads"]
user = ["ann"]
node = ["gpu-1*"]
sku = ["L40S"]
to = ["ads@example.org"]
webhook_url_file = "ads-webhook"
"""


def routes(tmp_path: Path, text: str) -> Routes:
    file = tmp_path / "teams.toml"
    file.write_text(text)
    return load_routes(file)


ADS, OF_BOB = "ads & more", Owner(user="bob")


@pytest.mark.parametrize(
    ("owner", "node", "sku", "team"),
    [
        (Owner(namespace="search"), "n1", "H200", "search"), (Owner(namespace="search-canary"), "n1", "H200", "search"),
        (Owner(namespace="searching"), "n1", "H200", None), (Owner(namespace="search*"), "n1", "H200", None),
        (Owner(account="srch", user="ann"), "n1", "H200", "search"),  # an account before a user
        (Owner(team="ads", namespace="search"), "n1", "H200", ADS),  # a label before all
        (OF_BOB, "gpu-11 gpu-12", "H200", ADS),
        (OF_BOB, "gpu-11 gpu-2", "H200", None),  # not all of its nodes are the team's
        (OF_BOB, "n1", "L40S", ADS), (Owner(), "n1", "H200", None),
    ],
)  # fmt: skip
def test_the_narrowest_matcher_decides_the_team_of_a_workload(tmp_path: Path, owner, node: str, sku, team) -> None:
    read = routes(tmp_path, GOOD)
    assert read.team_of(workload("w", tuple(node.split()), owner=owner, gpu_sku=sku)) == team
    assert (read.team_of_node("gpu-17"), read.team_of_node("gpu-2")) == (ADS, None)


def team(body: str) -> str:
    return f'[teams.a]\nto = ["a@example.org"]\n{body}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("administrators = 3", "administrators in {file} is not a list"),
        ('administrators = ["ops@example.org", "OPS@example.org"]', "names an address twice"),
        ('administrators = ["ops@example.org\\nBcc: all@example.org"]', "control character"),
        ('administrators = ["ops"]', "no mail address"),
        ("teams = 3", "Invalid teams in {file}: expected a table"),
        ("teems = 3", "Unknown setting 'teems' in {file}. Did you mean teams"),
        (team("namspace = ['x']"), "Unknown setting 'teams.a.namspace' in {file}. Did you mean namespace"),
        (team(""), "teams.a in {file} matches nothing"),
        (team("namespace = ['']"), "teams.a.namespace in {file} is no list of names"),
        (team("namespace = ['a*b']"), "a star is allowed only at the end"),
        ("[teams.a]\nuser = ['u']", "teams.a in {file} has no recipient"),
        (team("user = ['u', 'u']"), "teams.a.user in {file} holds 'u', which overlaps 'u' of teams.a"),
        (team("user = ['u*']\n[teams.b]\nto = ['b@example.org']\nuser = ['uv']"), "overlaps 'u*' of teams.a"),
        ('[teams."a\\u001b[2J"]\nuser = ["u"]\nto = ["a@example.org"]', "is not a valid team name"),
        (team("user = ['u']\nwebhook_url_file = 3"), "Invalid teams.a.webhook_url_file in {file}: expected text"),
    ],
)
def test_what_is_no_routes_file_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        routes(tmp_path, text)
    assert said.format(file=tmp_path / "teams.toml") in str(raised.value) and "\x1b" not in str(raised.value)


def test_administrators_are_those_of_the_routes_else_of_the_settings(tmp_path: Path) -> None:
    settings = ReportSettings(administrators=("ops@example.org",), webhook_url_file="hook")
    alone = routes_of(settings)
    assert [to.key for to in alone.fleet.recipients] == ["mail:ops@example.org", "webhook:"] and alone.teams == ()
    assert alone.list_unsubscribe == "mailto:ops@example.org?subject=unsubscribe"
    (tmp_path / "teams.toml").write_text(GOOD)
    named = routes_of(settings, tmp_path / "teams.toml")
    assert named.fleet.to == ("platform@example.org",) and [t.name for t in named.teams] == ["search", ADS]


def settings(tmp_path: Path, text: str, **environ: str) -> ReportSettings:
    file = tmp_path / "skuwise.toml"
    file.write_text(text)
    return load_mail_settings(environ, system_file=file, config_home=tmp_path / "home")


def test_settings_of_a_report(tmp_path: Path) -> None:
    text = '[report]\nsend = true\nfrom = "GPU report <gpus@example.org>"\ncooldown = "14d"'
    read = settings(tmp_path, text, SKUWISE_REPORT_DB="/a, /b", SKUWISE_REPORT_SEND="no")
    assert (read.db, read.send) == ((Path("/a"), Path("/b")), False)
    assert (read.port, read.cooldown_seconds) == (587, 1209600)
    assert read.sender is not None and read.sender.addr_spec == "gpus@example.org"
    assert settings(tmp_path, "[report]\nsmtp_security = 'tls'").port == 465
    assert settings(tmp_path, "[report]\nsmtp_security = 'none'\nsmtp_host = '::1'").port == 25
    with pytest.raises(UsageError, match="is another machine"):
        settings(tmp_path, "[report]\nsmtp_security = 'none'\nsmtp_host = 'smtp.example.org'")


NO_ADDRESSES = (
    "a b@c", "a@", "@b", "a..b@c", "a@b,c@d", "<a@b>", f"a@{'b' * 64}", "=?utf-8?q?a=0D=0ABcc=3Ab?=@c", "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sned", True, "Unknown setting 'report.sned'"), ("send", "maybe", "expected true or false"),
        ("smtp_password", "hunter2", "Unknown setting 'report.smtp_password'"),
        ("smtp_host", "smtp.example.org\n", "control character"), ("smtp_host", "a b", "expected a host name"),
        ("smtp_username", "u", "has no password"), ("from", "g@example.org\r\nBcc: x@example.org", "control character"),
        ("list_unsubscribe", "javascript:x", "expected a mailto: or https: address"),
        ("smtp_timeout", "2h", "a number of seconds <= 600"), ("mails_per_minute", 0, "a whole number >= 1"),
        *(("administrators", [text], "no mail address") for text in NO_ADDRESSES),
        *(("from", f"GPU report <{text}>", "no mail address") for text in NO_ADDRESSES),
        *(("command", text, "report.command") for text in ("a; rm -rf /", "$(id)", "a\nb", "a`b`", "x" * 300, "a | b")),
        *(("dashboard_url", text, "report.dashboard_url") for text in (
            "javascript:alert(1)", "file:///etc/passwd", "//example.org/x", "https://", "https:///x", "https://a b/",
            "https://example.org/\nBcc: x", 'https://example.org/"onload="x', "https://example.org/'x", "https://x/<b>",
            "https://{team}.example.org/", "https://user:word@example.org/", "https://example.org/{secret}",
            "https://example.org/{team", "https://example.org:99999/", "https://example.org/" + "x" * 600,
        )),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(tmp_path: Path, key: str, value: object, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        settings(tmp_path, f"[report]\n{key} = {json.dumps(value)}")
    assert said in str(raised.value) and "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://x.example.org/SECRET", "ftp://x/SECRET", "SECRET", "https://a b/SECRET", ""])
def test_a_webhook_is_https_or_loopback_and_never_repeated(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        checked_url(url, "webhook-file")
    assert "SECRET" not in str(raised.value)
    assert checked_url("https://hooks.example.org/SECRET", "f") and checked_url("http://127.0.0.1:8/SECRET", "f")
