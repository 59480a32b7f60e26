"""The team of a workload and its recipients: the routes file, strict TOML (docs/report.md, Recipients).

A matcher is a name, or its beginning and a star. No two of a kind may fit the same name, so that the order of the teams
decides nothing; of the kinds the narrowest decides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from email.headerregistry import Address
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from ...agent.base.settings import read_layers
from ...agent.config import load_section
from ...rules.base.errors import UsageError
from ...rules.base.files import read_toml
from ...rules.base.sanitize import QUOTED_MAX, clean, quoted
from ..core.http_session import is_loopback
from ..core.incident_types import Subject
from ..core.verdict_types import WorkloadVerdict
from ..show.reader_links import PLACEHOLDERS, is_template
from ..state.deliveries import Channel

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
        remedy = "Write ann@example.org; a name in IDNA form (xn--...)."
        raise UsageError(f"{what} holds {str(text)[:100]!r}, which is no mail address.", remedy)
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


# A pattern's comment is its description in errors. What it allows becomes a header, and the words of a shell.
Unsubscribe = Annotated[
    str, Meta(pattern=r"\A(?#a mailto: or https: address)((mailto:|https://)[^\x00-\x20<>,\x7f-\U0010ffff]{3,500})?\Z")
]
Host = Annotated[str, Meta(pattern=r"\A(?#a host name without a port)[A-Za-z0-9.:_-]{0,253}\Z")]
Command = Annotated[
    str, Meta(pattern=r"\A(?#a plain command of letters, digits, spaces and _./:=@%+,-)[A-Za-z0-9 _./:=@%+,-]{0,200}\Z")
]


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
    list_unsubscribe: Unsubscribe = ""
    no_data: Literal["short", "none"] = "short"
    cooldown_seconds: Annotated[float, Meta(ge=0, le=366 * _DAY_SECONDS)] = 28 * _DAY_SECONDS
    mails_per_minute: Annotated[int, Meta(ge=1, le=6000)] = 600
    smtp_host: Host = ""
    smtp_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    smtp_security: Security = "starttls"
    smtp_username: str = ""
    smtp_password_file: str = ""
    smtp_ca_file: str = ""
    smtp_timeout_seconds: Annotated[float, Meta(ge=1, le=600)] = 60.0
    webhook_url_file: str = ""
    dashboard_url: str = field(default="", metadata={"parse": _dashboard})
    command: Command = ""
    command_host: Host = ""

    @property
    def port(self) -> int:
        return self.smtp_port if self.smtp_port is not None else _PORTS[self.smtp_security]


def load_mail_settings(environ: Mapping[str, str], **files: Path) -> ReportSettings:
    """Every layer over the one before; `files` as of `load_section`. Raises UsageError for what cannot be."""
    settings = load_section(ReportSettings, "report", environ, **files)
    if settings.smtp_host and settings.smtp_security == "none" and not is_loopback(settings.smtp_host):
        what = f"report.smtp_security is none, and {settings.smtp_host} is another machine."
        raise UsageError(what, "Mails name users and money: use starttls or tls, or a relay on this machine.")
    if settings.smtp_username and not settings.smtp_password_file:
        raise UsageError("report.smtp_username has no password.", "Set report.smtp_password_file.")
    return settings


def checked_url(url: str, what: str) -> str:
    """An https address, or one on loopback. Raises UsageError, which never repeats it: a webhook's is a secret."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or " " in url:
        raise UsageError(f"{what} holds no http or https address.", "Put https://... there, and nothing else.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"The address in {what} is not encrypted.", "Use https, or a proxy on this machine.")
    return url


# In the order in which they decide. `label` is the team that telemetry names by itself; `sku` a GPU's or a node's.
PARTS = ("label", "namespace", "account", "user", "node", "sku")
# Stands for a webhook where a mail has an address: the webhook's own is a secret.
WEBHOOK = "webhook"
_MAX_NAME = 100


class Recipient(NamedTuple):
    """One address of a team, or its webhook (`WEBHOOK`). `team` empty: the administrators."""

    team: str
    channel: Channel
    address: str

    @property
    def key(self) -> str:
        """Who receives it: an address that two teams share is one recipient."""
        return f"{self.channel}:{self.address if self.channel == 'mail' else self.team}"


@dataclass(frozen=True, slots=True)
class TeamRoute:
    """One team. `to`: its addresses; `webhook_url_file`: the file with its webhook's address, empty: it has none."""

    name: str
    to: tuple[str, ...]
    webhook_url_file: str = ""

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        mails = tuple(Recipient(self.name, "mail", address) for address in self.to)
        return (*mails, Recipient(self.name, "webhook", WEBHOOK)) if self.webhook_url_file else mails


@dataclass(frozen=True)
class Routes:
    """`fleet`: the administrators, as the team "". Without teams there is one report, the fleet's.

    `matchers`: (part, matcher) -> team. `sender`: the From of mails; None: not set. `list_unsubscribe`: where
    to ask to be left out; empty: nowhere.
    """

    fleet: TeamRoute = TeamRoute("", ())
    teams: tuple[TeamRoute, ...] = ()
    matchers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sender: Address | None = None
    list_unsubscribe: str = ""

    def team_of(self, what: WorkloadVerdict | Subject) -> str | None:
        """The team of a workload, or of what an incident is about; None: no team. By its nodes only where all of them
        are one team's."""
        owner = what.owner
        names: Mapping[str, Sequence[str | None]] = {
            "label": (owner.team,), "namespace": (owner.namespace,), "account": (owner.account,),
            "user": (owner.user,), "node": what.nodes,
        }  # fmt: skip
        for part, values in names.items():
            teams = {self._match(part, value) for value in values}
            if len(teams) == 1 and (team := teams.pop()) is not None:
                return team
        return self._match("sku", what.gpu_sku) or self._match("sku", what.node_sku)

    def team_of_node(self, node: str) -> str | None:
        """The team that a node belongs to by its name; None: none."""
        return self._match("node", node)

    def _match(self, part: str, name: str | None) -> str | None:
        if name is None:
            return None
        # Matchers do not overlap, so that one fits at most; a file can hold tens of thousands of them.
        fitting = ([] if name.endswith("*") else [name]) + [f"{name[:length]}*" for length in range(len(name), 0, -1)]
        return next((self.matchers[part, matcher] for matcher in fitting if (part, matcher) in self.matchers), None)


def routes_of(settings: ReportSettings, file: Path | None = None) -> Routes:
    """The routes of `file`, by default of ``report.teams``; none: no teams. Where they name no administrators, those of
    ``[report]``. Raises UsageError."""
    file = file or settings.teams
    routes = load_routes(file) if file is not None else Routes()
    to = routes.fleet.to or settings.administrators
    return replace(
        routes, fleet=TeamRoute("", to, settings.webhook_url_file), sender=settings.sender,
        list_unsubscribe=settings.list_unsubscribe or (f"mailto:{to[0]}?subject=unsubscribe" if to else ""),
    )  # fmt: skip


def _matchers(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise UsageError(f"{what} is no list of names.", 'Write ["name", "beginning-*"], or leave the key out.')
    for matcher in value:
        if matcher == "*" or "*" in matcher[:-1]:
            what = f"{what} holds {quoted(matcher)}: a star is allowed only at the end of a prefix."
            raise UsageError(what, "Workloads without a team go to the administrators.")
    return tuple(value)


_LISTS = {**dict.fromkeys(PARTS, _matchers), "to": mail_addresses}
_fields = [(name, tuple[str, ...], field(default=(), metadata={"parse": parse})) for name, parse in _LISTS.items()]
_TeamTable: Any = make_dataclass("_TeamTable", [*_fields, ("webhook_url_file", str, "")])


@dataclass(frozen=True, slots=True)
class _RoutesTable:
    administrators: tuple[str, ...] = field(default=(), metadata={"parse": mail_addresses})
    teams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_routes(file: Path) -> Routes:
    """The routes of a file. Raises UsageError, with file, line and key, for anything that is not strictly that."""
    try:
        whole = read_toml(file, f"The routes file {file}")
    except FileNotFoundError as error:
        raise UsageError(f"The routes file {file} cannot be read: {error.strerror}.", "Name one that can.") from error
    administrators = read_layers(_RoutesTable, [(str(file), whole)]).administrators
    tables = whole.get("teams", {})
    teams: list[TeamRoute] = []
    matchers: list[tuple[str, str, str, str]] = []  # sorted, whatever begins with a matcher stands right behind it
    for name, entry in tables.items():
        what = f"teams.{clean(name)[:QUOTED_MAX]} in {file}"
        if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
            remedy = f"Use at most {_MAX_NAME} printable characters."
            raise UsageError(f"{what} is not a valid team name.", remedy)
        team = read_layers(_TeamTable, [(str(file), entry)], f"teams.{name}.")
        rows = [(part, m.removesuffix("*"), m, name) for part in PARTS for m in getattr(team, part)]
        if not team.to and not team.webhook_url_file:
            raise UsageError(f"{what} has no recipient.", 'Add to = ["team@example.org"].')
        if not rows:
            raise UsageError(f"{what} matches nothing.", f"Add one of {', '.join(PARTS)}.")
        teams.append(TeamRoute(name, team.to, team.webhook_url_file))
        matchers += rows
    for (part, start, matcher, team), (next_part, next_start, other, owner) in pairwise(sorted(matchers)):
        if part == next_part and (start == next_start or (matcher.endswith("*") and next_start.startswith(start))):
            what = f"teams.{owner}.{part} in {file} holds {quoted(other)}"
            remedy = "Let each name fit one matcher."
            raise UsageError(f"{what}, which overlaps {quoted(matcher)} of teams.{team}.", remedy)
    return Routes(TeamRoute("", administrators), tuple(teams), {(part, m): team for part, _, m, team in matchers})
