"""``skuwise slurm import``: names and times of jobs, read from Slurm's accounting. Advice reads them too."""
