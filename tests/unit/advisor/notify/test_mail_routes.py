"""Routes and the settings of sending: what they take, what they refuse, and the team of a workload."""

import json
from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.notify.routes import (
    ReportSettings,
    Routes,
    check_webhook,
    load_mail_settings,
    load_routes,
    routes_of,
)
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.moves_builders import workload

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
def test_the_narrowest_matcher_decides_the_team_of_a_workload(
    tmp_path: Path, owner: Owner, node: str, sku: str, team: str | None
) -> None:
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
    assert named.fleet.to == ("platform@example.org",) and [t.name for t in named.teams] == [
        "search",
        "ads & more",
    ]


def settings(tmp_path: Path, text: str, **environ: str) -> ReportSettings:
    file = tmp_path / "skuwise.toml"
    file.write_text(text)
    return load_mail_settings(environ, system_file=file, config_home=tmp_path / "home")


def test_settings_of_a_report(tmp_path: Path) -> None:
    text = """
    [report]
    send = true
    from = "GPU report <gpus@example.org>"
    cooldown = "14d"
    """
    read = settings(tmp_path, text, SKUWISE_REPORT_DB="/a, /b", SKUWISE_REPORT_SEND="no")
    assert (read.db, read.send, read.port, read.cooldown_seconds) == (
        (Path("/a"), Path("/b")),
        False,
        587,
        1209600,
    )
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
        ("smtp_host", "smtp.example.org\n", "control character"), ("smtp_host", "a b", "not a host name"),
        ("smtp_username", "u", "has no password"), ("from", "g@example.org\r\nBcc: x@example.org", "control character"),
        ("list_unsubscribe", "javascript:x", "neither mailto: nor https:"),
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


@pytest.mark.parametrize(
    "url", ["http://hooks.example.org/SECRET", "ftp://x/SECRET", "SECRET", "https://a b/SECRET", ""]
)
def test_a_webhook_is_https_or_loopback_and_never_repeated(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_webhook(url, "webhook-file")
    assert "SECRET" not in str(raised.value)
    assert check_webhook("https://hooks.example.org/SECRET", "f") and check_webhook("http://127.0.0.1:8/SECRET", "f")
