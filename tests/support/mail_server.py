"""A real SMTP server on loopback that behaves as it is told: accepts, refuses, stalls, drops, greylists."""

import asyncio
import email
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default as default_policy
from pathlib import Path
from typing import Any

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd warns of its own
USER, PASSWORD = "skuwise", "hunter2-not-in-any-log"


@dataclass(frozen=True)
class Received:
    """One message as the server accepted it."""

    sender: str
    to: tuple[str, ...]
    content: bytes
    encrypted: bool
    user: str | None
    hello: str  # what the client called itself

    @property
    def message(self) -> EmailMessage:
        result = email.message_from_bytes(self.content, policy=default_policy)
        assert isinstance(result, EmailMessage)
        return result


@dataclass
class Behaviour:
    """What it does next. `mail`, `rcpt`: the answer to a sender, to a recipient (None: 250)."""

    mail: str | None = None
    rcpt: Callable[[str], str | None] = lambda _: None
    stall_at: str = ""  # a command at which it says nothing any more
    drop_in_data: set[int] = field(default_factory=set)  # the messages in whose content it hangs up
    messages: int = 0  # how many came as far as their content
    connections: int = 0


class _Handler:
    def __init__(self, behaviour: Behaviour, received: list[Received]) -> None:
        self.behaviour = behaviour
        self.received = received

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.behaviour.mail is None:
            envelope.mail_from = address
        return self.behaviour.mail or "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.behaviour.rcpt(address)
        if answer is None:
            envelope.rcpt_tos.append(address)
        return answer or "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.behaviour.messages += 1
        user = session.auth_data.login.decode() if isinstance(session.auth_data, LoginPassword) else None
        content = envelope.content
        assert isinstance(content, bytes) and server.transport is not None
        encrypted = server.transport.get_extra_info("ssl_object") is not None
        sender, to = str(envelope.mail_from), tuple(envelope.rcpt_tos)
        self.received.append(Received(sender, to, content, encrypted, user, str(session.host_name)))
        return "250 accepted"


class _Server(SMTP):
    """Stalls and drops: what a handler cannot do."""

    behaviour: Behaviour

    async def _call_handler_hook(self, command: str, *args: Any) -> Any:
        if self.behaviour.stall_at == command:
            await asyncio.sleep(3600)
        return await super()._call_handler_hook(command, *args)

    async def smtp_DATA(self, arg: str) -> None:
        if self.behaviour.messages + 1 in self.behaviour.drop_in_data:
            self.behaviour.messages += 1
            await self.push("354 go on")
            await self._reader.readline()
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.abort()
            return
        await super().smtp_DATA(arg)


@dataclass
class MailServer:
    """A server that runs. `received`: what it accepted, in order."""

    port: int
    behaviour: Behaviour
    received: list[Received]
    ca_file: Path


@contextmanager
def mail_server(folder: Path, *, security: str = "starttls", auth: bool = True) -> Iterator[MailServer]:
    """A server with a certificate for localhost; `security`: starttls, tls or none; `auth`: nothing without a login."""
    ca = trustme.CA()
    ca_file = folder / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    behaviour, received = Behaviour(), []

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=right, handled=False, auth_data=data)

    loop = asyncio.new_event_loop()
    handler = _Handler(behaviour, received)

    def connection() -> SMTP:
        behaviour.connections += 1
        server = _Server(
            handler, loop=loop, hostname="mail.test", authenticator=authenticate if auth else None, auth_required=auth,
            auth_require_tls=security == "starttls", require_starttls=security == "starttls",
            tls_context=context if security == "starttls" else None,
        )  # fmt: skip
        server.behaviour = behaviour
        return server

    listening = loop.run_until_complete(
        loop.create_server(connection, "127.0.0.1", 0, ssl=context if security == "tls" else None)
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield MailServer(listening.sockets[0].getsockname()[1], behaviour, received, ca_file)
    finally:
        loop.call_soon_threadsafe(listening.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
