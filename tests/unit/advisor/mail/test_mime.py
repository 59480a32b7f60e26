"""A letter, addressed: headers, parts, links and file names, whatever names from outside hold."""

import email
import html
import re
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import default as default_policy

import pytest
from skuwise.advisor.notify.letters import Attachment, Letter, report_letter
from skuwise.advisor.notify.mime import compose, file_names
from skuwise.advisor.notify.routes import Routes
from skuwise.advisor.views.document.dashboard import Dashboard
from skuwise.advisor.views.document.reader_commands import ReaderCommands
from skuwise.advisor.views.document.report_document import ReaderLinks
from skuwise.advisor.views.document.report_story import story_of
from skuwise.tests.support.report_fixtures import END, WEEK, fleet

URL = "https://grafana.example.org/d/gpu?var-job={workload}&var-node={node}&from={from}&to={to}#t={team}"


def test_links_are_filled_with_encoded_names_and_stay_within_their_attribute() -> None:
    bad = "a\"><script>&'\r\n \u202e/../{team}"
    links = ReaderLinks(dashboard=Dashboard(URL))
    made = report_letter(story_of(fleet(2, 2, name=lambda n: bad + n), None, team=bad), links)
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
HOSTILE = "team\r\nBcc: all@example.org\r\n\r\n<script>\x1b[2J\u202e" + "x" * 10_000


def parsed(letter: Letter) -> EmailMessage:
    to = ("a@example.org", "b@example.org")
    content = compose(letter, ROUTES, to, message_id="<1@example.org>", date=1_795_400_000.0)
    assert content.isascii() and max(map(len, content.split(b"\r\n"))) <= 998  # RFC 5322
    assert b"\n" not in content.replace(b"\r\n", b"")
    found = email.message_from_bytes(content, policy=default_policy)
    assert isinstance(found, EmailMessage)
    return found


def test_a_message_has_its_parts_and_its_headers() -> None:
    letter = Letter(
        "Grüße: 3 moves", "<p>ü</p>", "ü and all of it\n",
        (Attachment("list.csv", "text/csv", "a,ü\n".encode()), Attachment("x.json.gz", "application/gzip", b"\x1f")),
    )  # fmt: skip
    message = parsed(letter)
    assert message["Subject"] == "Grüße: 3 moves"
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


def test_outside_text_ends_no_header() -> None:
    message = parsed(Letter(HOSTILE, HOSTILE, HOSTILE))
    assert message["Bcc"] is None and len(message["Subject"]) <= 200
    assert set(message.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe", "Auto-Submitted", "Precedence",
        "MIME-Version", "Content-Type",
    }  # fmt: skip


@pytest.mark.parametrize(
    "teams",
    [
        ("", "a/b", "a_b", "A/B", "..", "fleet", "Fleet", "ß", "con\n", "con", "NUL", "com1", "index", "\u202eexe",
         "\U0001f680", "cafe\u0301", "caf\u00e9", "-rf", ".x", "x" * 500, "x" * 501, "a b", "a-b", "b"),
    ],
)  # fmt: skip
def test_previews_of_any_teams_lie_side_by_side(teams: tuple[str, ...]) -> None:
    names = file_names(teams)
    assert len({name.casefold() for name in names}) == len(teams)
    assert all(re.fullmatch(r"[a-z0-9_-]{1,90}", name) for name in names)
    assert names[0] == "fleet" and names[-1] == "b"
    assert not {"con", "nul", "com1", "index"} & set(names)
