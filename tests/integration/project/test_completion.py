"""Completions in real shells, and the manual page in real formatters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from skuwise import __version__
from skuwise.__main__ import COMMANDS, main
from skuwise.rules.base.command import Command
from skuwise.rules.base.completion import SHELLS, completion
from skuwise.rules.base.man_page import man_page
from skuwise.rules.base.parsers import ParsedCommand, every_parser

# What is typed, and what a shell must offer for the last word of it.
CASES = [
    ("skuwise advi", {"advise"}),
    ("skuwise ledger acc", {"accept"}),
    ("skuwise advise --forma", {"--format"}),
    ("skuwise advise --format m", {"markdown"}),
    ("skuwise simulate foundin", {"founding"}),
    ("skuwise ledger list --state acc", {"accepted"}),
    ("skuwise completion zs", {"zsh"}),
    ("skuwise --versio", {"--version"}),
]


@pytest.fixture(scope="module")
def every() -> list[ParsedCommand]:
    return list(every_parser(COMMANDS))


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest, every: list[ParsedCommand]) -> Path:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / f"skuwise.{shell}"
    path.write_text(completion(shell, every))
    return path


def shell(*command: str, text: str = "", cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=60, cwd=cwd,
        env={**os.environ, "TERM": "dumb", "HOME": str(cwd or Path.cwd())},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_commands_options_values_and_files(script: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet one.db").touch()
    (tmp_path / "fleet two").mkdir()
    typed = [
        *(line.split() for line, _ in CASES),
        ["skuwise", "advise", "--db", "flee"],
        ["skuwise", "advise", "--rules", "f"],
    ]
    asked = "\n".join(f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _skuwise; "
                      "(IFS=/; echo \"${COMPREPLY[*]}\")" for words in typed)  # fmt: skip
    found = [
        set(line.split("/")) for line in shell("bash", text=f"source '{script}'\n{asked}\n", cwd=tmp_path).splitlines()
    ]
    assert found == [*(offered for _, offered in CASES), {"fleet one.db", "fleet two"}, {"fleet two"}]


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_commands_options_values_and_files(script: Path, tmp_path: Path) -> None:
    for line, offered in CASES:
        said = shell("fish", "--no-config", "-c", f"source '{script}'; complete -C '{line}'", cwd=tmp_path)
        assert {one.split("\t")[0] for one in said.splitlines()} == offered, line


ZSH = """
autoload -Uz compinit; compinit -D -u
source '{script}'
_describe() {{ shift; shift; print -rl -- $commands; }}
_arguments() {{ local one; for one; do print -r -- $one; done; state=command; line=({words}); }}
[[ $_comps[skuwise] == _skuwise ]] && {function}
"""


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_loads_the_functions_and_offers_commands_and_options(script: Path, tmp_path: Path) -> None:
    top = shell("zsh", "-f", "-c", ZSH.format(script=script, words="", function="_skuwise"), cwd=tmp_path).splitlines()
    assert any(line.startswith("advise:report what") for line in top)
    own = shell("zsh", "-f", "-c", ZSH.format(script=script, words="", function="_skuwise_advise"), cwd=tmp_path)
    assert "json" in own and "--db[" in own and ":PATH:_files" in own


@pytest.mark.parametrize("name", SHELLS)
def test_every_command_is_in_every_script_and_help_texts_are_quoted(name: str, every: list[ParsedCommand]) -> None:
    text = completion(name, every)
    for one in every:
        assert one.words[-1] in text
    assert "$(" not in text.replace("< <(", "").replace("=($(compgen", "")


def test_the_command_prints_the_script_and_refuses_another_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out.startswith("# Completion of skuwise for bash.")
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "bas"])
    assert "Did you mean bash" in capsys.readouterr().err


def test_a_command_whose_extra_is_missing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_of_an_extra.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = {"rules": COMMANDS["rules"], "toy": Command("toy_of_an_extra", "a toy", "advisor")}
    assert {one.words[0] for one in every_parser(commands)} == {"rules"}
    with pytest.raises(ModuleNotFoundError):
        list(every_parser({"toy": Command("toy_of_an_extra", "a toy")}))


def test_no_formatter_complains_of_the_manual_page(every: list[ParsedCommand], tmp_path: Path) -> None:
    page = tmp_path / "skuwise.1"
    page.write_text(man_page(every, __version__, "Measure what GPUs do.", "2026-11-23"))
    assert page.read_text().isascii()
    if shutil.which("mandoc"):
        assert shell("mandoc", "-T", "lint", "-W", "warning", str(page)) == ""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    shown = " ".join(shell("groff", "-man", "-Tascii", "-P-cbou", "-ww", str(page)).replace("-\n", "-").split())
    for one in every:
        assert f"skuwise {' '.join(one.words)}" in shown
    assert "--gpu-hour-usd SKU=PRICE" in shown
