"""The tools for assistants, called by the SDK's client in memory: their schemas, their arguments and their errors."""

import json
import re
from pathlib import Path
from typing import Any, cast

import anyio
import jsonschema
import pytest
import yaml
from mcp import Client, MCPError, types
from skuwise.__main__ import main
from skuwise.advisor.api.mcp_server import INSTRUCTIONS, PAGE_BYTES, answer, make_server, tools
from skuwise.rules.base.errors import EXIT_USAGE, NothingToDo
from skuwise.tests.support.api_documents import Commands, advice, answering, workload
from skuwise.tests.support.schemas import schema

MADE = {"generated_at": "2026-11-16T00:00:00Z"}
DOCUMENTS = {"idle": "idle", "job": "card", "incidents": "incidents", "plan": "fleet-plan", "doctor": "doctor"}


class Recorded:
    """Answers that keep how they were asked, or raise `error`."""

    def __init__(self, error: Exception | None = None, **content: object) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.error, self.content = error, content

    def __getattr__(self, name: str) -> Any:
        def ask(*values: object, **words: object) -> dict[str, object]:
            self.calls.append((name, *values, words))
            if self.error is not None:
                raise self.error
            return MADE | self.content

        return ask


def call(answers: Any, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Call one tool. Raises MCPError for an error of the protocol."""

    async def run() -> types.CallToolResult | MCPError:
        async with Client(make_server(answers)) as client:
            try:
                return await client.call_tool(name, arguments)
            except MCPError as error:
                return error

    result = anyio.run(run)
    if isinstance(result, MCPError):
        raise result
    return result


def text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def test_the_tools_are_nine_and_only_read() -> None:
    async def listed() -> list[types.Tool]:
        async with Client(make_server(cast(Any, Recorded()))) as client:
            assert client.instructions == INSTRUCTIONS
            return (await client.list_tools()).tools

    shown = anyio.run(listed)
    names = "fleet_summary findings recommendations explain idle job incidents plan doctor"
    assert [tool.name for tool in shown] == names.split()
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in shown)
    # Nothing that a caller gives names a place to read from.
    given = "section workload node team rule after limit id target longer_than goal"
    assert {name for tool in shown for name in tool.input_schema["properties"]} == {*given.split()}
    assert not any(tool.input_schema["additionalProperties"] for tool in shown)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--listen", "0.0.0.0:8765"], "--listen 0.0.0.0:8765 is not a loopback address."),
        (["--token-file", "secret"], "--token-file needs --listen."),
    ],
)
def test_it_is_served_on_this_machine_only(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--db", "fleet.db", *arguments]) == EXIT_USAGE
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.name)
def test_a_schema_is_made_of_the_shipped_ones(tool: Any) -> None:
    shipped = schema(DOCUMENTS.get(tool.name, "advice"))
    added = {"sections", "page", "untrusted", "generated_at"} | (
        {"subject", "workload"} & tool.output["properties"].keys()
    )
    parts = {name: part for name, part in tool.output["properties"].items() if name not in added}
    assert parts and parts == {name: shipped["properties"][name] for name in parts}
    assert tool.output["$defs"] == {name: shipped["$defs"][name] for name in tool.output["$defs"]}
    referred = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(tool.output)))
    assert referred == tool.output["$defs"].keys()
    assert not {"$schema", "$id"} & tool.output.keys()
    jsonschema.Draft202012Validator.check_schema(tool.output)
    jsonschema.Draft202012Validator.check_schema(tool.input)


@pytest.mark.parametrize(
    ("name", "arguments", "asked"),
    [
        ("fleet_summary", {}, ("summary", {})),
        ("fleet_summary", {"section": "workloads", "team": "a"}, ("section", "workloads", {"limit": 10, "team": "a"})),
        ("findings", {"rule": "idle", "limit": 200}, ("section", "findings", {"limit": 200, "rule": "idle"})),
        ("recommendations", {"after": "v.10"}, ("section", "recommendations", {"limit": 10, "after": "v.10"})),
        ("explain", {"id": "r-5603"}, ("explain", "r-5603", {})),
        ("idle", {"target": "gpu-009"}, ("idle", "gpu-009", 7200.0, {})),
        ("idle", {"target": "4711", "longer_than": "30m"}, ("idle", "4711", 1800.0, {})),
        ("job", {"id": "4711_3"}, ("job", "4711_3", {})),
        ("incidents", {}, ("incidents", {"limit": 10})),
        ("plan", {"goal": "nodes", "section": "steps"}, ("plan", "nodes", {"limit": 10, "section": "steps"})),
        ("doctor", {}, ("doctor", {"limit": 10})),
    ],
)  # fmt: skip
def test_a_tool_asks_for_what_it_names(name: str, arguments: dict[str, Any], asked: tuple[object, ...]) -> None:
    answers = Recorded(note={"id": "f-1", "text": "x", "node": "n1"})
    result = call(answers, name, arguments)
    assert answers.calls == [asked] and not result.is_error
    assert result.structured_content == {**MADE, **answers.content, "untrusted": ["node", "text"]}
    assert result.structured_content == json.loads(text(result))


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("fleet_summary", {"source": "/etc/passwd"}, "'source' was unexpected"),
        ("findings", {"db": "other.db"}, "'db' was unexpected"),
        ("findings", {"limit": 1_000_000}, "1000000 is greater than the maximum of 200"),
        ("findings", {"limit": 0}, "0 is less than the minimum of 1"),
        ("incidents", {"limit": "all"}, "'all' is not of type 'integer'"),
        ("fleet_summary", {"section": "../../etc"}, "'../../etc' is not one of"),
        ("fleet_summary", {"team": "search"}, "team: filters apply to a section. Add section."),
        ("plan", {"goal": "chaos"}, "'chaos' is not one of"),
        ("explain", {}, "'id' is a required property"),
        ("explain", {"id": "x" * 1000}, "xxx"),
        ("idle", {"target": "gpu-009", "longer_than": "a while"}, "'a while' is not a span of time."),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(name: str, arguments: dict[str, Any], sentence: str) -> None:
    answers = Recorded()
    result = call(answers, name, arguments)
    assert result.is_error and sentence in text(result) and len(text(result)) < 400
    assert not answers.calls


def test_an_error_is_a_sentence_and_a_remedy() -> None:
    result = call(Recorded(NothingToDo("No match for 'x'.", "Use an ID.")), "explain", {"id": "x"})
    assert result.is_error and text(result) == "No match for 'x'. Use an ID."
    assert result.structured_content is None


def test_a_defect_shows_nothing_of_the_inside() -> None:
    with pytest.raises(MCPError) as raised:
        call(Recorded(ValueError("/secret/path")), "doctor", {})
    assert "/secret" not in str(raised.value)


def test_an_unknown_tool_is_an_error_of_the_protocol() -> None:
    with pytest.raises(MCPError, match="Unknown tool 'rm'"):
        call(Recorded(), "rm", {})


def test_an_answer_goes_out_twice_in_100_kb() -> None:
    """All of its values are short words: the quotation marks are escaped in the text."""
    many = [workload(n, words={f"k{i}": "ab" for i in range(200)}) for n in range(50)]
    with answering(Commands(advise=advice(*many)), page_bytes=PAGE_BYTES) as answers:
        result = answer(tools()[0], answers, {"section": "workloads", "limit": 200})
    assert result.structured_content is not None and len(result.structured_content["workloads"]) > 10
    assert len(result.model_dump_json(by_alias=True).encode()) <= 100_000


def test_the_skill_names_what_exists() -> None:
    path = Path(__file__).parents[4] / "skills/skuwise/SKILL.md"
    _, front, body = path.read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["name"] == path.parent.name and len(about["description"]) <= 1024
    shown = json.dumps([(tool.name, tool.input, tool.output) for tool in tools()])
    words = {word for code in re.findall("`([^`]+)`", body) for word in re.findall(r"[a-z]\w+(?:-\w+)*", code)}
    assert [word for word in sorted(words) if word not in shown] == []
    assert all(f"`{tool.name}`" in body for tool in tools())
