"""`skuwise agent run | once | doctor | pause | resume | status | snapshot | install | uninstall`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..rules.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING, UsageError
from .base.clock import SystemClock
from .base.durations import parse_duration
from .config import AgentConfig, load_config

# How long `once` and `doctor` watch: counters need two readings, and GPM samples must lie 100 ms apart.
_LOOK_SECONDS = 0.5
# How long the built-in probe of `doctor --impact` works at a time: a whole burst and the rest after it.
_PROBE_SECONDS = 10.0
_NO_SETTINGS = frozenset({"run", "format", "pause_for", "impact", "work", "work_prints", "rounds"})
_SNAPSHOT = "a consistent copy of the database, live or stopped"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the agent's subcommands to `parser`."""
    subcommands = parser.add_subparsers(
        required=True, metavar="run|once|doctor|pause|resume|status|snapshot|install|uninstall"
    )
    run = _subcommand(subcommands, "run", "sample until stopped, into a database", _run)
    run.add_argument("--db", metavar="PATH", help="the database file (default: /var/lib/skuwise/skuwise.db)")
    run.add_argument("--interval", metavar="SPAN", help="time between samples, 0.1s to 60s (default: 1s)")
    run.add_argument("--socket", metavar="PATH", help="where pause, resume and status reach this agent")
    run.add_argument("--duration", metavar="SPAN", help="stop after this long (default: run until stopped)")
    run.add_argument(
        "--listen", metavar="HOST:PORT", help="serve metrics there; a bare PORT is on loopback (default: off)"
    )
    for name, text, function in (
        ("once", "one reading of every source", _once),
        ("doctor", "what each source can read here, and if not, why and the remedy", _doctor),
    ):
        subcommand = _subcommand(subcommands, name, text, function)
        subcommand.add_argument("--format", choices=("table", "json"), default="table")
        if name == "doctor":
            _add_impact(subcommand)
    for name, text, function in (
        ("install", "write systemd units and Slurm scripts for this installation", _install),
        ("uninstall", "stop the units and remove them", _uninstall),
    ):
        service = subcommands.add_parser(name, help=text, description=text)
        service.add_argument("--dry-run", action="store_true", help="print what would be done")
        service.add_argument("--root", metavar="DIR", type=Path, default=Path("/"), help="into this tree")
        service.set_defaults(run=function)
        if name == "install":
            service.add_argument(
                "--with-environ", action="store_true", help="also the helper that reads Slurm's environments (opt-in)"
            )
            service.add_argument(
                "--with-report", action="store_true", help="also the weekly report, on the host where advice is read"
            )
            service.add_argument(
                "--with-slurm", action="store_true", help="also the import of Slurm's job table, where sacct works"
            )
    for name, text, function in (
        ("pause", "let go of the GPUs for a while: for a reset, a MIG change or a profiler", _pause),
        ("resume", "take the GPUs up again", _resume),
        ("status", "what the running agent does", _status),
    ):
        control = subcommands.add_parser(name, help=text, description=text)
        control.add_argument("--config", metavar="FILE", help="settings from this file, in place of the usual ones")
        control.add_argument("--db", metavar="PATH", help="the database of the agent that is meant")
        control.add_argument("--socket", metavar="PATH", help="the agent's socket, where it is not the usual one")
        control.set_defaults(run=function)
        if name == "pause":
            control.add_argument(
                "--for", dest="pause_for", metavar="SPAN", default="10m", help="at most 1h (default: 10m)"
            )
        if name == "status":
            control.add_argument("--format", choices=("table", "json"), default="table")
    snapshot = subcommands.add_parser("snapshot", help=_SNAPSHOT, description=f"Take {_SNAPSHOT}.")
    snapshot.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="a file, or a folder for NODE.db (default: snapshot_folder)",
    )
    snapshot.add_argument("--rollups-only", action="store_true", help="leave the samples out: minutes and hours tell")
    snapshot.add_argument("--db", metavar="PATH", help="the database to copy")
    snapshot.add_argument("--config", metavar="FILE", help="settings from this file, in place of the usual ones")
    snapshot.set_defaults(run=_snapshot)


