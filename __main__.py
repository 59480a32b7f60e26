"""The one command. Subcommands are loaded lazily, so that the agent starts without what the advisor needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from . import __doc__ as about
from . import __version__
from .rules.base.command import Command
from .rules.base.errors import EXIT_FAILED, SkuwiseError, UsageError, explained
from .rules.base.output import OutputError, discard, own_streams

_CLI = "skuwise.advisor.cli"

# Every command, in the order of the help. A new one is its own file and one line here.
COMMANDS: Mapping[str, Command] = {
    "agent": Command(
        "skuwise.agent.cli", "sample the GPUs, links and host of this node into SQLite", runs_long=True, is_click=True
    ),
    "advise": Command(f"{_CLI}.advise", "report what each workload is, what is wasted and what to change", "advisor"),
    "plan": Command(f"{_CLI}.plan", "plan which nodes to return, when and in which order", "advisor"),
    "explain": Command(f"{_CLI}.explain", "show the evidence of one workload, finding or recommendation", "advisor"),
    "job": Command(f"{_CLI}.job", "show the card of one job, or list the jobs of a user, most idle first", "advisor"),
    "doctor": Command(
        f"{_CLI}.doctor", "report what telemetry a source has, and how to add what is missing", "advisor"
    ),
    "watch": Command(
        f"{_CLI}.watch",
        "report and notify held idle GPUs, hangs and dead telemetry as they happen",
        "advisor",
        runs_long=True,
    ),
    "idle": Command(f"{_CLI}.idle", "report whether a workload, node or GPU has been idle, for scripts", "advisor"),
    "slurm": Command("skuwise.agent.slurm_jobs", "import names, owners and times of Slurm jobs", runs_long=True),
    "tui": Command(
        "skuwise.tui.commands", "browse the fleet and its recommendations in the terminal", "tui", runs_long=True
    ),
    "skus": Command(f"{_CLI}.skus", "list, show and compare GPUs, nodes and prices"),
    "prices": Command(f"{_CLI}.prices", "create a price file from a billing export", "advisor"),
    "showback": Command(f"{_CLI}.showback", "split the cost of nodes by team, in FOCUS columns", "advisor"),
    "rules": Command("skuwise.rules.commands", "list or check the rules and thresholds"),
    "ledger": Command(f"{_CLI}.ledger", "list recommendations and record decisions on them", "advisor"),
    "patch": Command(
        f"{_CLI}.patch", "print what a human applies for an accepted recommendation, and its undo", "advisor"
    ),
    "incidents": Command(
        f"{_CLI}.incidents", "list, acknowledge and snooze the incidents of the watch", "advisor", is_click=True
    ),
    "report": Command(
        f"{_CLI}.report", "preview or send the weekly report, one mail per team", "advisor", runs_long=True
    ),
    "serve": Command(
        f"{_CLI}.serve", "run reports, snapshots and caching on a schedule, without systemd", "advisor", runs_long=True
    ),
    "simulate": Command(
        f"{_CLI}.simulate", "simulate a fleet, to try skuwise or to test it", "advisor", runs_long=True
    ),
    "demo": Command(
        f"{_CLI}.demo", "run the full pipeline on simulated data; no GPU needed", "advisor", runs_long=True
    ),
}


def _help(commands: Mapping[str, Command]) -> str:
    lines = [
        "usage: skuwise [--version] [--debug] COMMAND ...",
        "",
        (about or "").strip(),
        "",
        "commands:",
    ]
    lines += [f"  {name:<10} {one.text}" for name, one in commands.items()]
    return "\n".join([*lines, "", "Run 'skuwise COMMAND --help' for details."])


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Run one command of `commands` (a self-contained build has fewer).

    Returns its exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing to work on.
    """
    if argv is None:
        own_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    try:
        try:
            status = _run(arguments, commands)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OutputError):
            discard(sys.stdout.fileno())  # or the interpreter tries once more
        if debug:
            raise
        told = explained(error)
        text = (
            str(told)
            if told is not None
            else (f"unexpected {type(error).__name__}: {error}. Run again with --debug and report what it prints.")
        )
        print(f"skuwise: {_shown(text)}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED if told is None else told.exit_status
    return status


def _run(arguments: list[str], commands: Mapping[str, Command]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help(commands))  # noqa: T201
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"skuwise {__version__}")  # noqa: T201
        return 0
    return _dispatch(arguments[0], arguments[1:], commands)


def _shown(text: str) -> str:
    """What came from outside (file names, YAML, names in a database) without effect on the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _dispatch(name: str, arguments: list[str], commands: Mapping[str, Command]) -> int:
    if name not in commands:
        raise _unknown(name, commands)
    from .rules.base.command_registry import command_parser  # noqa: PLC0415 - what lists the commands needs no parser
    from .rules.base.heap import no_garbage_collection, use_one_arena  # noqa: PLC0415

    command = commands[name]
    try:
        if command.is_click:
            return _run_click(name, command, arguments)
        use_one_arena()
        with nullcontext() if command.runs_long else no_garbage_collection():
            options = command_parser(f"skuwise {name}", command).parse_args(arguments)
            options.typed = [name, *arguments]
            return int(options.run(options))
    except ModuleNotFoundError as error:
        # Commands import what is heavy only where they use it, so the gap may show as late as here.
        if error.name is None or error.name.partition(".")[0] == "skuwise":
            raise
        from .rules.base.own_command import install_command  # noqa: PLC0415 - only a gap asks for it

        raise SkuwiseError(
            f"'skuwise {name}' needs the Python package {error.name}, which is not installed.",
            f"Install it: {install_command(command.extra or 'all')}",
        ) from error


def _run_click(name: str, command: Command, arguments: list[str]) -> int:
    from importlib import import_module  # noqa: PLC0415

    from .rules.base.click_commands import run_click  # noqa: PLC0415

    return run_click(getattr(import_module(command.module), name), f"skuwise {name}", arguments)


def _unknown(name: str, commands: Mapping[str, Command]) -> UsageError:
    from .rules.base.sanitize import quoted, suggest  # noqa: PLC0415

    if name.startswith("-"):
        known, what = ("--help", "--version", "--debug"), "option"
    else:
        known, what = tuple(commands), "command"
    near = suggest(name, known, loosely=True)
    return UsageError(f"Unknown {what} {quoted(name)}.", near or "Run 'skuwise --help' for a list of commands.")


if __name__ == "__main__":
    sys.exit(main())
