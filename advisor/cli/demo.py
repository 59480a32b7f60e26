"""`skuwise demo`: the whole way on one machine, no GPU needed."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_stdout, write_whole
from ..advise import load_rulebook, read_and_advise
from ..moves.waste.idle_fabric import RULE as FOUNDING
from ..render import render
from ..render.text import document_text, sections_text
from ..simulate.simulator import simulate
from ..views.document.advice_document import case_sections, overview_document
from .output import terminal_width, wants_color

# A node's own GPUs are sampled this long; enough to see that it works, far too short for advice.
OWN_GPUS_SECONDS = 5
_HOUR = 3600

EXAMPLES = ("skuwise demo --dir demo",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the demo's options."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="folder for the files (default: a new temporary folder)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random numbers (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Simulate a fleet, sample this machine's own GPUs if it has any, advise, and say what to try next."""
    folder = _folder(options.dir)
    fleet, report = folder / "fleet.db", folder / "report.md"
    now = time.time()
    say(f"1/3  simulating 14 days of a small fleet (no real machine is watched) into {fleet}")
    simulate(
        "small",
        fleet,
        days=14,
        seed=options.seed,
        until=now // _HOUR * _HOUR,
        progress=lambda text: say(f"     {text}"),
    )
    own = _sample_own_gpus(folder)
    say("3/3  reading it and weighing every way out")
    _, advice = read_and_advise([fleet], load_rulebook(None, None, now), now=now)
    width, color = terminal_width(), wants_color()
    write_whole(report, render(advice, "markdown"))
    write_stdout(document_text(overview_document(advice), width=width, color=color))
    write_stdout(sections_text(case_sections(advice, FOUNDING.id), width=width, color=color))
    write_stdout(_next(fleet, report, own))
    return EXIT_DONE


def _folder(asked: Path | None) -> Path:
    if asked is None:
        return Path(tempfile.mkdtemp(prefix="skuwise-demo-"))
    try:
        asked.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Cannot make the folder {asked}: {error.strerror}.", "Name another with --dir.") from error
    return asked


def _sample_own_gpus(folder: Path) -> Path | None:
    """Run the real agent here for some seconds where NVML answers; say plainly what was done."""
    db = folder / "this-machine.db"
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(db), "--duration", f"{OWN_GPUS_SECONDS}s"]
    if not _has_gpus():
        say("2/3  this machine has no GPU that NVML can read, so none is sampled (skuwise agent doctor says why)")
        return None
    say(
        f"2/3  sampling this machine's own GPUs for {OWN_GPUS_SECONDS} s into {db}; kept apart from the simulated fleet"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        say(f"     it could not be done: {done.stderr.strip()}")
        return None
    return db


def _has_gpus() -> bool:
    from ...agent.base.clock import SystemClock  # noqa: PLC0415 - only the demo looks, and only here
    from ...agent.config import AgentConfig  # noqa: PLC0415
    from ...agent.sources.gpu_backends import gpus_here  # noqa: PLC0415

    return bool(gpus_here(AgentConfig(), SystemClock().now()))


def _next(fleet: Path, report: Path, own: Path | None) -> str:
    lines = [
        "",
        f"The full report: {report}",
        "Try next:",
        f"  skuwise advise --db {fleet}",
        f"  skuwise advise --db {fleet} --format json",
        "  skuwise simulate founding --db founding.db && skuwise advise --db founding.db",
        "  skuwise skus show azure/Standard_ND96isr_H100_v5",
        "  skuwise rules list",
        "  skuwise agent doctor",
    ]
    if own is not None:
        lines.append(f"  skuwise agent run --db {own}          (30 hours of it allow a first verdict of waste)")
    return "\n".join([*lines, ""])
