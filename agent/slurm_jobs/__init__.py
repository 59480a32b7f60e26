"""``skuwise slurm``: Slurm's jobs, read from its accounting. Advice reads it too."""
