"""How reports are made and sent: the section ``[report]`` of the settings files, then ``SKUWISE_REPORT_*``.

A setting never holds a secret, only the name of its file (advisor/core/credentials.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.headerregistry import Address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from ...agent.config import load_section
from ...rules.base.errors import UsageError
from ..core.credentials import is_loopback
from ..show.reader_links import PLACEHOLDERS, is_template

Security = Literal["starttls", "tls", "none"]
# Submission with STARTTLS (RFC 6409), submissions (RFC 8314), SMTP.
_PORTS: Mapping[Security, int] = {"starttls": 587, "tls": 465, "none": 25}
_DAY_SECONDS = 86400.0
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# RFC 5321, 4.5.3.1: 64 octets before the @, 254 in all (RFC 3696, erratum 1690). Quoted local parts are not taken.
# What looks like an encoded word (RFC 2047) would be decoded on its way into a header.
_BARE = re.compile(rf"(?=.{{1,254}}$)(?=[^@]{{1,64}}@)(?!.*=\?){_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NAMED = re.compile(r"(?!.*=\?)(?P<name>[^<>\"@,;:\\]{1,100}?) *<(?P<address>[^<>]+)>")


def bare_address(text: object, what: str) -> str:
    """``ann@example.org``. Raises UsageError for anything else, a name beside the address included."""
    if not isinstance(text, str) or not _BARE.fullmatch(text):
        shown = repr(text[:100]) if isinstance(text, str) else "a value that is no text"
        raise UsageError(
            f"{what} holds {shown}, which is no mail address.", "Write ann@example.org; a name in IDNA form (xn--...)."
        )
    return text


def sender_address(text: object, what: str) -> Address:
    """``GPU report <gpus@example.org>``, or the address alone. Raises UsageError."""
    named = _NAMED.fullmatch(text) if isinstance(text, str) and text.isprintable() else None
    address = bare_address(named["address"] if named else text, what)
    return Address(named["name"] if named else "", addr_spec=address)


def mail_addresses(value: object, what: str) -> tuple[str, ...]:
    """A list of addresses, each once. Raises UsageError."""
    if not isinstance(value, list):
        raise UsageError(f"{what} is not a list of addresses.", 'Write ["ann@example.org"].')
    addresses = tuple(bare_address(text, what) for text in value)
    if len({address.lower() for address in addresses}) < len(addresses):
        raise UsageError(f"{what} names an address twice.", "Name it once.")
    return addresses


def _dashboard(value: object, what: str) -> str:
    if not isinstance(value, str) or (value and not is_template(value)):
        names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        remedy = f"Use https://HOST/PATH; allowed placeholders behind HOST: {names}."
        raise UsageError(f"{what} is not an http or https URL of a fixed host.", remedy)
    return value


def _text(pattern: str, fault: str, remedy: str) -> Callable[[object, str], str]:
    """A reader of settings that are text of this form, or empty."""

    def read(value: object, what: str) -> str:
        if not isinstance(value, str) or not (value == "" or re.fullmatch(pattern, value, re.ASCII)):
            raise UsageError(f"{what} {fault}.", remedy)
        return value

    return read


_UNSUBSCRIBE = _text(  # it becomes a header
    r"(?:mailto:|https://)[^\x00-\x20<>,\x7f-\U0010ffff]{3,500}", "is neither mailto: nor https:",
    "Write mailto:gpus@example.org or https://...",
)  # fmt: skip
_HOST = _text(
    r"[A-Za-z0-9.:_-]{1,253}", "is not a host name", "Write smtp.example.org; set the port in smtp_port."
)  # fmt: skip
_COMMAND = _text(  # words that start skuwise; nothing in them means anything to a shell
    r"[A-Za-z0-9 _./:=@%+,-]{0,200}", "has characters other than letters, digits, spaces and _./:=@%+,-",
    'Use a plain command, as in "kubectl exec deploy/skuwise -- skuwise".',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """`db`, `prometheus`, `match`, `teams`, `rules`, `prices`: defaults of the options.

    `send`: whether ``--send`` sends; False: it says what it would send. `administrators` receive the fleet's report.
    `sender`: the From of mails; its domain also ends the message ids; None: nothing can be sent.
    `list_unsubscribe`: a mailto: or https: address; empty: the first administrator's. `no_data`: what a team receives
    of which the week has nothing. `cooldown_seconds`: for so long the evidence of a recommendation is
    not repeated. `smtp_host` empty: nothing can be sent. `smtp_security` ``none`` is for loopback only.
    `smtp_timeout_seconds`: for connecting, and for each mail. `webhook_url_file`: the file with the address of the
    fleet's webhook; empty: none. `dashboard_url`: a template of links to the site's own dashboard;
    empty: none. `command`: how readers start skuwise; empty: as this run was started. `command_host`: the machine on
    which they do; empty: this one, where databases are read.
    """

    db: tuple[Path, ...] = ()
    prometheus: str = ""
    match: tuple[str, ...] = ()
    teams: Path | None = None
    rules: Path | None = None
    prices: Path | None = None
    send: bool = False
    administrators: tuple[str, ...] = field(default=(), metadata={"parse": mail_addresses})
    sender: Address | None = field(default=None, metadata={"key": "from", "parse": sender_address})
    list_unsubscribe: str = field(default="", metadata={"parse": _UNSUBSCRIBE})
    no_data: Literal["short", "none"] = "short"
    cooldown_seconds: Annotated[float, Meta(ge=0, le=366 * _DAY_SECONDS)] = 28 * _DAY_SECONDS
    mails_per_minute: Annotated[int, Meta(ge=1, le=6000)] = 600
    smtp_host: str = field(default="", metadata={"parse": _HOST})
    smtp_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    smtp_security: Security = "starttls"
    smtp_username: str = ""
    smtp_password_file: str = ""
    smtp_ca_file: str = ""
    smtp_timeout_seconds: Annotated[float, Meta(ge=1, le=600)] = 60.0
    webhook_url_file: str = ""
    webhook_proxy: str = ""
    dashboard_url: str = field(default="", metadata={"parse": _dashboard})
    command: str = field(default="", metadata={"parse": _COMMAND})
    command_host: str = field(default="", metadata={"parse": _HOST})

    @property
    def port(self) -> int:
        return self.smtp_port if self.smtp_port is not None else _PORTS[self.smtp_security]


def load_mail_settings(environ: Mapping[str, str], **files: Path) -> ReportSettings:
    """Every layer over the one before; `files` as of `load_section`. Raises UsageError for what cannot be."""
    settings = load_section(ReportSettings, "report", environ, **files)
    if settings.smtp_host and settings.smtp_security == "none" and not is_loopback(settings.smtp_host):
        raise UsageError(
            f"report.smtp_security is none, and {settings.smtp_host} is another machine.",
            "Mails name users and money: use starttls or tls, or a relay on this machine.",
        )
    if settings.smtp_username and not settings.smtp_password_file:
        raise UsageError("report.smtp_username has no password.", "Set report.smtp_password_file.")
    return settings


def check_webhook(url: str, what: str) -> str:
    """The address of a webhook, https or loopback. Raises UsageError, which never repeats it: it is a secret."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url:
        raise UsageError(f"{what} holds no address of a webhook.", "Put https://... there, and nothing else.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"The webhook of {what} is not encrypted.", "Use an https address.")
    return url
