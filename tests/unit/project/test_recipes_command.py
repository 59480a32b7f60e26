"""The recipe of a command: one file and one line. A toy is added beside the others, run, and gone again."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.__main__ import COMMANDS, main
from skuwise.rules.base.command import Command
from skuwise.rules.base.command_registry import configure_command

TOY = """
def configure(parser):
    parser.add_argument("--times", type=int, default=1, help="how often")


def run(options):
    print("toy " * options.times)
    return 3
"""
TEXT = "a toy that only a test knows"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules of a test lie; they are forgotten after it."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("toy"):
            del sys.modules[name]


def every(commands: dict[str, Command], words: str = "skuwise") -> Iterator[tuple[str, Command]]:
    for name, command in commands.items():
        yield f"{words} {name}", command
        yield from every(getattr(importlib.import_module(command.module), "COMMANDS", {}), f"{words} {name}")


LISTED = dict(every(dict(COMMANDS)))


@pytest.mark.parametrize("words", LISTED)
def test_every_listed_command_has_its_options_and_its_run_or_subcommands(words: str) -> None:
    command = LISTED[words]
    assert command.text
    parser = argparse.ArgumentParser()
    configure_command(parser, command)
    group = getattr(importlib.import_module(command.module), "COMMANDS", None)
    if group is None:
        assert callable(parser.get_default("run"))
    else:
        assert all(one.text.split()[0] in parser.format_help() for one in group.values())


def test_a_command_is_one_file_and_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "toy.py").write_text(TOY)
    commands = {**COMMANDS, "toy": Command("toy", TEXT)}
    assert main(["--help"], commands) == 0
    assert TEXT in capsys.readouterr().out
    assert main(["toy", "--times", "2"], commands) == 3
    assert capsys.readouterr().out.split() == ["toy", "toy"]
    assert main(["toy"]) == 2, "without its line it is gone"
    assert "Unknown command 'toy'" in capsys.readouterr().err


def test_a_subcommand_is_one_file_and_one_line_of_its_group(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "toy.py").write_text(TOY)
    (folder / "toys.py").write_text(
        "from skuwise.rules.base.command import Command\n"
        f'COMMANDS = {{"one": Command("toy", "{TEXT}"), "other": Command("toy_that_is_not_there", "never loaded")}}\n'
    )
    commands = {"toys": Command("toys", "some toys")}
    with pytest.raises(SystemExit, match="0"):
        main(["toys", "--help"], commands)
    shown = capsys.readouterr().out
    assert TEXT in shown
    assert "never loaded" in shown
    assert main(["toys", "one", "--times", "2"], commands) == 3
    assert capsys.readouterr().out.split() == ["toy", "toy"]
    with pytest.raises(SystemExit, match="2"):
        main(["toys", "two"], commands)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "no function configure and no run"),
        ("def configure(parser): ...\n", "no function run"),
        ("def run(options): ...\n", "no function configure"),
        ("configure = run = None\n", "no function configure and no run"),
    ],
)
def test_a_module_that_is_no_command_is_named_with_what_it_lacks(folder: Path, text: str, missing: str) -> None:
    (folder / "toy_half.py").write_text(text)
    with pytest.raises(TypeError, match=f"toy_half is listed as a command, but has {missing}$"):
        configure_command(argparse.ArgumentParser(), Command("toy_half", TEXT))


def test_only_the_subcommand_that_is_meant_is_loaded() -> None:
    code = (
        "import sys\nfrom skuwise.__main__ import main\nmain(['agent', 'resume', '--socket', '/nonexistent'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('skuwise.agent.commands.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['skuwise.agent.commands.options', 'skuwise.agent.commands.resume']"
