"""The command line: what is mistyped is named in one sentence, with what was probably meant."""

from __future__ import annotations

import pytest
from skuwise.__main__ import COMMANDS, main
from skuwise.tests.support.command_parsers import every_parser

EVERY = {" ".join(one.words): one for one in every_parser(COMMANDS)}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a wrong command line prints on stderr: one line, with exit status 2 and nothing on stdout."""
    try:
        status = main(arguments, COMMANDS)
    except SystemExit as ended:
        status = ended.code
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert shown.err.count("\n") == 1 and shown.err.startswith("skuwise: ")
    return shown.err.removeprefix("skuwise: ").rstrip("\n")


# What is typed, what is said of it, and the command whose usage would help (None: none is named).
@pytest.mark.parametrize(
    ("line", "said", "of"),
    [
        ("advize", "Unknown command 'advize'. Did you mean advise?", None),
        ("zzz", "Unknown command 'zzz'. Run 'skuwise --help' for a list of commands.", None),
        ("--halp", "Unknown option '--halp'. Did you mean --help?", None),
        ("agent onec", "Unknown command 'skuwise agent onec'. Did you mean once?", "agent"),
        ("advise --formt json", "Unknown option '--formt'. Did you mean --format?", "advise"),
        ("advise --db x --formt=json", "Unknown option '--formt'. Did you mean --format?", "advise"),
        ("agent once --zzz", "Unknown option '--zzz'.", "agent once"),
        ("advise --db x --format tabel", "Invalid value 'tabel' for --format. Did you mean table?", "advise"),
        ("rules list --format zzz", "Invalid value 'zzz' for --format. Use yaml or json.", "rules list"),
        ("simulate foundin --db x", "Invalid value 'foundin' for SCENARIO. Did you mean founding?", "simulate"),
        ("simulate founding --db x --days abc", "Invalid value 'abc' for --days: expected a number.", "simulate"),
        ("advise --db", "--db needs a value: PATH.", "advise"),
        ("man", "Unknown command 'man'. Did you mean plan?", None),
        ("skus list extra", "Unexpected argument 'extra'.", "skus list"),
    ],
)
def test_what_is_mistyped_is_one_sentence_and_a_remedy(
    line: str, said: str, of: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(line.split(), capsys) == said + (f" Run 'skuwise {of} --help' for usage." if of else "")


def test_what_a_terminal_would_act_on_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in refused(["advise", "--\x1b[31mred"], capsys)
    assert "\x1b" not in refused(["\x1b[31m"], capsys)


@pytest.mark.parametrize("words", EVERY)
def test_every_option_of_every_command_has_a_help_text(words: str) -> None:
    missing = [one.names or one.value for one in EVERY[words].options if one.names and not one.help]
    assert missing == []


@pytest.mark.parametrize("words", EVERY)
def test_every_command_shows_an_example_of_its_own(words: str) -> None:
    shown = EVERY[words].help
    if "COMMAND ..." in shown:
        assert f"Run 'skuwise {words} COMMAND --help' for details." in shown
    else:
        assert f"\n  skuwise {words}" in shown
