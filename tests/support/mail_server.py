"""A real SMTP server on loopback that a test directs: it accepts, refuses, stalls, drops, greylists."""

import asyncio
import email
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from skuwise.tests.support.prometheus_engines import free_port

logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd logs warnings
USER, PASSWORD = "skuwise", "hunter2-not-in-any-log"


@dataclass(frozen=True)
class Received:
    """One message as the server accepted it."""

    sender: str
    to: tuple[str, ...]
    message: EmailMessage
    encrypted: bool
    user: str | None
    hello: str  # what the client called itself


@dataclass
class Behaviour:
    """What it does next. `mail`, `rcpt`: the answer to a sender, to a recipient (None: 250)."""

    mail: str | None = None
    rcpt: Callable[[str], str | None] = lambda _: None
    stall_at: str = ""  # a command at which it says nothing any more
    drop_in_data: set[int] = field(default_factory=set)  # the messages in whose content it hangs up
    messages: int = 0  # how many came as far as their content
    connections: int = 0


@dataclass
class MailServer:
    """A server that runs. `received`: what it accepted, in order."""

    port: int
    ca_file: Path
    behaviour: Behaviour = field(default_factory=Behaviour)
    received: list[Received] = field(default_factory=list)

    async def handle_MAIL(self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: Any):
        if self.behaviour.mail is None:
            envelope.mail_from = address
        return self.behaviour.mail or "250 OK"

    async def handle_RCPT(self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: Any):
        answer = self.behaviour.rcpt(address)
        if answer is None:
            envelope.rcpt_tos.append(address)
        return answer or "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope):
        self.behaviour.messages += 1
        user = session.auth_data.login.decode() if isinstance(session.auth_data, LoginPassword) else None
        assert isinstance(envelope.content, bytes) and server.transport is not None
        encrypted = server.transport.get_extra_info("ssl_object") is not None
        message = email.message_from_bytes(envelope.content, policy=default_policy)
        sender, to = str(envelope.mail_from), tuple(envelope.rcpt_tos)
        self.received.append(Received(sender, to, message, encrypted, user, str(session.host_name)))  # type: ignore[arg-type]
        return "250 accepted"


class _Connection(SMTP):
    """Stalls and drops: what a handler cannot do."""

    event_handler: MailServer

    def __init__(self, server: MailServer, **options: Any) -> None:
        super().__init__(server, **options)
        server.behaviour.connections += 1

    async def _call_handler_hook(self, command: str, *args: Any) -> Any:
        if self.event_handler.behaviour.stall_at == command:
            await asyncio.sleep(3600)
        return await super()._call_handler_hook(command, *args)

    async def smtp_DATA(self, arg: str) -> None:
        behaviour = self.event_handler.behaviour
        if behaviour.messages + 1 in behaviour.drop_in_data:
            behaviour.messages += 1
            await self.push("354 go on")
            await self._reader.readline()
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.abort()
            return
        await super().smtp_DATA(arg)


class _Listener(Controller):
    def factory(self) -> SMTP:
        return _Connection(self.handler, loop=self.loop, **self.SMTP_kwargs)


def _authenticate(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=right, handled=False, auth_data=data)


@contextmanager
def mail_server(folder: Path, *, security: str = "starttls", auth: bool = True) -> Iterator[MailServer]:
    """A server with a certificate for localhost; `security`: starttls, tls or none; `auth`: nothing without a login."""
    ca, server, starttls = trustme.CA(), MailServer(free_port(), folder / "ca.pem"), security == "starttls"
    ca.cert_pem.write_to_path(str(server.ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    listener = _Listener(
        server, "127.0.0.1", server.port, server_hostname="mail.test", authenticator=_authenticate if auth else None,
        auth_required=auth, auth_require_tls=starttls, require_starttls=starttls,
        tls_context=context if starttls else None, ssl_context=context if security == "tls" else None,
    )  # fmt: skip
    listener.start()
    server.behaviour.connections = 0  # without that of the start
    try:
        yield server
    finally:
        listener.stop()
