"""``skuwise slurm``: Slurm's jobs, read from its accounting. Advice reads it too."""

from ...rules.base.command import Command

COMMANDS = {
    "import": Command(
        "skuwise.agent.slurm_jobs.import_jobs",
        "import names, users, partitions, states and times of Slurm jobs from sacct or slurmrestd",
    )
}
