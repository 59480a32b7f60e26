"""`skuwise demo`: the full pipeline on simulated data; needs no GPU."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...agent.base.self_command import child_command
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_stdout, write_whole
from ...rules.base.own_command import own_command
from ..advise import load_rulebook, read_and_reason
from ..core.advice_types import Advice
from ..core.ids import short_id
from ..core.worth import selected
from ..demo import simulate
from ..notify.report import ReportJob, reported_week, write_previews
from ..notify.routes import Routes
from ..notify.settings import ReportSettings
from ..rulebook import Rulebook
from ..show.page_options import Again, PageOptions, Rows
from ..show.pages.advice import advice_page
from ..show.reader_commands import ReaderCommands
from ..show.writers.formats import render
from ..show.writers.text import document_text
from ..state.beside import StateBeside
from ..telemetry.source import Databases
from .output import terminal_width, wants_color

# A node's own GPUs are sampled this long; enough to see that it works, far too short for advice.
OWN_GPUS_SECONDS = 5
DAYS = 14  # two whole weeks of the report, so that one can be compared with the other
_MINUTES_SECONDS = 2 * 3600.0
_FOUNDING = "serving on a training cluster: the evidence, the calculation, and what would change it"
_ROWS = Rows(recommendations=5, findings=8, rules=6, workloads=5, notes=3)

EXAMPLES = ("skuwise demo --dir demo",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the demo's options."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="folder for the files (default: a new temporary folder)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the simulated fleet (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Simulate a fleet, sample this machine's own GPUs if it has any, advise, and print the next commands."""
    folder, now = _folder(options.dir), time.time()
    fleet = folder / "fleet.db"
    if fleet.exists():
        raise UsageError(f"{fleet} already exists.", "Remove it, or use another folder with --dir.")
    week = reported_week(None, now)
    say(f"1/4  Simulating {DAYS} days of a fleet of 13 nodes (about 30 s)")
    _simulate(fleet, options.seed, week.end)
    own = _sample_own_gpus(folder)
    say("3/4  Analyzing the fleet")
    book = load_rulebook(None, None, now)
    advice = read_and_reason([fleet], book, now=now)[1].advice
    again = Again(own_command(), f"--db {shlex.quote(str(fleet))}")
    write_whole(folder / "advice.html", render(advice, "html", page=PageOptions(whole=True, again=again)))
    say("4/4  Writing the weekly report")
    _write_mails(fleet, folder / "mail", book, now)
    write_stdout(f"\n{demo_text(advice, again, folder, own, width=terminal_width(), color=wants_color())}")
    return EXIT_DONE


def demo_text(
    advice: Advice, again: Again, folder: Path, own: Path | None = None, *, width: int = 100, color: bool = False
) -> str:
    """What the demo prints: the short page, its files, and commands to paste. `own`: the database of this machine."""
    commands = [("all recommendations, findings and workloads", again.command("advise", "--all"))]
    shown, silent = selected(advice).shown, {f.id for f in advice.findings if f.rule == "idle-fabric"}
    founding = next((r for r in shown if not silent.isdisjoint(r.findings)), None)
    if founding is not None:
        commands.append((_FOUNDING, again.command("explain", short_id(founding.id))))
    commands += [
        ("the screens, in a terminal", again.command("tui")),
        ("what can be measured on this machine", f"{again.program} agent doctor"),
    ]
    if own is not None:
        collect = f"{again.program} agent run --db {shlex.quote(str(own))}"
        commands.append(("collect here; waste is judged after 30 hours", collect))
    return "\n".join(
        [
            document_text(advice_page(advice, PageOptions(rows=_ROWS)), width=width, color=color),
            "Files",
            f"  {folder / 'advice.html'}  (the whole advice: open it in a browser)",
            f"  {folder / 'mail' / 'fleet.html'}  (the weekly mail)",
            f"  {folder / 'fleet.db'}  (the simulated telemetry)",
            "",
            "Next",
            *(line for what, command in commands for line in (f"  # {what}", f"  {command}")),
            "",
        ]
    )


def _folder(asked: Path | None) -> Path:
    try:
        if asked is None:
            return Path(tempfile.mkdtemp(prefix="skuwise-demo-"))
        asked.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder {asked}" if asked is not None else "a temporary folder"
        raise UsageError(f"Cannot create {what}: {error.strerror}.", "Use another folder with --dir.") from error
    return asked


def _simulate(fleet: Path, seed: int, until: float) -> None:
    """Write the fleet's database; where that fails, nothing of it is left, so that the next run can begin anew."""
    live = sys.stderr.isatty()

    def progress(text: str) -> None:
        if live:
            print(f"\r     {text:<40}", end="", file=sys.stderr, flush=True)  # noqa: T201 - progress, not data

    try:
        simulate(
            "small", fleet, days=DAYS, seed=seed, until=until, minutes_seconds=_MINUTES_SECONDS, progress=progress
        )  # fmt: skip
    except BaseException:
        for ending in ("", "-wal", "-shm"):
            fleet.with_name(f"{fleet.name}{ending}").unlink(missing_ok=True)
        raise
    finally:
        if live:
            print(f"\r{'':<46}\r", end="", file=sys.stderr, flush=True)  # noqa: T201


def _sample_own_gpus(folder: Path) -> Path | None:
    """Run the real agent here for some seconds where NVML answers."""
    from ...agent.base.clock import SystemClock
    from ...agent.sources.nvidia_driver import NvidiaDriver

    db = folder / "this-machine.db"
    driver = NvidiaDriver(1.0, 10.0)
    driver.open(SystemClock().now())
    found = driver.sources[0].probe().gpus if driver.fault is None else ()
    for source in driver.sources:
        source.close()
    if not found:
        say("2/4  No GPU found on this machine: nothing to sample here")
        return None
    say(f"2/4  Sampling the GPUs of this machine for {OWN_GPUS_SECONDS} s")
    command = child_command("skuwise", "agent", "run", "--db", str(db), "--duration", f"{OWN_GPUS_SECONDS}s")
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        say(f"     Sampling failed: {done.stderr.strip()}")
        return None
    return db


def _write_mails(fleet: Path, folder: Path, book: Rulebook, now: float) -> None:
    """The mail of the last week, as its administrators would receive it; nothing of this user's settings counts."""
    job = ReportJob(
        ReportSettings(), Routes(), Databases((fleet,)), book, StateBeside(_quiet),
        reported_week(None, now), now, None, _quiet,
        commands=ReaderCommands(own_command(anywhere=True), f"--db {shlex.quote(str(fleet.absolute()))}"),
    )  # fmt: skip
    for _ in write_previews(job, folder):
        pass


def _quiet(text: str) -> None:
    """Nothing: the demo narrates itself."""
