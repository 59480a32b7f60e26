"""Commands and links of mails: complete, safe whatever names come from outside, and folded as a shell reads them."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from skuwise.advisor.mail.settings import load_mail_settings
from skuwise.advisor.report.letters import letter_of
from skuwise.advisor.views.document.dashboard import Dashboard, url_fault
from skuwise.advisor.views.document.mail_document import ReaderLinks
from skuwise.advisor.views.document.reader_commands import ReaderCommands
from skuwise.advisor.views.document.report_content import story_of
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.report_fixtures import END, WEEK, fleet

URL = "https://grafana.example.org/d/gpu?var-job={workload}&var-node={node}&from={from}&to={to}#t={team}"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "file:///etc/passwd", "//example.org/x", "https://", "https:///x", "https://a b/",
        "https://example.org/\nBcc: x", 'https://example.org/"onload="x', "https://example.org/'x", "https://x/<b>",
        "https://{team}.example.org/", "https://user:word@example.org/", "https://example.org/{secret}",
        "https://example.org/{team", "https://example.org:99999/", "https://example.org/" + "x" * 600,
    ],
)  # fmt: skip
def test_a_dashboard_that_is_no_safe_url_is_refused_with_its_key(tmp_path: Path, url: str) -> None:
    assert url_fault(url) is not None
    file = tmp_path / "skuwise.toml"
    escaped = url.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    file.write_text(f'[report]\ndashboard_url = "{escaped}"\n')
    with pytest.raises(UsageError, match="dashboard_url"):
        load_mail_settings({}, system_file=file, config_home=tmp_path)


@pytest.mark.parametrize("command", ["skuwise; rm -rf /", "$(id)", "a\nb", "a`b`", "x" * 300, "a | b"])
def test_a_command_that_means_more_to_a_shell_is_refused(tmp_path: Path, command: str) -> None:
    with pytest.raises(UsageError, match=r"report\.command"):
        load_mail_settings({"SKUWISE_REPORT_COMMAND": command}, system_file=tmp_path / "none", config_home=tmp_path)


def test_links_are_filled_with_encoded_names_and_stay_within_their_attribute() -> None:
    bad = "a\"><script>&'\r\n \u202e/../{team}"
    links = ReaderLinks(dashboard=Dashboard(URL))
    made = letter_of(story_of(fleet(2, 2, name=lambda n: bad + n), None, team=bad), links=links)
    found = [html.unescape(url) for url in re.findall(r'href="([^"]*)"', made.html)]
    assert len(found) == 4  # the page's, and one of each recommendation
    for url in found:
        assert re.fullmatch(r"https://grafana\.example\.org/d/gpu\?[A-Za-z0-9%._~&=#-]+", url)
        assert f"from={(END - WEEK) * 1000:.0f}&to={END * 1000:.0f}" in url
    assert "<script" not in made.html
    assert all(line.isprintable() for line in made.text.splitlines())


def test_commands_of_a_mail_name_source_window_and_machine() -> None:
    commands = ReaderCommands("skuwise", "--db '/srv/gpu data/fleet.db'", host="gpu-admin")
    made = letter_of(story_of(fleet(), None), links=ReaderLinks(commands))
    joined = re.sub(r"\\\n\s+", "", made.text)
    wanted = "skuwise explain r-w-0-1 --db '/srv/gpu data/fleet.db' --since 7d --until 2026-11-16"
    assert "Details (run on gpu-admin):" in joined
    assert wanted in joined
    assert wanted in html.unescape(re.sub(r"<[^>]+>", "", made.html))
