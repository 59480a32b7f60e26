# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false
"""The letter of a week, and as it is addressed: what it tells, and that names from outside are nothing but text."""

import email
import html
import re
from collections import Counter
from dataclasses import replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default as default_policy
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from skuwise.advisor.core.advice_types import Decision, Reconciliation
from skuwise.advisor.core.worth import marked
from skuwise.advisor.notify.by_team import split_by_team
from skuwise.advisor.notify.letters import HTML_MAX, MAIL_MAX, SUBJECT_MAX, Attachment, Letter, report_letter
from skuwise.advisor.notify.mime import compose, file_names
from skuwise.advisor.notify.routes import Routes
from skuwise.advisor.show.aggregates import DRAINED, NO_WORKLOAD, NOT_OBSERVED, holdings, hours_by_kind
from skuwise.advisor.show.dashboard import Dashboard
from skuwise.advisor.show.pages.story import story_of
from skuwise.advisor.show.reader_commands import ReaderCommands, ReaderLinks
from skuwise.tests.support.golden_files import golden
from skuwise.tests.support.report_fixtures import END, WEEK, by_namespace, fleet, outcome, unpriced

LINKS = ReaderLinks(ReaderCommands("skuwise", state="--state /s.db"))
HOSTILE = (
    "<script>alert(1)</script>", "\" onload=\"x", "a\r\nBcc: all@example.org", "=cmd|' /C calc'!A0", "\u202egnp.exe",
    "\x1b[31mred\x1b[0m", "{{ 7 * 7 }}", "{% raw %}", "&amp;&#x3c;", "'; --", "\ud800", "$x^2$", "-- \nsignature",
    "</td></tr></table>", "<!--[if mso]>", "x" * 10_000, "\U0001f600" * 5000, '"&<>' * 2500,
)  # fmt: skip


def letter(advice=None, before=None, **changes):
    return report_letter(story_of(fleet() if advice is None else advice, before, **changes), LINKS)


def sent(made):
    return compose(made, Routes(), ("a@example.org",), message_id="<1@example.org>", date=END)


