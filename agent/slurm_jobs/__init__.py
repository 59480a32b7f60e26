"""``skuwise slurm``: what Slurm knows of its jobs, read from its accounting. Advice reads it too."""
