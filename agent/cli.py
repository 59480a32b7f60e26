"""``skuwise agent`` and ``skuwise slurm``: the commands of the node agent. A command imports what is heavy."""

import os
from pathlib import Path
from typing import Any

import click

from ..rules.base.click_commands import FILE, PATH, Group, Parsed, examples, exclusive, format_option, joined
from ..rules.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING, UsageError
from ..rules.base.output import say, write_json, write_stdout
from ..rules.base.sanitize import clean
from .base.clock import SystemClock
from .base.settings import parse_duration
from .config import AgentConfig, load_config
from .service import install as files
from .service.control import ask

# How long `once` and `doctor` watch: counters need two readings, and GPM samples must lie 100 ms apart.
LOOK_SECONDS = 0.5


def _settings(**flags: object) -> AgentConfig:
    return load_config(flags, os.environ)


_config = click.option(
    "--config", type=FILE, help="settings file (default: /etc/skuwise/skuwise.toml and the one in ~/.config/skuwise)"
)
_sysfs = click.option("--path.sysfs", "path_sysfs", metavar="DIR", help="root of sysfs (default: /sys)")
_procfs = click.option("--path.procfs", "path_procfs", metavar="DIR", help="root of procfs (default: /proc)")
_agents_db = click.option("--db", metavar="PATH", help="database of the agent (default: from the settings)")
_agents_socket = click.option(
    "--socket", metavar="PATH", help="control socket of the agent (default: from the settings)"
)
_dry_run = click.option("--dry-run", is_flag=True, help="print the changes without making them")
_root = click.option(
    "--root", metavar="DIR", type=Path, default=Path("/"), help="root of the file system to write to (default: /)"
)


def _show(form: str, document: object, text: str) -> int:
    if form == "json":
        write_json(document)
    else:
        write_stdout(f"{text}\n")
    return EXIT_DONE


@click.group("agent", cls=Group)
def agent() -> None:
    """Sample the GPUs, links and host of this node into SQLite."""


@agent.command(epilog=examples("skuwise agent run --db node.db --interval 1s --duration 30s"))
@joined(_config, _sysfs, _procfs)
@click.option("--db", metavar="PATH", help="database file (default: /var/lib/skuwise/skuwise.db)")
@click.option("--interval", metavar="SPAN", help="time between samples, 0.1s to 60s (default: 1s)")
@click.option(
    "--socket", metavar="PATH", help="control socket for pause, resume and status (default: beside the database)"
)
@click.option("--duration", metavar="SPAN", help="stop after this time, as in 30s or 2h (default: run until stopped)")
@click.option(
    "--listen", metavar="HOST:PORT", help="serve Prometheus metrics; a PORT alone listens on loopback (default: off)"
)
def run(**flags: object) -> int:
    """Sample into a database until stopped."""
    from .service.daemon import run_agent, say_on_stderr  # noqa: PLC0415

    config = _settings(**flags)
    kept, restarts = run_agent(config, os.environ, lambda: _settings(**flags))
    say_on_stderr(f"stopped after {kept} ticks, kept in {config.db}")
    if restarts:
        return EXIT_FAILED  # so that a supervisor that restarts on failure starts it again
    return EXIT_NOTHING if config.duration_seconds is not None and not kept else EXIT_DONE


@agent.command(epilog=examples("skuwise agent once", "skuwise agent once --format json"))
@joined(_config, _sysfs, _procfs, format_option("table", "json"))
def once(form: str, **flags: object) -> int:
    """Read every source once."""
    from .service.doctor import probe_node, reading_json, reading_table  # noqa: PLC0415

    seen, sampled, uses = probe_node(_settings(**flags), os.environ, SystemClock(), LOOK_SECONDS)
    document = reading_json(seen.node, seen.survey, sampled, uses)
    return _show(form, document, reading_table(seen.node, seen.survey, sampled))


@agent.command(epilog=examples("skuwise agent doctor"))
@joined(_config, _sysfs, _procfs, format_option("table", "json"))
def doctor(form: str, **flags: object) -> int:
    """Report what each source can read here, and the remedy where it cannot."""
    from .service.doctor import examine  # noqa: PLC0415

    return _show(form, *examine(_settings(**flags), os.environ, SystemClock(), LOOK_SECONDS))


@agent.command(epilog=examples("skuwise agent install --dry-run"))
@joined(_dry_run, _root)
@click.option("--with-environ", is_flag=True, help="also the helper that reads Slurm's environments (opt-in)")
@click.option("--with-report", is_flag=True, help="also the weekly report, on the host where advice is read")
@click.option("--with-watch", is_flag=True, help="also the watch for incidents, on the host where advice is read")
@click.option("--with-slurm", is_flag=True, help="also the import of Slurm's job table, where sacct works")
def install(dry_run: bool, root: Path, **wanted: bool) -> int:
    """Write systemd units and Slurm scripts for this installation."""
    options = [name.removeprefix("with_") for name, given in wanted.items() if given]
    files.install_here(root, options, lambda text: write_stdout(f"{text}\n"), dry_run=dry_run)
    return EXIT_DONE


