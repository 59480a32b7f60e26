"""``skuwise slurm``: what Slurm knows of its jobs."""

from ...rules.base.command import Command

COMMANDS = {
    "import": Command(
        "skuwise.agent.slurm_jobs.import_jobs",
        "names, users, partitions, states and exact times of Slurm's jobs, from sacct or slurmrestd",
    )
}
