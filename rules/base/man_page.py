"""The manual page (roff, section 1) from the commands' own parsers. Pure: values in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .parsers import Option, ParsedCommand, options_of

_STATUSES = (("0", "done"), ("1", "failed"), ("2", "wrong usage"), ("3", "nothing to work on"))


def man_page(commands: Iterable[ParsedCommand], version: str, about: str, date: str, prog: str = "skuwise") -> str:
    """The page that ``man`` shows. `about`: one sentence; `date`: of the page, as 2026-11-23."""
    every = list(commands)
    title = about.rstrip(".")
    lines = [
        f'.TH {prog.upper()} 1 "{date}" "{_text(prog)} {_text(version)}" "User Commands"',
        ".SH NAME",
        f"{prog} \\- {_text(title[:1].lower() + title[1:])}",
        ".SH SYNOPSIS",
        f".B {prog}",
        "[\\-\\-version] [\\-\\-debug] COMMAND ...",
        ".SH COMMANDS",
    ]
    for one in every:
        lines += _command(one, prog)
    lines += [".SH EXIT STATUS"]
    for status, meaning in _STATUSES:
        lines += [".TP", f".B {status}", meaning]
    return "\n".join(lines) + "\n"


def _command(one: ParsedCommand, prog: str) -> list[str]:
    options = options_of(one.parser)
    positionals = " ".join(o.value or "" for o in options if not o.names)
    lines = [
        f'.SS "{_text(" ".join((prog, *one.words, positionals)).strip())}"',
        _line(one.text[:1].upper() + one.text[1:] + "."),
    ]
    for option in options:
        if option.names == ("-h", "--help"):
            continue
        lines += [".TP", _head(option), _line(option.help or "no description")]
    shown = examples_of(one)
    if shown:
        lines += [".PP", "Examples:" if len(shown) > 1 else "Example:", ".PP", ".nf", ".RS"]
        lines += [_line(example) for example in shown]
        lines += [".RE", ".fi"]
    return lines


def examples_of(one: ParsedCommand) -> list[str]:
    """The commands at the end of a command's help."""
    epilog = one.parser.epilog or ""
    return [line.strip() for line in epilog.splitlines() if line.startswith("  skuwise ")]


def _head(option: Option) -> str:
    names = ", ".join(f"\\fB{_text(n)}\\fR" for n in option.names)
    value = f"\\fI{_text(option.value)}\\fR" if option.value is not None else ""
    return " ".join(part for part in (names, value) if part)


def _line(text: str) -> str:
    """A line of text; one that begins with a control character of roff's is none."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq")
    return re.sub(r"[^\x20-\x7e]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