def _add_impact(doctor: argparse.ArgumentParser) -> None:
    group = doctor.add_argument_group("what watching costs")
    group.add_argument(
        "--impact", action="store_true", help="measure how much slower work gets: without an agent, at 1 Hz, in bursts"
    )
    group.add_argument("--work", metavar="CMD", help="a unit of your work, run many times (default: a probe, no GPU)")
    group.add_argument("--work-prints", action="store_true", help="CMD's last line is the seconds its unit took")
    group.add_argument("--rounds", metavar="N", type=int, default=10, help="how often each is run (default: 10)")


def _subcommand(
    subcommands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    function: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = subcommands.add_parser(name, help=text, description=text)
    parser.add_argument("--config", metavar="FILE", help="settings from this file, in place of the usual ones")
    parser.add_argument("--path.sysfs", dest="path_sysfs", metavar="DIR", help="read this tree in place of /sys")
    parser.add_argument("--path.procfs", dest="path_procfs", metavar="DIR", help="read this tree in place of /proc")
    parser.set_defaults(run=function)
    return parser


def _settings(options: argparse.Namespace) -> AgentConfig:
    flags = {name: value for name, value in vars(options).items() if name not in _NO_SETTINGS}
    return load_config(flags, os.environ)


def _run(options: argparse.Namespace) -> int:
    from .service.runtime.daemon import run_agent, say_on_stderr  # noqa: PLC0415 - `--help` and the others need no store

    config = _settings(options)
    outcome = run_agent(config, os.environ, say_on_stderr, lambda: _settings(options))
    say_on_stderr(f"stopped after {outcome.kept} ticks, kept in {Path(config.db)}")
    if outcome.restart is not None:
        return EXIT_FAILED  # so that a supervisor that restarts on failure starts it again
    return EXIT_NOTHING if config.duration_seconds is not None and not outcome.kept else EXIT_DONE


def _pause(options: argparse.Namespace) -> int:
    from .service.runtime.control import ask  # noqa: PLC0415

    path = _settings(options).control_socket
    answer = ask(path, {"command": "pause", "seconds": parse_duration(options.pause_for)})
    if answer.get("released"):
        _print(f"The GPUs are let go; the agent takes them up again in {options.pause_for}, or on resume.")
        return EXIT_DONE
    _print("The driver does not answer; the agent lets go of the GPUs as soon as it does.")
    return EXIT_FAILED


def _resume(options: argparse.Namespace) -> int:
    from .service.runtime.control import ask  # noqa: PLC0415

    ask(_settings(options).control_socket, {"command": "resume"})
    _print("The agent takes the GPUs up again.")
    return EXIT_DONE


def _status(options: argparse.Namespace) -> int:
    from ..rules.base.sanitize import clean  # noqa: PLC0415
    from .service.runtime.control import ask  # noqa: PLC0415

    answer = dict(ask(_settings(options).control_socket, {"command": "status"}))
    answer.pop("ok", None)
    if options.format == "json":
        _print(json.dumps(answer, indent=2))
    else:
        for name, value in answer.items():
            if value not in (None, ""):
                _print(f"{clean(name):<20}  {clean(str(value))}")
    return EXIT_DONE


def _once(options: argparse.Namespace) -> int:
    from .service.diagnostics import once  # noqa: PLC0415
    from .service.diagnostics.probe_once import look  # noqa: PLC0415

    looked = look(_settings(options), os.environ, SystemClock(), _LOOK_SECONDS)
    agent, sampled, uses = looked.agent, looked.sampled, looked.uses
    if options.format == "json":
        _print(json.dumps(once.as_json(agent.node, agent.survey, sampled, uses), indent=2, allow_nan=False))
    else:
        _print(once.as_table(agent.node, agent.survey, sampled))
    return EXIT_DONE


def _impact(options: argparse.Namespace, config: AgentConfig) -> int:
    import random  # noqa: PLC0415

    from .impact import report  # noqa: PLC0415
    from .impact.command import Asked, measure_impact  # noqa: PLC0415

    flags = {"--config": options.config, "--path.sysfs": options.path_sysfs, "--path.procfs": options.path_procfs}
    arguments = tuple(word for name, value in flags.items() if value is not None for word in (name, str(value)))
    asked = Asked(options.work, options.work_prints, options.rounds, _PROBE_SECONDS)
    impact, notes = measure_impact(asked, config, arguments, os.environ, say=_narrate, rng=random.Random())
    if options.format == "json":
        _print(json.dumps(report.as_json(impact), indent=2, allow_nan=False))
    else:
        _print(report.as_table(impact, notes))
    return EXIT_DONE


def _doctor(options: argparse.Namespace) -> int:
    from .inventory.slurm.slurm_conf import SlurmConfReader  # noqa: PLC0415
    from .service.diagnostics import doctor, slurm_checks  # noqa: PLC0415
    from .service.diagnostics.probe_once import look  # noqa: PLC0415
    from .store.file.filesystem_check import place_line  # noqa: PLC0415
    from .store.reading.recent import recent_allocations  # noqa: PLC0415

    config = _settings(options)
    if options.impact:
        return _impact(options, config)
    if options.work is not None or options.work_prints:
        raise UsageError("--work is for the measurement.", "Add --impact.")
    looked = look(config, os.environ, SystemClock(), _LOOK_SECONDS, with_costs=True)
    survey = looked.agent.survey
    recorded = recent_allocations(config.db)
    slurm = slurm_checks.slurm_lines(
        slurm_checks.read_config(slurm_checks.ask_scontrol, slurm_checks.config_folders(config.slurm_conf)),
        SlurmConfReader(config.slurm_conf),
        config.allocations,
        survey.gpus,
        recorded,
        procfs=config.procfs,
        cgroups=config.sysfs / "fs/cgroup",
    )
    found = (
        *doctor.examine(survey, looked.sampled, config.procfs),
        *doctor.not_asked(config, survey),
        *doctor.not_said(slurm, looked.sampled),
        place_line(config.db, config.procfs),
    )
    if options.format == "json":
        _print(json.dumps(doctor.as_rows(found, looked.costs), indent=2))
    else:
        _print(doctor.as_table(found, looked.costs))
    return EXIT_DONE


def _snapshot(options: argparse.Namespace) -> int:
    from .store.snapshot import take_snapshot  # noqa: PLC0415

    flags = {"db": options.db, "config": options.config}
    config = load_config(flags, os.environ)
    target = options.file or config.snapshot_folder
    if target is None:
        raise UsageError("No file is named.", "Name one, or set snapshot_folder in the settings.")
    written = take_snapshot(config.db, target, rollups_only=options.rollups_only)
    _narrate(f"wrote {written}, {written.stat().st_size / 1e6:.1f} MB")
    return EXIT_DONE


def _install(options: argparse.Namespace) -> int:
    from .service import install  # noqa: PLC0415

    installation = install.Installation.current()
    files = install.plan(
        installation, options.root, with_environ=options.with_environ, with_report=options.with_report,
        with_slurm=options.with_slurm,
    )  # fmt: skip
    if not options.dry_run:
        install.refuse_what_others_can_write(installation)
        install.refuse_scripts_that_others_can_write(options.root)
    install.install(files, options.root, _print, dry_run=options.dry_run)
    return EXIT_DONE


def _uninstall(options: argparse.Namespace) -> int:
    from .service import install  # noqa: PLC0415

    return EXIT_DONE if install.uninstall(options.root, _print, dry_run=options.dry_run) else EXIT_NOTHING


def _narrate(text: str) -> None:
    print(f"skuwise: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _print(text: str) -> None:
    print(text)  # noqa: T201
