"""Commands that are printed to be pasted call the installation that prints them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from skuwise.rules.base.own_command import command_words, install_command, origin, wanted_by

REQUIRES = [
    "psutil>=6",
    'numpy>=1.26; extra == "advisor"',
    'pandas>=2.2; extra == "advisor"',
    'skuwise[advisor]; extra == "tui"',
    'textual>=8; extra == "tui"',
    'skuwise[advisor,tui]; extra == "all"',
]


def installed(folder: Path) -> Path:
    program = folder / "bin/skuwise"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def words(program: Path, folder: Path, path: str = "/nowhere") -> str:
    return command_words(program=program, interpreter=program.with_name("python"), folder=folder, path=path)


def test_the_path_leads_to_this_installation(tmp_path: Path) -> None:
    program = installed(tmp_path / "venv")
    assert words(program, tmp_path, str(program.parent)) == "skuwise"


def test_another_installation_on_the_path_is_not_taken_for_this_one(tmp_path: Path) -> None:
    mine, other = installed(tmp_path / "mine"), installed(tmp_path / "other")
    assert words(mine, tmp_path, str(other.parent)) == "mine/bin/skuwise"


def test_a_program_elsewhere_is_named_by_its_whole_path_as_one_word(tmp_path: Path) -> None:
    program = installed(tmp_path / "a folder; x")
    (tmp_path / "here").mkdir()
    assert shlex.split(words(program, tmp_path / "here")) == [str(program)]


def test_without_a_program_the_interpreter_is_called(tmp_path: Path) -> None:
    assert words(tmp_path / "venv/bin/skuwise", tmp_path) == "venv/bin/python -m skuwise"


def test_an_extra_comes_from_the_checkout_that_was_installed() -> None:
    words = shlex.split(install_command("tui"))
    assert Path(words[0]).resolve() == Path(sys.executable).resolve() and words[1:4] == ["-m", "pip", "install"]
    folder, _, extra = words[-1].partition("[")
    assert (Path(folder) / "pyproject.toml").is_file() and extra == "tui]"


@pytest.mark.parametrize(
    "record", [None, "", "no JSON", "[]", '{"url": 3}', '{"url": "file:///nowhere", "dir_info": {}}', '{"dir_info": 0}']
)
def test_a_record_of_a_checkout_that_is_gone_or_of_none(record: str | None) -> None:
    assert origin(record) == (None, False)


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("advisor", ["numpy>=1.26", "pandas>=2.2"]),
        ("tui", ["numpy>=1.26", "pandas>=2.2", "textual>=8"]),
        ("all", ["numpy>=1.26", "pandas>=2.2", "textual>=8"]),
        ("kubernetes", []),
    ],
)
def test_the_packages_of_an_extra(extra: str, packages: list[str]) -> None:
    assert wanted_by(extra, REQUIRES) == packages