class Tags(HTMLParser):
    """Every tag with its attributes, but for what keeps a figure whole."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags += [(tag, dict(attrs))] if tag != "span" else []


def test_the_mail_of_a_week_reads_as_it_did_and_html_has_the_same_order():
    freed = outcome(
        "r-3", predicted_saving_usd_per_month=None, predicted_freed_gpu_hours_per_month=700.0,
        realised_saving_usd_per_month=None, realised_freed_gpu_hours_per_month=650.0, realised_time_ratio=1.05,
    )  # fmt: skip
    waits = outcome("r-2", realised_saving_usd_per_month=None, reason_missing="not done yet")
    back = outcome("r-4", "chat-9", state="regressed", why="It holds 16 GPUs again.")
    told = {"before": fleet(end=END - WEEK, scale=0.5), "outcomes": (outcome(done_at=END - 3600.0), waits, freed, back)}
    made = letter(teams=split_by_team(fleet(), by_namespace), reported=frozenset({"r-w-1-1"}), **told)
    text = f"{made.subject}\n\n{made.text}"
    assert text == golden("letters/week.txt", text)
    lines, order = text.splitlines(), re.findall(r"<h2[^>]*>([^<]*)</h2>", made.html)
    assert len(order) == 5 and [one for one, under in pairwise(lines) if under and not under.strip("-")][:5] == order


def test_ten_recommendations_with_their_commands_and_the_rest_counted():
    advice = fleet(8, 2)
    taken = replace(advice.recommendations[0], decision=Decision("accepted", END, "ann"))
    advice = marked(replace(advice, recommendations=(taken, *advice.recommendations[1:])))
    story = story_of(advice, reported=frozenset({"r-w-1-1"}))
    made = report_letter(story, LINKS)
    commands = re.findall(r"skuwise ledger accept (\S+) --state /s.db", made.text)
    listed = [row.recommendation for row in story.listed[:10]]
    assert commands == [r.id for r in listed if r.decision is None] and len(commands) >= 9
    assert set(story.proposed) == set(commands) - {"r-w-1-1"} and made.text.count("in an earlier report") == 1
    assert "Not shown: 6 more" in " ".join(made.text.split())


def test_a_mail_has_the_whole_page_and_lists_as_far_as_there_is_room():
    made = letter(teams=split_by_team(fleet(), by_namespace))
    name = "skuwise-2026-11-09"
    ends = (".html", "-teams.csv", "-teams.json", ".csv", ".json")
    assert [file.name for file in made.attachments] == [f"{name}{end}" for end in ends]
    assert (
        b"Method and reconciliation" in made.attachments[0].data and "Method and" not in made.text.partition("Evid")[0]
    )
    large = letter(fleet(60, 4), teams=split_by_team(fleet(60, 4), by_namespace))
    names = [file.name for file in large.attachments]
    assert f"{name}.html" not in names and f"{name}.csv.gz" in names and names[0] in " ".join(large.text.split())
    assert all(len(sent(one)) <= MAIL_MAX and len(one.html) < HTML_MAX for one in (made, large))


def test_without_prices_hours_are_told_and_no_dollar_is():
    made = letter(unpriced(fleet()), unpriced(fleet(end=END - WEEK)))
    assert "$" not in made.subject + made.text + made.html and "5,840 GPU-hours/month" in made.text


def test_a_team_is_told_of_its_own_only():
    made = letter(split_by_team(fleet(3, 3), by_namespace)["team-001"], team="team-001")
    told = made.html + made.text + "".join(a.data.decode() for a in made.attachments)
    assert "chat-1-0" in told and not re.search(r"chat-[02]-|team-00[02]|node-[02]-", told)
    assert "the hours that the team's workloads held alone" in made.attachments[0].data.decode().replace("&#39;", "'")
    assert not any("teams" in a.name for a in made.attachments)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:20])
def test_hostile_names_are_text_and_nothing_else(text):
    calm, odd = (letter(fleet(2, 2, name=lambda n, t=t: t + n), team=t) for t in ("calm", text))
    # Long ones leave no room for some files, and their sentences are away: nothing is there beside.
    assert not Counter(tag for tag, _ in Tags(odd.html).tags) - Counter(tag for tag, _ in Tags(calm.html).tags)
    for _, attributes in Tags(odd.html).tags:
        assert not any(name.startswith("on") for name in attributes)
        assert "src" not in attributes
    assert odd.subject.isprintable() and len(odd.subject) <= SUBJECT_MAX
    for line in odd.text.splitlines():
        assert line.isprintable() and len(line) <= 72
    assert len(odd.html.encode()) <= HTML_MAX and len(odd.text) < 20_000 and len(sent(odd)) <= MAIL_MAX


def test_hours_of_no_workload_are_those_of_the_accounting_however_gpus_are_shared():
    advice = fleet(1, 2)
    held = advice.summary.gpu_hours
    uses = Reconciliation(held, 0.0, 0.0, 500.0, 40.0, 0.0, held + 540.0)
    roomy = replace(advice, summary=replace(advice.summary, gpu_hours=held + 540.0, gpu_hours_by_use=uses))
    shared = replace(roomy, workloads=tuple(replace(w, shared=True) for w in roomy.workloads))
    for one in (roomy, shared):
        told = hours_by_kind(one)
        assert (told[NO_WORKLOAD], told[DRAINED]) == (pytest.approx(500.0), pytest.approx(40.0))
        assert NOT_OBSERVED not in told
    assert NO_WORKLOAD not in hours_by_kind(advice)


def test_idle_gpus_are_summed_by_owner_and_unpriced_ones_are_not_free():
    advice = fleet(2, 2)
    bare = replace(advice.findings[1], id="f-bare", rule="idle", workload=None, nodes=("n9",), cost_usd=None)
    held = [replace(f, workload=advice.workloads[1].id) for f in advice.findings if f.rule == "held-idle"]
    told = {h.owner: h for h in holdings(replace(advice, findings=(bare, *held)))}
    assert told[None].names == ("n9",) and told[None].cost_usd is None
    owner = told["user ann, namespace team-000"]
    assert owner.gpu_hours == pytest.approx(2 * 8 * 168)
    assert owner.cost_usd == pytest.approx(sum(f.cost_usd for f in held))


URL = "https://grafana.example.org/d/gpu?var-job={workload}&var-node={node}&from={from}&to={to}#t={team}"


def test_links_are_filled_with_encoded_names_and_stay_within_their_attribute() -> None:
    bad = "a\"><script>&'\r\n \u202e/../{team}"
    links = ReaderLinks(dashboard=Dashboard(URL))
    made = report_letter(story_of(fleet(2, 2, name=lambda n: bad + n), team=bad), links)
    found = [html.unescape(url) for url in re.findall(r'href="([^"]*)"', made.html)]
    assert len(found) == 6  # the page's, twice, and one of each recommendation
    for url in found:
        assert re.fullmatch(r"https://grafana\.example\.org/d/gpu\?[A-Za-z0-9%._~&=#-]+", url)
        assert f"from={(END - WEEK) * 1000:.0f}&to={END * 1000:.0f}" in url
    assert "<script" not in made.html and all(line.isprintable() for line in made.text.splitlines())


def test_commands_of_a_mail_name_source_window_and_machine() -> None:
    commands = ReaderCommands("skuwise", "--db '/srv/gpu data/fleet.db'", host="gpu-admin")
    made = report_letter(story_of(fleet(), None), ReaderLinks(commands))
    joined = re.sub(r"\\\n\s+", "", made.text)
    explain = "skuwise explain r-w-0-1 --db '/srv/gpu data/fleet.db' --since 7d --until 2026-11-16"
    for wanted in (explain, "skuwise ledger accept r-w-0-1", "run its command on gpu-admin"):
        assert wanted in joined and wanted in html.unescape(re.sub(r"<[^>]+>", "", made.html))


SENDER = Address("GPU report", addr_spec="gpus@example.org")
ROUTES = Routes(sender=SENDER, list_unsubscribe="mailto:ops@example.org")


def parsed(letter: Letter) -> EmailMessage:
    to = ("a@example.org", "b@example.org")
    content = compose(letter, ROUTES, to, message_id="<1@example.org>", date=1_795_400_000.0)
    assert content.isascii() and max(map(len, content.split(b"\r\n"))) <= 998  # RFC 5322
    assert b"\n" not in content.replace(b"\r\n", b"")
    found = email.message_from_bytes(content, policy=default_policy)
    assert isinstance(found, EmailMessage)
    return found


def test_a_message_has_its_parts_and_no_header_but_its_own() -> None:
    letter = Letter(
        "Grüße: 3\r\nBcc: all@example.org\r\n\r\n\x1b[2J\u202e moves" + "x" * 10_000, "<p>ü</p>", "ü and all of it\n",
        (Attachment("list.csv", "text/csv", "a,ü\n".encode()), Attachment("x.json.gz", "application/gzip", b"\x1f")),
    )  # fmt: skip
    message = parsed(letter)
    assert message["Subject"].startswith("Grüße: 3") and len(message["Subject"]) <= 200
    assert set(message.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe", "Auto-Submitted", "Precedence",
        "MIME-Version", "Content-Type",
    }  # fmt: skip
    assert [a.addr_spec for a in message["To"].addresses] == ["a@example.org", "b@example.org"]
    assert (message["From"], message["Message-ID"]) == ("GPU report <gpus@example.org>", "<1@example.org>")
    assert message["List-Unsubscribe"] == "<mailto:ops@example.org>"
    assert (message["Auto-Submitted"], message["Precedence"]) == ("auto-generated", "bulk")
    assert message["Date"].datetime.timestamp() == 1_795_400_000.0
    assert message.get_content_type() == "multipart/mixed"
    kinds = [part.get_content_type() for part in message.walk() if not part.is_multipart()]
    assert kinds == ["text/plain", "text/html", "text/csv", "application/gzip"]
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None and html is not None
    assert text.get_content().splitlines() == ["ü and all of it"] and "<p>ü</p>" in html.get_content()
    files = {part.get_filename(): part.get_content() for part in message.iter_attachments()}
    assert files == {"list.csv": "a,ü\r\n", "x.json.gz": b"\x1f"}


@pytest.mark.parametrize(
    "teams",
    [
        ("", "a/b", "a_b", "A/B", "..", "fleet", "Fleet", "ß", "con\n", "index", "\u202eexe",
         "\U0001f680", "cafe\u0301", "caf\u00e9", "-rf", ".x", "x" * 500, "x" * 501, "a b", "a-b", "b"),
    ],
)  # fmt: skip
def test_previews_of_any_teams_lie_side_by_side(teams: tuple[str, ...]) -> None:
    names = file_names(teams)
    assert len({name.casefold() for name in names}) == len(teams)
    assert all(re.fullmatch(r"[a-z0-9_-]{1,90}", name) for name in names)
    assert names[0] == "fleet" and names[-1] == "b"
    assert "index" not in names
