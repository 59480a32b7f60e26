"""``skuwise mcp``: the advice as read-only tools for assistants, over the Model Context Protocol."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from click import option

from ...agent.base.settings import parse_listen
from ...rules.base.click_commands import FILE, Parsed, command
from ...rules.base.errors import EXIT_DONE, UsageError
from . import options

if TYPE_CHECKING:
    from ...agent.base.settings import Address

_LISTEN = Parsed(parse_listen, "HOST:PORT")


@command("skuwise mcp --db /var/lib/skuwise", "skuwise mcp --prometheus http://localhost:9090 --listen 127.0.0.1:8765")
@options.telemetry_options(required=False)
@options.state_options()
@option("--listen", type=_LISTEN, help="serve streamable HTTP on this loopback address (default: stdin and stdout)")
@option("--token-file", type=FILE, help="with --listen: file with the bearer token that callers must send")
def mcp(
    telemetry: options.Telemetry, state: options.StateOptions, listen: Address | None, token_file: Path | None
) -> int:
    """Serve the advice to assistants, as read-only tools (MCP).

    Source, rules, prices and state file are those of this command (source default: that of the weekly report); a
    caller cannot choose others.
    """
    import anyio

    from ..api.answers import Answers
    from ..api.http_api import caller_token
    from ..api.mcp_server import LOOPBACK, PAGE_BYTES, make_server, serve_http, serve_stdio

    if token_file is not None and listen is None:
        raise UsageError("--token-file needs --listen.")
    if listen is not None and listen.host not in LOOPBACK:
        raise UsageError(f"--listen {listen} is not a loopback address.", f"Use one of {', '.join(LOOPBACK)}.")
    secret = None if token_file is None else caller_token(token_file)
    commands = options.command_options(replace(telemetry, source=telemetry.source.or_settings()), state)
    with closing(Answers(commands, page_bytes=PAGE_BYTES)) as answers:

        def end(*_: object) -> None:
            answers.close()
            os._exit(EXIT_DONE)  # a thread that waits for a line of stdin cannot be interrupted

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        if listen is None:
            anyio.run(serve_stdio, make_server(answers))
        else:
            serve_http(make_server(answers), listen, secret)
    return EXIT_DONE