@agent.command(epilog=examples("skuwise agent uninstall --dry-run"))
@joined(_dry_run, _root)
def uninstall(dry_run: bool, root: Path) -> int:
    """Stop and remove the systemd units."""
    removed = files.uninstall(root, lambda text: write_stdout(f"{text}\n"), dry_run=dry_run)
    return EXIT_DONE if removed else EXIT_NOTHING


@agent.command(epilog=examples("skuwise agent pause --for 10m"))
@joined(_config, _agents_db, _agents_socket)
@click.option(
    "--for", "pause_for", metavar="SPAN", default="10m", help="length of the pause, 1h at most (default: 10m)"
)
def pause(pause_for: str, **flags: object) -> int:
    """Release the GPUs for a while, for a reset, a MIG change or a profiler."""
    path = _settings(**flags).control_socket
    if ask(path, {"command": "pause", "seconds": parse_duration(pause_for)}).get("released"):
        write_stdout(f"GPUs released. The agent samples them again in {pause_for}, or after 'skuwise agent resume'.\n")
        return EXIT_DONE
    write_stdout("The driver does not answer. The agent releases the GPUs as soon as it does.\n")
    return EXIT_FAILED


@agent.command(epilog=examples("skuwise agent resume"))
@joined(_config, _agents_db, _agents_socket)
def resume(**flags: object) -> int:
    """Sample the GPUs again after a pause."""
    ask(_settings(**flags).control_socket, {"command": "resume"})
    write_stdout("The agent samples the GPUs again.\n")
    return EXIT_DONE


@agent.command(epilog=examples("skuwise agent status --format json"))
@joined(_config, _agents_db, _agents_socket, format_option("table", "json"))
def status(form: str, **flags: object) -> int:
    """Show the state of the running agent."""
    answer = dict(ask(_settings(**flags).control_socket, {"command": "status"}))
    answer.pop("ok", None)
    lines = [clean(f"{name:<20}  {value}") for name, value in answer.items() if value not in (None, "")]
    return _show(form, answer, "\n".join(lines))


@agent.command(epilog=examples("skuwise agent snapshot copy.db --db node.db"))
@click.argument("file", required=False, type=Path)
@click.option("--rollups-only", is_flag=True, help="copy minutes and hours only, without samples")
@click.option("--db", metavar="PATH", help="database to copy (default: the one of the agent)")
@_config
def snapshot(file: Path | None, rollups_only: bool, **flags: object) -> int:
    """Copy the database consistently, running or stopped.

    FILE: target file, or folder for NODE.db (default: snapshot_folder of the settings).
    """
    from .store.snapshot import take_snapshot  # noqa: PLC0415

    config = _settings(**flags)
    target = file or config.snapshot_folder
    if target is None:
        raise UsageError("No target file is given.", "Add FILE, or set snapshot_folder in skuwise.toml.")
    written = take_snapshot(config.db, target, rollups_only=rollups_only)
    say(f"skuwise: wrote {written}, {written.stat().st_size / 1e6:.1f} MB")
    return EXIT_DONE


@click.group("slurm", cls=Group)
def slurm() -> None:
    """Import names, owners and times of Slurm jobs."""


@slurm.command("import", epilog=examples("skuwise slurm import --since 7d --output jobs.txt"))
@click.argument("file", required=False)
@click.option(
    "--since",
    type=Parsed(parse_duration, "DURATION"),
    help="age of the oldest job to query, as in 7d (default: since the last import; 7d the first time)",
)
@click.option("--db", type=PATH, help="database of the node (default: the one of the agent)")
@click.option("--output", type=FILE, help="add new runs to this job table instead, for --jobs of other commands")
@click.option("--time-zone", metavar="NAME", help="time zone of FILE, as in Europe/Berlin (default: of this machine)")
@click.option("--cluster", metavar="NAME", help="cluster name in Slurm, if the agent uses another")
def import_(db: Path | None, output: Path | None, **options: Any) -> int:  # noqa: ANN401 - as the import's
    """Import names, users, partitions, states and times of Slurm jobs from sacct or slurmrestd.

    FILE: output of sacct --parsable2 or --json, '-' for stdin (default: run sacct or query slurm.slurmrestd).
    """
    from .slurm_jobs.import_jobs import import_jobs  # noqa: PLC0415

    exclusive(db=db, output=output)
    return import_jobs(db=db, output=output, **options)
