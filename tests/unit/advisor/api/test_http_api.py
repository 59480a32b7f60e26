"""The HTTP API without a socket: routes, refusals, and the description of both."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from skuwise.advisor.api.answers import Answers
from skuwise.advisor.api.http_api import _ROUTES, caller_token, respond
from skuwise.advisor.show.pages.job import cards_json
from skuwise.agent.service.page_server import Response
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.api_documents import PROMPT, Commands, advice, answering, idle, workload
from skuwise.tests.support.card_cases import card
from skuwise.tests.support.schemas import advised

OPENAPI = json.loads(files("skuwise.advisor.api").joinpath("openapi.json").read_text())
TOKEN = b"0123456789abcdef"
LOCAL = {"Host": "127.0.0.1:9478"}
ADVICE = advice(workload(1, name=PROMPT), workload(2))
IDLES = {
    "schema": "skuwise.idles/1",
    "generated_at": "2026-11-16T00:00:00Z",
    "answers": [idle("w-1", "workload", "a/b")],
}
DOCUMENTS: dict[str, Any] = {
    "advise": ADVICE, "idle": IDLES, "job": json.loads(cards_json([card()])),
    "incidents": {"schema": "skuwise.incidents/1", "incidents": []},
}  # fmt: skip


def ask(
    target: str, headers: Any = LOCAL, *, method: str = "GET", token: bytes | None = None, **documents: Any
) -> Response:
    with answering(Commands(**(documents or DOCUMENTS))) as answers:
        response = respond(answers, token, method, target, headers)
    assert response is not None
    return response


# Path, the status of its response, and words of it.
CASES = [
    ("/v1/advice", 200, '"sections"'), ("/v1/advice?section=workloads&limit=1", 200, json.dumps(PROMPT)),
    ("/v1/advice?section=findings&team=ml", 200, '"total":1'), ("/v1/incidents", 200, '"incidents":[]'),
    ("/v1/idle/w-1?longer_than=30m", 200, '"state":"idle"'), ("/v1/idle/a%2Fb", 200, '"target":"a/b"'),
    ("/v1/jobs/4711", 200, '"skuwise.card/1"'), ("/v1/openapi.json", 200, '"3.1.0"'),
    ("/v1/schema/idle-1.schema.json", 200, "urn:skuwise:idle:1"),
    ("/v1/jobs/..%2F..%2Fetc%2Fpasswd", 404, "No match"), ("/v1/jobs/../../etc/passwd", 404, "No match"),
    ("/v1/schema/..%2Fwriters", 404, "No schema"), ("/v1/jobs/", 404, "No such path"), ("/v1/plan", 404, "openapi"),
    ("/v1/advice/x", 404, "No such path"), ("/v1/idle/w-1%00", 404, "No match"),
    ("/v1/advice?db=/other.db", 400, "Unknown parameter 'db'"), ("/v1/idle/w-1?prometheus=http://x", 400, "Unknown"),
    ("/v1/advice?section=findings&section=notes", 400, "Repeated parameter"), ("/v1/advice?limit=5", 400, "section"),
    ("/v1/advice?section=findings&limit=99999999", 400, "1 to 200"), ("/v1/incidents?limit=-1", 400, "whole number"),
    ("/v1/advice?section=findings&after=7", 409, "Begin again"), ("/v1/idle/w-1?longer_than=1s", 400, "5m to 3d"),
    ("/v1/idle/w-1?longer_than=", 400, "remedy"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "status", "words"), CASES)
def test_paths_answer_or_say_why_not(target: str, status: int, words: str) -> None:
    response = ask(target)
    assert (response.status, words in response.body.decode()) == (status, True), response.body
    assert len(response.body) <= 100_000
    if status != 200:
        error = json.loads(response.body)["error"]
        assert error["message"].endswith(".") and error["remedy"].endswith(".")


def test_what_is_not_under_v1_is_left_to_the_page() -> None:
    with answering(Commands()) as answers:
        assert [respond(answers, None, "GET", path, LOCAL) for path in ("/metrics", "/healthz", "/v1")] == [None] * 3


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        *((None, {"Host": host}, 200) for host in ("localhost:9478", "[::1]:9478", "127.8.9.1")),
        *((None, {"Host": host}, 403) for host in ("evil.example", "127.0.0.1.evil.example", "[::1", "", "10.0.0.1")),
        (None, {}, 403), (TOKEN, {"Host": "evil.example", "Authorization": "Bearer 0123456789abcdef"}, 200),
        (TOKEN, {"Authorization": "bearer 0123456789abcdef"}, 200),
        *(
            (TOKEN, {**LOCAL, "Authorization": sent}, 401)
            for sent in ("", "Bearer", "Bearer 0", f"Bearer {'0' * 5000}", "Bearer 0123456789abcde\xe9", "Basic MDEy")
        ),
    ],
)  # fmt: skip
def test_callers_have_the_token_or_are_on_this_machine(
    token: bytes | None, headers: dict[str, str], status: int
) -> None:
    response = ask("/v1/advice", headers, token=token)
    assert response.status == status and ("WWW-Authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("0123456789abcdef\n", 0o600, ""), ("0123456789abcdef\n", 0o640, ""),
        ("0123456789abcdef", 0o644, "Everybody can"),
        ("short", 0o600, "less than 16"), ("0123456789 abcdef", 0o600, "no token of"), ("\xfc" * 20, 0o600, "token"),
        (None, 0o600, "cannot be read"),
    ],
)  # fmt: skip
def test_a_token_is_long_and_for_few_readers(tmp_path: Path, text: str | None, mode: int, words: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    if words:
        with pytest.raises(UsageError, match=words):
            caller_token(path)
    else:
        assert caller_token(path) == TOKEN


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD"])
def test_only_get_is_allowed(method: str) -> None:
    response = ask("/v1/advice", method=method)
    assert (response.status, response.headers["Allow"]) == (405, "GET")


def test_a_known_answer_is_not_sent_again() -> None:
    first = ask("/v1/advice")
    for tags in (first.headers["ETag"], f'"x", W/{first.headers["ETag"]}'):
        again = ask("/v1/advice", LOCAL | {"If-None-Match": tags})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert ask("/v1/advice", LOCAL | {"If-None-Match": '"x"'}).status == 200


def test_a_failure_passes_on_the_command_s_sentence_and_a_defect_nothing(monkeypatch, capsys) -> None:
    failed = ask("/v1/advice", advise="No such database: /nodes. Check it.")
    assert failed.status == 500 and json.loads(failed.body)["error"]["message"] == "No such database: /nodes. Check it."
    monkeypatch.setattr(Answers, "summary", lambda _: {}["secret"])
    defect = ask("/v1/advice")
    assert defect.status == 500 and b"secret" not in defect.body and "secret" in capsys.readouterr().err


def test_an_answer_that_is_being_computed_says_when_to_ask_again() -> None:
    commands = Commands(advise=ADVICE)
    commands.go.clear()
    with answering(commands, patience=0.01) as answers:
        response = respond(answers, None, "GET", "/v1/advice", LOCAL)
    assert response is not None and (response.status, response.headers["Retry-After"]) == (503, "30")


def test_the_description_has_every_route_with_its_parameters_and_statuses() -> None:
    described = {}
    for path, about in OPENAPI["paths"].items():
        names = {p["name"] for p in about["get"].get("parameters", ()) if p["in"] == "query"}
        described[path.removeprefix("/v1/").partition("{")[0]] = names
        assert path == "/healthz" or {"200", "304", "400", "401", "403", "404", "405", "409", "500", "503"} == set(
            about["get"]["responses"]
        )
    assert described == {**{path: set(names) for path, (names, _) in _ROUTES.items()}, "/healthz": set()}


def test_answers_are_as_described(founding: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = {**DOCUMENTS, "advise": advised(capsys, "--db", str(founding))}
    schemas = {f"schema/{file.name}": file for file in files("skuwise.advisor.show").joinpath("schema").iterdir()}
    registry = Registry().with_resources(
        (f"http://api/v1/{path}", Resource.from_contents(json.loads(file.read_text())))
        for path, file in schemas.items()
    )
    registry = registry.with_resource("http://api/v1/openapi.json", DRAFT202012.create_resource(OPENAPI))
    sections = [f"/v1/advice?section={name}" for name, part in documents["advise"].items() if isinstance(part, list)]
    for target, status, _ in [*CASES, *((section, 200, "") for section in sections)]:
        path = next((p for p in OPENAPI["paths"] if target.partition("?")[0].startswith(p.partition("{")[0])), None)
        if path is None:
            continue
        place = quote(path.replace("~", "~0").replace("/", "~1"))
        reference = f"http://api/v1/openapi.json#/paths/{place}/get/responses/{status}/content/application~1json/schema"
        response = ask(target, **documents)
        jsonschema.Draft202012Validator({"$ref": reference}, registry=registry).validate(json.loads(response.body))
