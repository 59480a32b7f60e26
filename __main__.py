"""The one command. A command's module is imported when it is asked for, so that the agent starts without the advisor's
libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import NamedTuple

import click

from . import __doc__ as about
from . import __version__
from .rules.base.click_commands import Group, run_click
from .rules.base.errors import EXIT_FAILED, EXIT_USAGE, SkuwiseError, UsageError, explained
from .rules.base.heap import no_garbage_collection
from .rules.base.output import install_command, own_streams
from .rules.base.sanitize import quoted, suggest

_CLI = "skuwise.advisor.cli"


class Entry(NamedTuple):
    """One command: the module that has its click command by the command's name, its line of help, and the extra of the
    installation that it needs. What does not run long leaves its garbage to its end."""

    module: str
    text: str
    extra: str = ""
    runs_long: bool = False


# Every command, in the order of the help.
COMMANDS: Mapping[str, Entry] = {
    "agent": Entry("skuwise.agent.cli", "Sample the GPUs, links and host of this node into SQLite.", "", True),
    "advise": Entry(f"{_CLI}.advise", "Report what each workload is, what is wasted and what to change.", "advisor"),
    "plan": Entry(f"{_CLI}.plan", "Plan which nodes to return, when and in which order.", "advisor"),
    "explain": Entry(f"{_CLI}.explain", "Show the evidence of one workload, finding or recommendation.", "advisor"),
    "job": Entry(f"{_CLI}.job", "Show the card of one job, or list the jobs of a user, most idle first.", "advisor"),
    "doctor": Entry(f"{_CLI}.doctor", "Report what telemetry a source has, and how to add what is missing.", "advisor"),
    "watch": Entry(f"{_CLI}.watch", "Report held idle GPUs, hangs and dead telemetry as they happen.", "advisor", True),
    "idle": Entry(f"{_CLI}.idle", "Report whether a workload, node or GPU has been idle, for scripts.", "advisor"),
    "mcp": Entry(f"{_CLI}.mcp", "Serve the advice to assistants, as read-only tools (MCP).", "mcp", True),
    "slurm": Entry("skuwise.agent.cli", "Import names, owners and times of Slurm jobs.", "", True),
    "tui": Entry("skuwise.tui.commands", "Browse the fleet and its recommendations in the terminal.", "tui", True),
    "skus": Entry(f"{_CLI}.skus", "List, show and compare GPUs, nodes and prices."),
    "prices": Entry(f"{_CLI}.prices", "Create a price file from a billing export or from current offers.", "gpuhunt"),
    "showback": Entry(f"{_CLI}.showback", "Split the cost of nodes by team, in FOCUS columns.", "advisor"),
    "rules": Entry("skuwise.rules.commands", "List or check the rules and thresholds."),
    "ledger": Entry(f"{_CLI}.ledger", "List recommendations and record decisions on them.", "advisor"),
    "patch": Entry(f"{_CLI}.patch", "Print the change that an accepted recommendation needs, and its undo.", "advisor"),
    "incidents": Entry(f"{_CLI}.incidents", "List, acknowledge and snooze the incidents of the watch.", "advisor"),
    "report": Entry(f"{_CLI}.report", "Preview or send the weekly report, one mail per team.", "advisor", True),
    "serve": Entry(f"{_CLI}.serve", "Run reports and watch on a schedule, serve metrics and an API.", "advisor", True),
    "simulate": Entry(f"{_CLI}.demo", "Simulate a fleet, to try skuwise or to test it.", "advisor", True),
    "demo": Entry(f"{_CLI}.demo", "Run the full pipeline on simulated data; no GPU needed.", "advisor", True),
}


class Root(Group):
    """The commands of a build. A command is imported when it is asked for, and the help needs none."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        super().__init__(
            "skuwise",
            help=about,
            epilog="Run 'skuwise COMMAND --help' for details.",
            params=[click.Option(["--debug"], is_flag=True, help="print a traceback with an error")],
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
        )
        click.version_option(__version__, prog_name="skuwise", message="%(prog)s %(version)s")(self)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click's
        """The names of the entries."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click's
        """The imported command; None: there is none of this name."""
        if cmd_name not in self.entries:
            return None
        return getattr(import_module(self.entries[cmd_name].module), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click's
        """Write the lines of the entries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.text) for name, entry in self.entries.items()])


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Entry] = COMMANDS) -> int:
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
            return _run(arguments, commands)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        sentence = explained(error)
        text = f"unexpected {type(error).__name__}: {error}. Run again with --debug and report what it prints."
        print(f"skuwise: {_escaped(text if sentence is None else str(sentence))}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED if sentence is None else sentence.exit_status


def _escaped(text: str) -> str:
    """Text from outside (file names, YAML, names in a database) without effect on the terminal; lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _run(arguments: list[str], commands: Mapping[str, Entry]) -> int:
    name = arguments[0] if arguments else ""
    entry = commands.get(name)
    if entry is None and name not in ("", "help") and name not in ("-h", "--help", "--version"):
        options = ("--help", "--version", "--debug")
        what, names = ("option", options) if name.startswith("-") else ("command", tuple(commands))
        near = suggest(name, names, loosely=True) or "Run 'skuwise --help' for a list of commands."
        raise UsageError(f"Unknown {what} {quoted(name)}.", near)
    words = ["--help"] if name in ("", "help") else arguments
    try:
        with nullcontext() if entry is None or entry.runs_long else no_garbage_collection():
            status = run_click(Root(commands), "skuwise", words, typed=arguments)
    except ModuleNotFoundError as error:
        # Commands import what is heavy only where they use it, so the gap may show as late as here.
        if error.name is None or error.name.partition(".")[0] == "skuwise":
            raise
        raise SkuwiseError(
            f"'skuwise {name}' needs the Python package {error.name}, which is not installed.",
            f"Install it: {install_command((entry.extra if entry else '') or 'all', name)}",
        ) from error
    return status if name else EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
