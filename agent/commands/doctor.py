"""`skuwise agent doctor`: what each source can read here, and, with ``--impact``, what watching costs the work."""

from __future__ import annotations

import argparse
import os
import random

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_json, write_stdout
from ..base.clock import SystemClock
from ..config import AgentConfig
from ..inventory.slurm.slurm_conf import SlurmConfReader
from ..service.diagnostics import doctor, slurm_checks
from ..service.diagnostics.probe import probe_node
from ..store.file.filesystem_check import place_line
from ..store.reading.recent import recent_allocations
from .options import LOOK_SECONDS, add_trees, settings_of

# How long the built-in probe of --impact works at a time: a whole burst and the rest after it.
_PROBE_SECONDS = 10.0

EXAMPLES = (
    "skuwise agent doctor",
    "skuwise agent doctor --impact --rounds 5",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")
    group = parser.add_argument_group("cost of sampling")
    group.add_argument(
        "--impact", action="store_true", help="measure the slowdown of work: without an agent, at 1 Hz and in bursts"
    )
    group.add_argument(
        "--work", metavar="CMD", help="command that runs one unit of your work (default: a built-in probe without GPU)"
    )
    group.add_argument(
        "--work-prints", action="store_true", help="read the duration in seconds from the last line that CMD prints"
    )
    group.add_argument("--rounds", metavar="N", type=int, default=10, help="number of runs of each case (default: 10)")


def run(options: argparse.Namespace) -> int:
    config = settings_of(options)
    if options.impact:
        return _measure(options, config)
    if options.work is not None or options.work_prints:
        raise UsageError("--work requires --impact.", "Add --impact.")
    seen = probe_node(config, os.environ, SystemClock(), LOOK_SECONDS, with_costs=True)
    survey = seen.agent.survey
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
    lines = (
        *doctor.source_lines(survey, seen.sampled, config.procfs),
        *doctor.not_configured(config, survey),
        *doctor.without_known(slurm, seen.sampled),
        place_line(config.db, config.procfs),
    )
    if options.format == "json":
        write_json(doctor.doctor_rows(lines, seen.costs))
    else:
        write_stdout(f"{doctor.doctor_table(lines, seen.costs)}\n")
    return EXIT_DONE


def _measure(options: argparse.Namespace, config: AgentConfig) -> int:
    from ..impact.measure import ImpactRequest, measure_impact  # noqa: PLC0415 - it needs psutil
    from ..impact.report import impact_json, impact_table  # noqa: PLC0415

    flags = {"--config": options.config, "--path.sysfs": options.path_sysfs, "--path.procfs": options.path_procfs}
    arguments = tuple(word for name, value in flags.items() if value is not None for word in (name, str(value)))
    asked = ImpactRequest(options.work, options.work_prints, options.rounds, _PROBE_SECONDS)
    impact, notes = measure_impact(
        asked, config, arguments, os.environ, say=lambda text: say(f"skuwise: {text}"), rng=random.Random()
    )
    if options.format == "json":
        write_json(impact_json(impact))
    else:
        write_stdout(f"{impact_table(impact, notes)}\n")
    return EXIT_DONE
