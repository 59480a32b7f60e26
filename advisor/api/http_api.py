"""The HTTP API of ``skuwise serve``, under ``/v1``: answers to schedulers and scripts, described in openapi.json."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ...agent.base.settings import parse_duration
from ...agent.service.page_server import Response
from ...rules.base.errors import NothingToDo, SkuwiseError, UsageError
from ...rules.base.files import read_token
from ...rules.base.output import say
from ...rules.base.sanitize import clean, quoted
from ..core.http_session import is_loopback
from .answers import FILTERS, Answers, NotReady
from .store import Json, StaleCursor

TOKEN_MIN = 16
# A request is cut off after 20 s (`page_server.REQUEST_SECONDS`).
PATIENCE_SECONDS = 10.0
_PAGE = ("after", "limit")
_Query = dict[str, str]
_Answer = Callable[[Answers, str, _Query], Json]


class HttpError(SkuwiseError):
    """A request that is refused before it is answered, with its HTTP status."""

    def __init__(self, status: int, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


def caller_token(path: Path) -> bytes:
    """The token that callers must send. Raises UsageError for a file that others can read, and for a short token."""
    token = read_token(path, "serve.token_file").encode()
    if len(token) < TOKEN_MIN:
        raise UsageError(f"{path} has a token of less than {TOKEN_MIN} characters.", "Use: openssl rand -hex 32.")
    return token


def respond(
    answers: Answers, token: bytes | None, method: str, target: str, headers: Mapping[str, str]
) -> Response | None:
    """The response to a request; None: it is not under ``/v1``. `token` None: callers on this machine need none."""
    path, _, query = target.partition("?")
    if not path.startswith("/v1/"):
        return None
    try:
        _authorize(token, headers)
        if method != "GET":
            raise HttpError(405, f"{method} is not allowed.", "Use GET.")
        status, body = 200, msgspec.json.encode(_answer(answers, path, query))
    except Exception as error:
        status, body = _refusal(error)
    more = {"Cache-Control": "no-cache"}
    more |= {401: {"WWW-Authenticate": "Bearer"}, 405: {"Allow": "GET"}, 503: {"Retry-After": "30"}}.get(status, {})
    if status == 200:
        more["ETag"] = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        known_tags = {tag.strip().removeprefix("W/") for tag in (headers.get("If-None-Match") or "").split(",")}
        if more["ETag"] in known_tags:
            return Response(304, b"", "", {**more, "Content-Length": ""})
    return Response(status, body, "application/json", more)


def _authorize(token: bytes | None, headers: Mapping[str, str]) -> None:
    if token is not None:
        scheme, _, sent = (headers.get("Authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode("utf-8", "replace"), token):
            raise HttpError(401, "No valid token.", "Send the header Authorization: Bearer TOKEN.")
        return
    # A page of another site can reach this server by a name that resolves to this machine (DNS rebinding).
    try:
        host = urlsplit(f"//{headers.get('Host') or ''}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        raise HttpError(403, "The Host header does not name this machine.", "Use http://localhost, or set a token.")


def _refusal(error: Exception) -> tuple[int, bytes]:
    """Status and body for an error; that of a defect is on stderr alone."""
    kinds = ((StaleCursor, 409), (NotReady, 503), (NothingToDo, 404), (UsageError, 400))
    status = next((status for kind, status in kinds if isinstance(error, kind)), getattr(error, "status", 500))
    if not isinstance(error, SkuwiseError):
        say(f"api: {type(error).__name__}: {clean(str(error))}")
        error = SkuwiseError("The request failed.", "See the log of skuwise serve.")
    return status, msgspec.json.encode({"error": {"message": error.message, "remedy": error.remedy}})


def _answer(answers: Answers, path: str, query: str) -> Json:
    kind, slash, name = path.removeprefix("/v1/").partition("/")
    name = unquote(name)
    parameters, answer = _ROUTES.get(kind + slash, ((), None))
    if answer is None or bool(slash) != bool(name):
        raise HttpError(404, f"No such path: {quoted(path)}.", "GET /v1/openapi.json lists all paths.")
    values: _Query = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in parameters or key in values:
            what = "Repeated" if key in values else "Unknown"
            raise UsageError(f"{what} parameter {quoted(key)}.", f"Use: {', '.join(parameters) or 'none'}.")
        values[key] = value
    return answer(answers, name, values)


def _page(query: _Query) -> Json:
    limit = query.get("limit", "50")
    if not limit.isdecimal() or len(limit) > 9:
        raise UsageError(f"Invalid limit {quoted(limit)}.", "Use a whole number.")
    return {"after": query.get("after", ""), "limit": int(limit)}


def _advice(answers: Answers, _: str, query: _Query) -> Json:
    if "section" in query:
        return answers.section(query["section"], **_page(query), **{name: query.get(name) for name in FILTERS})  # type: ignore[arg-type] - no filter is named limit
    if query:
        raise UsageError("A page and a filter need a section.", "Add section=findings, for example.")
    return answers.summary()


def _schema(_: Answers, name: str, __: _Query) -> Json:
    schemas = {file.name: file for file in files("skuwise.advisor.show").joinpath("schema").iterdir()}
    if name not in schemas:
        raise HttpError(404, f"No schema {quoted(name)}.", f"Use one of: {', '.join(sorted(schemas))}.")
    return msgspec.json.decode(schemas[name].read_bytes())


# By path below /v1/, with the parameters of the query. After "idle/", "jobs/" and "schema/" a name follows.
_ROUTES: Mapping[str, tuple[tuple[str, ...], _Answer]] = {
    "advice": (("section", *_PAGE, *FILTERS), _advice),
    "incidents": (_PAGE, lambda answers, _, query: answers.incidents(**_page(query))),
    "idle/": (
        ("longer_than",),
        lambda answers, name, query: answers.idle(name, parse_duration(query.get("longer_than", "2h"))),
    ),
    "jobs/": ((), lambda answers, name, _: answers.job(name)),
    "openapi.json": (
        (),
        lambda *_: msgspec.json.decode(files("skuwise.advisor.api").joinpath("openapi.json").read_bytes()),
    ),
    "schema/": ((), _schema),
}
