"""`skuwise agent doctor`: what each source can read here."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_json, write_stdout
from ..base.clock import SystemClock
from ..jobs.slurm_conf import SlurmConfReader
from ..service import doctor, slurm_checks
from ..service.probe import probe_node
from ..store.disk_errors import place_line
from .options import LOOK_SECONDS, add_trees, settings_of

EXAMPLES = ("skuwise agent doctor",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    config = settings_of(options)
    seen = probe_node(config, os.environ, SystemClock(), LOOK_SECONDS, with_costs=True)
    survey = seen.agent.survey
    slurm = slurm_checks.slurm_lines(
        slurm_checks.read_config(slurm_checks.ask_scontrol, slurm_checks.config_folders(config.slurm_conf)),
        SlurmConfReader(config.slurm_conf),
        config.allocations,
        survey.gpus,
        slurm_checks.recent_allocations(config.db),
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
