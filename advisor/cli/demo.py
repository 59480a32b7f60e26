"""``skuwise demo`` and ``skuwise simulate``: simulated fleets, and the full pipeline on one; needs no GPU."""

import shlex
import tempfile
import time
from collections import Counter
from pathlib import Path

from click import argument, option

from ...rules.base.click_commands import FOLDER, PATH, Choice, command
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import Progress, program, say, write_stdout, write_whole
from ..core.advice_types import Advice
from ..core.timestamps import rfc3339
from ..show.page_options import PageOptions, Rows
from ..show.reader_links import ReaderCommands
from .options import DURATION, MOMENT, SEED, OutputOptions, number, terminal_width

DAYS = 14  # two whole weeks of the report, so that one can be compared with the other
_FOUNDING = "serving on a training cluster: the evidence, the calculation, and what would change it"
_ROWS = Rows(recommendations=5, findings=8, rules=6, workloads=5, notes=3)


@command("skuwise demo --dir demo")
@option("--dir", "folder", type=FOLDER, help="folder for the files (default: a new temporary folder)")
@option("--seed", type=SEED, default=0, help="seed of the simulated fleet (default: 0)")
def demo(folder: Path | None, seed: int) -> int:
    """Run the full pipeline on simulated data; no GPU needed."""
    from ..advise import load_rulebook, read_and_reason
    from ..demo import simulate
    from ..notify.report import ReportJob, reported_week, write_previews
    from ..notify.routes import ReportSettings, Routes
    from ..show.writers.formats import render
    from ..state.fleets import StateBeside
    from ..telemetry.source import Databases

    try:
        folder = folder or Path(tempfile.mkdtemp(prefix="skuwise-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"Cannot create a folder {folder or ''}: {error.strerror}."
        raise UsageError(what, "Use another folder with --dir.") from error
    fleet, now = folder / "fleet.db", time.time()
    week = reported_week(None, now)
    if fleet.exists():
        raise UsageError(f"{fleet} already exists.", "Remove it, or use another folder with --dir.")
    with Progress(f"1/3  Simulating {DAYS} days of a fleet of 13 nodes", "nodes") as simulating:
        steps, minutes = simulating.step, 2 * 3600.0
        simulate("small", fleet, days=DAYS, seed=seed, until=week.end, minutes_seconds=minutes, steps=steps)
    say("2/3  Analyzing the fleet")
    book = load_rulebook(None, None, now)
    advice = read_and_reason([fleet], book, now=now)[1].advice
    again = ReaderCommands(program(), f"--db {shlex.quote(str(fleet))}")
    write_whole(folder / "advice.html", render(advice, "html", page=PageOptions(whole=True, again=again)))
    say("3/3  Writing the weekly report")
    # As its administrators would receive it, without this user's settings and without the report's own notes.
    commands = ReaderCommands(program(anywhere=True), f"--db {shlex.quote(str(fleet.absolute()))}")
    settings, routes, source, quiet = ReportSettings(), Routes(), Databases((fleet,)), lambda _: None
    job = ReportJob(settings, routes, source, book, StateBeside(quiet), week, now, None, quiet, commands=commands)
    list(write_previews(job, folder / "mail"))
    color = OutputOptions("table").color
    write_stdout(f"\n{demo_text(advice, again, folder, width=terminal_width(), color=color)}")
    return EXIT_DONE


def demo_text(advice: Advice, again: ReaderCommands, folder: Path, *, width: int = 100, color: bool = False) -> str:
    """What the demo prints: the short page, its files, and commands to paste."""
    from ..core.ids import short_id
    from ..core.worth import selected
    from ..show.pages.advice import advice_page
    from ..show.writers.text import document_text

    commands = [("all recommendations, findings and workloads", again.advice("advise", "--all"))]
    silent = {finding.id for finding in advice.findings if finding.rule == "idle-fabric"}
    founding = next((r for r in selected(advice).shown if not silent.isdisjoint(r.findings)), None)
    if founding is not None:
        commands.append((_FOUNDING, again.advice("explain", short_id(founding.id))))
    commands += [
        ("the screens, in a terminal", again.advice("tui")),
        ("what can be measured on this machine", f"{again.program} agent doctor"),
    ]
    page = document_text(advice_page(advice, PageOptions(rows=_ROWS)), width=width, color=color)
    files = (
        (folder / "advice.html", "the whole advice: open it in a browser"),
        (folder / "mail" / "fleet.html", "the weekly mail"),
        (folder / "fleet.db", "the simulated telemetry"),
    )
    lines = [page, "Files", *(f"  {path}  ({what})" for path, what in files), "", "Next"]
    return "\n".join([*lines, *(f"  # {what}\n  {command}" for what, command in commands), ""])


@command("skuwise simulate founding --db founding.db", "skuwise simulate small --db small.db --days 7 --seed 3")
@argument("scenario", type=Choice(("founding", "small", "fleet")), metavar="SCENARIO")
@option("--db", type=PATH, required=True, help="FILE.db for one database, else a folder with one database per node")
@option("--days", type=number("N", "0.05 to 400 days", 0.05, 400), default=14.0, help="length in days (default: 14)")
@option("--seed", type=SEED, default=0, help="seed of the random numbers (default: 0)")
@option("--until", type=MOMENT, help="end of the window, RFC 3339 in UTC (default: the last full hour)")
@option("--minutes", type=DURATION, default="6h", help="age of the oldest minute (default: 6h)")
def simulate(scenario: str, db: Path, days: float, seed: int, until: float | None, minutes: float) -> int:
    """Simulate a fleet, to try skuwise or to test it.

    SCENARIO: fleet to simulate (see below).

    \b
    founding  online serving on 8xH100 InfiniBand nodes whose fabric is silent
    small     the most common kinds together on 13 nodes: shown by skuwise demo
    fleet     60 nodes of 16 types: training, fine-tuning, serving and idle GPUs
    """
    from ..demo import simulate as simulate_fleet

    end = time.time() if until is None else until
    with Progress(f"simulating {scenario}", "nodes") as simulating:
        report = simulate_fleet(
            scenario, db, days=days, seed=seed, until=end, minutes_seconds=minutes, steps=simulating.step
        )
    kinds = Counter(truth.kind for truth in report.truths)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    nodes = report.fleet.nodes
    write_stdout(
        f"{scenario}, seed {seed}: {len(nodes)} nodes, {sum(len(n.sim.gpus) for n in nodes)} GPUs, "
        f"{rfc3339(report.start)} to {rfc3339(report.end)}\n"
        f"workloads: {counts} (the truth about each is in the table truth)\n"
        f"next: {program()} advise --db {shlex.quote(str(db))}\n"
    )
    return EXIT_DONE
