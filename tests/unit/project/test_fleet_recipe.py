"""The recipe for fleets in shards: its units say commands there are, and what they write is what is merged."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

from skuwise.__main__ import COMMANDS
from skuwise.advisor.telemetry.source import source_of
from skuwise.rules.base.command_registry import configure_command

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy/fleet"
ENVIRONMENT = {"PROMETHEUS": "http://127.0.0.1:9090", "MATCH": 'rack=~"r[0-4][0-9]"'}
SPECIFIERS = {"%S": "/var/lib", "%t": "/run", "%i": "eu-1", "%%": "%"}


def values(unit: str, key: str) -> list[str]:
    text = (UNITS / unit).read_text().replace("\\\n", " ")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def command(unit: str) -> list[str]:
    """The words of the one skuwise command that a unit's shell runs."""
    (start,) = values(unit, "ExecStart")
    script = shlex.split(start)[-1].replace('"$(date -u +%%F)"', "2026-03-02")
    for name, value in SPECIFIERS.items():
        script = script.replace(name, value)
    words = [re.sub(r"^\$(\w+)$", lambda m: ENVIRONMENT[m.group(1)], word) for word in shlex.split(script)]
    assert words[:2] == ["exec", "/usr/bin/skuwise"]
    return words[2:]


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure_command(parser, COMMANDS[words[0]])
    return parser.parse_args(words[1:])


def test_a_shard_is_advised_over_a_window_that_is_the_same_for_all() -> None:
    options = parsed(command("skuwise-advise@.service"))
    source_of(options, lambda _: None, 1)
    assert options.match == [ENVIRONMENT["MATCH"]]
    assert (options.since, options.until % 86400, options.format) == (7 * 86400, 0, "json")
    assert options.ledger.parent == options.output.parent.parent


def test_what_the_shards_write_is_what_is_merged_and_the_whole_stands_apart() -> None:
    advised, merged = parsed(command("skuwise-advise@.service")), parsed(command("skuwise-merge.service"))
    (pattern,) = merged.advice
    assert advised.output.match(str(pattern)) and not merged.output.match(str(pattern))
    for unit in ("skuwise-advise@.service", "skuwise-merge.service"):
        (kept,) = values(unit, "StateDirectory")
        assert {f"/var/lib/{name}" for name in kept.split()} == {str(merged.output.parent), str(pattern.parent)}


def test_the_page_tells_how_the_units_are_used() -> None:
    text = (ROOT / "docs/fleet.md").read_text()
    assert all(path.name in text for path in UNITS.iterdir())
