"""``skuwise demo``: the full pipeline on simulated data; needs no GPU."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from click import option

from ...rules.base.click_commands import FOLDER, command
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import program, say, write_stdout, write_whole
from ...rules.base.progress import progress
from ..show.page_options import Again, PageOptions, Rows
from .options import SEED
from .output import terminal_width, wants_color

if TYPE_CHECKING:
    from ..core.advice_types import Advice
    from ..rulebook import Rulebook

# A node's own GPUs are sampled this long; enough to see that it works, far too short for advice.
OWN_GPUS_SECONDS = 5
DAYS = 14  # two whole weeks of the report, so that one can be compared with the other
_MINUTES_SECONDS = 2 * 3600.0
_FOUNDING = "serving on a training cluster: the evidence, the calculation, and what would change it"
_ROWS = Rows(recommendations=5, findings=8, rules=6, workloads=5, notes=3)


@command("skuwise demo --dir demo")
@option("--dir", "folder", type=FOLDER, help="folder for the files (default: a new temporary folder)")
@option("--seed", type=SEED, default=0, help="seed of the simulated fleet (default: 0)")
def demo(folder: Path | None, seed: int) -> int:
    """Run the full pipeline on simulated data; no GPU needed."""
    from ..advise import load_rulebook, read_and_reason
    from ..notify.report import reported_week
    from ..show.writers.formats import render

    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="skuwise-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder {folder}" if folder is not None else "a temporary folder"
        raise UsageError(f"Cannot create {what}: {error.strerror}.", "Use another folder with --dir.") from error
    fleet, now = folder / "fleet.db", time.time()
    if fleet.exists():
        raise UsageError(f"{fleet} already exists.", "Remove it, or use another folder with --dir.")
    _simulate(fleet, seed, reported_week(None, now).end)
    node_db = _sample_own_gpus(folder / "this-machine.db")
    say("3/4  Analyzing the fleet")
    book = load_rulebook(None, None, now)
    advice = read_and_reason([fleet], book, now=now)[1].advice
    again = Again(program(), f"--db {shlex.quote(str(fleet))}")
    write_whole(folder / "advice.html", render(advice, "html", page=PageOptions(whole=True, again=again)))
    say("4/4  Writing the weekly report")
    _write_mails(fleet, folder / "mail", book, now)
    write_stdout(f"\n{demo_text(advice, again, folder, node_db, width=terminal_width(), color=wants_color())}")
    return EXIT_DONE


def demo_text(
    advice: Advice, again: Again, folder: Path, node_db: Path | None = None, *, width: int = 100, color: bool = False
) -> str:
    """What the demo prints: the short page, its files, and commands to paste. `node_db`: samples of this machine."""
    from ..core.ids import short_id
    from ..core.worth import selected
    from ..show.pages.advice import advice_page
    from ..show.writers.text import document_text

    commands = [("all recommendations, findings and workloads", again.command("advise", "--all"))]
    silent = {finding.id for finding in advice.findings if finding.rule == "idle-fabric"}
    founding = next((r for r in selected(advice).shown if not silent.isdisjoint(r.findings)), None)
    if founding is not None:
        commands.append((_FOUNDING, again.command("explain", short_id(founding.id))))
    commands += [
        ("the screens, in a terminal", again.command("tui")),
        ("what can be measured on this machine", f"{again.program} agent doctor"),
    ]
    if node_db is not None:
        collect = f"{again.program} agent run --db {shlex.quote(str(node_db))}"
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


def _simulate(fleet: Path, seed: int, until: float) -> None:
    """Write the fleet's database; where that fails, nothing of it is left, so that the next run can write it."""
    from ..demo import simulate

    try:
        with progress(f"1/4  Simulating {DAYS} days of a fleet of 13 nodes", "nodes") as simulating:
            minutes, steps = _MINUTES_SECONDS, simulating.step
            simulate("small", fleet, days=DAYS, seed=seed, until=until, minutes_seconds=minutes, steps=steps)
    except BaseException:
        for ending in ("", "-wal", "-shm"):
            fleet.with_name(f"{fleet.name}{ending}").unlink(missing_ok=True)
        raise


def _sample_own_gpus(db: Path) -> Path | None:
    """Run the real agent here for some seconds where NVML answers. None: it wrote no database."""
    from ...agent.base.clock import SystemClock
    from ...agent.base.self_command import child_command
    from ...agent.sources.nvidia_driver import NvidiaDriver

    driver = NvidiaDriver(1.0, 10.0)
    driver.open(SystemClock().now())
    gpus = driver.sources[0].probe().gpus if driver.fault is None else ()
    for source in driver.sources:
        source.close()
    if not gpus:
        say("2/4  No GPU found on this machine: nothing to sample here")
        return None
    say(f"2/4  Sampling the GPUs of this machine for {OWN_GPUS_SECONDS} s")
    words = child_command("skuwise", "agent", "run", "--db", str(db), "--duration", f"{OWN_GPUS_SECONDS}s")
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode == 0:
        return db
    say(f"     Sampling failed: {done.stderr.strip()}")
    return None


def _write_mails(fleet: Path, folder: Path, book: Rulebook, now: float) -> None:
    """The mail of the last week, as its administrators would receive it, without this user's settings."""
    from ..notify.report import ReportJob, reported_week, write_previews
    from ..notify.routes import Routes
    from ..notify.settings import ReportSettings
    from ..show.reader_links import ReaderCommands
    from ..state.beside import StateBeside
    from ..telemetry.source import Databases

    def quiet(text: str) -> None:
        """Print nothing: the demo has its own notes."""

    source = f"--db {shlex.quote(str(fleet.absolute()))}"
    commands = ReaderCommands(program(anywhere=True), source)
    week, beside = reported_week(None, now), StateBeside(quiet)
    settings, routes = ReportSettings(), Routes()
    job = ReportJob(settings, routes, Databases((fleet,)), book, beside, week, now, None, quiet, commands=commands)
    for _ in write_previews(job, folder):
        pass
