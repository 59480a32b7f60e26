"""Completion scripts for bash, zsh and fish, from the commands' own parsers. Pure: values in, text out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .parsers import Option, ParsedCommand, options_of

GLOBAL = (("--help", "show the list of commands"), ("--version", "show the version"), ("--debug", "show tracebacks"))


@dataclass(frozen=True, slots=True)
class _Place:
    """What may follow the words of a command: its subcommands with their help, its options, its positionals."""

    words: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]


def completion(shell: str, commands: Iterable[ParsedCommand], prog: str = "skuwise") -> str:
    """The script that completes `prog` in a shell of `SHELLS`; it needs nothing but the shell."""
    return SHELLS[shell](_places(list(commands)), prog)


def _places(commands: Sequence[ParsedCommand]) -> list[_Place]:
    top = tuple((one.words[0], one.text) for one in commands if len(one.words) == 1)
    places = [_Place((), top, (), ())]
    for one in commands:
        inner = tuple((c.words[-1], c.text) for c in commands if c.words[:-1] == one.words)
        every = options_of(one.parser)
        named = tuple(o for o in every if o.names)
        places.append(_Place(one.words, inner, named, tuple(o for o in every if not o.names)))
    return places


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _function(prog: str) -> str:
    return "_" + re.sub(r"\W", "_", prog)


def _bash(places: Sequence[_Place], prog: str) -> str:
    name = _function(prog)
    words, values = [], []
    for place in places:
        path = " ".join(place.words)
        named = [n for o in place.options for n in o.names] if place.words else [n for n, _ in GLOBAL]
        offered = [*(n for n, _ in place.subcommands), *(c for o in place.positionals for c in o.choices)]
        wants = next((o.kind for o in place.positionals if o.kind in ("file", "folder")), "")
        words.append(f'    {_quote(path)}) options={_quote(" ".join(named))} words={_quote(" ".join(offered))} '
                     f"kind={wants} ;;")  # fmt: skip
        for option in place.options:
            if option.value is not None:
                pattern = "|".join(_quote(f"{path} {n}") for n in option.names)
                values.append(f"    {pattern}) words={_quote(' '.join(option.choices))} kind={option.kind} takes=1 ;;")
    groups = " ".join(" ".join(place.words) for place in places if place.words and place.subcommands)
    lines = [
        f"# Completion of {prog} for bash. Load it: source <({prog} completion bash)",
        f"{name}() {{",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="" index',
        '  local options="" words="" kind="" takes="" inner',
        "  COMPREPLY=()",
        "  for ((index = 1; index < COMP_CWORD; index++)); do",
        '    [[ "${COMP_WORDS[index]}" == -* ]] && continue',
        '    path="${COMP_WORDS[index]}"',
        f'    if [[ " {groups} " == *" $path "* ]]; then',
        "      for ((inner = index + 1; inner < COMP_CWORD; inner++)); do",
        '        [[ "${COMP_WORDS[inner]}" == -* ]] && continue',
        '        path="$path ${COMP_WORDS[inner]}"',
        "        break",
        "      done",
        "    fi",
        "    break",
        "  done",
        '  case "$path $before" in',
        *values,
        "  esac",
        '  if [[ -z "$takes" ]]; then',
        '    case "$path" in',
        *(f"  {line}" for line in words),
        "    esac",
        '    [[ "$word" == -* ]] && words="$options" kind=""',
        "  fi",
        '  if [[ -n "$words" ]]; then',
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '  elif [[ "$kind" == folder ]]; then',
        "    compopt -o filenames 2>/dev/null",
        '    mapfile -t COMPREPLY < <(compgen -d -- "$word")',
        '  elif [[ "$kind" == file ]]; then',
        "    compopt -o filenames 2>/dev/null",
        '    mapfile -t COMPREPLY < <(compgen -f -- "$word")',
        "  fi",
        "}",
        f"complete -F {name} {prog}",
    ]
    return "\n".join(lines) + "\n"


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _zsh_value(option: Option) -> str:
    kinds = {"file": "_files", "folder": "_files -/", "choice": f"({' '.join(option.choices)})"}
    return f":{_zsh_text(option.value or '')}:{kinds.get(option.kind, ' ')}"


def _zsh(places: Sequence[_Place], prog: str) -> str:
    name = _function(prog)
    lines = [
        f"#compdef {prog}",
        f"# Completion of {prog} for zsh. Load it: source <({prog} completion zsh)",
    ]
    for place in places:
        function = "_".join([name, *place.words]).replace("-", "_")
        specs: list[str] = [] if place.words else [f"{flag}[{_zsh_text(text)}]" for flag, text in GLOBAL]
        for option in place.options:
            ahead = "*" if option.repeats else f"({' '.join(option.names)})"
            value = "" if option.value is None else _zsh_value(option)
            specs += [f"{ahead}{n}[{_zsh_text(option.help)}]{value}" for n in option.names]
        lines += ["", f"{function}() {{"]
        if place.subcommands:
            shown = [f"    {_quote(f'{_zsh_text(n)}:{_zsh_text(text)}')}" for n, text in place.subcommands]
            cases = [f"        {n}) {function}_{n.replace('-', '_')} ;;" for n, _ in place.subcommands]
            lines += [
                "  local context state line", "  typeset -A opt_args", "  local -a commands=(", *shown, "  )",
                f"  _arguments -C {' '.join(map(_quote, specs))} '1: :->command' '*:: :->rest'",
                "  case $state in", f"    command) _describe -t commands '{prog} command' commands ;;", "    rest)",
                "      case $line[1] in", *cases, "      esac ;;", "  esac",
            ]  # fmt: skip
        else:
            stars = [("*" if o.repeats else str(n)) + _zsh_value(o) for n, o in enumerate(place.positionals, start=1)]
            lines.append(f"  _arguments {' '.join(map(_quote, [*specs, *stars]))}")
        lines.append("}")
    lines += [
        "",
        f'if [[ "$funcstack[1]" == {name} ]]; then',
        f'  {name} "$@"',
        "else",
        f"  compdef {name} {prog}",
        "fi",
    ]
    return "\n".join(lines) + "\n"


def _fish(places: Sequence[_Place], prog: str) -> str:
    name = "_" + _function(prog)
    lines = [
        f"# Completion of {prog} for fish. Load it: {prog} completion fish | source",
        f"function {name}_at --description 'whether these are the words of the command so far'",
        "  set -l words",
        "  for word in (commandline -opc)[2..-1]",
        "    string match -q -- '-*' $word; or set -a words $word",
        "  end",
        "  test (count $argv) -eq 0; and test (count $words) -eq 0; and return 0",
        "  test (count $argv) -eq 0; and return 1",
        "  set -l length (count $argv)",
        '  test (count $words) -ge $length; and test "$words[1..$length]" = "$argv"',
        "end",
        f"function {name}_group --description 'whether the command so far is this group alone'",
        "  set -l words",
        "  for word in (commandline -opc)[2..-1]",
        "    string match -q -- '-*' $word; or set -a words $word",
        "  end",
        '  test "$words" = "$argv"',
        "end",
        f"complete -c {prog} -f",
    ]
    for place in places:
        path = " ".join(place.words)
        where = f"-n '{name}_at {path}'" if path else f"-n {name}_at"
        for inner, text in place.subcommands:
            group = f"-n '{name}_group {path}'" if path else f"-n {name}_at"
            lines.append(f"complete -c {prog} {group} -a {inner} -d {_fish_quote(text)}")
        if not path:
            lines += [f"complete -c {prog} {where} -l {n[2:]} -d {_fish_quote(text)}" for n, text in GLOBAL]
        for option in place.options:
            flags = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            lines.append(f"complete -c {prog} {where} {flags}{_fish_value(option)} -d {_fish_quote(option.help)}")
        for option in place.positionals:
            if option.choices:
                lines.append(f"complete -c {prog} {where} -a {_fish_quote(' '.join(option.choices))}")
            elif option.kind in ("file", "folder"):
                lines.append(f"complete -c {prog} {where} -F")
    return "\n".join(lines) + "\n"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_value(option: Option) -> str:
    if option.value is None:
        return ""
    if option.choices:
        return f" -x -a {_fish_quote(' '.join(option.choices))}"
    return {"file": " -r -F", "folder": " -x -a '(__fish_complete_directories)'"}.get(option.kind, " -x")


SHELLS: Mapping[str, Callable[[Sequence[_Place], str], str]] = MappingProxyType(
    {"bash": _bash, "zsh": _zsh, "fish": _fish}
)
