"""docs/watch.md: its settings, codes and commands are those that there are, and its commands run."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import time
from dataclasses import fields
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS
from skuwise.advisor.cli.idle import EXIT_BUSY, EXIT_UNKNOWN
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.incidents.settings import KEYS, WatchSettings, load_watch_settings
from skuwise.advisor.simulate.simulator import simulate
from skuwise.rules.base.command_registry import configure_command
from skuwise.tests.support.pasted_commands import paste

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/watch.md").read_text()


def block(mark: str) -> str:
    found = re.search(rf"^<!-- {mark} -->\n```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, mark
    return found[1]


def settings_of(mark: str, folder: Path) -> WatchSettings:
    file = folder / "skuwise.toml"
    file.write_text(block(mark))
    return load_watch_settings({}, system_file=file, config_home=folder)


def test_the_values_that_are_called_defaults_are_the_defaults(tmp_path: Path) -> None:
    shown, usual = settings_of("example: watch", tmp_path), WatchSettings()
    for one in fields(WatchSettings):
        assert getattr(shown, one.name) == getattr(usual, one.name), one.name
    named = set(re.findall(r"^(\w+) = ", block("example: watch") + block("example: watch-more"), re.MULTILINE))
    assert named == KEYS.keys()


def test_the_examples_of_settings_are_settings(tmp_path: Path) -> None:
    settings = settings_of("example: watch-more", tmp_path)
    assert settings.quiet_hours == (22, 7) and settings.alertmanager_token_file == "alertmanager-token"


def test_every_code_of_an_incident_is_in_the_table_under_its_kind() -> None:
    source = (ROOT / "advisor/core/incident_types.py").read_text()
    there = {
        kind: set(codes.strip().rstrip(".").split(", "))
        for kind, codes in re.findall(r"^#   ([\w-]+): (.*)$", source, re.MULTILINE)
    }
    assert len(there) == 5
    shown: dict[str, set[str]] = {}
    kind = ""
    for first, code in re.findall(r"^\| (`[\w-]+`)? ?\| `([\w-]+)` \|", PAGE, re.MULTILINE):
        kind = first.strip("`") or kind
        shown.setdefault(kind, set()).add(code)
    assert shown == there


def shown_commands() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for text in blocks for line in text.splitlines()]
    ours = [line[line.index("skuwise ") :] for line in lines if re.match(r"(\*/5 \* \* \* \* )?skuwise ", line)]
    # The forms of the table, with words for what the reader fills in.
    words = {"SOURCE": "--db fleet", "TARGET": "node-7", "ID": "i-123"}
    forms = re.findall(r"^\| `(skuwise [^`]+)` \|", PAGE, re.MULTILINE)
    return ours + [" ".join(words.get(word, word) for word in str(form).split()) for form in forms]


@pytest.mark.parametrize("line", shown_commands())
def test_every_command_is_one_that_its_parser_takes(line: str) -> None:
    _, name, *words = shlex.split(line)
    if name not in COMMANDS:
        pytest.skip(f"skuwise {name} is not there yet")
    pytest.importorskip(COMMANDS[name].module)
    parser = argparse.ArgumentParser()
    configure_command(parser, COMMANDS[name])
    assert callable(parser.parse_args(words).run)


@pytest.mark.parametrize("status", [EXIT_BUSY, EXIT_UNKNOWN])
def test_the_statuses_of_idle_are_in_its_table(status: int) -> None:
    word = {EXIT_BUSY: "busy", EXIT_UNKNOWN: "not known"}[status]
    assert re.search(rf"^\| {status} \| {word}: .* \| no \|$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_the_watch_runs_as_shown(tmp_path: Path) -> None:
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 3600 * 3600, minutes_seconds=86400)
    (line,) = [one for one in shown_commands() if one.startswith("skuwise watch --db") and "--once" in one]
    done = paste(line.replace("/var/lib/skuwise", "fleet"), tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


def test_questions_about_idleness_run_as_shown(tmp_path: Path) -> None:
    end = time.time() // 3600 * 3600
    simulate("idle", tmp_path / "fleet", days=1, until=end, minutes_seconds=86400)
    lines = [line for line in block("run: idle").splitlines() if line]
    assert len(lines) == 3
    statuses = []
    for line in lines:
        # As of the moment at which the simulated data end.
        done = paste(f"{line} --until {rfc3339(end)}", tmp_path)
        assert "Traceback" not in done.stderr and done.stdout, done.stderr
        statuses.append(done.returncode)
    assert set(statuses) <= {0, EXIT_BUSY, EXIT_UNKNOWN} and statuses[1] == 0
