"""Slurm's job table: read from sacct's output, asked of sacct or slurmrestd, kept in a database or a file."""
