"""Routes and the settings of sending: what they take, what they refuse, and whose a workload is."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import BottleneckVerdict, Coverage, KindVerdict, Owner, WorkloadVerdict
from skuwise.advisor.mail.addresses import bare_address, sender_address
from skuwise.advisor.mail.routes import Routes, load_routes
from skuwise.advisor.mail.settings import ReportSettings, check_webhook, load_mail_settings
from skuwise.rules.base.errors import UsageError

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


def workload(owner: Owner, nodes: tuple[str, ...] = ("n1",), gpu_sku: str = "H100-SXM5") -> WorkloadVerdict:
    return WorkloadVerdict(
        id="w", series_id="s", name="w", owner=owner, nodes=nodes, gpus=(), gpu_sku=gpu_sku, node_sku="azure/x",
        start=0.0, end=1.0, gpu_hours=1.0, cost_usd=None, kind=KindVerdict("unknown", 0.0),
        bottleneck=BottleneckVerdict("unknown", 0.0), phases=(), coverage=Coverage(1.0, 60.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("owned", "team"),
    [
        (workload(Owner(namespace="search")), "search"),
        (workload(Owner(namespace="search-canary")), "search"),
        (workload(Owner(namespace="searching")), None),
        (workload(Owner(account="srch", user="ann")), "search"),  # an account before a user
        (workload(Owner(user="ann")), "ads & more"),
        (workload(Owner(team="ads", namespace="search")), "ads & more"),  # a label before all
        (workload(Owner(user="bob"), ("gpu-11", "gpu-12")), "ads & more"),
        (workload(Owner(user="bob"), ("gpu-11", "gpu-2")), None),  # not all of its nodes are the team's
        (workload(Owner(user="bob"), gpu_sku="L40S"), "ads & more"),
        (workload(Owner()), None),
    ],
)
def test_the_narrowest_matcher_decides_whose_a_workload_is(
    tmp_path: Path, owned: WorkloadVerdict, team: str | None
) -> None:
    found = routes(tmp_path, GOOD)
    assert found.whose(owned) == team
    assert (found.whose_node("gpu-17"), found.whose_node("gpu-2")) == ("ads & more", None)


def team(body: str) -> str:
    return f'[teams.a]\nto = ["a@example.org"]\n{body}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("administrator = []", "administrator is no key"),
        ('administrators = "ops@example.org"', "administrators is no list"),
        ('administrators = ["ops@example.org", "OPS@example.org"]', "administrators names an address twice"),
        ('administrators = ["ops@example.org\\nBcc: all@example.org"]', "no mail address"),
        ('administrators = ["Ops <ops@example.org>"]', "no mail address"),
        ('administrators = ["öps@example.org"]', "no mail address"),
        ("teams = 3", "teams is not a table"),
        (team("namspace = ['x']"), "teams.a.namspace is no key of a team. Did you mean namespace"),
        (team(""), "teams.a matches nothing"),
        (team("namespace = ['']"), "teams.a.namespace holds a value that is not text"),
        (team("namespace = ['a*b']"), "a star is allowed only at the end"),
        ("[teams.a]\nuser = ['u']", "teams.a has no recipient"),
        (team("user = ['u', 'u']"), "overlaps 'u' of teams.a"),
        (team("user = ['u*']\n[teams.b]\nto = ['b@example.org']\nuser = ['uv']"), "overlaps 'u*' of teams.a"),
        ('[teams."a\\u001b[2J"]\nuser = ["u"]\nto = ["a@example.org"]', "is not a valid team name"),
        (team("user = ['u']\nwebhook_url_file = 3"), "teams.a.webhook_url_file is not a path"),
        ("teams = {", "not valid TOML"),
    ],
)
def test_what_is_no_routes_file_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        routes(tmp_path, text)
    assert said in str(told.value) and "teams.toml" in str(told.value) and "\x1b" not in told.value.message[:60]


@pytest.mark.parametrize(
    "wrong",
    ["a@b\nc", "a b@c", "a@", "@b", "a..b@c", "a@b,c@d", "<a@b>", f"a@{'b' * 64}", "=?utf-8?q?a=0D=0ABcc=3Ab?=@c", ""],
)
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="no mail address"):
        bare_address(wrong, "x")
    with pytest.raises(UsageError, match="no mail address"):
        sender_address(f"GPU report <{wrong}>", "x")


def settings(tmp_path: Path, text: str, **environ: str) -> ReportSettings:
    file = tmp_path / "skuwise.toml"
    file.write_text(text)
    return load_mail_settings(environ, system_file=file, config_home=tmp_path / "home")


def test_settings_of_a_report(tmp_path: Path) -> None:
    text = """
    [report]
    send = true
    from = "GPU report <gpus@example.org>"
    administrators = ["ops@example.org"]
    smtp_host = "smtp.example.org"
    smtp_username = "u"
    smtp_password_file = "smtp-password"
    cooldown = "14d"
    """
    found = settings(tmp_path, text, SKUWISE_REPORT_DB="/a, /b", SKUWISE_REPORT_SEND="no")
    assert (found.db, found.send, found.port, found.cooldown_seconds) == ((Path("/a"), Path("/b")), False, 587, 1209600)
    assert found.sender is not None and found.sender.addr_spec == "gpus@example.org"
    assert settings(tmp_path, "[report]\nsmtp_security = 'tls'").port == 465
    assert settings(tmp_path, "[report]\nsmtp_security = 'none'\nsmtp_host = '::1'").port == 25
    assert not settings(tmp_path, "").send


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sned = true", "Unknown setting 'sned'"),
        ("send = 'maybe'", "neither true nor false"),
        ("smtp_password = 'hunter2'", "Unknown setting 'smtp_password'"),
        ("smtp_security = 'none'\nsmtp_host = 'smtp.example.org'", "is another machine"),
        ("smtp_host = 'smtp.example.org\\n'", "not a host name"),
        ("smtp_username = 'u'", "has no password"),
        ("from = 'gpus@example.org\\r\\nBcc: x@example.org'", "no mail address"),
        ("list_unsubscribe = 'javascript:x'", "neither mailto: nor https:"),
        ("smtp_timeout = '2h'", "outside 1 s to 10 min"),
        ("mails_per_minute = 0", "not a number from 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        settings(tmp_path, f"[report]\n{text}")
    assert said in str(told.value) and "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    "url", ["http://hooks.example.org/SECRET", "ftp://x/SECRET", "SECRET", "https://a b/SECRET", ""]
)
def test_a_webhook_is_https_or_loopback_and_never_repeated(url: str) -> None:
    with pytest.raises(UsageError) as told:
        check_webhook(url, "webhook-file")
    assert "SECRET" not in str(told.value)
    assert check_webhook("https://hooks.example.org/SECRET", "f") and check_webhook("http://127.0.0.1:8/SECRET", "f")
